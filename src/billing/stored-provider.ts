// A payment provider whose payments are rows of the store, so that all processes and the command line agree on them. The fake
// provider plays them; with the invoice provider, support marks them as paid.
import type { BillingStore, Order, StoredPayment } from '../store/billing-record.ts';
import type {
  CancelTime,
  OpenSession,
  PaymentFacts,
  PaymentProvider,
  SessionFacts,
  SubscriptionFacts,
} from './payment-provider.ts';

/** What follows from a stored subscription at a time. */
export type SubscriptionState = Pick<SubscriptionFacts, 'status' | 'paidUntil' | 'unpaidSince' | 'retryAt'>;

export abstract class StoredProvider implements PaymentProvider {
  abstract readonly name: 'test' | 'none';
  readonly isLive = false;
  readonly origins: readonly string[] = [];
  protected readonly store: BillingStore;
  protected readonly now: () => number;

  /** @param now milliseconds since 1970 */
  constructor(store: BillingStore, now: () => number = Date.now) {
    this.store = store;
    this.now = now;
  }

  /** URL to which a buyer is sent. */
  protected abstract pageUrl(session: string, root: string): string;

  /** The state of a subscription that is `active` in the store and has not reached its end. */
  protected abstract activeState(order: Order, payment: StoredPayment): SubscriptionState;

  async open(order: Order, root: string): Promise<OpenSession> {
    const session = `cs_played_${order.id}`;
    const payment = (await this.store.storedPayment({ session })) ?? {
      session,
      orderId: order.id,
      payment: 'open',
      subscription: 'none',
      refund: 'none',
      dispute: 'none',
      since: new Date(this.now()).toISOString(),
      paidUntil: null,
      endsAt: null,
    };
    await this.store.writeStoredPayment(payment);
    return { session: sessionFacts(order, payment), url: this.pageUrl(session, root) };
  }

  async pageOf(order: Order, root: string): Promise<string | undefined> {
    const payment = await this.paymentOf(order);
    return payment?.payment === 'open' ? this.pageUrl(payment.session, root) : undefined;
  }

  async portal(_order: Order, _root: string): Promise<string | undefined> {
    return undefined;
  }

  async readFacts(order: Order): Promise<PaymentFacts | undefined> {
    const payment = await this.paymentOf(order);
    if (payment === undefined) return undefined;
    const { refund, dispute } = payment;
    return {
      session: sessionFacts(order, payment),
      subscription: this.#subscriptionOf(order, payment),
      money: { refund, dispute, isSuspect: false },
    };
  }

  async end(order: Order): Promise<void> {
    const payment = await this.paymentOf(order);
    if (payment === undefined) return;
    const { paidUntil } = this.#subscriptionOf(order, payment) ?? { paidUntil: 0 };
    if (payment.payment === 'open') await this.write({ ...payment, payment: 'expired' });
    else if (payment.subscription !== 'none' && payment.subscription !== 'canceled')
      await this.write({
        ...payment,
        subscription: 'canceled',
        paidUntil: new Date(paidUntil).toISOString(),
      });
  }

  async cancel(order: Order, when: CancelTime): Promise<void> {
    const payment = await this.paymentOf(order);
    const current = payment && this.#subscriptionOf(order, payment);
    if (payment === undefined || current == null) return;
    // A period that is over, of a payment that failed, has nothing to wait for.
    const isOver = when === 'period_end' && current.paidUntil <= this.now();
    if (when === 'now' || (isOver && current.status !== 'canceled'))
      await this.write({ ...payment, subscription: 'canceled', ...ENDED });
    else if (current.status !== 'canceled') {
      const endsAt = when === 'never' ? null : new Date(current.paidUntil).toISOString();
      await this.store.writeStoredPayment({ ...payment, endsAt });
    }
  }

  async refund(order: Order): Promise<void> {
    const payment = await this.paymentOf(order);
    if (payment?.payment !== 'paid' || payment.refund === 'full') return;
    const ended = payment.subscription === 'none' ? {} : ({ subscription: 'canceled', ...ENDED } as const);
    await this.write({ ...payment, refund: 'full', ...ended });
  }

  protected paymentOf({ id }: Order): Promise<StoredPayment | undefined> {
    return this.store.storedPayment({ orderId: id });
  }

  /** Writes a change of the subscription. @param ago milliseconds since it */
  protected async write(payment: StoredPayment, ago = 0): Promise<void> {
    await this.store.writeStoredPayment({ ...payment, since: new Date(this.now() - ago).toISOString() });
  }

  #subscriptionOf(order: Order, payment: StoredPayment): SubscriptionFacts | null {
    if (payment.subscription === 'none') return null;
    const endsAt = payment.endsAt === null ? null : Date.parse(payment.endsAt);
    const state = this.#stateOf(order, payment, endsAt);
    return {
      id: `sub_played_${order.id}`,
      price: order.price,
      isLive: false,
      ...state,
      endsAt: state.status === 'canceled' ? null : endsAt,
    };
  }

  #stateOf(order: Order, payment: StoredPayment, endsAt: number | null): SubscriptionState {
    const since = Date.parse(payment.since);
    switch (payment.subscription) {
      case 'none':
      case 'canceled':
        return canceledAt(payment.paidUntil === null ? since : Date.parse(payment.paidUntil));
      case 'past_due':
        return { status: 'past_due', paidUntil: since, unpaidSince: since, retryAt: since + RETRY_MS };
      case 'active':
        if (endsAt !== null && endsAt <= this.now()) return canceledAt(endsAt);
        return this.activeState(order, payment);
    }
  }
}

/** When a failed payment is said to be tried again. */
const RETRY_MS = 3 * 86_400_000;
/** A subscription that ended when its state changed. */
const ENDED = { paidUntil: null, endsAt: null } as const;

function canceledAt(paidUntil: number): SubscriptionState {
  return { status: 'canceled', paidUntil, unpaidSince: null, retryAt: null };
}

function sessionFacts(order: Order, { session, payment, subscription }: StoredPayment): SessionFacts {
  return {
    id: session,
    status: payment === 'expired' ? 'expired' : payment === 'open' ? 'open' : 'complete',
    payment: payment === 'paid' ? 'paid' : 'unpaid',
    hasFailed: payment === 'declined',
    reference: order.id,
    price: order.price,
    amount: order.amount,
    currency: order.currency,
    mode: order.mode,
    isLive: false,
    subscription: subscription === 'none' ? null : `sub_played_${order.id}`,
    payment_id: null,
    customer: null,
  };
}
