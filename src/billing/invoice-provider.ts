// Orders that are paid by invoice, without a payment provider: support sends the invoice and marks the order as paid until a
// day. An order that is not paid again by then is past due, like a failed payment.
import type { Order, StoredPayment } from '../store/billing-record.ts';
import type { PaymentFacts } from './payment-provider.ts';
import { StoredProvider, type SubscriptionState } from './stored-provider.ts';

/** An unpaid order expires after this, like the cookie that claims its key. */
const OPEN_MS = 30 * 86_400_000;

export class InvoiceProvider extends StoredProvider {
  readonly name = 'none';

  /** Marks an order as paid. @param until end of the paid period, in milliseconds since 1970; null for an order that is paid once */
  async markPaid(order: Order, until: number | null): Promise<void> {
    const payment = await this.paymentOf(order);
    if (payment === undefined) return;
    const paidUntil = until === null ? null : new Date(until).toISOString();
    const subscription = until === null ? 'none' : 'active';
    await this.write({ ...payment, payment: 'paid', subscription, refund: 'none', paidUntil, endsAt: null });
  }

  override async readFacts(order: Order): Promise<PaymentFacts | undefined> {
    const facts = await super.readFacts(order);
    const isExpired = this.now() - Date.parse(order.createdAt) >= OPEN_MS;
    if (facts?.session.status !== 'open' || !isExpired) return facts;
    return { ...facts, session: { ...facts.session, status: 'expired' } };
  }

  /** There is no payment page: the page of the order says how it is paid. */
  protected pageUrl(session: string, root: string): string {
    return `${root}/checkout/complete?session_id=${session}`;
  }

  protected activeState(_order: Order, payment: StoredPayment): SubscriptionState {
    const paidUntil = Date.parse(payment.paidUntil ?? payment.since);
    return paidUntil > this.now()
      ? { status: 'active', paidUntil, unpaidSince: null, retryAt: null }
      : { status: 'past_due', paidUntil, unpaidSince: paidUntil, retryAt: null };
  }
}
