// Stripe as the payment provider: creates Checkout Sessions and reads the facts of a payment from Stripe's objects.
// stripe-events.ts reads events; order-verdict.ts decides what the facts mean.
import type Stripe from 'stripe';
import { GatewayError } from '../../errors.ts';
import type { Order } from '../../store/billing-record.ts';
import {
  type CancelTime,
  type MoneyFacts,
  NO_MONEY,
  type OpenSession,
  type PaymentFacts,
  type PaymentProvider,
  type SessionFacts,
} from '../payment-provider.ts';
import type { StripeCalls } from './stripe-calls.ts';
import { disputeFact, ENDED, sessionFacts, stripeIdOf, subscriptionOf, worst } from './stripe-facts.ts';

const PAGES = 'https://checkout.stripe.com';
/** Maximum number of charges that are read, newest first. */
const MAX_CHARGES = 100;
/** Number of newest charges whose fraud warnings are read. */
const WATCHED_CHARGES = 3;

export class StripeProvider implements PaymentProvider {
  readonly name = 'stripe';
  readonly isLive: boolean;
  readonly origins: readonly string[];
  readonly #calls: StripeCalls;

  constructor(
    calls: StripeCalls,
    { secret_key, api_base }: { secret_key: string; api_base?: string | undefined },
  ) {
    this.#calls = calls;
    this.isLive = isLiveKey(secret_key);
    this.origins = api_base === undefined ? [PAGES] : [PAGES, api_base];
  }

  async open(order: Order, root: string): Promise<OpenSession> {
    const session = await this.#calls.call('open', (stripe) =>
      stripe.checkout.sessions.create(sessionParams(order, root), { idempotencyKey: `tollgate-${order.id}` }),
    );
    if (session === undefined || session.url === null) throw invalidAnswer('a session without a URL');
    return { session: sessionFacts(session), url: session.url };
  }

  async pageOf({ session: id }: Order): Promise<string | undefined> {
    if (id === null) return undefined;
    const session = await this.#read((stripe) => stripe.checkout.sessions.retrieve(id));
    return session?.status === 'open' ? (session.url ?? undefined) : undefined;
  }

  async readFacts(order: Order, hinted?: string): Promise<PaymentFacts | undefined> {
    const id = order.session ?? hinted;
    if (id === undefined) return undefined;
    const session = await this.#session(id);
    if (session === undefined) return undefined;
    const facts = sessionFacts(session);
    // A hinted session has to refer to this order; the order's own session is checked by the verdict.
    if (order.session === null && facts.reference !== order.id) return undefined;
    const subscription = subscriptionOf(session);
    const isPaid = facts.payment !== 'unpaid' || order.paidAt !== null;
    return { session: facts, subscription, money: isPaid ? await this.#money(facts) : NO_MONEY };
  }

  async end({ session: id, subscription }: Order): Promise<void> {
    if (subscription !== null) {
      const current = await this.#read((stripe) => stripe.subscriptions.retrieve(subscription));
      if (current === undefined || current.status === 'canceled') return;
      await this.#calls.call('end', (stripe) =>
        stripe.subscriptions.cancel(subscription, { prorate: false, invoice_now: false }),
      );
      return;
    }
    if (id === null) return;
    const session = await this.#read((stripe) => stripe.checkout.sessions.retrieve(id));
    if (session?.status === 'open')
      await this.#calls.call('end', (stripe) => stripe.checkout.sessions.expire(id));
  }

  async portal({ customer, subscription }: Order, root: string): Promise<string | undefined> {
    if (customer === null || subscription === null) return undefined;
    const session = await this.#calls.call('portal', (stripe) =>
      stripe.billingPortal.sessions.create({ customer, return_url: `${root}/account?from=portal` }),
    );
    return session?.url;
  }

  async cancel(order: Order, when: CancelTime): Promise<void> {
    const { subscription: id } = order;
    const current = id === null ? undefined : await this.#read((stripe) => stripe.subscriptions.retrieve(id));
    if (current === undefined) return;
    const update = (change: Stripe.SubscriptionUpdateParams) =>
      this.#calls.call('cancel', (stripe) => stripe.subscriptions.update(current.id, change));
    if (when === 'now') {
      // Read again with the facts: otherwise the tier lasts to the end of the paid period.
      await update({ metadata: { [ENDED]: 'now' } });
      await this.end(order);
    } else if (current.status !== 'canceled' && current.status !== 'incomplete_expired') {
      const isEnding = current.cancel_at_period_end || current.cancel_at !== null;
      if (when === 'period_end' && !isEnding) await update({ cancel_at_period_end: true });
      // Stripe rejects both members in one request.
      if (when === 'never' && current.cancel_at_period_end) await update({ cancel_at_period_end: false });
      else if (when === 'never' && isEnding) await update({ cancel_at: '' });
    }
  }

  async refund(order: Order): Promise<void> {
    const session = order.session && (await this.#session(order.session));
    if (!session) return;
    const [latest] = await this.#charges(sessionFacts(session));
    // Stripe refuses to refund more than the charge, so two at once are one.
    if (latest !== undefined && !latest.refunded)
      await this.#calls.call('refund', (stripe) =>
        stripe.refunds.create({ charge: latest.id, metadata: { order: order.id } }),
      );
    if (order.subscription !== null) await this.cancel(order, 'now');
  }

  /** Finds the order of a charge or a payment in Stripe's objects. @param name the ids in an event */
  async trace(name: {
    readonly charge?: string | undefined;
    readonly payment?: string | undefined;
  }): Promise<{ readonly order?: string; readonly payment?: string; readonly subscription?: string }> {
    const { charge: id } = name;
    const charge = id === undefined ? undefined : await this.#read((stripe) => stripe.charges.retrieve(id));
    const payment = name.payment ?? stripeIdOf(charge?.payment_intent);
    const order = charge?.metadata['order'];
    if (order !== undefined) return { order, ...(payment === undefined ? {} : { payment }) };
    if (payment === undefined) return {};
    const paid = await this.#read((stripe) =>
      stripe.invoicePayments.list({
        payment: { type: 'payment_intent', payment_intent: payment },
        limit: 1,
        expand: ['data.invoice'],
      }),
    );
    const invoice = paid?.data[0]?.invoice;
    const details =
      typeof invoice === 'object' && 'parent' in invoice ? invoice.parent?.subscription_details : undefined;
    const subscription = stripeIdOf(details?.subscription);
    const hinted = details?.metadata?.['order'];
    return {
      payment,
      ...(subscription === undefined ? {} : { subscription }),
      ...(hinted === undefined ? {} : { order: hinted }),
    };
  }

  #session(id: string) {
    return this.#read((stripe) =>
      stripe.checkout.sessions.retrieve(id, {
        expand: ['line_items', 'payment_intent', 'subscription', 'subscription.latest_invoice'],
      }),
    );
  }

  /** Charges that were paid, newest first. */
  async #charges({ mode, customer, payment_id }: SessionFacts): Promise<readonly Stripe.Charge[]> {
    const payer =
      mode === 'subscription' ? customer && { customer } : payment_id && { payment_intent: payment_id };
    if (!payer) return [];
    const list = await this.#read((stripe) => stripe.charges.list({ ...payer, limit: MAX_CHARGES }));
    return (list?.data ?? [])
      .filter(({ paid: isPaid, status }) => isPaid && status !== 'failed')
      .sort((a, b) => b.created - a.created);
  }

  /** Refunds, disputes and fraud warnings of all payments. */
  async #money(session: SessionFacts): Promise<MoneyFacts> {
    const paid = await this.#charges(session);
    const [latest] = paid;
    if (latest === undefined) return NO_MONEY;
    const [disputes, warnings] = await Promise.all([
      Promise.all(paid.filter(({ disputed }) => disputed).map(({ id }) => this.#disputesOf(id))),
      Promise.all(paid.slice(0, WATCHED_CHARGES).map(({ id }) => this.#isSuspect(id))),
    ]);
    return {
      refund: latest.refunded ? 'full' : latest.amount_refunded > 0 ? 'partial' : 'none',
      dispute: worst(disputes.flat()),
      isSuspect: warnings.includes(true),
    };
  }

  #read<T>(work: (stripe: Stripe) => Promise<T>): Promise<T | undefined> {
    return this.#calls.call('read', work);
  }

  async #disputesOf(charge: string): Promise<readonly MoneyFacts['dispute'][]> {
    const list = await this.#read((stripe) => stripe.disputes.list({ charge, limit: 10 }));
    return (list?.data ?? []).map(({ status }) => disputeFact(status));
  }

  async #isSuspect(charge: string): Promise<boolean> {
    const list = await this.#read((stripe) => stripe.radar.earlyFraudWarnings.list({ charge, limit: 10 }));
    return (list?.data ?? []).some(({ actionable }) => actionable);
  }
}

/** Derived from the order alone: an idempotency key requires the same parameters each time. */
function sessionParams(order: Order, root: string): Stripe.Checkout.SessionCreateParams {
  const mode = order.mode === 'subscription' ? 'subscription' : 'payment';
  const metadata = { order: order.id };
  return {
    mode,
    client_reference_id: order.id,
    line_items: [{ price: order.price ?? '', quantity: 1 }],
    metadata,
    // Events about a subscription or a payment may arrive before the completion of the session.
    ...(mode === 'subscription'
      ? { subscription_data: { metadata } }
      : { payment_intent_data: { metadata }, customer_creation: 'always' as const }),
    // Charge the ordered amount in its currency.
    adaptive_pricing: { enabled: false },
    success_url: `${root}/checkout/complete?session_id={CHECKOUT_SESSION_ID}`,
    cancel_url: `${root}/checkout/cancelled`,
    expand: ['line_items'],
  };
}

/** Whether money moves with this key. */
export function isLiveKey(secretKey: string): boolean {
  return !/^(sk|rk)_test_/.test(secretKey);
}

function invalidAnswer(what: string): GatewayError {
  return new GatewayError('payment_unavailable', undefined, { cause: new Error(`Stripe returned ${what}`) });
}
