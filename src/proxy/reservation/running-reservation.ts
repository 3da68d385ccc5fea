// The reservation of work without an estimate: one request and one slot while it runs, and tokens as they are reported: many times in
// a realtime session, never in a passthrough call. usage-reservation.ts reserves and settles requests for a model.
import type { Principal } from '../../auth/key/principal.ts';
import { LIMITS } from '../../config/limit-table.ts';
import type { Prices } from '../../config/prices.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { EndpointName } from '../../config/schema/endpoint-names.ts';
import type { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import type { Lease, Limiter, ScopeStates } from '../../limits/limiter.ts';
import type { Scopes } from '../../limits/scope.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { costOf, type PricedUse } from '../../usage/records/token-price.ts';
import type { UsageOutbox } from '../../usage/usage-outbox.ts';
import { NO_USAGE, ONE_REQUEST } from '../../wire/token-usage.ts';
import type { Route } from '../routes/route-table.ts';
import { rejectionError } from './limit-headers.ts';
import type { SessionUse } from './realtime-usage.ts';
import { type BudgetEvents, isCounted, MIN_AMOUNTS, RequestSlot } from './request-slot.ts';
import type { ScopeResolver } from './scopes-of.ts';

/** The longest window first: its rejection is the one that a new session would get. */
const AMOUNT_LIMITS = LIMITS.filter(({ counts }) => counts === 'tokens' || counts === 'cost').reverse();

export interface RunningReservationOptions {
  readonly limiter: Limiter;
  readonly outbox: Pick<UsageOutbox, 'record'>;
  readonly scopes: Pick<ScopeResolver, 'of'>;
  readonly budgets: BudgetEvents;
  readonly metrics: Pick<Metrics, 'limitsRefused'>;
}

interface RunningRequest {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly route: Pick<Route, 'entry'> & Partial<Pick<Route, 'targets'>>;
  readonly scopes: Scopes;
  /** Of all tiers: usage counts even without limits now, because the holder may change to a limited tier. */
  readonly tiers: DynamicConfig['tiers'];
}

/** What was used by work that is over. */
interface EarlierUse extends PricedUse {
  readonly isEstimated: boolean;
  readonly endpoint: EndpointName;
  /** Its public name. */
  readonly model: string;
  readonly entry: string;
  readonly upstream: string;
  readonly target: string;
  readonly scopes: Scopes;
  readonly price: Prices | undefined;
  /** Of the price, from 0 to 1. */
  readonly share: number;
}

/** Counts what was used by a holder, team, tier and key. @param tiers as of `RunningRequest` */
export function countEarlier(
  { limiter, outbox, budgets }: RunningReservationOptions,
  { holderId, prefix, tier, teamId }: Pick<Principal, 'holderId' | 'prefix' | 'tier' | 'teamId'>,
  tiers: DynamicConfig['tiers'],
  { scopes, price, share, tokens, quantities, isCounted: isReported, ...of }: EarlierUse,
): void {
  const at = Date.now();
  const whole = costOf(price, { tokens, quantities, isCounted: isReported }, at);
  const costNanos = whole === undefined ? undefined : Math.round(whole * share);
  if (isCounted(scopes, tiers)) {
    limiter.use(scopes, { tokens: tokens.prompt + tokens.completion, cost: costNanos ?? 0 });
    budgets.settled(scopes, [], costNanos ?? 0);
  }
  const ended = { attempts: 0, outcome: 'ok', durationMs: 0, ttftMs: undefined };
  const about = { at, holderId, prefix, tier, teamId, ...ended, ...of };
  outbox.record({ ...about, usage: tokens, costNanos, isPart: true });
}

export class RunningReservation {
  readonly #options: RunningReservationOptions;
  readonly #request: RunningRequest;
  readonly #lease: Lease | undefined;
  /** When it was admitted. */
  readonly #states: ScopeStates;
  #cost = 0;
  #upstream = '';
  #target = '';
  #price: Prices | undefined;
  #attempts = 0;
  #isOpen = false;
  #outcome: string | undefined;
  #prompt = 0;
  #completion = 0;
  #isEstimated = false;
  #isSettled = false;

  private constructor(
    options: RunningReservationOptions,
    request: RunningRequest,
    lease?: Lease,
    states: ScopeStates = [],
  ) {
    this.#options = options;
    this.#request = request;
    this.#lease = lease;
    this.#states = states;
  }

  /**
   * Takes a request and a slot, or nothing. Sets the limit headers of the response.
   * @throws GatewayError `rate_limit_exceeded` or `insufficient_quota`
   */
  static async open(
    options: RunningReservationOptions,
    request: RunningRequest,
  ): Promise<RunningReservation> {
    const { scopes, tiers } = request;
    if (!isCounted(scopes, tiers)) return new RunningReservation(options, request);
    const slot = new RequestSlot(options, request);
    // Of a session more is known than of a body that is not read yet: with a price, it needs a budget that is not spent.
    const isPriced = request.route.targets?.some(({ price }) => price !== undefined) === true;
    const lease = await slot.admit(isPriced ? { ...MIN_AMOUNTS, cost: 1 } : MIN_AMOUNTS);
    return new RunningReservation(options, request, lease, slot.states);
  }

  /**
   * The session is requested from this upstream: from now on it counts as a request, however it ends.
   * @param target its name of the model
   * @param price of the target; undefined without one
   * @returns the number of upstreams asked so far
   */
  asked(upstream: string, target: string, price?: Prices): number {
    this.#upstream = upstream;
    this.#target = target;
    this.#price = price;
    this.#attempts += 1;
    return this.#attempts;
  }

  /** The last asked upstream opened the session. */
  opened(): void {
    this.#isOpen = true;
  }

  /** The session ended. @param outcome `ok`, or a code of the error table */
  ended(outcome: string): void {
    this.#outcome = outcome;
  }

  /**
   * Why a request for these targets would not be admitted now: no tokens, or no money, are left.
   * @returns undefined while both are left
   */
  static async rejectionOf(
    options: RunningReservationOptions,
    request: RunningRequest,
    price: Prices | undefined,
  ): Promise<GatewayError | undefined> {
    const reservation = new RunningReservation(options, request);
    reservation.#price = price;
    return await reservation.spent();
  }

  /** Counts the tokens of one answer. */
  use({ tokens, isEstimated, measured }: SessionUse): void {
    const { limiter, outbox, budgets } = this.#options;
    const { exchange, scopes } = this.#request;
    const about = this.#about();
    const isCounted = measured === undefined;
    const costNanos = costOf(this.#price, { tokens, quantities: measured, isCounted }, about.at);
    this.#prompt += tokens.prompt;
    this.#completion += tokens.completion;
    exchange.access.prompt_tokens = this.#prompt;
    exchange.access.completion_tokens = this.#completion;
    this.#isEstimated ||= isEstimated;
    if (this.#lease !== undefined) {
      limiter.use(scopes, { tokens: tokens.prompt + tokens.completion, cost: costNanos ?? 0 });
      this.#cost += costNanos ?? 0;
      budgets.settled(scopes, this.#states, this.#cost);
    }
    outbox.record({ ...about, usage: tokens, costNanos, isPart: true });
  }

  /**
   * Checks whether tokens are left in all scopes, and money where the session has a price.
   * @returns the rejection that a new session would receive; undefined while both are left
   */
  async spent(): Promise<GatewayError | undefined> {
    const { limiter, metrics, budgets } = this.#options;
    const { principal, scopes } = this.#request;
    const { maxTokens, maxCost, list } = scopes;
    if (maxTokens === Number.POSITIVE_INFINITY && maxCost === Number.POSITIVE_INFINITY) return undefined;
    const states = await limiter.peek(scopes);
    for (const { name: limit, counts } of AMOUNT_LIMITS) {
      if (counts === 'cost' && this.#price === undefined) continue;
      for (const [index, scope] of list.entries()) {
        const ofScope = states[index];
        const state = ofScope?.of(limit);
        if (ofScope === undefined || state === undefined || state.remaining > 0) continue;
        metrics.limitsRefused.inc({ limit, scope: scope.kind, tier: principal.tier });
        const { date } = ofScope;
        const about = { scope, limit, retryAfterMs: state.resetMs, state, date, states };
        const rejection = { kind: 'refused', reason: 'spent', ...about } as const;
        budgets.spent(rejection);
        return rejectionError(rejection, MIN_AMOUNTS.tokens);
      }
    }
    return undefined;
  }

  /** Call when the session ended or never started. Idempotent. */
  settle(): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    const about = this.#about();
    // A session that was opened is one request.
    const quantities = this.#isOpen ? ONE_REQUEST : {};
    const costNanos = costOf(this.#price, { tokens: NO_USAGE, quantities }, about.at);
    this.#lease?.settle({ tokens: 0, cost: costNanos ?? 0 });
    if (this.#attempts === 0) return;
    this.#options.outbox.record({ ...about, isEstimated: this.#isEstimated, usage: NO_USAGE, costNanos });
  }

  #about() {
    const { exchange, principal, route } = this.#request;
    const { holderId, prefix, tier, teamId } = principal;
    const { stopReason, error } = exchange;
    return {
      at: Date.now(),
      holderId,
      prefix,
      tier,
      teamId,
      endpoint: exchange.endpoint ?? 'passthrough',
      model: exchange.model ?? route.entry,
      entry: route.entry,
      upstream: this.#upstream,
      target: this.#target,
      attempts: this.#attempts,
      outcome: stopReason?.code ?? error?.code ?? this.#outcome ?? 'ok',
      isEstimated: false,
      durationMs: exchange.elapsed,
      ttftMs: undefined,
    };
  }
}
