// A fake payment provider for trials: the same orders and facts without money. fake-payment-page.ts has its pages.
import type { Order, StoredPayment } from '../store/billing-record.ts';
import { StoredProvider, type SubscriptionState } from './stored-provider.ts';

const DAY = 86_400_000;
const PERIODS = { month: 30 * DAY, year: 365 * DAY, once: DAY } as const;

export class FakeProvider extends StoredProvider {
  readonly name = 'test';

  /** The page of a paid order is its customer portal. */
  override async portal(order: Order, root: string): Promise<string | undefined> {
    const payment = await this.paymentOf(order);
    return payment === undefined || payment.subscription === 'none'
      ? undefined
      : this.pageUrl(payment.session, root);
  }

  /** Handles a button of the payment page. Later presses have no effect. */
  async press(order: Order, button: 'pay' | 'decline'): Promise<void> {
    const payment = await this.paymentOf(order);
    if (payment?.payment !== 'open') return;
    if (button === 'decline') await this.write({ ...payment, payment: 'declined' });
    else {
      const subscription = order.mode === 'subscription' ? 'active' : 'none';
      await this.write({ ...payment, payment: 'paid', subscription });
    }
  }

  /** Simulates a later event. @param ago milliseconds since the event @returns whether it changed anything */
  async simulate(order: Order, what: FakeEvent, ago = 0): Promise<boolean> {
    const payment = await this.paymentOf(order);
    if (payment?.payment !== 'paid') return false;
    await this.#change(order, payment, what, ago);
    return JSON.stringify(await this.paymentOf(order)) !== JSON.stringify(payment);
  }

  async #change(order: Order, payment: StoredPayment, what: FakeEvent, ago: number): Promise<void> {
    const status = (await this.readFacts(order))?.subscription?.status;
    switch (what) {
      case 'cancelled':
        return this.cancel(order, 'now');
      case 'cancelling':
        return this.cancel(order, 'period_end');
      case 'resumed':
        return this.cancel(order, 'never');
      case 'refunded':
        return this.store.writeStoredPayment({ ...payment, refund: 'full' });
      case 'disputed':
        return this.store.writeStoredPayment({ ...payment, dispute: 'open' });
      case 'won':
      case 'lost':
        return this.store.writeStoredPayment({ ...payment, dispute: what });
      case 'failed':
        if (status !== 'active') return;
        return this.write({ ...payment, subscription: 'past_due', paidUntil: null }, ago);
      case 'renewed':
      case 'paid': {
        // An end is final.
        if (status === undefined || status === 'canceled') return;
        const paid = { ...payment, subscription: 'active', refund: 'none' } as const;
        if (what === 'paid') return this.write({ ...paid, dispute: 'none', paidUntil: null });
        if (status !== 'active') return;
        const end = this.activeState(order, payment).paidUntil + PERIODS[order.interval];
        return this.store.writeStoredPayment({
          ...paid,
          paidUntil: new Date(end).toISOString(),
          endsAt: null,
        });
      }
    }
  }

  protected pageUrl(session: string, root: string): string {
    return `${root}/checkout/test?session_id=${session}`;
  }

  /** It is renewed each period. */
  protected activeState(order: Order, { since, paidUntil }: StoredPayment): SubscriptionState {
    const period = PERIODS[order.interval];
    const first = paidUntil === null ? Date.parse(since) + period : Date.parse(paidUntil);
    const renewals = Math.max(0, Math.floor((this.now() - first) / period) + 1);
    return { status: 'active', paidUntil: first + renewals * period, unpaidSince: null, retryAt: null };
  }
}

export const FAKE_EVENTS = [
  'paid',
  'renewed',
  'failed',
  'cancelling',
  'resumed',
  'cancelled',
  'refunded',
  'disputed',
  'won',
  'lost',
] as const;
type FakeEvent = (typeof FAKE_EVENTS)[number];
