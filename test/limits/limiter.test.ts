// The behaviour of both limiters, in memory and in Redis: exactly the limit, all or nothing, the right limit and wait in a
// rejection, real usage instead of the estimate, days and months, totals from the store.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { TierLimits } from '../../src/config/limit-table.ts';
import { WINDOW_MS } from '../../src/limits/limiter.ts';
import { REDIS_TIMEOUT } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import {
  admitted,
  DAY,
  type MakeRig,
  memoryRig,
  NOON,
  newHolder,
  RedisSetting,
  refused,
  totals,
} from './setting.ts';

let setting: RedisSetting;

beforeAll(async () => {
  setting = await RedisSetting.start();
}, REDIS_TIMEOUT);
afterAll(() => setting?.stop());

const ALL: TierLimits = {
  requests_per_minute: 100,
  tokens_per_minute: 1000,
  requests_per_day: 500,
  tokens_per_day: 45_000,
  tokens_per_month: 50_000,
  concurrency: 50,
};
const MINUTE = WINDOW_MS;
const EVENING = NOON + DAY / 2 - 10_000;
const MONTH_END = Date.UTC(2027, 5, 1);

const RIGS: [string, MakeRig][] = [
  ['in memory', memoryRig],
  ['in Redis', () => setting.rig()],
];

describe.each(RIGS)('%s', (_name, makeRig) => {
  test.each([
    ['requests_per_minute', 7],
    ['requests_per_day', 7],
    ['concurrency', 7],
    ['tokens_per_minute', 70],
    ['tokens_per_day', 70],
    ['tokens_per_month', 70],
  ] as const)('%s: of ten times the limit at once, exactly the limit is admitted', async (name, limit) => {
    await using rig = await makeRig();
    const holder = newHolder();
    const limits = { [name]: limit };
    const all = await Promise.all(Array.from({ length: 70 }, () => rig.limiter.admit(holder, limits, 10)));
    expect(all.filter(({ kind }) => kind === 'admitted')).toHaveLength(7);
    for (const each of all) {
      if (each.kind === 'refused') expect(each).toMatchObject({ limit: name, reason: 'spent' });
      expect(each.states[name]?.remaining).toBeGreaterThanOrEqual(0);
    }
    expect(await rig.limiter.peek(holder, limits)).toMatchObject({ [name]: { used: limit, remaining: 0 } });
    expect(rig.counters.leases).toBe(7);
  });

  test('tokens of a running request count at once, in the current minute and month', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    const { lease } = admitted(await rig.limiter.admit(holder, ALL, 0));
    rig.limiter.use(holder, 300);
    await rig.settled();
    const used = async () => {
      const states = await rig.limiter.peek(holder, ALL);
      return [
        states.tokens_per_minute?.used,
        states.tokens_per_month?.used,
        states.requests_per_minute?.used,
      ];
    };
    expect(await used()).toEqual([300, 300, 1]);
    await rig.advance(2 * MINUTE);
    rig.limiter.use(holder, 20);
    await rig.settled();
    expect(await used()).toEqual([20, 320, 0]);
    lease.settle(0);
    await rig.settled();
    expect(await used()).toEqual([20, 320, 0]);
  });

  test('a rejection uses nothing of any limit, whichever limit rejects', async () => {
    await using rig = await makeRig();
    const tight = {
      requests_per_minute: 1,
      tokens_per_minute: 20,
      requests_per_day: 1,
      tokens_per_day: 20,
      tokens_per_month: 20,
      concurrency: 1,
    };
    for (const [name, value] of Object.entries(tight)) {
      const holder = newHolder();
      admitted(await rig.limiter.admit(holder, ALL, 15));
      const before = await rig.limiter.peek(holder, ALL);
      refused(await rig.limiter.admit(holder, { ...ALL, [name]: value }, 15));
      expect(await rig.limiter.peek(holder, ALL)).toEqual(before);
    }
  });

  test('holders do not share their limits', async () => {
    await using rig = await makeRig();
    const [one, other] = [newHolder(), newHolder()];
    admitted(await rig.limiter.admit(one, { requests_per_minute: 1, concurrency: 1 }, 0));
    refused(await rig.limiter.admit(one, { requests_per_minute: 1 }, 0));
    admitted(await rig.limiter.admit(other, { requests_per_minute: 1, concurrency: 1 }, 0));
  });

  test('without limits everything is admitted, and a limit set later counts earlier usage', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    for (let number = 0; number < 5; number += 1) {
      expect(await rig.limiter.admit(holder, {}, 1e12)).toMatchObject({ kind: 'admitted', states: {} });
    }
    expect(rig.store.asked).toBe(0);
    expect(await rig.limiter.admit(holder, { concurrency: 5 }, 0)).toMatchObject({ limit: 'concurrency' });
    expect(await rig.limiter.admit(holder, { requests_per_minute: 5 }, 0)).toMatchObject({
      limit: 'requests_per_minute',
      states: { requests_per_minute: { limit: 5, used: 5, remaining: 0 } },
    });
    // Lowered below what is used.
    expect(await rig.limiter.peek(holder, { requests_per_minute: 2 })).toMatchObject({
      requests_per_minute: { limit: 2, used: 5, remaining: 0 },
    });
    admitted(await rig.limiter.admit(holder, { requests_per_minute: 6, concurrency: 6 }, 0));
  });

  test('a changed tier counts earlier and running requests from the next request on', async () => {
    await using rig = await makeRig();
    const [pro, free] = [
      { requests_per_minute: 100, concurrency: 10 },
      { ...ALL, concurrency: 2 },
    ];
    const holder = newHolder();
    const running = [];
    for (let index = 0; index < 3; index += 1) {
      running.push(admitted(await rig.limiter.admit(holder, pro, 10)).lease);
    }
    // More run than may run now: they go on, and hold their places until they end.
    expect(refused(await rig.limiter.admit(holder, free, 10))).toMatchObject({
      limit: 'concurrency',
      states: {
        concurrency: { limit: 2, used: 3, remaining: 0 },
        requests_per_minute: { used: 3 },
        tokens_per_minute: { used: 30 },
      },
    });
    for (const lease of running.slice(1)) lease.settle(20);
    await rig.settled();
    const next = admitted(await rig.limiter.admit(holder, free, 10));
    expect(next.states).toMatchObject({ concurrency: { used: 2 }, tokens_per_minute: { used: 60 } });
    // And back again nothing is left behind.
    for (const lease of [running[0], next.lease]) lease?.settle(0);
    await rig.settled();
    expect(admitted(await rig.limiter.admit(holder, pro, 10)).states).toMatchObject({
      concurrency: { limit: 10, used: 1 },
      requests_per_minute: { limit: 100, used: 5 },
    });
    expect(refused(await rig.limiter.admit(holder, { requests_per_minute: 4 }, 10))).toMatchObject({
      limit: 'requests_per_minute',
      retryAfterMs: MINUTE,
    });
  });

  test('a window starts with the first request and lasts a minute; the wait is exact', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    const limits = { requests_per_minute: 2 };
    await rig.advance(12_345);
    expect(await rig.limiter.peek(holder, limits)).toMatchObject({ requests_per_minute: { resetMs: 0 } });
    admitted(await rig.limiter.admit(holder, limits, 0));
    await rig.advance(20_000);
    admitted(await rig.limiter.admit(holder, limits, 0));
    await rig.advance(10_000);
    const { retryAfterMs, states } = refused(await rig.limiter.admit(holder, limits, 0));
    expect(retryAfterMs).toBe(29_999);
    expect(states.requests_per_minute).toEqual({ limit: 2, used: 2, remaining: 0, resetMs: 29_999 });
    await rig.advance(29_998);
    expect(refused(await rig.limiter.admit(holder, limits, 0)).retryAfterMs).toBe(1);
    await rig.advance(1);
    expect(admitted(await rig.limiter.admit(holder, limits, 0)).states).toMatchObject({
      requests_per_minute: { used: 1, resetMs: MINUTE },
    });
  });

  test('tokens above a whole limit are rejected as too large, even when another limit is used up', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    for (const name of ['tokens_per_minute', 'tokens_per_month'] as const) {
      expect(await rig.limiter.admit(holder, { ...ALL, [name]: 100 }, 101)).toMatchObject({
        kind: 'refused',
        limit: name,
        reason: 'too_large',
        retryAfterMs: undefined,
      });
    }
    const { lease } = admitted(await rig.limiter.admit(holder, ALL, 100));
    lease.settle(100);
    await rig.settled();
    expect(
      await rig.limiter.admit(holder, { requests_per_day: 1, tokens_per_minute: 100 }, 101),
    ).toMatchObject({
      limit: 'tokens_per_minute',
      reason: 'too_large',
    });
  });

  test('the first request in an empty window is admitted up to the limit', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    const limits = { requests_per_minute: 1, tokens_per_minute: 100, concurrency: 1 };
    for (let window = 0; window < 3; window += 1) {
      const { lease } = admitted(await rig.limiter.admit(holder, limits, 100));
      lease.settle(100_000);
      await rig.settled();
      expect(refused(await rig.limiter.admit(holder, limits, 0)).retryAfterMs).toBe(MINUTE);
      await rig.advance(MINUTE);
    }
  });

  test('of several limits that reject, the one with the longest wait is named', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    admitted(await rig.limiter.admit(holder, ALL, 10));
    const spent = {
      requests_per_minute: 1,
      tokens_per_minute: 15,
      requests_per_day: 1,
      tokens_per_month: 15,
      concurrency: 1,
    };
    const ask = async (limits: TierLimits) => {
      const { limit, retryAfterMs } = refused(await rig.limiter.admit(holder, limits, 10));
      return [limit, retryAfterMs];
    };
    await rig.advance(1000);
    expect(await ask(spent)).toEqual(['tokens_per_month', MONTH_END - NOON - 1000]);
    expect(await ask({ ...spent, tokens_per_month: 100 })).toEqual(['requests_per_day', DAY / 2 - 1000]);
    const { requests_per_minute, tokens_per_minute, concurrency } = spent;
    expect(await ask({ requests_per_minute, concurrency })).toEqual(['requests_per_minute', MINUTE - 1000]);
    expect(await ask({ tokens_per_minute, concurrency })).toEqual(['tokens_per_minute', MINUTE - 1000]);
    expect(await ask({ concurrency })).toEqual(['concurrency', 1000]);
  });

  test('a settlement replaces the estimate, up or down, once', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    const used = async () => {
      const states = await rig.limiter.peek(holder, ALL);
      return [states.tokens_per_minute?.used, states.tokens_per_month?.used, states.concurrency?.used];
    };
    const first = admitted(await rig.limiter.admit(holder, ALL, 300));
    const second = admitted(await rig.limiter.admit(holder, ALL, 300));
    expect(first.lease.tokens).toBe(300);
    expect(await used()).toEqual([600, 600, 2]);
    first.lease.settle(50);
    first.lease.settle(9000);
    await rig.settled();
    expect(await used()).toEqual([350, 350, 1]);
    second.lease.settle(5000);
    second.lease.settle(0);
    first.lease.settle(0);
    await rig.settled();
    expect(await used()).toEqual([5050, 5050, 0]);
    const states = await rig.limiter.peek(holder, ALL);
    expect(states.tokens_per_minute).toMatchObject({ remaining: 0, limit: 1000 });
    expect(states.requests_per_minute?.used).toBe(2);
    expect(rig.counters.leases).toBe(0);
  });

  test('a settlement after the end of its window counts in the month and not in the next window', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    const { lease } = admitted(await rig.limiter.admit(holder, ALL, 300));
    await rig.advance(29_000);
    // Another one keeps its own place.
    await rig.advance(MINUTE - 29_000);
    admitted(await rig.limiter.admit(holder, ALL, 20));
    lease.settle(500);
    await rig.settled();
    expect(await rig.limiter.peek(holder, ALL)).toMatchObject({
      tokens_per_minute: { used: 20 },
      tokens_per_month: { used: 520 },
      concurrency: { used: 1 },
    });
  });

  test.each([Number.NaN, -5, Number.NEGATIVE_INFINITY])('%s tokens count as none', async (tokens) => {
    await using rig = await makeRig();
    const holder = newHolder();
    const { lease } = admitted(await rig.limiter.admit(holder, ALL, tokens));
    lease.settle(tokens);
    await rig.settled();
    expect(await rig.limiter.peek(holder, ALL)).toMatchObject({ tokens_per_month: { used: 0 } });
  });

  test('large numbers stay exact', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    const most = Number.MAX_SAFE_INTEGER;
    const limits = { tokens_per_minute: most, tokens_per_month: most };
    admitted(await rig.limiter.admit(holder, limits, most - 1));
    expect(await rig.limiter.admit(holder, limits, 2)).toMatchObject({ limit: 'tokens_per_month' });
    expect(admitted(await rig.limiter.admit(holder, limits, 1)).states).toMatchObject({
      tokens_per_minute: { used: most, remaining: 0 },
      tokens_per_month: { used: most, remaining: 0 },
    });
  });

  test('a day ends at midnight UTC', async () => {
    await using rig = await makeRig();
    await rig.setWall(EVENING);
    const holder = newHolder();
    const limits = { requests_per_day: 1 };
    admitted(await rig.limiter.admit(holder, limits, 0));
    expect(refused(await rig.limiter.admit(holder, limits, 0)).retryAfterMs).toBe(10_000);
    await rig.advance(9_999);
    refused(await rig.limiter.admit(holder, limits, 0));
    await rig.advance(1);
    expect(admitted(await rig.limiter.admit(holder, limits, 0)).states).toEqual({
      requests_per_day: { limit: 1, used: 1, remaining: 0, resetMs: DAY },
    });
  });

  test.each([
    ['an ordinary one', Date.UTC(2027, 5, 1)],
    ['a year', Date.UTC(2028, 0, 1)],
    ['February', Date.UTC(2027, 2, 1)],
    ['February of a leap year', Date.UTC(2028, 2, 1)],
    ['February of a year with a hundred and no leap day', Date.UTC(2100, 2, 1)],
  ])('a month ends after its last day: %s', async (_which, end) => {
    await using rig = await makeRig();
    await rig.setWall(end - 86_400_000 + 1);
    const holder = newHolder();
    const limits = { tokens_per_month: 100 };
    admitted(await rig.limiter.admit(holder, limits, 100)).lease.settle(100);
    await rig.settled();
    await rig.advance(86_400_000 - 2);
    expect(refused(await rig.limiter.admit(holder, limits, 1)).retryAfterMs).toBe(1);
    await rig.advance(1);
    expect(admitted(await rig.limiter.admit(holder, limits, 1)).states).toMatchObject({
      tokens_per_month: { used: 1 },
    });
  });

  test('tokens reserved in one month and settled in the next count in the next', async () => {
    await using rig = await makeRig();
    await rig.setWall(MONTH_END - 1000);
    const holder = newHolder();
    const { lease } = admitted(await rig.limiter.admit(holder, ALL, 300));
    await rig.advance(2000);
    admitted(await rig.limiter.admit(holder, ALL, 10));
    expect(await rig.limiter.peek(holder, ALL)).toMatchObject({ tokens_per_month: { used: 10 } });
    lease.settle(200);
    await rig.settled();
    expect(await rig.limiter.peek(holder, ALL)).toMatchObject({
      tokens_per_month: { used: 210 },
      tokens_per_minute: { used: 210 },
    });
  });

  test('a clock set back over midnight does not extend the day: the totals are read again', async () => {
    await using rig = await makeRig();
    await rig.setWall(EVENING + 12_000);
    const holder = newHolder();
    rig.store.totals.set(holder, totals({ requests_per_day: 400, tokens_per_month: 7000 }));
    expect(admitted(await rig.limiter.admit(holder, ALL, 10)).states).toMatchObject({
      requests_per_day: { used: 401 },
      tokens_per_month: { used: 7010 },
    });
    await rig.setWall(EVENING);
    // The first one runs, and was reserved in the same month.
    expect(admitted(await rig.limiter.admit(holder, ALL, 10)).states).toMatchObject({
      requests_per_day: { used: 401 },
      tokens_per_month: { used: 7020 },
    });
    expect(rig.store.asked).toBe(2);
  });

  test('a clock set back by hours does not extend a window', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    const limits = { requests_per_minute: 1 };
    admitted(await rig.limiter.admit(holder, limits, 0));
    await rig.setWall(NOON - 3 * 3_600_000);
    expect(refused(await rig.limiter.admit(holder, limits, 0)).retryAfterMs).toBeLessThanOrEqual(MINUTE);
    await rig.advance(30_000);
    expect(refused(await rig.limiter.admit(holder, limits, 0)).retryAfterMs).toBeLessThanOrEqual(30_000);
    await rig.advance(30_000);
    admitted(await rig.limiter.admit(holder, limits, 0));
  });

  test('many concurrent requests share one read of totals', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    rig.store.totals.set(holder, totals({ requests_per_day: 497, tokens_per_month: 40_000 }));
    const all = await Promise.all(Array.from({ length: 20 }, () => rig.limiter.admit(holder, ALL, 1)));
    expect(all.filter(({ kind }) => kind === 'admitted')).toHaveLength(3);
    // In Redis, who comes a little later may ask once more; what it hears changes nothing.
    expect(rig.store.asked).toBeLessThan(20);
    expect(await rig.limiter.peek(holder, ALL)).toMatchObject({
      requests_per_day: { used: 500, remaining: 0 },
      tokens_per_month: { used: 40_003 },
    });
  });

  test('without totals counting starts at 0, and a later read adds them to what was used', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    rig.store.trouble = () => Promise.reject(new Error('the store is away'));
    const { lease } = admitted(await rig.limiter.admit(holder, ALL, 10));
    admitted(await rig.limiter.admit(holder, ALL, 10));
    expect(rig.counters.seedFailures).toBe(1);
    expect(rig.store.asked).toBe(1);
    rig.store.trouble = undefined;
    rig.store.totals.set(holder, totals({ requests_per_day: 100, tokens_per_month: 7000 }));
    await rig.advance(5000);
    // It waits for nothing.
    expect(admitted(await rig.limiter.admit(holder, ALL, 10)).states).toMatchObject({
      requests_per_day: { used: 3 },
    });
    // What runs is not in what the store says.
    await until(async () => {
      const states = await rig.limiter.peek(holder, ALL);
      return states.requests_per_day?.used === 103 && states.tokens_per_month?.used === 7030;
    }, 'totals');
    lease.settle(25);
    await rig.settled();
    expect(await rig.limiter.peek(holder, ALL)).toMatchObject({ tokens_per_month: { used: 7045 } });
  });

  test('peek reserves nothing and leaves a new holder unchanged', async () => {
    await using rig = await makeRig();
    const holder = newHolder();
    const empty = await rig.limiter.peek(holder, ALL);
    expect(Object.keys(empty)).toEqual(Object.keys(ALL));
    expect(Object.values(empty).every(({ used }) => used === 0)).toBe(true);
    await rig.limiter.peek(holder, ALL);
    expect(admitted(await rig.limiter.admit(holder, ALL, 1000)).states).toMatchObject({
      requests_per_minute: { used: 1, remaining: 99, resetMs: MINUTE },
      tokens_per_minute: { used: 1000, remaining: 0, resetMs: MINUTE },
      requests_per_day: { used: 1, resetMs: DAY / 2 },
      tokens_per_month: { used: 1000, resetMs: MONTH_END - NOON },
      concurrency: { used: 1, remaining: 49, resetMs: 0 },
    });
  });
});
