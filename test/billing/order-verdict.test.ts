// The rules for orders: each decision from the facts of a payment, at its exact bounds.
import { describe, expect, test } from 'vitest';
import {
  changedTarget,
  currentOrderOf,
  decisiveOf,
  isAbove,
  isEntitled,
  isLapsed,
  managedOf,
  mismatchOf,
  orderVerdict,
  replacedBy,
  targetOf,
} from '../../src/billing/order-verdict.ts';
import {
  type MoneyFacts,
  NO_MONEY,
  type PaymentFacts,
  type SessionFacts,
  type SubscriptionFacts,
} from '../../src/billing/payment-provider.ts';
import type { Order } from '../../src/store/billing-record.ts';
import { orderSample } from './order-sample.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const NOW = Date.parse('2030-03-01T00:00:00.000Z');
const iso = (at: number) => new Date(at).toISOString();

/** Made this long ago. */
const aged = (age: number, changed: Partial<Order> = {}): Order =>
  orderSample({ createdAt: iso(NOW - age), session: 'cs_1', ...changed });

const session = (changed: Partial<SessionFacts> = {}): SessionFacts => ({
  id: 'cs_1',
  status: 'complete',
  payment: 'paid',
  hasFailed: false,
  reference: 'ord_1',
  price: 'price_lite',
  amount: 900,
  currency: 'usd',
  mode: 'subscription',
  isLive: false,
  subscription: 'sub_1',
  payment_id: null,
  customer: 'cus_1',
  ...changed,
});

const running = (changed: Partial<SubscriptionFacts> = {}): SubscriptionFacts => ({
  id: 'sub_1',
  status: 'active',
  price: 'price_lite',
  isLive: false,
  paidUntil: NOW + 20 * DAY,
  unpaidSince: null,
  endsAt: null,
  retryAt: null,
  ...changed,
});

interface Case {
  readonly session?: Partial<SessionFacts>;
  readonly subscription?: Partial<SubscriptionFacts> | null;
  readonly money?: Partial<MoneyFacts>;
}

function factsOf({ session: of = {}, subscription = {}, money = {} }: Case = {}): PaymentFacts {
  return {
    session: session(of),
    subscription: subscription === null ? null : running(subscription),
    money: { ...NO_MONEY, ...money },
  };
}

const decide = (order: Order, facts?: Case) =>
  orderVerdict(order, facts === undefined ? undefined : factsOf(facts), { now: NOW, grace: 7 * DAY });

describe('an order without a known session', () => {
  test.each<[number, string, number | null]>([
    [0, 'pending', 10 * MINUTE],
    [11 * MINUTE, 'pending', 11 * MINUTE],
    [7 * HOUR, 'pending', 6 * HOUR],
    [25 * HOUR - 1, 'pending', 6 * HOUR],
    [25 * HOUR, 'void', null],
  ])('of %i ms is %s', (age, state, wait) => {
    const dueAt = wait === null ? null : iso(NOW + wait);
    expect(decide(aged(age))).toMatchObject({ state, standing: 'none', dueAt });
  });

  test('does not change after it was paid', () => {
    const order = aged(DAY, { state: 'claimed', standing: 'active', reason: 'why', claimedAt: iso(NOW) });
    const change = decide(order);
    expect(change).toMatchObject({ state: 'claimed', standing: 'active', reason: 'why' });
    expect(Object.keys(change)).not.toContain('session');
    expect(Object.keys(change)).not.toContain('isCancelled');
    expect(Object.keys(change)).not.toContain('paidUntil');
  });
});

describe('a session that differs from the order', () => {
  test.each<[string, Partial<SessionFacts>]>([
    ['order', { reference: 'ord_2' }],
    ['order', { reference: null }],
    ['order', { id: 'cs_2' }],
    ['live mode', { isLive: true }],
    ['mode', { mode: 'payment' }],
    ['price', { price: 'price_pro' }],
    ['price', { price: null }],
    ['currency', { currency: 'eur' }],
    ['amount', { amount: 899 }],
    ['amount', { amount: 901 }],
    ['nothing was paid', { payment: 'not_required' }],
  ])('by its %s: refused, and lapsed once it was claimed', (what, changed) => {
    expect(mismatchOf(aged(0), session(changed))).toBe(what);
    const reason = `not what was ordered: ${what}`;
    expect(decide(aged(0), { session: changed })).toMatchObject({
      state: 'refused',
      standing: 'none',
      reason,
    });
    expect(decide(aged(0, { state: 'claimed' }), { session: changed })).toMatchObject({
      state: 'claimed',
      standing: 'lapsed',
      reason,
      dueAt: iso(NOW + DAY),
    });
  });

  test('is accepted for an order without a session, and without payment at a price of 0', () => {
    expect(mismatchOf(aged(0, { session: null }), session())).toBeUndefined();
    expect(
      mismatchOf(aged(0, { amount: 0 }), session({ amount: 0, payment: 'not_required' })),
    ).toBeUndefined();
  });

  test.each<[string, Partial<SubscriptionFacts>, string | null]>([
    ['subscription', { id: 'sub_2' }, 'sub_1'],
    ['live mode of the subscription', { isLive: true }, null],
    ['price of the subscription', { price: 'price_pro' }, null],
    ['price of the subscription', { price: null }, 'sub_1'],
  ])('by its %s', (what, changed, subscription) => {
    expect(decide(aged(0, { subscription }), { subscription: changed })).toMatchObject({
      state: 'refused',
      reason: `not what was ordered: ${what}`,
    });
  });

  test('ids of a foreign session are not stored', () => {
    expect(Object.keys(decide(aged(0), { session: { reference: 'ord_2' } }))).not.toContain('session');
  });
});

describe('an unpaid session', () => {
  test.each<[string, Partial<SessionFacts>, string, string | null]>([
    ['open', { status: 'open' }, 'pending', null],
    ['complete', { status: 'complete' }, 'pending', 'payment under way'],
    ['expired', { status: 'expired' }, 'void', 'expired'],
    ['failed', { hasFailed: true }, 'void', 'payment failed'],
  ])('%s', (_, changed, state, reason) => {
    const facts = { session: { payment: 'unpaid' as const, ...changed }, subscription: null };
    expect(decide(aged(0), facts)).toMatchObject({ state, standing: 'none', reason });
    // What was claimed is judged by what is paid now, and is never pending again.
    expect(decide(aged(0, { state: 'claimed' }), facts)).toMatchObject({
      state: 'claimed',
      standing: 'lapsed',
    });
  });

  test('a paid one is not void because of a failure flag', () => {
    expect(decide(aged(0), { session: { hasFailed: true, status: 'expired' } })).toMatchObject({
      state: 'paid',
    });
  });
});

describe('a paid order', () => {
  test('waits for its buyer, or is claimed at once when a holder ordered', () => {
    expect(decide(aged(0), {})).toMatchObject({
      state: 'paid',
      standing: 'active',
      paidAt: iso(NOW),
      session: 'cs_1',
      subscription: 'sub_1',
      customer: 'cus_1',
      payment: null,
      paidUntil: iso(NOW + 20 * DAY),
    });
    expect(Object.keys(decide(aged(0), {}))).not.toContain('claimedAt');
    expect(decide(aged(0, { holderId: 'h' }), {})).toMatchObject({ state: 'claimed', claimedAt: iso(NOW) });
  });

  test('keeps the times when it was first paid and claimed', () => {
    const change = decide(aged(0, { state: 'claimed', paidAt: iso(1), claimedAt: iso(2) }), {});
    expect(Object.keys(change)).not.toContain('paidAt');
    expect(Object.keys(change)).not.toContain('claimedAt');
    expect(Object.keys(decide(aged(0), { session: { payment: 'unpaid' } }))).not.toContain('paidAt');
  });

  test('keeps ids that the session no longer has', () => {
    const order = aged(0, { subscription: 'sub_1', payment: 'pi_1', customer: 'cus_1' });
    const facts = { session: { subscription: null, payment_id: null, customer: null }, subscription: null };
    expect(decide(order, facts)).toMatchObject({ subscription: 'sub_1', payment: 'pi_1', customer: 'cus_1' });
    const others = { subscription: 'sub_2', payment_id: 'pi_2', customer: 'cus_2' };
    const changed = { subscription: 'sub_2', payment: 'pi_2', customer: 'cus_2' };
    expect(decide(order, { session: others })).toMatchObject(changed);
  });

  test.each<[string, Partial<MoneyFacts>, string, string | null]>([
    ['a lost dispute', { dispute: 'lost', refund: 'partial', isSuspect: true }, 'ended', 'dispute lost'],
    ['a full refund', { refund: 'full', dispute: 'open' }, 'ended', 'refunded in full'],
    ['an open dispute', { dispute: 'open' }, 'held', 'disputed'],
    ['a warning of fraud', { isSuspect: true }, 'held', 'warning of fraud'],
    ['a won dispute', { dispute: 'won' }, 'active', null],
    ['a refund of a part', { refund: 'partial' }, 'active', 'refunded in part'],
  ])('with %s', (_, money, standing, reason) => {
    const state = standing === 'ended' ? 'void' : 'paid';
    expect(decide(aged(0), { money })).toMatchObject({ state, standing, reason });
    expect(decide(aged(0, { state: 'claimed' }), { money })).toMatchObject({ state: 'claimed', standing });
    if (standing === 'held') expect(decide(aged(0), { money })).toMatchObject({ dueAt: iso(NOW + DAY) });
  });

  test('a fraud warning does not hold a trusted order', () => {
    expect(decide(aged(0, { isTrusted: true }), { money: { isSuspect: true } })).toMatchObject({
      standing: 'active',
    });
  });

  test.each<[number, number | null]>([
    [180 * DAY - 1, DAY],
    [180 * DAY, null],
  ])('paid once, %i ms old, is checked again while it can be disputed', (age, wait) => {
    const order = aged(age, { mode: 'payment' });
    const facts = { session: { mode: 'payment', subscription: null }, subscription: null };
    expect(decide(order, facts)).toMatchObject({
      standing: 'active',
      dueAt: wait === null ? null : iso(NOW + wait),
    });
  });
});

describe('a subscription', () => {
  test.each<[string, Partial<SubscriptionFacts> | null, string, number | null]>([
    ['missing', null, 'lapsed', DAY],
    ['incomplete', { status: 'incomplete' }, 'lapsed', DAY],
    ['active, paid for long', {}, 'active', DAY],
    ['active, paid for an hour', { paidUntil: NOW + HOUR }, 'active', 2 * HOUR],
    ['active, paid until an hour ago', { paidUntil: NOW - HOUR }, 'active', HOUR],
    ['active, paid until just less than an hour ago', { paidUntil: NOW - HOUR + 1 }, 'active', 1],
    ['cancelled, paid', { status: 'canceled', paidUntil: NOW + 1 }, 'active', 1],
    ['cancelled, over', { status: 'canceled', paidUntil: NOW }, 'ended', null],
    ['unpaid since now', { status: 'past_due', unpaidSince: NOW }, 'past_due', 6 * HOUR],
    ['unpaid, of which nobody knows since when', { status: 'past_due' }, 'past_due', 6 * HOUR],
    ['unpaid, a moment of grace left', { status: 'past_due', unpaidSince: NOW - 7 * DAY + 1 }, 'past_due', 1],
    ['unpaid, no grace left', { status: 'past_due', unpaidSince: NOW - 7 * DAY }, 'lapsed', DAY],
  ])('%s', (_, subscription, standing, wait) => {
    const dueAt = wait === null ? null : iso(NOW + wait);
    expect(decide(aged(DAY, { state: 'claimed' }), { subscription })).toMatchObject({ standing, dueAt });
  });

  test('shows when it ends and when its payment is tried again, unless it is over', () => {
    const dates = { endsAt: NOW + DAY, retryAt: NOW + HOUR };
    const shown = { endsAt: iso(NOW + DAY), retryAt: iso(NOW + HOUR) };
    expect(decide(aged(DAY), { subscription: dates })).toMatchObject(shown);
    expect(decide(aged(DAY), { subscription: { ...dates, status: 'canceled' } })).toMatchObject({
      endsAt: null,
      retryAt: null,
    });
  });

  test.each([
    ['stripe', 'payment failed'],
    ['none', 'invoice not paid'],
  ] as const)('of %s that is unpaid says so', (provider, reason) => {
    expect(decide(aged(DAY, { provider }), { subscription: { status: 'past_due' } })).toMatchObject({
      reason,
    });
  });

  test('that has ended stays ended after an outdated answer; a newer end counts', () => {
    const over = aged(DAY, { state: 'claimed', isCancelled: true, paidUntil: iso(NOW - 1) });
    expect(decide(over, {})).toMatchObject({ standing: 'ended', paidUntil: iso(NOW - 1) });
    expect(decide({ ...over, paidUntil: null }, {})).toMatchObject({ standing: 'active' });
    expect(decide({ ...over, isCancelled: false }, {})).toMatchObject({ standing: 'active' });
    const ended = { status: 'canceled' as const, paidUntil: NOW + DAY };
    expect(decide(over, { subscription: ended })).toMatchObject({ standing: 'active', isCancelled: true });
    expect(Object.keys(decide(over, {}))).not.toContain('isCancelled');
  });
});

describe('a holder with several orders', () => {
  const claimed = (id: string, changed: Partial<Order> = {}) =>
    aged(DAY, { id, state: 'claimed', standing: 'active', subscription: `sub_${id}`, ...changed });

  test('only claimed and paid orders entitle', () => {
    expect(isEntitled(claimed('a'))).toBe(true);
    expect(isEntitled(claimed('a', { standing: 'past_due' }))).toBe(true);
    for (const standing of ['none', 'held', 'lapsed', 'ended'] as const)
      expect(isEntitled(claimed('a', { standing }))).toBe(false);
    for (const state of ['pending', 'paid', 'void', 'refused'] as const)
      expect(isEntitled(claimed('a', { state }))).toBe(false);
  });

  test('is decided by the best paid order, else by the last', () => {
    const [lite, pro] = [claimed('a'), claimed('b', { tier: 'Pro' })];
    expect(decisiveOf([pro, lite])).toBe(pro);
    expect(decisiveOf([lite, pro])).toBe(pro);
    const lapsed = claimed('c', { tier: 'Pro', standing: 'lapsed' });
    expect(decisiveOf([lapsed, lite])).toBe(lite);
    const first = claimed('d', { standing: 'ended' });
    expect(decisiveOf([lapsed, first])).toBe(first);
    expect(decisiveOf([aged(0)])).toBeUndefined();
    expect(isLapsed([lapsed])).toBe(true);
    expect(isLapsed([lapsed, lite])).toBe(false);
    expect(isLapsed([aged(0)])).toBe(false);
    expect(isLapsed([])).toBe(false);
  });

  test('manages the subscription of the deciding order, else the last that the provider has', () => {
    const [lite, pro] = [claimed('a'), claimed('b', { tier: 'Pro' })];
    const other = claimed('c');
    expect([managedOf([pro, lite, other]), managedOf([])]).toEqual([pro, undefined]);
    for (const changed of [{ provider: 'none' }, { subscription: null }] as const) {
      expect(managedOf([lite, other, { ...pro, ...changed }])).toBe(other);
      expect(managedOf([{ ...pro, ...changed }])).toBeUndefined();
    }
    expect(managedOf([{ ...lite, state: 'paid' }])).toBeUndefined();
  });

  test('sees the deciding order, without ids of the provider', () => {
    const order = claimed('a', { paidUntil: iso(NOW + DAY), retryAt: iso(NOW) });
    const seen = {
      order: 'a',
      tier: 'Lite',
      standing: 'active',
      amount: 900,
      currency: 'usd',
      interval: 'month',
      paid_by: 'card',
      cancelled: false,
      paid_until: iso(NOW + DAY),
      ends_at: null,
      retry_at: iso(NOW),
      resumable: false,
      portal: true,
    };
    expect(currentOrderOf([])).toBeUndefined();
    expect(currentOrderOf([order])).toEqual(seen);
    const ending = { ...order, endsAt: iso(NOW + HOUR) };
    expect(currentOrderOf([ending])).toEqual({
      ...seen,
      cancelled: true,
      ends_at: iso(NOW + HOUR),
      resumable: true,
    });
    expect(currentOrderOf([{ ...order, isCancelled: true }])).toEqual({
      ...seen,
      cancelled: true,
      ends_at: iso(NOW + DAY),
    });
    expect(currentOrderOf([{ ...ending, provider: 'none' }])).toMatchObject({
      paid_by: 'invoice',
      resumable: false,
      portal: false,
    });
  });

  test('has the tier of its order, or the effect of on_lapse', () => {
    const lapsed = claimed('a', { standing: 'lapsed' });
    expect(targetOf([claimed('a')], 'suspend')).toEqual({ tier: 'Lite', standing: 'good' });
    expect(targetOf([lapsed], 'suspend')).toEqual({ tier: 'Lite', standing: 'suspended' });
    expect(targetOf([lapsed], 'downgrade')).toEqual({ tier: 'Free', standing: 'good' });
    expect(targetOf([aged(0)], 'suspend')).toBeUndefined();
  });

  test('a change has a target only when it changes something, and resumes only lapsed holders', () => {
    const [paid, lapsed] = [claimed('a'), claimed('a', { standing: 'lapsed' })];
    expect(changedTarget([paid], [paid], 'suspend')).toBeUndefined();
    expect(changedTarget([], [], 'suspend')).toBeUndefined();
    expect(changedTarget([], [paid], 'suspend')).toEqual({ tier: 'Lite' });
    expect(changedTarget([paid], [lapsed], 'suspend')).toEqual({ tier: 'Lite', standing: 'suspended' });
    expect(changedTarget([lapsed], [paid], 'suspend')).toEqual({ tier: 'Lite', standing: 'good' });
    expect(changedTarget([paid], [paid, claimed('b', { tier: 'Pro' })], 'suspend')).toEqual({ tier: 'Pro' });
    expect(changedTarget([paid], [lapsed], 'downgrade')).toEqual({ tier: 'Free' });
  });

  test('a newer order replaces subscriptions of the same or lower tiers only', () => {
    const old = claimed('old', { createdAt: iso(NOW - 2 * DAY) });
    const pro = claimed('new', { tier: 'Pro', createdAt: iso(NOW - DAY) });
    const replaced = (other: Partial<Order>, settled: Order = pro) =>
      replacedBy(settled, [{ ...old, ...other }, settled]);
    expect(replaced({})).toEqual(['old']);
    expect(replaced({ tier: 'Pro' })).toEqual(['old']);
    // Of two orders of one moment, one is the older, whichever was settled last.
    expect(replaced({ createdAt: pro.createdAt })).toEqual([]);
    expect(replaced({ createdAt: pro.createdAt, id: 'earlier' })).toEqual(['earlier']);
    // The older one was settled last.
    expect(replacedBy(old, [old, pro])).toEqual(['old']);
    expect(replacedBy(old, [old, { ...pro, standing: 'ended' }])).toEqual([]);
    expect(
      replacedBy({ ...old, tier: 'Pro' }, [
        { ...old, tier: 'Pro' },
        { ...pro, tier: 'Lite' },
      ]),
    ).toEqual([]);
    expect(replaced({ createdAt: iso(NOW) })).toEqual([]);
    expect(replaced({ subscription: null })).toEqual([]);
    expect(replaced({ isCancelled: true })).toEqual([]);
    expect(replaced({ isReplaced: true })).toEqual([]);
    expect(replaced({ tier: 'Pro' }, { ...pro, tier: 'Lite' })).toEqual([]);
    expect(replaced({}, { ...pro, standing: 'lapsed' })).toEqual([]);
    expect([isAbove('Pro', 'Lite'), isAbove('Lite', 'Lite'), isAbove('Free', 'Lite')]).toEqual([
      true,
      false,
      false,
    ]);
  });
});
