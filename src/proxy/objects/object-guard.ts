// The check of object references in a request for a model: a response may reveal a referenced file, container or item, so it must be
// the holder's. The location of the objects restricts the route's targets.
import type { Principal } from '../../auth/key/principal.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { GatewayError } from '../../errors.ts';
import type { Endpoint } from '../contracts/endpoint.ts';
import { type Route, targetName } from '../routes/route-table.ts';
import type { ObjectOwners } from './object-owners.ts';
import { ReferenceFinder } from './object-references.ts';
import type { StoredResponses } from './stored-responses.ts';

const CONVERSATION = /^conv_/;

interface GuardOptions {
  readonly objects: ObjectOwners;
  readonly stored: Pick<StoredResponses, 'find' | 'historyOf'>;
}

/** A request whose body is valid JSON. */
interface GuardedRequest {
  readonly endpoint: Pick<Endpoint, 'namesObjects' | 'session'>;
  readonly config: Pick<DynamicConfig, 'passthrough'>;
  readonly principal: Pick<Principal, 'holderId'>;
  readonly route: Route;
  readonly body: Buffer;
}

/**
 * Needs one pass over the body where the endpoint accepts object references, or the route includes the `passthrough` upstream; a
 * lookup where the body has references; and nothing otherwise.
 * @returns the route to the targets that have the objects; rejects with GatewayError object_not_found, response_not_found or
 *   store_unavailable
 */
export function guardObjects(options: GuardOptions, request: GuardedRequest): Route | Promise<Route> {
  const { endpoint, config, route, body } = request;
  const passthroughUpstream = config.passthrough?.upstream;
  const isGuarded =
    endpoint.namesObjects === true ||
    route.targets.some(({ upstream }) => upstream.name === passthroughUpstream);
  if (!isGuarded) return route;
  const finder = new ReferenceFinder({ takesStored: true, allTexts: false });
  const found = finder.addBody(body);
  return found instanceof Promise
    ? found.then(() => checkReferences(options, request, finder))
    : checkReferences(options, request, finder);
}

function checkReferences(
  options: GuardOptions,
  request: GuardedRequest,
  finder: ReferenceFinder,
): Route | Promise<Route> {
  return finder.size === 0 ? request.route : lookUp(options, request, finder);
}

async function lookUp(
  { objects, stored }: GuardOptions,
  { endpoint: { session }, principal: { holderId }, route }: GuardedRequest,
  finder: ReferenceFinder,
): Promise<Route> {
  let { targets } = route;
  let maker = {};
  for (const id of finder.responses) {
    const { upstream: name, upstreamModel: model } = session?.find(id) ?? (await stored.find(id, holderId));
    maker = { maker: targetName({ upstream: { name }, model }) };
    targets = targets.filter(({ upstream }) => upstream.name === name);
  }
  if (targets.length === 0) {
    const message = 'The previous response is at an upstream to which this model has no route.';
    throw new GatewayError('response_not_found', message, { param: 'previous_response_id' });
  }
  const upstreams = [...new Set(targets.map(({ upstream }) => upstream))];
  const upstreamsWithAll = await objects.upstreamsWith(
    finder,
    holderId,
    upstreams.map(({ name, config }) => ({ name, shared: config.shared_objects ?? [] })),
  );
  const names = new Set(upstreamsWithAll.map(({ name }) => name));
  const conversations = [...finder.certain].filter((id) => CONVERSATION.test(id));
  const history = { tokens: stored.historyOf([...finder.responses, ...conversations]), conversations };
  return { ...route, ...maker, history, targets: targets.filter(({ upstream }) => names.has(upstream.name)) };
}
