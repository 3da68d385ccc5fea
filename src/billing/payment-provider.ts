// The interface of a payment provider, and the facts of a payment. Stripe and the fake provider implement it; order-verdict.ts
// decides what the facts mean for an order.
import type { Authenticator } from '../auth/authenticator.ts';
import type { KeyIssuer } from '../auth/key-issuer.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import type { BillingStore, Order, ProviderName } from '../store/billing-record.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';

/** The dependencies of the parts of billing; each takes some of them. */
export interface BillingParts {
  readonly store: BillingStore;
  readonly issuer: KeyIssuer;
  readonly authenticator: Authenticator;
  /** The provider of the configuration in force. */
  readonly provider: () => PaymentProvider | undefined;
  /** The configuration in force. */
  readonly config: () => DynamicConfig;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'billing'>;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

export interface SessionFacts {
  readonly id: string;
  readonly status: 'open' | 'complete' | 'expired';
  readonly payment: 'paid' | 'unpaid' | 'not_required';
  /** It is complete, and its payment failed for good. */
  readonly hasFailed: boolean;
  /** Id of the order that the gateway passed when it created the session. */
  readonly reference: string | null;
  /** Its price; null unless it has exactly one line with a quantity of one. */
  readonly price: string | null;
  readonly amount: number | null;
  readonly currency: string | null;
  readonly mode: string;
  readonly isLive: boolean;
  readonly subscription: string | null;
  readonly payment_id: string | null;
  readonly customer: string | null;
}

export interface SubscriptionFacts {
  readonly id: string;
  readonly status: 'active' | 'past_due' | 'incomplete' | 'canceled';
  readonly price: string | null;
  readonly isLive: boolean;
  /** End of the paid period, in milliseconds since 1970. */
  readonly paidUntil: number;
  /** Creation time of the unpaid invoice, in milliseconds since 1970; null when all are paid. */
  readonly unpaidSince: number | null;
  /** When a paid subscription ends because it was cancelled, in milliseconds since 1970; null when it renews or is over. */
  readonly endsAt: number | null;
  /** When the provider tries the unpaid invoice again, in milliseconds since 1970; null when it does not. */
  readonly retryAt: number | null;
}

export interface MoneyFacts {
  /** Of the payment for the current period. */
  readonly refund: 'none' | 'partial' | 'full';
  /** Of any payment. An inquiry, before money moves, does not count. */
  readonly dispute: 'none' | 'open' | 'won' | 'lost';
  /** The bank issued an early fraud warning that is still actionable. */
  readonly isSuspect: boolean;
}

/** The current facts of the payment for an order. */
export interface PaymentFacts {
  readonly session: SessionFacts;
  readonly subscription: SubscriptionFacts | null;
  readonly money: MoneyFacts;
}

export const NO_MONEY: MoneyFacts = { refund: 'none', dispute: 'none', isSuspect: false };

export interface OpenSession {
  readonly session: SessionFacts;
  /** URL of the payment page. */
  readonly url: string;
}

/** When a cancellation takes effect; `never` undoes one that has not. */
export type CancelTime = 'period_end' | 'now' | 'never';

export interface PaymentProvider {
  readonly name: ProviderName;
  /** Whether real money is charged. */
  readonly isLive: boolean;
  /** Origins of its payment pages that are known before a session is opened. */
  readonly origins: readonly string[];

  /**
   * Opens a checkout session for an order. It is idempotent: the same order gets the same session.
   * @param root public URL of the gateway, without a trailing slash
   * @throws GatewayError `payment_unavailable`
   */
  open(order: Order, root: string): Promise<OpenSession>;

  /** URL of the payment page of an order with a session; undefined when the session is no longer open. */
  pageOf(order: Order, root: string): Promise<string | undefined>;

  /**
   * Reads the facts of an order's payment.
   * @param session the session that an event names, for an order that has none yet
   * @returns undefined when the order has no session
   * @throws GatewayError `payment_unavailable`
   */
  readFacts(order: Order, session?: string): Promise<PaymentFacts | undefined>;

  /** Cancels the subscription of an order, or expires its open session. What is paid stays paid. It is idempotent. */
  end(order: Order): Promise<void>;

  /**
   * Opens the customer portal: cancellation, card, invoices, address.
   * @returns its URL; undefined when the order has none
   * @throws GatewayError `payment_unavailable`
   */
  portal(order: Order, root: string): Promise<string | undefined>;

  /** Cancels the subscription of an order. `now` also ends what is paid. It is idempotent. */
  cancel(order: Order, when: CancelTime): Promise<void>;

  /** Refunds what is left of the last payment, and ends the subscription. It is idempotent. */
  refund(order: Order): Promise<void>;
}
