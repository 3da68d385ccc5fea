// The error that a request with a key would get, by the checks that requests get, in their order, and whose state or limit it is.
import { EXPIRY_WARNING_MS } from '../../auth/identify.ts';
import { rejectionOfKey } from '../../auth/key/principal.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { type EndpointName, offered } from '../../config/schema/endpoint-names.ts';
import { GatewayError } from '../../errors.ts';
import type { ScopeKind, Scopes } from '../../limits/scope.ts';
import type { ExampleRequest } from '../../proxy/request/example-request.ts';
import { rejectionError } from '../../proxy/reservation/limit-headers.ts';
import { type FoundOwner, type LimitLine, rejectionBy } from '../../proxy/reservation/limit-report.ts';
import { refuseUnpriced } from '../../proxy/reservation/unpriced-model.ts';
import { reservedAmounts } from '../../proxy/reservation/usage-reservation.ts';
import { allowsModel } from '../../proxy/routes/access.ts';
import type { Route, RouteTable } from '../../proxy/routes/route-table.ts';
import type { KeySummary } from '../../store/key-record.ts';
import type { Team } from '../../store/organisation-record.ts';

/** What a request is checked by. */
interface KeyRequest {
  readonly config: Pick<DynamicConfig, 'budgets' | 'tiers'>;
  readonly owner: FoundOwner;
  readonly team: Team | undefined;
  readonly scopes: Scopes;
  /** What is used of the limits. */
  readonly lines: readonly LimitLine[];
  readonly routes: RouteTable;
  readonly route: Route;
  readonly model: string;
  readonly endpoint: EndpointName;
  readonly example: ExampleRequest | undefined;
}

/** The error, and whose it is. */
export interface KeyRejection {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly whose: ScopeKind | 'tier';
  /** What the client is not told; null where there is nothing. */
  readonly detail: string | null;
}

/** The smallest request, where none is given. */
const SMALLEST = { estimate: { prompt: 1, completion: 0, isBounded: true } };

/** @returns undefined where the key does not keep a request from being served */
export function keyRejection(request: KeyRequest): KeyRejection | undefined {
  const { owner, config, team, scopes, lines, routes, route, model, endpoint, example } = request;
  const ofKey = keyAlone(owner);
  if (ofKey !== undefined) return ofKey;
  const refused = thrownBy(() => {
    routes.checkEndpoint(owner, endpoint);
    routes.resolve(model, owner, endpoint);
  });
  if (refused !== undefined) return shown(refused, restricting(request));
  const unpriced = thrownBy(() => refuseUnpriced(config.budgets, scopes, route));
  if (unpriced !== undefined) return shown(unpriced, 'model');
  const amounts = reservedAmounts({ route, scopes, ...(example?.facts ?? SMALLEST) });
  const rejected = rejectionBy(scopes, lines, amounts);
  if (rejected === undefined) return undefined;
  const { kind } = rejected.scope;
  return shown(
    rejectionError(rejected, amounts.tokens),
    kind,
    kind === 'team' && team ? `the team ${team.name}` : null,
  );
}

/**
 * The error that a request gets before its body is read, whatever model it names.
 * @param endpoint undefined for any
 */
export function rejectionBeforeBody(
  { owner, config, routes }: Pick<KeyRequest, 'owner' | 'config' | 'routes'>,
  endpoint: EndpointName | undefined,
): KeyRejection | undefined {
  const ofKey = keyAlone(owner);
  if (ofKey !== undefined || endpoint === undefined) return ofKey;
  const refused = thrownBy(() => routes.checkEndpoint(owner, endpoint));
  if (refused === undefined) return undefined;
  const lacks = (list: readonly EndpointName[] | undefined) => list?.includes(endpoint) === false;
  const { tier, holderTerms } = owner;
  if (lacks(config.tiers[tier]?.endpoints)) return shown(refused, 'tier');
  return shown(refused, lacks(holderTerms.endpoints) ? 'holder' : 'key');
}

/** The error of a key or its holder for any request. */
function keyAlone({ key, standing }: FoundOwner): KeyRejection | undefined {
  if (key !== undefined && key.state !== 'active')
    return shown(new GatewayError('invalid_api_key'), 'key', endedText(key));
  const expiresAtMs = key?.expiresAt ? Date.parse(key.expiresAt) : undefined;
  const unserved = rejectionOfKey({ standing, expiresAtMs });
  return unserved && shown(unserved, unserved.code === 'api_key_expired' ? 'key' : 'holder');
}

/** Whether the body of a request is not read before this. */
export function isBeforeBody({ code }: KeyRejection): boolean {
  return !['model_unpriced', 'rate_limit_exceeded', 'insufficient_quota'].includes(code);
}

/** What else is to be known of a key. */
export function keyNotes(key: KeySummary | undefined): readonly string[] {
  if (key?.state !== 'active') return [];
  const { replacedBy, expiresAt } = key;
  const leftMs = expiresAt === null ? Number.POSITIVE_INFINITY : Date.parse(expiresAt) - Date.now();
  const rotated =
    replacedBy === null ? [] : [`was rotated to ${replacedBy}, and is valid until ${expiresAt}`];
  if (leftMs <= 0 || leftMs >= EXPIRY_WARNING_MS || rotated.length > 0) return rotated;
  return [`expires soon, at ${expiresAt}`];
}

/** For people: `a request gets a 429 insufficient_quota, because of the team: The monthly budget of the team is spent. (the team Search)` */
export function rejectionText({ status, code, message, whose, detail }: KeyRejection): string {
  return `a request gets a ${status} ${code}, because of the ${whose}: ${message}${detail === null ? '' : ` (${detail})`}`;
}

function shown(
  error: GatewayError,
  whose: KeyRejection['whose'],
  detail: string | null = null,
): KeyRejection {
  const { status, code, message } = error;
  return { status, code, message, whose, detail };
}

function endedText({ state, endedAt, replacedBy }: KeySummary): string {
  if (state === 'revoked') return `revoked at ${endedAt}`;
  return `rotated at ${endedAt}${replacedBy === null ? '' : `; its successor is ${replacedBy}`}`;
}

function thrownBy(check: () => void): GatewayError | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
}

/** Who restricts the models or the endpoints so that this one is not among them. */
function restricting({ owner, config, route, model, endpoint }: KeyRequest): KeyRejection['whose'] {
  const { tier, holderTerms, terms } = owner;
  const has = (...lists: readonly (readonly EndpointName[] | undefined)[]) =>
    lists.reduce(offered, [endpoint]).length > 0;
  if (!route.tiers.includes(tier) || !has(config.tiers[tier]?.endpoints)) return 'tier';
  if (!route.endpoints.includes(endpoint)) return 'model';
  if (!allowsModel(model, { tier, holderTerms }) || !has(holderTerms.endpoints)) return 'holder';
  return allowsModel(model, { tier, terms }) && has(terms.endpoints) ? 'model' : 'key';
}
