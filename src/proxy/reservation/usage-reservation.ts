// The account of one request: what was reserved for it, what it used, and the one moment in which the two are settled.
import type { Principal } from '../../auth/key/principal.ts';
import type { TierLimits } from '../../config/limit-table.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import type { Lease, Limiter } from '../../limits/limiter.ts';
import { activeLimits } from '../../limits/verdict.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { costOf } from '../../usage/records/token-price.ts';
import type { UsageOutbox } from '../../usage/usage-outbox.ts';
import type { Estimate } from '../request/token-estimate.ts';
import type { Route } from '../routes/route-table.ts';
import { limitHeaders } from './limit-headers.ts';
import { isLimited, type RequestSlot } from './request-slot.ts';
import { UsageMeter } from './usage-meter.ts';

export interface ReservationOptions {
  readonly limiter: Pick<Limiter, 'admit' | 'peek'>;
  readonly outbox: Pick<UsageOutbox, 'record'>;
  readonly metrics: Pick<Metrics, 'limitsRefused' | 'recordGeneration' | 'recordTokens'>;
}

interface ReservationOrder {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly route: Pick<Route, 'entry' | 'price'>;
  readonly limits: TierLimits;
  /** Of this request. */
  readonly slot: RequestSlot;
  readonly estimate: Estimate;
}

export class UsageReservation {
  readonly meter: UsageMeter;
  readonly #parts: ReservationOptions;
  readonly #order: ReservationOrder;
  readonly #lease: Lease;
  #isSettled = false;

  /**
   * Reserves all that the request may need, or nothing. Says in the headers of the answer how the limits stand.
   * @throws GatewayError (or rejects with it) `rate_limit_exceeded` or `insufficient_quota`
   */
  static open(
    parts: ReservationOptions,
    order: ReservationOrder,
  ): UsageReservation | Promise<UsageReservation> {
    const lease = order.slot.admit(reserved(order.estimate, order.limits));
    return lease instanceof Promise
      ? lease.then((each) => new UsageReservation(parts, order, each))
      : new UsageReservation(parts, order, lease);
  }

  private constructor(parts: ReservationOptions, order: ReservationOrder, lease: Lease) {
    this.#parts = parts;
    this.#order = order;
    this.#lease = lease;
    this.meter = new UsageMeter(order.estimate);
  }

  /** To be called when the request is over, however it ended. The second time does nothing. */
  settle(): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    const { outbox, metrics } = this.#parts;
    const { exchange, principal, route } = this.#order;
    const reading = this.meter.read();
    if (reading === undefined) {
      this.#lease.settle(0);
      return;
    }
    const { tokens, isEstimated, isReported, upstream, provider, attempts, extra } = reading;
    this.#lease.settle(tokens.prompt + tokens.completion);
    const { stopReason, error, firstOutputMs } = exchange;
    const outcome = stopReason?.code ?? error?.code ?? 'ok';
    const { endpoint = 'chat' } = exchange;
    metrics.recordGeneration({
      endpoint,
      model: route.entry,
      upstream,
      provider,
      outcome,
      seconds: exchange.elapsed / 1000,
      // An answer that comes as a whole has no first token.
      firstToken:
        exchange.isStream === true && firstOutputMs !== undefined ? firstOutputMs / 1000 : undefined,
      tokens: isReported ? tokens : undefined,
    });
    for (const other of extra) {
      metrics.recordTokens(endpoint, route.entry, other.upstream, other.provider, other.tokens);
    }
    outbox.record({
      at: Date.now(),
      holderId: principal.holderId,
      prefix: principal.prefix,
      tier: principal.tier,
      // Clients invent names where a pattern serves: only those that somebody answered to become rows.
      model: outcome === 'ok' ? (exchange.model ?? route.entry) : route.entry,
      upstream,
      attempts,
      outcome,
      usage: tokens,
      isEstimated,
      durationMs: exchange.elapsed,
      ttftMs: firstOutputMs,
      costNanos: route.price && costOf(route.price, tokens),
      extra: extra.map((attempt) => ({
        upstream: attempt.upstream,
        usage: attempt.tokens,
        costNanos: route.price && costOf(route.price, attempt.tokens),
      })),
    });
  }
}

/** Puts into the headers of the answer how the limits of a holder stand. Reserves nothing. */
export async function setLimitHeaders(
  limiter: Pick<Limiter, 'peek'>,
  exchange: Exchange,
  holder: string,
  limits: TierLimits,
): Promise<void> {
  if (isLimited(limits) && exchange.stopReason === undefined) {
    limitHeaders(await limiter.peek(holder, limits), exchange.headers);
  }
}

/**
 * The tokens to reserve: the estimate. Where the client does not bound the length of the answer, at most the limits, so that an
 * assumption rejects no request.
 */
function reserved({ prompt, completion, isBounded }: Estimate, limits: TierLimits): number {
  if (isBounded) return prompt + completion;
  return Math.max(prompt, Math.min(prompt + completion, activeLimits(limits).maxTokens));
}
