// The place of one request among those of its holder that run: taken with its tokens where the body is small, and before the body
// is read where it is large, so that reading costs the holder a request whatever becomes of it.
import type { Principal } from '../../auth/key/principal.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { LARGE_BODY } from '../../http/pieces/body-buffer.ts';
import {
  type Admission,
  type Lease,
  LIMIT_NAMES,
  type Limiter,
  type TierLimits,
} from '../../limits/limiter.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { limitHeaders, rejectionError, rejectionHeaders } from './limit-headers.ts';

/** What a request needs at least: a holder without tokens is refused before the rest is known. */
export const MIN_TOKENS = 1;

interface RequestSlotOptions {
  readonly limiter: Pick<Limiter, 'admit'>;
  readonly metrics: Pick<Metrics, 'limitsRefused'>;
}

interface RequestSlotOrder {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly limits: TierLimits;
  /** Of all tiers: a holder may come to another one, and what is used now counts there. */
  readonly tiers: DynamicConfig['tiers'];
}

export class RequestSlot {
  readonly #parts: RequestSlotOptions;
  readonly #order: RequestSlotOrder;
  #lease: Lease | undefined;
  #isAsked = false;
  #isReleased = false;

  constructor(parts: RequestSlotOptions, order: RequestSlotOrder) {
    this.#parts = parts;
    this.#order = order;
  }

  /** The limits were asked; the headers of the answer say how they stand. */
  get isAsked(): boolean {
    return this.#isAsked;
  }

  /**
   * Takes a request and a place, and hardly any tokens.
   * @throws GatewayError `rate_limit_exceeded` or `insufficient_quota`
   */
  async take(): Promise<void> {
    if (this.#lease !== undefined) return;
    const lease = await this.admit(MIN_TOKENS);
    // The client may have left meanwhile.
    if (this.#isReleased) lease.settle(0);
    else this.#lease = lease;
  }

  /**
   * Reserves what the request needs: all of it, or only the tokens where the place is taken. The lease is the caller's to settle.
   * @throws GatewayError (or rejects with it) `rate_limit_exceeded` or `insufficient_quota`; a place that is taken stays so
   */
  admit(tokens: number): Lease | Promise<Lease> {
    const { principal, limits, tiers } = this.#order;
    this.#isAsked = true;
    if (!isCounted(limits, tiers)) return UNLIMITED;
    const decision = this.#parts.limiter.admit(principal.holderId, limits, tokens, this.#lease);
    return decision instanceof Promise
      ? decision.then((admission) => this.#accept(admission, tokens))
      : this.#accept(decision, tokens);
  }

  /** Gives back a place that became no lease of an account; its request stays counted. Idempotent. */
  release(): void {
    this.#isReleased = true;
    this.#lease?.settle(0);
    this.#lease = undefined;
  }

  #accept(admission: Admission, tokens: number): Lease {
    const { exchange, principal } = this.#order;
    if (admission.kind === 'refused') {
      this.#parts.metrics.limitsRefused.inc({ limit: admission.limit, tier: principal.tier });
      Object.assign(exchange.headers, rejectionHeaders(admission));
      throw rejectionError(admission, tokens);
    }
    limitHeaders(admission.states, exchange.headers);
    this.#lease = undefined;
    return admission.lease;
  }
}

/** Whether a form may turn out to be large. Only its end says how long it is where that is not announced. @param limit most bytes */
export function mayBeLarge({ request }: Exchange, limit: number): boolean {
  const { 'content-length': declared } = request.headers;
  return declared === undefined || (Number(declared) > LARGE_BODY && Number(declared) <= limit);
}

/** Without a limited tier nothing is counted, and no limiter is asked. */
const UNLIMITED: Lease = { tokens: 0, settle() {} };

export function isLimited(limits: TierLimits): boolean {
  return LIMIT_NAMES.some((name) => limits[name] !== undefined);
}

export function isCounted(limits: TierLimits, tiers: DynamicConfig['tiers']): boolean {
  return isLimited(limits) || Object.values(tiers).some((tier) => tier !== undefined && isLimited(tier));
}
