// Calls about a stored response: retrieve (also as a stream), cancel, delete, list input items. They go to the upstream that has it,
// and only for its holder. pipeline.ts creates responses.
import { identify } from '../auth/identify.ts';
import type { Principal } from '../auth/key/principal.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { RESPONSE_PATH } from '../http/router.ts';
import type { Scopes } from '../limits/scope.ts';
import type { StoredResponse } from '../store/response-record.ts';
import { maskKeys } from '../telemetry/log/key-mask.ts';
import { NO_USAGE } from '../wire/token-usage.ts';
import { Attempts } from './attempts/attempts.ts';
import { withoutCharged } from './background-usage.ts';
import type { AttemptResult, AttemptUse, RelayRequest } from './contracts/receiver.ts';
import { STORED, type StoredAction, storedEndpoint } from './endpoints/json-endpoints.ts';
import { ReferenceFinder } from './objects/object-references.ts';
import { itemRecorder } from './objects/stored-responses.ts';
import { answerFailure, type PipelineOptions } from './pipeline.ts';
import { NO_SCAN } from './request/request-members.ts';
import { jsonString } from './request/request-scan.ts';
import { RequestSlot } from './reservation/request-slot.ts';
import { visible } from './reservation/usage-meter.ts';
import { setLimitHeaders, UsageReservation } from './reservation/usage-reservation.ts';
import { type ConfigSnapshot, whileHeld } from './routes/config-snapshot.ts';
import type { Route, RouteTable } from './routes/route-table.ts';

export const STORED_ROUTES = Object.keys(STORED)
  .filter(isStoredAction)
  .map((action) => {
    const { method, suffix } = STORED[action];
    return { method, path: `${RESPONSE_PATH}:id${suffix}`, action };
  });

const NO_BYTES = Buffer.alloc(0);
const EVERYWHERE = { name: '', shared: [] };
/** These calls cost a request, but no tokens. */
const NO_ESTIMATE = { prompt: 0, completion: 0, isBounded: true };

export class StoredResponseCalls {
  readonly #options: PipelineOptions;

  constructor(options: PipelineOptions) {
    this.#options = options;
  }

  async answer(exchange: Exchange, action: StoredAction): Promise<void> {
    await whileHeld(this.#options.snapshot(), (held) => this.#answer(exchange, action, held));
  }

  async #answer(exchange: Exchange, action: StoredAction, { config, routes }: ConfigSnapshot): Promise<void> {
    const { authenticator, stored, metering } = this.#options;
    const principal = await identify(authenticator, exchange);
    let scopes = await metering.scopes.of(principal, config);
    const slot = new RequestSlot(metering, { exchange, principal, scopes, tiers: config.tiers });
    let reservation: UsageReservation | undefined;
    try {
      routes.checkEndpoint(principal, 'responses');
      const [id = '', query = ''] = partsOf(exchange.target);
      const response = await stored.find(id, principal.holderId);
      await this.#checkQuery(query, principal.holderId);
      exchange.model = maskKeys(response.model);
      const route = routeOf(response, routes);
      exchange.entry = route.entry;
      exchange.endpoint = 'responses';
      exchange.throwIfStopped();
      scopes = await metering.scopes.of(principal, config, route.entry);
      const request = { exchange, principal, route, scopes, slot, estimate: NO_ESTIMATE };
      reservation = await UsageReservation.open(metering, request);
      await exchange.checkClient();
      const call = { config, response, route, query, reservation };
      if (action === 'delete') await this.#settleBefore(call, principal, scopes);
      await this.#relay(exchange, action, call);
    } catch (error) {
      // Rejections before the limiter was asked show the limits too.
      if (!slot.isAsked) await setLimitHeaders(metering.limiter, exchange, scopes);
      throw error;
    } finally {
      reservation?.settle();
    }
  }

  /** After the deletion of a background response nobody can tell its usage. */
  async #settleBefore({ response, route }: Call, principal: Principal, scopes: Scopes): Promise<void> {
    const { id, model, charged } = response;
    const [target] = route.targets;
    if (charged === null || target === undefined) return;
    const { entry } = route;
    await this.#options.background.settleNow({ id, principal, scopes, model, entry, target, charged });
  }

  /** The query concerns this response, but a server may interpret an id in it as another object. */
  async #checkQuery(query: string, holderId: string): Promise<void> {
    const finder = new ReferenceFinder({ takesStored: true });
    finder.addQuery(query);
    if (finder.size === 0) return;
    const possible = new Set([...finder.certain, ...finder.possible]);
    await this.#options.objects.upstreamsWith({ certain: new Set(), possible }, holderId, [EVERYWHERE]);
  }

  async #relay(
    exchange: Exchange,
    action: StoredAction,
    { config, response, route, query, reservation }: Call,
  ): Promise<void> {
    const { metrics, resilience, stored, buffers, objects, usageReads } = this.#options;
    const record = itemRecorder(objects, response.holderId);
    const uses: AttemptUse[] = [];
    const stream = action === 'retrieve' && new URLSearchParams(query).get('stream') === 'true';
    exchange.isStream = stream;
    const request: RelayRequest = {
      exchange,
      endpoint: storedEndpoint(action, response.id, query),
      facts: { stream, estimate: NO_ESTIMATE, outputs: 0 },
      alias: route.responseModel === 'alias' ? jsonString(response.model) : undefined,
      includeUsage: false,
      config,
      metrics,
      buffers,
      usageReads,
      meter: { add: (use) => uses.push(use) },
      register: (created, { upstream }) => record(created, upstream.name),
    };
    const scan = { ...NO_SCAN, model: response.upstreamModel };
    const attempts = new Attempts({ request, route, resilience }, { body: NO_BYTES, scan });
    let result: AttemptResult | { readonly kind: 'superseded' } | undefined;
    try {
      result = await attempts.run();
    } finally {
      await this.#count(uses, response, reservation);
    }
    if (result.kind === 'failed') answerFailure(exchange, result.failure);
    else if (action === 'delete') await stored.remove(response.id);
  }

  /** Usage was counted when the response was created; for background responses it is first reported here. */
  async #count(
    uses: readonly AttemptUse[],
    { id, charged }: StoredResponse,
    { meter }: UsageReservation,
  ): Promise<void> {
    const { stored, background } = this.#options;
    for (const use of uses) {
      const { usage } = use;
      const isOpen = charged !== null;
      if (usage === null && isOpen) background.saw(id, visible(use));
      const isNew = usage !== null && isOpen && (await stored.settle(id));
      if (isNew) background.settled(id);
      const counted = isNew ? withoutCharged(usage, charged) : NO_USAGE;
      meter.add({ ...use, usage: counted, outputs: 0, unreported: undefined, quantities: undefined });
    }
  }
}

/** The single target that has the response, even if the model's route has changed. */
function routeOf({ model, upstream: name, upstreamModel }: StoredResponse, routes: RouteTable): Route {
  const upstream = routes.upstream(name);
  if (upstream === undefined) {
    const message = 'The upstream that has this response is no longer configured.';
    throw new GatewayError('response_not_found', message);
  }
  const route = routes.find(model);
  const ofUpstream = route?.targets.filter((target) => target.upstream === upstream) ?? [];
  const known = ofUpstream.find((target) => target.model === upstreamModel) ?? ofUpstream[0];
  const { entry = 'unknown', timeouts, price } = known ?? {};
  return {
    model,
    entry: route?.entry ?? 'unknown',
    tiers: [],
    endpoints: ['responses'],
    responseModel: route?.responseModel ?? 'alias',
    balance: 'weighted',
    hedge: undefined,
    targets: [
      {
        upstream,
        model: upstreamModel,
        weight: 1,
        priority: 1,
        entry,
        ...(timeouts === undefined ? {} : { timeouts }),
        ...(price === undefined ? {} : { price }),
      },
    ],
  };
}

interface Call {
  readonly config: DynamicConfig;
  readonly response: StoredResponse;
  readonly route: Route;
  /** The client's query string without `?`. */
  readonly query: string;
  readonly reservation: UsageReservation;
}

/** The id in the path, and the query. */
function partsOf(target: string): readonly string[] {
  const [path = '', ...query] = target.slice(RESPONSE_PATH.length).split('?');
  const [id = ''] = path.split('/', 1);
  return [id, query.join('?')];
}

function isStoredAction(name: string): name is StoredAction {
  return Object.hasOwn(STORED, name);
}
