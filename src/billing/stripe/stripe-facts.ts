// What a payment is by Stripe's objects: the facts of a session, a subscription and its disputes. It calls nothing.
import type Stripe from 'stripe';
import type { MoneyFacts, SessionFacts, SubscriptionFacts } from '../payment-provider.ts';

/** In the metadata of a subscription: its paid period ended with it. */
export const ENDED = 'ended';

export function sessionFacts(session: Stripe.Checkout.Session): SessionFacts {
  const lines = session.line_items?.data ?? [];
  const [line] = lines;
  const isOne = lines.length === 1 && session.line_items?.has_more !== true && line?.quantity === 1;
  const intent = session.payment_intent;
  return {
    id: session.id,
    status: session.status === 'complete' ? 'complete' : session.status === 'expired' ? 'expired' : 'open',
    payment:
      session.payment_status === 'paid'
        ? 'paid'
        : session.payment_status === 'no_payment_required'
          ? 'not_required'
          : 'unpaid',
    hasFailed: session.status === 'complete' && (hasFailed(intent) || isOver(session.subscription)),
    reference: session.client_reference_id,
    price: isOne ? (line.price?.id ?? null) : null,
    amount: session.amount_total,
    currency: session.currency,
    mode: session.mode,
    isLive: session.livemode,
    subscription: stripeIdOf(session.subscription) ?? null,
    payment_id: stripeIdOf(intent) ?? null,
    customer: stripeIdOf(session.customer) ?? null,
  };
}

/** A payment that needs another method, or was cancelled, does not complete by itself. */
function hasFailed(intent: string | Stripe.PaymentIntent | null): boolean {
  if (intent === null || typeof intent === 'string') return false;
  return intent.status === 'requires_payment_method' || intent.status === 'canceled';
}

function isOver(subscription: string | Stripe.Subscription | null): boolean {
  if (subscription === null || typeof subscription === 'string') return false;
  return subscription.status === 'incomplete_expired' || subscription.status === 'canceled';
}

export function subscriptionOf({ subscription }: Stripe.Checkout.Session): SubscriptionFacts | null {
  if (subscription === null || typeof subscription === 'string') return null;
  const { data } = subscription.items;
  const [item] = data;
  const isOne = data.length === 1 && (item?.quantity ?? 1) === 1;
  const invoice = subscription.latest_invoice;
  const latest = invoice === null || typeof invoice === 'string' ? undefined : invoice;
  const isUnpaid = latest?.status === 'open' || latest?.status === 'uncollectible';
  // A draft is the invoice of a period that has just begun, and is charged within an hour or so.
  const isPaid = !isUnpaid && latest?.status !== 'void' && latest?.status !== 'draft';
  const start = (item?.current_period_start ?? subscription.start_date) * 1000;
  const end = (item?.current_period_end ?? subscription.start_date) * 1000;
  const isEndedNow = subscription.status === 'canceled' && subscription.metadata[ENDED] === 'now';
  const paidUntil = isPaid ? end : start;
  return {
    id: subscription.id,
    status: statusOf(subscription.status),
    price: isOne ? (item?.price.id ?? null) : null,
    isLive: subscription.livemode,
    paidUntil: isEndedNow ? Math.min(paidUntil, (subscription.ended_at ?? 0) * 1000) : paidUntil,
    unpaidSince: isUnpaid ? latest.created * 1000 : null,
    endsAt: endOf(subscription, end),
    retryAt:
      latest?.status === 'open' && latest.next_payment_attempt ? latest.next_payment_attempt * 1000 : null,
  };
}

/** Only the portal of some accounts sets `cancel_at_period_end`; others set the time itself. */
function endOf(subscription: Stripe.Subscription, periodEnd: number): number | null {
  if (subscription.cancel_at) return subscription.cancel_at * 1000;
  return subscription.cancel_at_period_end ? periodEnd : null;
}

function statusOf(status: Stripe.Subscription.Status): SubscriptionFacts['status'] {
  switch (status) {
    case 'active':
    case 'trialing':
      return 'active';
    case 'past_due':
    case 'unpaid':
      return 'past_due';
    case 'canceled':
    case 'incomplete_expired':
      return 'canceled';
    default:
      // `incomplete`, `paused` and unknown states: not paid.
      return 'incomplete';
  }
}

/** An inquiry (`warning_…`) moves no money, and neither does a prevented or won dispute in the end. */
export function disputeFact(status: string): MoneyFacts['dispute'] {
  if (status.startsWith('warning_')) return 'none';
  if (status === 'won' || status === 'prevented') return 'won';
  return status === 'lost' ? 'lost' : 'open';
}

export function worst(all: readonly MoneyFacts['dispute'][]): MoneyFacts['dispute'] {
  for (const each of ['lost', 'open', 'won'] as const) if (all.includes(each)) return each;
  return 'none';
}

/** The id of a reference that may be expanded. */
export function stripeIdOf(
  reference: string | { readonly id?: string } | null | undefined,
): string | undefined {
  return typeof reference === 'string' ? reference : reference?.id;
}
