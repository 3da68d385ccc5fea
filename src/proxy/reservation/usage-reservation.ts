// The reservation of one request: reserves its estimate before it runs, and settles it once with the actual usage.
import type { Principal } from '../../auth/key/principal.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { type Amounts, type Lease, type Limiter, NO_AMOUNTS } from '../../limits/limiter.ts';
import type { Scopes } from '../../limits/scope.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { costOf, estimateOf } from '../../usage/records/token-price.ts';
import type { UsageOutbox } from '../../usage/usage-outbox.ts';
import { NO_USAGE, ONE_REQUEST, type Quantities } from '../../wire/token-usage.ts';
import type { Estimate } from '../request/token-estimate.ts';
import type { Route } from '../routes/route-table.ts';
import { budgetHeaders } from './budget-headers.ts';
import { limitHeaders } from './limit-headers.ts';
import type { BudgetEvents, RequestSlot } from './request-slot.ts';
import type { ScopeResolver } from './scopes-of.ts';
import { UsageMeter } from './usage-meter.ts';

export interface ReservationOptions {
  readonly limiter: Pick<Limiter, 'admit' | 'peek'>;
  readonly scopes: Pick<ScopeResolver, 'of'>;
  readonly budgets: BudgetEvents;
  readonly outbox: Pick<UsageOutbox, 'record'>;
  readonly metrics: Pick<Metrics, 'limitsRefused' | 'recordGeneration' | 'recordTokens'>;
}

interface ReservationRequest {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly route: Pick<Route, 'entry' | 'targets' | 'history'>;
  readonly scopes: Scopes;
  readonly slot: RequestSlot;
  readonly estimate: Estimate;
  /** What has a price beside tokens. Default: one request. */
  readonly quantities?: Quantities | undefined;
}

export class UsageReservation {
  readonly meter: UsageMeter;
  readonly #options: ReservationOptions;
  readonly #request: ReservationRequest;
  readonly #lease: Lease;
  #isSettled = false;

  /**
   * Reserves everything the request may need, or nothing. Sets the limit headers of the response.
   * @throws GatewayError (or rejects with it) `rate_limit_exceeded` or `insufficient_quota`
   */
  static open(
    options: ReservationOptions,
    request: ReservationRequest,
  ): UsageReservation | Promise<UsageReservation> {
    const lease = request.slot.admit(reservedAmounts(request), request.scopes);
    return lease instanceof Promise
      ? lease.then((each) => new UsageReservation(options, request, each))
      : new UsageReservation(options, request, lease);
  }

  private constructor(options: ReservationOptions, request: ReservationRequest, lease: Lease) {
    this.#options = options;
    this.#request = request;
    this.#lease = lease;
    const { estimate, route } = request;
    const { tokens = 0 } = route.history ?? {};
    // Not reserved: the answer may leave some of it out, and an estimate must not reject what would fit.
    this.meter = new UsageMeter(tokens === 0 ? estimate : { ...estimate, prompt: estimate.prompt + tokens });
  }

  /** Call when the request ended, however it did. Idempotent. */
  settle(): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    const { outbox, metrics, budgets } = this.#options;
    const { exchange, principal, route, scopes, slot } = this.#request;
    const reading = this.meter.read();
    if (reading === undefined) {
      this.#lease.settle(NO_AMOUNTS);
      return;
    }
    const { tokens, isEstimated, isReported, upstream, target, provider, price, attempts, extra } = reading;
    const at = Date.now();
    const { holderId, prefix, tier, teamId } = principal;
    const { stopReason, error, firstOutputMs, elapsed } = exchange;
    const outcome = stopReason?.code ?? error?.code ?? 'ok';
    const costNanos = costOf(price, reading, at);
    const others = extra.map((attempt) => ({
      upstream: attempt.upstream,
      target: attempt.target,
      usage: attempt.tokens,
      costNanos: costOf(attempt.price, attempt, at),
    }));
    const cost = others.reduce((sum, other) => sum + (other.costNanos ?? 0), costNanos ?? 0);
    this.#lease.settle({ tokens: tokens.prompt + tokens.completion, cost });
    budgets.settled(scopes, slot.states, cost - this.#lease.amounts.cost);
    const { endpoint = 'chat' } = exchange;
    metrics.recordGeneration({
      endpoint,
      model: route.entry,
      upstream,
      provider,
      outcome,
      seconds: elapsed / 1000,
      // Complete answers have no first token.
      firstToken:
        exchange.isStream === true && firstOutputMs !== undefined ? firstOutputMs / 1000 : undefined,
      tokens: isReported ? tokens : undefined,
    });
    for (const other of extra) {
      metrics.recordTokens(endpoint, route.entry, other.upstream, other.provider, other.tokens);
    }
    outbox.record({
      at,
      holderId,
      prefix,
      tier,
      teamId,
      endpoint,
      model: exchange.model ?? route.entry,
      entry: route.entry,
      upstream,
      target,
      attempts,
      outcome,
      usage: tokens,
      isEstimated,
      durationMs: elapsed,
      ttftMs: firstOutputMs,
      costNanos,
      extra: others,
    });
  }
}

/** Sets the response headers that show the limits. Reserves nothing. */
export async function setLimitHeaders(
  limiter: Pick<Limiter, 'peek'>,
  exchange: Exchange,
  scopes: Scopes,
): Promise<void> {
  if (scopes.isLimited && exchange.stopReason === undefined) {
    const states = await limiter.peek(scopes);
    limitHeaders(states, exchange.headers, exchange.isAnthropic);
    budgetHeaders(scopes, states, exchange.headers);
  }
}

/**
 * What to reserve: the estimate. Where the client does not bound the length of the answer, at most the limits, so that an
 * assumption rejects no request. The cost is of interest where there is a budget.
 */
export function reservedAmounts({
  route,
  scopes,
  estimate,
  quantities = ONE_REQUEST,
}: Pick<ReservationRequest, 'scopes' | 'estimate' | 'quantities'> & {
  readonly route: { readonly targets: Parameters<typeof estimateOf>[0] };
}): Amounts {
  const { prompt, completion, isBounded } = estimate;
  const costWith = (output: number): number => {
    const tokens = { ...NO_USAGE, prompt: Math.ceil(prompt), completion: Math.ceil(output) };
    return estimateOf(route.targets, { tokens, quantities }, Date.now());
  };
  const cost = scopes.maxCost === Number.POSITIVE_INFINITY ? 0 : costWith(completion);
  if (isBounded) return { tokens: prompt + completion, cost };
  return {
    tokens: Math.max(prompt, Math.min(prompt + completion, scopes.maxTokens)),
    cost: cost <= scopes.maxCost ? cost : Math.max(scopes.maxCost, costWith(0)),
  };
}
