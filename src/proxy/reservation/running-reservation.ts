// The account of what nobody can estimate: one request and one place for as long as it runs, and tokens when they are known, of
// which a realtime session has many and a call without a model none. A request for a model is settled once for all (usage-reservation.ts).
import type { Principal } from '../../auth/key/principal.ts';
import { LIMITS, type TierLimits } from '../../config/limit-table.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import type { Lease, Limiter } from '../../limits/limiter.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { costOf } from '../../usage/records/token-price.ts';
import type { UsageOutbox } from '../../usage/usage-outbox.ts';
import type { Route } from '../routes/route-table.ts';
import { rejectionError } from './limit-headers.ts';
import type { SessionUse } from './realtime-usage.ts';
import { isCounted, MIN_TOKENS, RequestSlot } from './request-slot.ts';

/** The longest window first: its rejection is the one that a new session would get. */
const TOKEN_LIMITS = LIMITS.filter(({ counts }) => counts === 'tokens').reverse();

export interface RunningReservationOptions {
  readonly limiter: Limiter;
  readonly outbox: Pick<UsageOutbox, 'record'>;
  readonly metrics: Pick<Metrics, 'limitsRefused'>;
}

interface RunningReservationOrder {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly route: Pick<Route, 'entry' | 'price'>;
  readonly limits: TierLimits;
  /** Of all tiers: a holder may come to another one, and what is used now counts there. */
  readonly tiers: DynamicConfig['tiers'];
}

export class RunningReservation {
  readonly #parts: RunningReservationOptions;
  readonly #order: RunningReservationOrder;
  readonly #lease: Lease | undefined;
  #upstream: string | undefined;
  #attempts = 0;
  #isOpen = false;
  #outcome: string | undefined;
  #prompt = 0;
  #completion = 0;
  #isEstimated = false;
  #isSettled = false;

  private constructor(
    parts: RunningReservationOptions,
    order: RunningReservationOrder,
    lease: Lease | undefined,
  ) {
    this.#parts = parts;
    this.#order = order;
    this.#lease = lease;
  }

  /**
   * Takes a request and a place, or nothing. Says in the headers of the answer how the limits stand.
   * @throws GatewayError `rate_limit_exceeded` or `insufficient_quota`
   */
  static async open(
    parts: RunningReservationOptions,
    order: RunningReservationOrder,
  ): Promise<RunningReservation> {
    const { limits, tiers } = order;
    if (!isCounted(limits, tiers)) return new RunningReservation(parts, order, undefined);
    return new RunningReservation(parts, order, await new RequestSlot(parts, order).admit(MIN_TOKENS));
  }

  /**
   * The session is asked for at this upstream: from now on it counts as a request, whatever becomes of it.
   * @returns how many upstreams were asked
   */
  asked(upstream: string): number {
    this.#upstream = upstream;
    this.#attempts += 1;
    return this.#attempts;
  }

  /** The upstream that was asked last has opened the session. */
  opened(): void {
    this.#isOpen = true;
  }

  /** The session is over. @param outcome `ok`, or a code of the error table */
  ended(outcome: string): void {
    this.#outcome = outcome;
  }

  /** Counts the tokens of one answer. */
  use({ tokens, isEstimated }: SessionUse): void {
    const { limiter, outbox } = this.#parts;
    const { exchange, principal, route } = this.#order;
    this.#prompt += tokens.prompt;
    this.#completion += tokens.completion;
    exchange.access.prompt_tokens = this.#prompt;
    exchange.access.completion_tokens = this.#completion;
    this.#isEstimated ||= isEstimated;
    if (this.#lease !== undefined) limiter.use(principal.holderId, tokens.prompt + tokens.completion);
    outbox.record({
      ...this.#about(),
      usage: tokens,
      costNanos: route.price && costOf(route.price, tokens),
      isPart: true,
    });
  }

  /**
   * Whether the holder has no tokens left, as of now.
   * @returns the refusal that a new session would get
   */
  async spent(): Promise<GatewayError | undefined> {
    const { limiter, metrics } = this.#parts;
    const { principal, limits } = this.#order;
    if (TOKEN_LIMITS.every(({ name }) => limits[name] === undefined)) return undefined;
    const states = await limiter.peek(principal.holderId, limits);
    for (const { name: limit } of TOKEN_LIMITS) {
      const state = states[limit];
      if (state === undefined || state.remaining > 0) continue;
      metrics.limitsRefused.inc({ limit, tier: principal.tier });
      const refused = {
        kind: 'refused',
        limit,
        reason: 'spent',
        retryAfterMs: state.resetMs,
        states,
      } as const;
      return rejectionError(refused, MIN_TOKENS);
    }
    return undefined;
  }

  /** To be called when the session is over, or there was none. The second time does nothing. */
  settle(): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#lease?.settle(0);
    if (this.#upstream === undefined) return;
    const { route } = this.#order;
    const usage = { prompt: 0, completion: 0, cached: 0, reasoning: 0 };
    this.#parts.outbox.record({
      ...this.#about(),
      isEstimated: this.#isEstimated,
      usage,
      costNanos: route.price && 0,
    });
  }

  #about() {
    const { exchange, principal, route } = this.#order;
    const { stopReason, error } = exchange;
    return {
      at: Date.now(),
      holderId: principal.holderId,
      prefix: principal.prefix,
      tier: principal.tier,
      // Clients invent names where a pattern serves: only those that somebody answered to become rows.
      model: this.#isOpen ? (exchange.model ?? route.entry) : route.entry,
      upstream: this.#upstream ?? '',
      attempts: this.#attempts,
      outcome: stopReason?.code ?? error?.code ?? this.#outcome ?? 'ok',
      isEstimated: false,
      durationMs: exchange.elapsed,
      ttftMs: undefined,
    };
  }
}
