// The slot of one request among the running requests of its holder: taken together with its tokens where the body is small, and
// before the body is read where it is large, so that the upload always costs the holder a request.
import type { Principal } from '../../auth/key/principal.ts';
import type { TierLimits } from '../../config/limit-table.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { LARGE_BODY } from '../../http/pieces/body-buffer.ts';
import type { Admission, Lease, Limiter } from '../../limits/limiter.ts';
import { activeLimits } from '../../limits/verdict.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { limitHeaders, rejectionError, rejectionHeaders } from './limit-headers.ts';

/** The minimum of a request: a holder without tokens is rejected before the rest is known. */
export const MIN_TOKENS = 1;

interface RequestSlotOptions {
  readonly limiter: Pick<Limiter, 'admit'>;
  readonly metrics: Pick<Metrics, 'limitsRefused'>;
}

interface SlotRequest {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly limits: TierLimits;
  /** Of all tiers: a holder may change its tier, and present usage counts there. */
  readonly tiers: DynamicConfig['tiers'];
}

export class RequestSlot {
  readonly #options: RequestSlotOptions;
  readonly #request: SlotRequest;
  #lease: Lease | undefined;
  #isAsked = false;
  #isReleased = false;

  constructor(options: RequestSlotOptions, request: SlotRequest) {
    this.#options = options;
    this.#request = request;
  }

  /** The limiter was called; the response headers describe the limits. */
  get isAsked(): boolean {
    return this.#isAsked;
  }

  /**
   * Takes a request, a slot and the minimum of tokens.
   * @throws GatewayError `rate_limit_exceeded` or `insufficient_quota`
   */
  async take(): Promise<void> {
    if (this.#lease !== undefined) return;
    const lease = await this.admit(MIN_TOKENS);
    // The request may have ended meanwhile.
    if (this.#isReleased) lease.settle(0);
    else this.#lease = lease;
  }

  /**
   * Reserves all that the request needs, or only the tokens if it has a slot. The caller settles the lease.
   * @throws GatewayError (or rejects with it) `rate_limit_exceeded` or `insufficient_quota`; a slot that was taken stays so
   */
  admit(tokens: number): Lease | Promise<Lease> {
    const { principal, limits, tiers } = this.#request;
    this.#isAsked = true;
    if (!isCounted(limits, tiers)) return UNLIMITED;
    const decision = this.#options.limiter.admit(principal.holderId, limits, tokens, this.#lease);
    return decision instanceof Promise
      ? decision.then((admission) => this.#accept(admission, tokens))
      : this.#accept(decision, tokens);
  }

  /** Releases a slot that did not become part of a reservation; its request stays counted. Idempotent. */
  release(): void {
    this.#isReleased = true;
    this.#lease?.settle(0);
    this.#lease = undefined;
  }

  #accept(admission: Admission, tokens: number): Lease {
    const { exchange, principal } = this.#request;
    if (admission.kind === 'refused') {
      this.#options.metrics.limitsRefused.inc({ limit: admission.limit, tier: principal.tier });
      Object.assign(exchange.headers, rejectionHeaders(admission));
      throw rejectionError(admission, tokens);
    }
    limitHeaders(admission.states, exchange.headers);
    this.#lease = undefined;
    return admission.lease;
  }
}

/** Whether a form may be large: its length may be unknown until its end. @param limit maximal bytes */
export function mayBeLarge({ request }: Exchange, limit: number): boolean {
  const { 'content-length': declared } = request.headers;
  return declared === undefined || (Number(declared) > LARGE_BODY && Number(declared) <= limit);
}

/** If no tier has limits, nothing is counted and no limiter is called. */
const UNLIMITED: Lease = { tokens: 0, settle() {} };

export function isLimited(limits: TierLimits): boolean {
  return activeLimits(limits).list.length > 0;
}

export function isCounted(limits: TierLimits, tiers: DynamicConfig['tiers']): boolean {
  return isLimited(limits) || Object.values(tiers).some((tier) => tier !== undefined && isLimited(tier));
}
