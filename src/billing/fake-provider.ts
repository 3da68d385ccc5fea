// A fake payment provider for trials: the same orders and facts without money. Its state is in the store, so that several
// processes and the command line agree on it. fake-payment-page.ts is its page.
import type { BillingStore, Order, TestPayment } from '../store/billing-record.ts';
import type {
  OpenSession,
  PaymentFacts,
  PaymentProvider,
  SessionFacts,
  SubscriptionFacts,
} from './payment-provider.ts';

const DAY = 86_400_000;
const PERIODS = { month: 30 * DAY, year: 365 * DAY, once: 0 } as const;

export class FakeProvider implements PaymentProvider {
  readonly name = 'test';
  readonly isLive = false;
  readonly origins = [];
  readonly #store: BillingStore;
  readonly #now: () => number;

  /** @param now milliseconds since 1970 */
  constructor(store: BillingStore, now: () => number = Date.now) {
    this.#store = store;
    this.#now = now;
  }

  async open(order: Order, root: string): Promise<OpenSession> {
    const session = `cs_played_${order.id}`;
    const payment = (await this.#store.testPayment({ session })) ?? {
      session,
      orderId: order.id,
      payment: 'open',
      subscription: 'none',
      refund: 'none',
      dispute: 'none',
      since: new Date(this.#now()).toISOString(),
    };
    await this.#store.writeTestPayment(payment);
    return { session: sessionFacts(order, payment), url: pageUrl(session, root) };
  }

  async pageOf({ id }: Order, root: string): Promise<string | undefined> {
    const payment = await this.#store.testPayment({ orderId: id });
    return payment?.payment === 'open' ? pageUrl(payment.session, root) : undefined;
  }

  async readFacts(order: Order): Promise<PaymentFacts | undefined> {
    const payment = await this.#store.testPayment({ orderId: order.id });
    if (payment === undefined) return undefined;
    const { refund, dispute } = payment;
    return {
      session: sessionFacts(order, payment),
      subscription: this.#subscriptionOf(order, payment),
      money: { refund, dispute, isSuspect: false },
    };
  }

  async end({ id }: Order): Promise<void> {
    const payment = await this.#store.testPayment({ orderId: id });
    if (payment === undefined) return;
    if (payment.payment === 'open') await this.#write({ ...payment, payment: 'expired' });
    else if (payment.subscription !== 'none' && payment.subscription !== 'canceled')
      await this.#write({ ...payment, subscription: 'canceled' });
  }

  /** Handles a button of the payment page. Later presses have no effect. */
  async press(order: Order, button: 'pay' | 'decline'): Promise<void> {
    const payment = await this.#store.testPayment({ orderId: order.id });
    if (payment?.payment !== 'open') return;
    if (button === 'decline') await this.#write({ ...payment, payment: 'declined' });
    else {
      const subscription = order.mode === 'subscription' ? 'active' : 'none';
      await this.#write({ ...payment, payment: 'paid', subscription });
    }
  }

  /** Simulates a later event. @param ago milliseconds since the event */
  async simulate(order: Order, what: FakeEvent, ago = 0): Promise<void> {
    const payment = await this.#store.testPayment({ orderId: order.id });
    if (payment === undefined) return;
    await this.#write({ ...payment, ...EFFECTS[what] }, ago);
  }

  async #write(payment: TestPayment, ago = 0): Promise<void> {
    await this.#store.writeTestPayment({ ...payment, since: new Date(this.#now() - ago).toISOString() });
  }

  #subscriptionOf(order: Order, { subscription, since }: TestPayment): SubscriptionFacts | null {
    if (subscription === 'none') return null;
    const start = Date.parse(since);
    const period = PERIODS[order.interval] || DAY;
    // An active subscription is renewed each period; another one was paid until its state changed.
    const periods = Math.floor((this.#now() - start) / period) + 1;
    return {
      id: `sub_played_${order.id}`,
      status: subscription,
      price: order.price,
      isLive: false,
      paidUntil: subscription === 'active' ? start + periods * period : start,
      unpaidSince: subscription === 'past_due' ? start : null,
    };
  }
}

export const FAKE_EVENTS = ['paid', 'failed', 'cancelled', 'refunded', 'disputed', 'won', 'lost'] as const;
type FakeEvent = (typeof FAKE_EVENTS)[number];

const EFFECTS: Readonly<Record<FakeEvent, Partial<TestPayment>>> = {
  paid: { subscription: 'active', refund: 'none', dispute: 'none' },
  failed: { subscription: 'past_due' },
  cancelled: { subscription: 'canceled' },
  refunded: { refund: 'full' },
  disputed: { dispute: 'open' },
  won: { dispute: 'won' },
  lost: { dispute: 'lost' },
};

function pageUrl(session: string, root: string): string {
  return `${root}/checkout/test?session_id=${session}`;
}

function sessionFacts(order: Order, { session, payment, subscription }: TestPayment): SessionFacts {
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
