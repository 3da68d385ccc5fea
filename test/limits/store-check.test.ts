// What Redis counts less than the store knows: after it has started with an earlier state, or beside a replica that did not
// count in a scope. The store raises it, and what is delivered late is not counted twice.
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { TierLimits } from '../../src/config/limit-table.ts';
import { InitialTotals } from '../../src/limits/initial-totals.ts';
import type { HolderTotals } from '../../src/store/usage-record.ts';
import { startCable } from '../helpers/cable.ts';
import { REDIS_TIMEOUT } from '../helpers/redis.ts';
import { until, within } from '../helpers/wait.ts';
import { COST, holderScopes, tokensOnly } from './of-holder.ts';
import {
  admitted,
  Counters,
  DAY,
  memoryRig,
  NOON,
  newHolder,
  RedisSetting,
  type Replica,
  type Rig,
  startReplica,
  totals,
} from './setting.ts';

const LIMITS: TierLimits = { requests_per_day: 100, tokens_per_month: 10_000, cost_per_month: 10_000 };

let setting: RedisSetting;
beforeAll(async () => {
  setting = await RedisSetting.start();
}, REDIS_TIMEOUT);
beforeEach(() => setting.server.flush());
afterAll(() => setting?.stop());

type Limiting = Pick<Rig, 'limiter'>;

async function use({ limiter }: Limiting, holder: string, tokens: number): Promise<void> {
  admitted(await limiter.admit(holder, LIMITS, tokens)).lease.settle(tokens);
}

async function usedAt({ limiter }: Limiting, holder: string) {
  const states = await limiter.peek(holder, LIMITS);
  return [states.requests_per_day?.used, states.tokens_per_month?.used, states.cost_per_month?.used];
}

async function reconnect({ client }: Pick<Replica, 'client'>): Promise<void> {
  const isUp = Promise.withResolvers<void>();
  const stop = client.onUp(isUp.resolve);
  await setting.server.command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  await within(isUp.promise, 'the connection');
  stop();
}

const known = (requests: number, tokens: number) =>
  totals({ requests_per_day: requests, tokens_per_month: tokens, cost_per_month: COST * tokens });

describe('the totals of a scope', () => {
  test('are raised to those of the store, and never lowered', async () => {
    await using one = await startReplica(setting.server.url, { checkMs: 0 });
    const holder = newHolder();
    await use(one, holder, 10);
    one.store.totals.set(holder, known(7, 500));
    await until(async () => String(await usedAt(one, holder)) === '7,500,1500', 'the totals of the store');
    const { asked } = one.store;
    one.store.totals.set(holder, known(1, 10));
    await until(async () => (await usedAt(one, holder)) && one.store.asked > asked + 1, 'another look');
    await use(one, holder, 10);
    expect(await usedAt(one, holder)).toEqual([8, 510, 1530]);
  });

  test('are raised beside what runs', async () => {
    await using one = await startReplica(setting.server.url, { checkMs: 0 });
    const holder = newHolder();
    await use(one, holder, 10);
    const { lease } = admitted(await one.limiter.admit(holder, LIMITS, 100));
    one.store.totals.set(holder, known(2, 50));
    await until(async () => String(await usedAt(one, holder)) === '3,150,450', 'the totals of the store');
    lease.settle(5);
    expect(await usedAt(one, holder)).toEqual([3, 55, 165]);
  });

  test('are compared in turn, not with each request', async () => {
    await using one = await startReplica(setting.server.url);
    const holder = newHolder();
    for (let count = 0; count < 20; count += 1) await use(one, holder, 1);
    expect(one.store.asked).toBe(1);
  });

  test.each(['Redis', 'memory'])(
    'that cannot be compared in %s are no failed first read, and what is counted stays',
    async (where) => {
      await using one =
        where === 'Redis' ? await startReplica(setting.server.url, { checkMs: 0 }) : await memoryRig(0);
      const holder = newHolder();
      await use(one, holder, 10);
      one.store.trouble = () => Promise.reject(new Error('the store is away'));
      await until(async () => {
        await use(one, holder, 0);
        return one.counters.comparisonFailures > 0;
      }, 'a comparison that fails');
      expect(one.counters.seedFailures).toBe(0);
      expect((await usedAt(one, holder))[1]).toBe(10);
    },
  );

  test('of another day do not count in this one', async () => {
    await using one = await startReplica(setting.server.url, { checkMs: 0 });
    const holder = newHolder();
    await use(one, holder, 10);
    one.store.totals.set(holder, known(7, 500));
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() - DAY });
    try {
      const { asked } = one.store;
      await until(
        async () => (await usedAt(one, holder)) && one.store.asked > asked + 3,
        'looks at the store',
      );
      expect(await usedAt(one, holder)).toEqual([1, 10, 30]);
    } finally {
      vi.useRealTimers();
    }
  });

  test('of an earlier state of Redis are those of the store again', async () => {
    await using one = await startReplica(setting.server.url, { checkMs: 300 });
    const holder = newHolder();
    await use(one, holder, 10);
    await one.limiter.real.settled();
    await setting.server.command('SAVE');
    await use(one, holder, 90);
    one.store.totals.set(holder, known(2, 100));
    await setting.server.kill();
    await setting.server.start();
    await until(() => one.client.isUp, 'the connection');
    await until(async () => String(await usedAt(one, holder)) === '2,100,300', 'the totals of the store');
  });
});

describe('after a lost connection', () => {
  test('a comparison that was due sooner waits, too, until replicas have delivered what they counted alone', async () => {
    let now = 1000;
    await using one = await startReplica(setting.server.url, { now: () => now });
    const holder = newHolder();
    await use(one, holder, 10);
    now += 4900;
    await reconnect(one);
    const { asked } = one.store;
    for (const [after, more] of [
      [4900, 0],
      [100, 1],
    ] as const) {
      now += after;
      await usedAt(one, holder);
      expect(one.store.asked - asked).toBe(more);
    }
  });

  test('what the store was asked before does not count', async () => {
    const read = Promise.withResolvers<HolderTotals>();
    let asked = 0;
    const metrics = new Counters();
    const answers = [known(0, 0), read.promise, known(3, 70)];
    const initialTotals = new InitialTotals({
      metrics,
      deadlineMs: 20_000,
      read: async () => answers[asked++] ?? known(3, 70),
    });
    await using one = await startReplica(setting.server.url, { checkMs: 0, initialTotals });
    const holder = newHolder();
    await use(one, holder, 10);
    await until(async () => (await usedAt(one, holder)) && asked === 2, 'a comparison');
    await reconnect(one);
    read.resolve(known(9, 900));
    await until(async () => String(await usedAt(one, holder)) === '3,70,210', 'the next comparison');
  });
});

describe('what a replica used while it was cut off', () => {
  test('counts once where Redis still has its lease', async () => {
    await using cable = await startCable(setting.server.port);
    await using one = await startReplica(setting.server.url, { checkMs: 0 });
    let now = 1000;
    await using late = await startReplica(`redis://127.0.0.1:${cable.port}`, { now: () => now });
    const holder = newHolder();
    await use(one, holder, 10);
    const [first, second] = [
      admitted(await late.limiter.admit(holder, LIMITS, 100)).lease,
      admitted(await late.limiter.admit(holder, LIMITS, 100)).lease,
    ];
    await cable.cut();
    await until(() => !late.client.isUp, 'the outage');
    first.settle(50);
    await late.limiter.real.settled();
    // The store has the first, and not the second, which runs.
    one.store.totals.set(holder, known(2, 60));
    await until(async () => String(await usedAt(one, holder)) === '4,260,780', 'the totals of the store');
    // Later than Redis and this process need for anything here.
    now += 100_000;
    cable.pass();
    await until(() => late.client.isUp && late.limiter.real.waiting === 0, 'delivery');
    await late.limiter.real.settled();
    second.settle(7);
    await late.limiter.real.settled();
    expect(await usedAt(one, holder)).toEqual([3, 67, 201]);
  });

  test('counts once, whether the store told of it before or not', async () => {
    await using one = await startReplica(setting.server.url, { checkMs: 0 });
    await using late = await startReplica(setting.server.url);
    const holder = newHolder();
    await use(one, holder, 10);
    const began = performance.now();
    const deliver = async (tokens: number) => {
      late.limiter.real.charge(holderScopes(holder, LIMITS), tokensOnly(tokens), began);
      await late.limiter.real.settled();
    };
    // The store has 30 of its 50 tokens by then.
    one.store.totals.set(holder, known(2, 40));
    await until(async () => String(await usedAt(one, holder)) === '2,40,120', 'the totals of the store');
    await deliver(50);
    expect(await usedAt(one, holder)).toEqual([2, 60, 180]);
    await deliver(5);
    expect(await usedAt(one, holder)).toEqual([3, 65, 195]);
  });

  test('counts once where Redis was emptied, and started with what the store told of it', async () => {
    await using one = await startReplica(setting.server.url);
    await using late = await startReplica(setting.server.url);
    const holder = newHolder();
    const began = performance.now();
    one.store.totals.set(holder, known(2, 60));
    await use(one, holder, 10);
    expect(await usedAt(one, holder)).toEqual([3, 70, 210]);
    const charge = async (since: number) => {
      late.limiter.real.charge(holderScopes(holder, LIMITS), tokensOnly(20), since);
      await late.limiter.real.settled();
    };
    await charge(began - 1000);
    expect(await usedAt(one, holder)).toEqual([3, 70, 210]);
    // Of a later outage.
    await charge(performance.now() + 1000);
    expect(await usedAt(one, holder)).toEqual([4, 90, 270]);
  });
});

test('in memory, what was used while a scope was not counted is counted a minute later, and never twice', async () => {
  await using rig = await memoryRig(60_000);
  const holder = newHolder();
  await use(rig, holder, 10);
  rig.store.totals.set(holder, known(7, 500));
  await rig.advance(59_000);
  await use(rig, holder, 10);
  await rig.learned();
  expect([await usedAt(rig, holder), rig.store.asked]).toEqual([[2, 20, 60], 1]);
  await rig.advance(1000);
  await use(rig, holder, 10);
  await rig.learned();
  expect(await usedAt(rig, holder)).toEqual([7, 500, 1500]);
  rig.store.totals.set(holder, known(1, 10));
  await rig.advance(60_000);
  await use(rig, holder, 10);
  await rig.learned();
  expect([await usedAt(rig, holder), rig.store.asked]).toEqual([[8, 510, 1530], 3]);
  // Those of the day before arrive in the next one.
  rig.store.totals.set(holder, known(90, 900));
  await rig.advance(60_000);
  await use(rig, holder, 10);
  await rig.setWall(NOON + DAY);
  await rig.learned();
  expect(await usedAt(rig, holder)).toEqual([0, 520, 1560]);
});
