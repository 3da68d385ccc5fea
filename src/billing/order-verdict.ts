// The rules for orders: state and billing status follow from the facts of the payment and the time alone. They are pure
// functions, so lost, repeated and reordered events do not matter: the latest facts decide.
import { TIERS, type Tier } from '../config/schema/config-schema.ts';
import type {
  HolderTarget,
  Order,
  OrderBillingStatus,
  OrderChange,
  OrderState,
} from '../store/billing-record.ts';
import type { MoneyFacts, PaymentFacts, SessionFacts, SubscriptionFacts } from './payment-provider.ts';

/** The reason of an order that a fraud warning holds. */
export const SUSPECTED = 'warning of fraud';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** A checkout session lives for a day. An order without one cannot be paid. */
const UNOPENED_MS = 25 * HOUR;
/** Cards can be disputed for about 120 days. Later, only an event causes a check. */
const DISPUTABLE_MS = 180 * DAY;

interface OrderVerdictRules {
  /** Milliseconds since 1970. */
  readonly now: number;
  /** Milliseconds. */
  readonly grace: number;
}

interface Verdict {
  readonly state: OrderState;
  readonly standing: OrderBillingStatus;
  readonly reason: string | null;
  /** Time of the next check, in milliseconds since 1970; undefined when only an event can change the verdict. */
  readonly due?: number;
}

/** @param facts undefined when the order has no session at the provider */
export function orderVerdict(
  order: Order,
  facts: PaymentFacts | undefined,
  rules: OrderVerdictRules,
): OrderChange {
  const change = verdictOf(order, facts, rules);
  const { state, standing, reason, due } = change;
  const at = new Date(rules.now).toISOString();
  const isPaid = state === 'paid' || state === 'claimed';
  const { session, subscription } = facts ?? {};
  return {
    state,
    standing,
    reason,
    dueAt: due === undefined ? null : new Date(due).toISOString(),
    ...(isPaid && order.paidAt === null ? { paidAt: at } : {}),
    ...(state === 'claimed' && order.claimedAt === null ? { claimedAt: at } : {}),
    // The provider's ids are stored once the session is known to belong to this order.
    ...(session === undefined || session.reference !== order.id
      ? {}
      : {
          session: session.id,
          subscription: session.subscription ?? order.subscription,
          payment: session.payment_id ?? order.payment,
          customer: session.customer ?? order.customer,
        }),
    ...(subscription == null ? {} : subscriptionDates(order, subscription)),
    ...(subscription?.status === 'canceled' ? { isCancelled: true } : {}),
  };
}

/** The dates shown to a holder. */
function subscriptionDates(order: Order, subscription: SubscriptionFacts): OrderChange {
  const { status, paidUntil } = latestOf(order, subscription);
  const { endsAt, retryAt } = status === 'canceled' ? OVER : subscription;
  return { paidUntil: dateText(paidUntil), endsAt: dateText(endsAt), retryAt: dateText(retryAt) };
}

const OVER = { endsAt: null, retryAt: null };

const dateText = (ms: number | null) => (ms === null ? null : new Date(ms).toISOString());

function verdictOf(
  order: Order,
  facts: PaymentFacts | undefined,
  { now, grace }: OrderVerdictRules,
): Verdict {
  const age = now - Date.parse(order.createdAt);
  const later = now + Math.min(Math.max(age, 10 * MINUTE), 6 * HOUR);
  if (facts === undefined) {
    if (order.state !== 'pending') return { ...order, reason: order.reason };
    if (age < UNOPENED_MS) return { state: 'pending', standing: 'none', reason: order.reason, due: later };
    return { state: 'void', standing: 'none', reason: 'never opened' };
  }
  const { session, money } = facts;
  const wrong = mismatchOf(order, session) ?? subscriptionMismatch(order, facts.subscription);
  if (wrong !== undefined) {
    const reason = `not what was ordered: ${wrong}`;
    return order.state === 'claimed'
      ? { state: 'claimed', standing: 'lapsed', reason, due: now + DAY }
      : { state: 'refused', standing: 'none', reason };
  }
  if (session.payment === 'unpaid' && order.state !== 'claimed') {
    if (session.status === 'expired') return { state: 'void', standing: 'none', reason: 'expired' };
    if (session.hasFailed) return { state: 'void', standing: 'none', reason: 'payment failed' };
    const reason = session.status === 'complete' ? 'payment under way' : null;
    return { state: 'pending', standing: 'none', reason, due: later };
  }
  const found = standingOf(order, money, facts.subscription, now, grace);
  if (order.state === 'claimed') return { state: 'claimed', ...found };
  if (found.standing === 'ended') return { state: 'void', ...found };
  // A holder who ordered has a key, so there is nothing to claim.
  return { state: order.holderId === null ? 'paid' : 'claimed', ...found };
}

function standingOf(
  order: Order,
  money: MoneyFacts,
  subscription: SubscriptionFacts | null,
  now: number,
  grace: number,
): Omit<Verdict, 'state'> {
  if (money.dispute === 'lost') return { standing: 'ended', reason: 'dispute lost' };
  if (money.refund === 'full') return { standing: 'ended', reason: 'refunded in full' };
  if (money.dispute === 'open') return { standing: 'held', reason: 'disputed', due: now + DAY };
  if (money.isSuspect && !order.isTrusted) return { standing: 'held', reason: SUSPECTED, due: now + DAY };
  const note = money.refund === 'partial' ? 'refunded in part' : null;
  if (order.mode === 'payment') {
    const isRecent = now - Date.parse(order.createdAt) < DISPUTABLE_MS;
    return { standing: 'active', reason: note, ...(isRecent ? { due: now + DAY } : {}) };
  }
  if (subscription === null) return { standing: 'lapsed', reason: 'no subscription', due: now + DAY };
  const { status, paidUntil } = latestOf(order, subscription);
  switch (status) {
    case 'canceled':
      return now < paidUntil
        ? { standing: 'active', reason: 'cancelled, and paid until its end', due: paidUntil }
        : { standing: 'ended', reason: 'cancelled' };
    case 'active': {
      const reason = subscription.endsAt === null ? note : 'cancelled, and ends with its period';
      // Check daily, in case an event was lost.
      const next = Math.min(paidUntil, subscription.endsAt ?? paidUntil);
      return { standing: 'active', reason, due: soonestAfter(now, next + HOUR) };
    }
    case 'past_due': {
      const end = (subscription.unpaidSince ?? now) + grace;
      const reason = order.provider === 'none' ? 'invoice not paid' : 'payment failed';
      return now < end
        ? { standing: 'past_due', reason, due: Math.min(end, now + 6 * HOUR) }
        : { standing: 'lapsed', reason, due: now + DAY };
    }
    case 'incomplete':
      return { standing: 'lapsed', reason: 'subscription is not active', due: now + DAY };
  }
}

/** An ended subscription stays ended, even if an outdated answer of the provider says otherwise. */
function latestOf(
  { isCancelled, paidUntil }: Order,
  subscription: SubscriptionFacts,
): Pick<SubscriptionFacts, 'status' | 'paidUntil'> {
  if (!isCancelled || paidUntil === null || subscription.status === 'canceled') return subscription;
  return { status: 'canceled', paidUntil: Date.parse(paidUntil) };
}

/** `at`, but within a day; in an hour when it has passed. */
function soonestAfter(now: number, at: number): number {
  return at <= now ? now + HOUR : Math.min(at, now + DAY);
}

/** The difference between a session and its order; undefined when there is none. The stored order is authoritative. */
export function mismatchOf(order: Order, session: SessionFacts): string | undefined {
  if (session.reference !== order.id || (order.session !== null && order.session !== session.id))
    return 'order';
  if (session.isLive !== order.isLive) return 'live mode';
  if (session.mode !== order.mode) return 'mode';
  if (session.price !== order.price) return 'price';
  if (session.currency !== order.currency) return 'currency';
  if (session.amount !== order.amount) return 'amount';
  if (session.payment === 'not_required' && order.amount > 0) return 'nothing was paid';
  return undefined;
}

function subscriptionMismatch(order: Order, subscription: SubscriptionFacts | null): string | undefined {
  if (subscription === null) return undefined;
  if (order.subscription !== null && order.subscription !== subscription.id) return 'subscription';
  if (subscription.isLive !== order.isLive) return 'live mode of the subscription';
  return subscription.price === order.price ? undefined : 'price of the subscription';
}

export const isEntitled = ({ state, standing }: Order): boolean =>
  state === 'claimed' && (standing === 'active' || standing === 'past_due');

const rank = (tier: Tier): number => TIERS.indexOf(tier);

/** Whether `tier` ranks above `than`. */
export function isAbove(tier: Tier, than: Tier): boolean {
  return rank(tier) > rank(than);
}

/**
 * Tier and billing status of a holder from all its orders: the highest paid one decides.
 * @returns undefined when none was ever claimed
 */
export function targetOf(
  orders: readonly Order[],
  onLapse: 'downgrade' | 'suspend',
): HolderTarget | undefined {
  const [first] = orders.filter(({ state }) => state === 'claimed');
  const decisive = decisiveOf(orders);
  if (first === undefined || decisive === undefined) return undefined;
  if (isEntitled(decisive)) return { tier: decisive.tier, standing: 'good' };
  return onLapse === 'downgrade'
    ? { tier: first.baseTier, standing: 'good' }
    : { tier: decisive.tier, standing: 'suspended' };
}

/** The order that decides about a holder: the highest paid one, otherwise the last one. */
export function decisiveOf(orders: readonly Order[]): Order | undefined {
  const own = orders.filter(({ state }) => state === 'claimed');
  const [best] = own.filter(isEntitled).sort((a, b) => rank(b.tier) - rank(a.tier));
  return best ?? own.at(-1);
}

/** The order whose subscription the holder manages at the provider: the deciding one, or the last with a subscription. */
export function managedOf(orders: readonly Order[]): Order | undefined {
  const isManaged = ({ state, subscription, provider }: Order) =>
    state === 'claimed' && subscription !== null && provider !== 'none';
  const decisive = decisiveOf(orders);
  return decisive !== undefined && isManaged(decisive) ? decisive : orders.findLast(isManaged);
}

/**
 * The deciding order as the holder may see it, without ids of the provider.
 * @returns undefined for a holder without an order that was ever paid
 */
export function currentOrderOf(orders: readonly Order[]) {
  const order = decisiveOf(orders);
  if (order === undefined) return undefined;
  const { id, tier, standing, isCancelled, paidUntil, endsAt } = order;
  return {
    order: id,
    tier,
    standing,
    amount: order.amount,
    currency: order.currency,
    interval: order.interval,
    paid_by: order.provider === 'none' ? 'invoice' : 'card',
    cancelled: isCancelled || endsAt !== null,
    paid_until: paidUntil,
    ends_at: isCancelled ? paidUntil : endsAt,
    retry_at: order.retryAt,
    /** Whether a cancellation can be undone. */
    resumable: endsAt !== null && order.provider !== 'none',
    /** Whether `POST /checkout/portal` has a page for the holder. */
    portal: managedOf(orders) !== undefined,
  };
}

/** Whether a holder has ordered and no order is paid any more; `on_lapse` applies to such holders. */
export function isLapsed(orders: readonly Order[]): boolean {
  return orders.some(({ state }) => state === 'claimed') && !orders.some(isEntitled);
}

/** The effect of an order's change on its holder; undefined for none, so that manual changes by support remain. */
export function changedTarget(
  before: readonly Order[],
  after: readonly Order[],
  onLapse: 'downgrade' | 'suspend',
): HolderTarget | undefined {
  const [old, target] = [targetOf(before, onLapse), targetOf(after, onLapse)];
  if (target === undefined || (old?.tier === target.tier && old.standing === target.standing))
    return undefined;
  // A payment does not lift a suspension by support.
  return target.standing === 'good' && !isLapsed(before) ? { tier: target.tier } : target;
}

/**
 * Ids of orders of the holder whose subscription a newer order of the same or a higher tier replaces. One of both has just been
 * settled, whichever: their events arrive in any order.
 */
export function replacedBy(settled: Order, orders: readonly Order[]): readonly string[] {
  const isReplacedBy = (older: Order, newer: Order): boolean =>
    isEntitled(newer) && isOlder(older, newer) && !isAbove(older.tier, newer.tier);
  return orders
    .filter(
      (each) =>
        each.subscription !== null &&
        !each.isCancelled &&
        !each.isReplaced &&
        (isReplacedBy(each, settled) ||
          (each.id === settled.id && orders.some((other) => isReplacedBy(each, other)))),
    )
    .map(({ id }) => id);
}

/** Of two orders of the same time, one is the older. */
function isOlder(one: Order, other: Order): boolean {
  return one.createdAt === other.createdAt ? one.id < other.id : one.createdAt < other.createdAt;
}
