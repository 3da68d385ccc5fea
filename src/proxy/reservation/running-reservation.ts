// The reservation of work without an estimate: one request and one slot while it runs, and tokens as they are reported: many times in
// a realtime session, never in a passthrough call. usage-reservation.ts reserves and settles requests for a model.
import type { Principal } from '../../auth/key/principal.ts';
import { LIMITS, type TierLimits } from '../../config/limit-table.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import type { Lease, Limiter } from '../../limits/limiter.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { costOf, type TokenPrice } from '../../usage/records/token-price.ts';
import type { UsageOutbox } from '../../usage/usage-outbox.ts';
import { NO_USAGE } from '../../wire/token-usage.ts';
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

interface RunningRequest {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly route: Pick<Route, 'entry'>;
  readonly limits: TierLimits;
  /** Of all tiers: usage counts even without limits now, because the holder may change to a limited tier. */
  readonly tiers: DynamicConfig['tiers'];
}

export class RunningReservation {
  readonly #options: RunningReservationOptions;
  readonly #request: RunningRequest;
  readonly #lease: Lease | undefined;
  #upstream: string | undefined;
  #target = '';
  #price: TokenPrice | undefined;
  #attempts = 0;
  #isOpen = false;
  #outcome: string | undefined;
  #prompt = 0;
  #completion = 0;
  #isEstimated = false;
  #isSettled = false;

  private constructor(options: RunningReservationOptions, request: RunningRequest, lease: Lease | undefined) {
    this.#options = options;
    this.#request = request;
    this.#lease = lease;
  }

  /**
   * Takes a request and a slot, or nothing. Sets the limit headers of the response.
   * @throws GatewayError `rate_limit_exceeded` or `insufficient_quota`
   */
  static async open(
    options: RunningReservationOptions,
    request: RunningRequest,
  ): Promise<RunningReservation> {
    const { limits, tiers } = request;
    if (!isCounted(limits, tiers)) return new RunningReservation(options, request, undefined);
    return new RunningReservation(
      options,
      request,
      await new RequestSlot(options, request).admit(MIN_TOKENS),
    );
  }

  /**
   * The session is requested from this upstream: from now on it counts as a request, however it ends.
   * @param target its name of the model
   * @param price of tokens there; undefined without one
   * @returns the number of upstreams asked so far
   */
  asked(upstream: string, target: string, price?: TokenPrice): number {
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

  /** Counts the tokens of one answer. */
  use({ tokens, isEstimated }: SessionUse): void {
    const { limiter, outbox } = this.#options;
    const { exchange, principal } = this.#request;
    this.#prompt += tokens.prompt;
    this.#completion += tokens.completion;
    exchange.access.prompt_tokens = this.#prompt;
    exchange.access.completion_tokens = this.#completion;
    this.#isEstimated ||= isEstimated;
    if (this.#lease !== undefined) limiter.use(principal.holderId, tokens.prompt + tokens.completion);
    outbox.record({
      ...this.#about(),
      usage: tokens,
      costNanos: this.#price && costOf(this.#price, tokens),
      isPart: true,
    });
  }

  /**
   * Checks whether the holder still has tokens.
   * @returns the rejection that a new session would receive; undefined while tokens are left
   */
  async spent(): Promise<GatewayError | undefined> {
    const { limiter, metrics } = this.#options;
    const { principal, limits } = this.#request;
    if (TOKEN_LIMITS.every(({ name }) => limits[name] === undefined)) return undefined;
    const states = await limiter.peek(principal.holderId, limits);
    for (const { name: limit } of TOKEN_LIMITS) {
      const state = states[limit];
      if (state === undefined || state.remaining > 0) continue;
      metrics.limitsRefused.inc({ limit, tier: principal.tier });
      const rejected = {
        kind: 'refused',
        limit,
        reason: 'spent',
        retryAfterMs: state.resetMs,
        states,
      } as const;
      return rejectionError(rejected, MIN_TOKENS);
    }
    return undefined;
  }

  /** Call when the session ended or never started. Idempotent. */
  settle(): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#lease?.settle(0);
    if (this.#upstream === undefined) return;
    this.#options.outbox.record({
      ...this.#about(),
      isEstimated: this.#isEstimated,
      usage: NO_USAGE,
      costNanos: this.#price && 0,
    });
  }

  #about() {
    const { exchange, principal, route } = this.#request;
    const { stopReason, error } = exchange;
    return {
      at: Date.now(),
      holderId: principal.holderId,
      prefix: principal.prefix,
      tier: principal.tier,
      teamId: principal.teamId,
      endpoint: exchange.endpoint ?? 'passthrough',
      // With patterns, clients invent names: only names that an upstream accepted become rows.
      model: this.#isOpen ? (exchange.model ?? route.entry) : route.entry,
      upstream: this.#upstream ?? '',
      target: this.#target,
      attempts: this.#attempts,
      outcome: stopReason?.code ?? error?.code ?? this.#outcome ?? 'ok',
      isEstimated: false,
      durationMs: exchange.elapsed,
      ttftMs: undefined,
    };
  }
}
