// What billing asks of whoever takes the payments, and what can be known of a payment. Stripe and the played payments of the
// test provider are two answers to it; what follows from the facts is order-verdict.ts.
import type { Order } from '../store/billing-record.ts';

export interface SessionFacts {
  readonly id: string;
  readonly status: 'open' | 'complete' | 'expired';
  readonly payment: 'paid' | 'unpaid' | 'not_required';
  /** It is complete, and its payment will not come any more. */
  readonly hasFailed: boolean;
  /** The order that it was made for, as the provider was told. */
  readonly reference: string | null;
  /** The one price in it; null where there is another number of lines, or more than one of it. */
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
  /** Milliseconds since 1970: until when its invoices are paid. */
  readonly paidUntil: number;
  /** Milliseconds since 1970: when the invoice was made that is not paid; null where all are. */
  readonly unpaidSince: number | null;
}

export interface MoneyFacts {
  /** Of the payment for the present period. */
  readonly refund: 'none' | 'partial' | 'full';
  /** Of any payment. An inquiry, before money moves, is none. */
  readonly dispute: 'none' | 'open' | 'won' | 'lost';
  /** The bank says that it may be fraud, and nothing was done about it. */
  readonly isSuspect: boolean;
}

/** All that is known of the payment for an order, asked anew. */
export interface PaymentFacts {
  readonly session: SessionFacts;
  readonly subscription: SubscriptionFacts | null;
  readonly money: MoneyFacts;
}

export const NO_MONEY: MoneyFacts = { refund: 'none', dispute: 'none', isSuspect: false };

export interface OpenSession {
  readonly session: SessionFacts;
  /** Where the buyer pays. */
  readonly url: string;
}

export interface PaymentProvider {
  readonly name: 'stripe' | 'test';
  /** Whether money moves. */
  readonly isLive: boolean;
  /** Origins of its payment pages, as far as they are known before one is opened. */
  readonly origins: readonly string[];

  /**
   * Opens a session of payment for an order; asked again for the same order, it gives the same one.
   * @param root where people reach the gateway, without a slash at the end
   * @throws GatewayError `payment_unavailable`
   */
  open(order: Order, root: string): Promise<OpenSession>;

  /** The address where an order with a session is paid; undefined when that session is no longer open. */
  pageOf(order: Order, root: string): Promise<string | undefined>;

  /**
   * @param session of an order that does not know its own, as an event names it
   * @returns undefined where there is no session of this order
   * @throws GatewayError `payment_unavailable`
   */
  look(order: Order, session?: string): Promise<PaymentFacts | undefined>;

  /** Ends the subscription of an order, and closes a session that is open. Nothing happens where that is so already. */
  end(order: Order): Promise<void>;
}
