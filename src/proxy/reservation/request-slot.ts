// The slot of one request among the running requests of its scopes: taken together with its tokens where the body is small, and
// before the body is read where it is large, so that the upload always costs the holder a request.
import type { Principal } from '../../auth/key/principal.ts';
import type { BudgetWatch } from '../../budgets/budget-watch.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { LARGE_BODY } from '../../http/pieces/body-buffer.ts';
import { activeLimits } from '../../limits/active-limits.ts';
import {
  type Admission,
  type Amounts,
  type Lease,
  type Limiter,
  NO_AMOUNTS,
  type ScopeStates,
} from '../../limits/limiter.ts';
import type { Scopes } from '../../limits/scope.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { budgetHeaders } from './budget-headers.ts';
import { limitHeaders, rejectionError, rejectionHeaders } from './limit-headers.ts';

/**
 * The minimum of a request: a holder without tokens is rejected before the rest is known. Its model may be free, so that a spent budget
 * rejects it later.
 */
export const MIN_AMOUNTS: Amounts = { tokens: 1, cost: 0 };

interface RequestSlotOptions {
  readonly limiter: Pick<Limiter, 'admit'>;
  readonly budgets: BudgetEvents;
  readonly metrics: Pick<Metrics, 'limitsRefused'>;
}

/** Learns what becomes of budgets. */
export type BudgetEvents = Pick<BudgetWatch, 'settled' | 'spent'>;

interface SlotRequest {
  readonly exchange: Exchange;
  readonly principal: Principal;
  /** As far as they are known before the model. */
  readonly scopes: Scopes;
  /** Of all tiers: a holder may change its tier, and present usage counts there. */
  readonly tiers: DynamicConfig['tiers'];
}

export class RequestSlot {
  readonly #options: RequestSlotOptions;
  readonly #request: SlotRequest;
  #lease: Lease | undefined;
  #isAsked = false;
  #states: ScopeStates = [];
  #isReleased = false;

  constructor(options: RequestSlotOptions, request: SlotRequest) {
    this.#options = options;
    this.#request = request;
  }

  /** The limiter was called; the response headers describe the limits. */
  get isAsked(): boolean {
    return this.#isAsked;
  }

  /** How far the limits of the last reservation were used, with it. */
  get states(): ScopeStates {
    return this.#states;
  }

  /**
   * Takes a request, a slot and the minimum of tokens.
   * @throws GatewayError `rate_limit_exceeded` or `insufficient_quota`
   */
  async take(): Promise<void> {
    if (this.#lease !== undefined) return;
    const lease = await this.admit(MIN_AMOUNTS);
    // The request may have ended meanwhile.
    if (this.#isReleased) lease.settle(NO_AMOUNTS);
    else this.#lease = lease;
  }

  /**
   * Reserves all that the request needs, or only the amounts if it has a slot. The caller settles the lease.
   * @param scopes all of the request
   * @throws GatewayError (or rejects with it) `rate_limit_exceeded` or `insufficient_quota`; a slot that was taken stays so
   */
  admit(amounts: Amounts, scopes: Scopes = this.#request.scopes): Lease | Promise<Lease> {
    this.#isAsked = true;
    if (!isCounted(scopes, this.#request.tiers)) return UNLIMITED;
    const decision = this.#options.limiter.admit(scopes, amounts, this.#lease);
    return decision instanceof Promise
      ? decision.then((admission) => this.#accept(admission, amounts, scopes))
      : this.#accept(decision, amounts, scopes);
  }

  /** Releases a slot that did not become part of a reservation; its request stays counted. Idempotent. */
  release(): void {
    this.#isReleased = true;
    this.#lease?.settle(NO_AMOUNTS);
    this.#lease = undefined;
  }

  #accept(admission: Admission, { tokens }: Amounts, scopes: Scopes): Lease {
    const { exchange, principal } = this.#request;
    budgetHeaders(scopes, admission.states, exchange.headers);
    if (admission.kind === 'refused') {
      const { limit, scope, reason } = admission;
      if (reason === 'spent') this.#options.budgets.spent(admission);
      this.#options.metrics.limitsRefused.inc({ limit, scope: scope.kind, tier: principal.tier });
      Object.assign(exchange.headers, rejectionHeaders(admission, exchange.isAnthropic));
      throw rejectionError(admission, tokens);
    }
    limitHeaders(admission.states, exchange.headers, exchange.isAnthropic);
    this.#lease = undefined;
    this.#states = admission.states;
    return admission.lease;
  }
}

/** Whether a form may be large: its length may be unknown until its end. @param limit maximal bytes */
export function mayBeLarge({ request }: Exchange, limit: number): boolean {
  const { 'content-length': declared } = request.headers;
  return declared === undefined || (Number(declared) > LARGE_BODY && Number(declared) <= limit);
}

/** If nobody has limits, nothing is counted and no limiter is called. */
const UNLIMITED: Lease = { amounts: NO_AMOUNTS, settle() {} };

export function isCounted({ isLimited }: Scopes, tiers: DynamicConfig['tiers']): boolean {
  return (
    isLimited || Object.values(tiers).some((tier) => tier !== undefined && activeLimits(tier).list.length > 0)
  );
}
