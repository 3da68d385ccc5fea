// An order has the same result for any order and number of events and any number of replicas.
import { DatabaseSync } from 'node:sqlite';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { IssuedKey } from '../../src/auth/key-issuer.ts';
import { orderVerdict } from '../../src/billing/order-verdict.ts';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import type { Order } from '../../src/store/billing-record.ts';
import { POSTGRES_KIND, SQLITE_KIND, type StoreSource } from '../store/stores.ts';
import {
  DAY,
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

describe('on SQLite', () => {
  let source: StoreSource;
  let address: StoreAddress;
  const provider = new SetProvider();
  const now = Date.parse('2026-03-01T12:00:00Z');
  let desk: Desk & AsyncDisposable;

  beforeAll(async () => {
    source = await SQLITE_KIND.start();
    address = await source.fresh();
    desk = await openDesk(address, provider, { now: () => now });
  });
  afterAll(async () => {
    await desk?.[Symbol.asyncDispose]();
    await source?.[Symbol.asyncDispose]();
  });

  test.each([
    [
      'paid',
      [
        'checkout.session.completed',
        'invoice.paid',
        'invoice.payment_failed',
        'charge.dispute.created',
        'charge.dispute.closed',
      ],
    ],
    [
      'ended',
      [
        'checkout.session.completed',
        'invoice.paid',
        'charge.refunded',
        'refund.failed',
        'customer.subscription.deleted',
      ],
    ],
  ])('all 120 orders of five events have the same result, for an order that is %s', async (_, names) => {
    const ends = new Set<string>();
    for (const order of permutations(names)) {
      const placed = await placeOrder(desk, provider, { at: now });
      for (const name of names) HAPPENINGS[name]?.(provider.truthOf(placed.id), now);
      let settled: Order = placed;
      for (const name of order) {
        settled = await desk.settlement.settle(placed.id, { event: eventNamed(name) });
      }
      ends.add(JSON.stringify({ ...essence(settled), subscription: '' }));
    }
    expect([...ends]).toHaveLength(1);
  });

  test('late, repeated, lost and reordered events leave the final facts', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.record({
            name: fc.constantFrom(...Object.keys(HAPPENINGS)),
            tells: fc.array(fc.nat({ max: 9 }), { maxLength: 3 }),
          }),
          { maxLength: 8 },
        ),
        async (story) => {
          const placed = await placeOrder(desk, provider, { at: now });
          const truth = provider.truthOf(placed.id);
          const events = story.map(({ name }) => eventNamed(name));
          for (const [index, { name, tells }] of story.entries()) {
            HAPPENINGS[name]?.(truth, now);
            // Of what has happened so far some is told now, perhaps again.
            for (const tell of tells) {
              const event = events[tell % (index + 1)];
              await desk.settlement.settle(placed.id, event === undefined ? {} : { event });
            }
          }
          const settled = await desk.settlement.settle(placed.id);
          const alone = orderVerdict(
            { ...placed, isCancelled: settled.isCancelled, paidUntil: settled.paidUntil },
            await provider.readFacts(placed),
            {
              now,
              grace: 7 * DAY,
            },
          );
          expect([settled.state, settled.standing]).toEqual([alone.state, alone.standing]);
        },
      ),
      { numRuns: 60 },
    );
  });

  test('a subscription that has ended is not revived by an older answer of the provider', async () => {
    const placed = await placeOrder(desk, provider, { at: now });
    const truth = provider.truthOf(placed.id);
    HAPPENINGS['checkout.session.completed']?.(truth, now);
    await desk.settlement.settle(placed.id);
    HAPPENINGS['customer.subscription.deleted']?.(truth, now);
    await desk.settlement.settle(placed.id);
    truth.subscription = 'active';
    truth.paidUntil = now + 30 * DAY;
    const settled = await desk.settlement.settle(placed.id);
    expect([settled.standing, settled.isCancelled]).toEqual(['ended', true]);
  });

  test('facts read before a concurrent write are not written but read again', async () => {
    const placed = await placeOrder(desk, provider, { at: now });
    const truth = provider.truthOf(placed.id);
    await using other = await openDesk(address, provider, { now: () => now });
    let isFirst = true;
    provider.during = async () => {
      if (!isFirst) return;
      isFirst = false;
      HAPPENINGS['checkout.session.completed']?.(truth, now);
      await other.settlement.settle(placed.id);
    };
    const settled = await desk.settlement.settle(placed.id);
    provider.during = undefined;
    expect(settled.state).toBe('paid');
  });

  test('a crash between an event and its effect leaves neither, and a repeated event counts', async () => {
    const placed = await placeOrder(desk, provider, { at: now });
    const event = eventNamed('checkout.session.completed');
    const { store } = desk;
    const holder = (await desk.issuer.issue({ tier: 'Free' })).holderId;
    const upgrade = await placeOrder(desk, provider, { at: now, holder });
    const crash = () => {
      throw new Error('the process ends here');
    };
    await expect(
      store.billing.settle({
        before: upgrade,
        change: { state: 'claimed', standing: 'active' },
        events: [event],
        at: placed.createdAt,
        targetOf: crash,
        replacedBy: () => [],
      }),
    ).rejects.toThrow();
    expect(await store.billing.isEventKnown(event.id)).toBe(false);
    expect((await store.billing.findOrder({ id: upgrade.id }))?.state).toBe('pending');
    HAPPENINGS['checkout.session.completed']?.(provider.truthOf(upgrade.id), now);
    await desk.settlement.settle(upgrade.id, { event });
    expect((await store.findHolder(holder))?.tier).toBe('Lite');
  });

  test('a known event writes nothing', async () => {
    const placed = await placeOrder(desk, provider, { at: now });
    const event = eventNamed('checkout.session.expired');
    const request = (before: Order) => ({
      before,
      change: { reason: `version ${before.version}` },
      events: [event],
      at: placed.createdAt,
      targetOf: () => undefined,
      replacedBy: () => [],
    });
    const first = await desk.store.billing.settle(request(placed));
    if (first.kind !== 'settled') throw new Error(first.kind);
    expect(await desk.store.billing.settle(request(first.order))).toEqual({ kind: 'known' });
    expect(await desk.store.billing.findOrder({ id: placed.id })).toEqual(first.order);
  });

  test('a payment resumes a lapsed holder, and not one suspended by support', async () => {
    await using strict = await openDesk(address, provider, {
      now: () => now,
      config: { on_lapse: 'suspend' },
    });
    const { holderId } = await strict.issuer.issue({ tier: 'Free' });
    const pay = async () => {
      const order = await placeOrder(strict, provider, { at: now, holder: holderId, interval: 'once' });
      Object.assign(provider.truthOf(order.id), { status: 'complete', payment: 'paid' });
      await strict.settlement.settle(order.id);
      return order;
    };
    const standing = async () => (await strict.store.findHolder(holderId))?.standing;
    await strict.changeHolder(holderId, { standing: 'suspended' });
    const order = await pay();
    expect(await standing()).toBe('suspended');
    await strict.changeHolder(holderId, { standing: 'good' });
    HAPPENINGS['charge.refunded']?.(provider.truthOf(order.id), now);
    await strict.settlement.settle(order.id);
    expect(await standing()).toBe('suspended');
    await pay();
    expect(await standing()).toBe('good');
  });

  test('the database rejects changes of the terms and deletion of paid orders', async () => {
    const placed = await placeOrder(desk, provider, { at: now });
    HAPPENINGS['checkout.session.completed']?.(provider.truthOf(placed.id), now);
    await desk.settlement.settle(placed.id);
    if (address.kind !== 'sqlite') throw new Error('no file');
    const file = new DatabaseSync(address.path);
    try {
      const run = (text: string) => () => file.prepare(text).run(placed.id);
      expect(run('update orders set amount = 1, version = version + 1 where id = ?')).toThrow(
        /never changes/,
      );
      expect(run('update orders set reason = null where id = ?')).toThrow(/raises its version/);
      expect(run('delete from orders where id = ?')).toThrow(/never paid/);
    } finally {
      file.close();
    }
  });

  test('the best of several orders of a holder decides, and a change by support stays until one of them changes', async () => {
    const { holderId } = await desk.issuer.issue({ tier: 'Free' });
    const place = async (tier: 'Lite' | 'Pro') => {
      const order = await placeOrder(desk, provider, { at: now, holder: holderId, tier, interval: 'once' });
      const truth = provider.truthOf(order.id);
      Object.assign(truth, { status: 'complete', payment: 'paid' });
      await desk.settlement.settle(order.id);
      return { order, truth };
    };
    const tier = async () => (await desk.store.findHolder(holderId))?.tier;
    const lite = await place('Lite');
    expect(await tier()).toBe('Lite');
    const pro = await place('Pro');
    expect(await tier()).toBe('Pro');
    pro.truth.money = { ...pro.truth.money, refund: 'full' };
    await desk.settlement.settle(pro.order.id);
    expect(await tier()).toBe('Lite');
    await desk.changeHolder(holderId, { tier: 'Pro' });
    await desk.settlement.settle(lite.order.id);
    expect(await tier()).toBe('Pro');
    lite.truth.money = { ...lite.truth.money, dispute: 'lost' };
    await desk.settlement.settle(lite.order.id);
    expect(await tier()).toBe('Free');
  });
});

describe('on PostgreSQL, with three replicas', () => {
  let source: StoreSource;
  const provider = new SetProvider();
  const desks: (Desk & AsyncDisposable)[] = [];

  beforeAll(async () => {
    source = await POSTGRES_KIND.start();
    const address = await source.fresh();
    for (let index = 0; index < 3; index += 1) desks.push(await openDesk(address, provider));
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
  test('five events, each sent fifty times at once, have one effect each', async () => {
    const { issuer, store } = deskAt(0);
    const { holderId } = await issuer.issue({ tier: 'Free' });
    const order = await placeOrder(deskAt(0), provider, { holder: holderId });
    const truth = provider.truthOf(order.id);
    const now = Date.now();
    const names = [
      'checkout.session.completed',
      'invoice.paid',
      'charge.dispute.created',
      'charge.dispute.closed',
      'invoice.payment_failed',
    ];
    for (const name of names) {
      HAPPENINGS[name]?.(truth, now);
      const event = eventNamed(name);
      await Promise.all(
        Array.from({ length: 50 }, (_, index) =>
          insist(() => deskAt(index).settlement.settle(order.id, { event })),
        ),
      );
      expect(await store.billing.isEventKnown(event.id)).toBe(true);
    }
    const settled = await store.billing.findOrder({ id: order.id });
    expect([settled?.state, settled?.standing]).toEqual(['claimed', 'past_due']);
    expect((await store.findHolder(holderId))?.tier).toBe('Lite');
    // Paid, disputed, won: three changes of the holder, however often they were told.
    const [key] = (await store.listKeys({ limit: 1000 })).items.filter((each) => each.holderId === holderId);
    if (key === undefined) throw new Error('no key');
    const changes = (await store.historyOf(key.prefix)).filter(({ kind }) => kind === 'changed');
    expect(changes).toHaveLength(3);
  });

  test('fifty concurrent claims on three replicas leave one active key', async () => {
    const order = await placeOrder(deskAt(0), provider);
    HAPPENINGS['checkout.session.completed']?.(provider.truthOf(order.id), Date.now());
    await deskAt(0).settlement.settle(order.id);
    const settled = await Promise.allSettled(
      Array.from({ length: 50 }, (_, index) => deskAt(index).claims.claim(order.id, () => true)),
    );
    const issued = settled.flatMap((each): IssuedKey[] => (each.status === 'fulfilled' ? [each.value] : []));
    const { holderId } = issued[0] ?? {};
    const keys = (await deskAt(0).store.listKeys({ limit: 1000 })).items.filter(
      (each) => each.holderId === holderId,
    );
    expect(keys.filter(({ state }) => state === 'active')).toHaveLength(1);
    expect(new Set(issued.map((each) => each.holderId)).size).toBe(1);
  });

  test('a key used on one replica is not replaced by another', async () => {
    const order = await placeOrder(deskAt(0), provider);
    HAPPENINGS['checkout.session.completed']?.(provider.truthOf(order.id), Date.now());
    await deskAt(0).settlement.settle(order.id);
    const issued = await deskAt(1).claims.claim(order.id, () => true);
    await deskAt(2).authenticator.authenticate(`Bearer ${issued.key.reveal()}`, '192.0.2.1');
    await expect(deskAt(0).claims.claim(order.id, () => true)).rejects.toMatchObject({
      code: 'order_closed',
    });
  });

  test('two concurrent settlements of one holder both count', async () => {
    for (let round = 0; round < 5; round += 1) {
      const { holderId } = await deskAt(0).issuer.issue({ tier: 'Free' });
      const orders = [
        await placeOrder(deskAt(0), provider, { holder: holderId, tier: 'Lite', interval: 'once' }),
        await placeOrder(deskAt(0), provider, { holder: holderId, tier: 'Pro', interval: 'once' }),
      ];
      for (const { id } of orders)
        Object.assign(provider.truthOf(id), { status: 'complete', payment: 'paid' });
      await Promise.all(orders.map(({ id }, index) => insist(() => deskAt(index).settlement.settle(id))));
      expect((await deskAt(0).store.findHolder(holderId))?.tier).toBe('Pro');
    }
  });

  test('one replica sweeps at a time', async () => {
    const [now, until] = ['2026-01-01T00:00:00.000Z', '2026-01-01T00:03:00.000Z'];
    const taken = await Promise.all(
      ['a', 'b', 'c'].map((owner, index) => deskAt(index).store.billing.takeTask('test', owner, now, until)),
    );
    expect(taken.filter((each) => each)).toHaveLength(1);
    expect(await deskAt(0).store.billing.takeTask('test', 'd', until, '2026-01-01T00:06:00.000Z')).toBe(true);
  });
});
