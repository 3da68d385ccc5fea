// Every order of the events of a subscription's life, told to three replicas on PostgreSQL, ends the same. A run takes a quarter of the
// 720 orders, another one each time; with FUZZ_RUNS it takes all of them.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Order } from '../../src/store/billing-record.ts';
import { POSTGRES_KIND, type StoreSource } from '../store/stores.ts';
import {
  type Desk,
  essence,
  eventNamed,
  HAPPENINGS,
  insist,
  openDesk,
  permutations,
  placeOrder,
  SetProvider,
} from './desk.ts';

/** Of permutations: which of four quarters, or all. */
const QUARTER = process.env['FUZZ_RUNS'] === undefined ? Math.floor(Math.random() * 4) : undefined;

describe('on PostgreSQL, with three replicas', () => {
  let source: StoreSource;
  const provider = new SetProvider();
  const desks: (Desk & AsyncDisposable)[] = [];
  const at = Date.parse('2026-03-01T12:00:00Z');

  beforeAll(async () => {
    source = await POSTGRES_KIND.start();
    const address = await source.fresh();
    for (let index = 0; index < 3; index += 1)
      desks.push(await openDesk(address, provider, { now: () => at }));
  }, POSTGRES_KIND.timeout);
  afterAll(async () => {
    for (const desk of desks) await desk[Symbol.asyncDispose]();
    await source?.[Symbol.asyncDispose]();
  });

  const deskAt = (index: number): Desk => {
    const desk = desks[index % desks.length];
    if (desk === undefined) throw new Error('no desk');
    return desk;
  };

  /** A life of a subscription. What comes later is true when the first event arrives. */
  const LIFE = [
    'checkout.session.completed',
    'invoice.paid',
    'invoice.payment_failed',
    'invoice.paid',
    'customer.subscription.updated',
    'customer.subscription.updated',
    'charge.refunded',
    'charge.dispute.created',
    'charge.dispute.closed',
  ] as const;

  /** Tells the replicas the events of an order in the order of `positions`. @returns what is left of it, and its holder's tier */
  const live = async (names: readonly string[], positions: readonly number[], upgradeAt: number) => {
    const { issuer, store } = deskAt(0);
    const { holderId } = await issuer.issue({ tier: 'Free' });
    const order = await placeOrder(deskAt(0), provider, { holder: holderId, at });
    const better = await placeOrder(deskAt(0), provider, {
      holder: holderId,
      tier: 'Pro',
      interval: 'once',
      at: at + 1,
    });
    const truth = provider.truthOf(order.id);
    for (const name of names) HAPPENINGS[name]?.(truth, at);
    Object.assign(provider.truthOf(better.id), { status: 'complete', payment: 'paid' });
    const events = names.map((name) => eventNamed(name));
    for (const [step, position] of positions.entries()) {
      if (step === upgradeAt) await insist(() => deskAt(step).settlement.settle(better.id));
      const event = events[position];
      if (event !== undefined)
        await insist(() => deskAt(step + position).settlement.settle(order.id, { event }));
    }
    if (upgradeAt < 0)
      return [essence(await mustFind(store, order.id)), (await store.findHolder(holderId))?.tier];
    // The replaced subscription is cancelled at the provider, which is the last event.
    const settled = await insist(() => deskAt(1).settlement.settle(order.id));
    const { isReplaced } = await mustFind(store, order.id);
    expect([isReplaced, settled.isCancelled]).toEqual([true, true]);
    return [settled.state, settled.standing, (await store.findHolder(holderId))?.tier];
  };
  const mustFind = async (store: Desk['store'], id: string): Promise<Order> => {
    const order = await store.billing.findOrder({ id });
    if (order === undefined) throw new Error('no order');
    return order;
  };
  const resultsOf = async (lives: readonly (readonly [readonly string[], readonly number[], number])[]) => {
    const results = new Set<string>();
    const left = [...lives];
    const work = async () => {
      for (let next = left.pop(); next !== undefined; next = left.pop())
        results.add(JSON.stringify(await live(...next)).replaceAll(/ord_[\w-]+/g, 'ord'));
    };
    await Promise.all(Array.from({ length: 12 }, work));
    return [...results].map((each): unknown => JSON.parse(each));
  };

  test('all orders of made, renewed, failed, retried, cancelled and resumed end the same', async () => {
    const names = LIFE.slice(0, 6);
    const orders = permutations(names.map((_, index) => index)).filter(
      (_, index) => QUARTER === undefined || index % 4 === QUARTER,
    );
    const lives = orders.map((order) => [names, order, -1] as const);
    expect(await resultsOf(lives)).toEqual([
      [
        expect.objectContaining({ state: 'claimed', standing: 'active', endsAt: null, retryAt: null }),
        'Lite',
      ],
    ]);
  });

  test('a cancellation that is not undone, beside a refund, ends the same in 120 orders', async () => {
    const names = [...LIFE.slice(0, 5), 'charge.refunded'];
    const shuffles = fc.sample(
      fc.shuffledSubarray(
        names.map((_, index) => index),
        { minLength: 6 },
      ),
      120,
    );
    const lives = shuffles.map((order) => [names, order, -1] as const);
    const [result, ...others] = await resultsOf(lives);
    expect(others).toEqual([]);
    expect(result).toEqual([
      expect.objectContaining({ standing: 'ended', reason: 'refunded in full', endsAt: expect.any(String) }),
      'Free',
    ]);
  });

  test('an upgrade at each point of a life of eight events replaces the subscription, in a hundred orders', async () => {
    const names = LIFE.filter((name) => name !== 'charge.refunded');
    const indexes = names.map((_, index) => index);
    const shuffles = fc.sample(fc.shuffledSubarray(indexes, { minLength: 8 }), 100);
    const lives = shuffles.map((order, index) => [names, order, index % 8] as const);
    expect(await resultsOf(lives)).toEqual([['claimed', 'active', 'Pro']]);
  });
});
