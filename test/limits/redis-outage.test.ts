// Releases of the Redis limiter while Redis is unavailable: they wait within bounds and are delivered once, and abandoned
// reservations are released.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { TierLimits } from '../../src/config/limit-table.ts';
import { PendingReleases } from '../../src/limits/pending-releases.ts';
import { leaseIdOf, pendingReleaseOf, RedisLease, usageReleaseOf } from '../../src/limits/redis-lease.ts';
import { makeScopes } from '../../src/limits/scope.ts';
import { RedisCommandError } from '../../src/redis/redis-client.ts';
import { RedisUnavailable } from '../../src/redis/redis-fault.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import { failure } from '../redis/recorder.ts';
import { holderScope, holderScopes, tokensOnly } from './of-holder.ts';
import { admitted, Counters, newHolder, startReplica } from './setting.ts';

const ALL: TierLimits = {
  requests_per_minute: 100,
  tokens_per_minute: 1000,
  requests_per_day: 500,
  tokens_per_month: 50_000,
  concurrency: 3,
};

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
}, REDIS_TIMEOUT);
afterAll(() => server?.stop());

describe('while Redis is unavailable', () => {
  /** Long enough for a slow machine, short enough to wait for. */
  const SHORT = 300;

  test('releases wait and are delivered once', async () => {
    await using one = await startReplica(server.url, {}, SHORT);
    const holder = newHolder();
    const leases = [];
    for (let number = 0; number < 3; number += 1) {
      leases.push(admitted(await one.limiter.admit(holder, ALL, 100)).lease);
    }
    server.pause();
    for (const lease of leases) lease.settle(30);
    await one.limiter.real.settled();
    expect(one.limiter.real.waiting).toBe(3);
    expect(one.counters.leases).toBe(0);
    server.resume();
    // They were sent, and Redis has read them when it went on; they are sent again and not counted again.
    await until(async () => one.client.isUp && one.limiter.real.waiting === 0, 'delivery');
    await one.limiter.real.settled();
    await until(async () => (await one.limiter.peek(holder, ALL)).concurrency?.used === 0, 'settlement');
    expect(await one.limiter.peek(holder, ALL)).toMatchObject({
      tokens_per_minute: { used: 90 },
      tokens_per_month: { used: 90 },
    });
  });

  test('the queue of releases is bounded, and drops are counted', async () => {
    await using own = await startRedis();
    await using one = await startReplica(own.url, { maxPending: 2 });
    const leases = [];
    for (let number = 0; number < 5; number += 1) {
      leases.push(admitted(await one.limiter.admit(newHolder(), {}, 0)).lease);
    }
    await own.kill();
    await until(() => !one.client.isUp, 'the outage');
    for (const lease of leases) lease.settle(0);
    await one.limiter.real.settled();
    expect(one.limiter.real.waiting).toBe(2);
    expect(one.counters.dropped).toEqual({ overflow: 3 });
    await one.limiter.real.close();
    expect(one.counters.dropped).toEqual({ overflow: 3, closed: 2 });
    expect(one.counters.leases).toBe(0);
  });

  test('usage without a lease is summed by holder and added to existing totals', async () => {
    await using one = await startReplica(server.url, {}, SHORT);
    const [known, unknown] = [newHolder(), newHolder()];
    admitted(await one.limiter.admit(known, ALL, 100)).lease.settle(100);
    await one.limiter.real.settled();
    server.pause();
    await failure(Promise.resolve(one.limiter.peek(known, ALL)));
    for (let number = 0; number < 50; number += 1) {
      one.limiter.real.charge(holderScopes(known), tokensOnly(10));
      one.limiter.real.charge(holderScopes(unknown), tokensOnly(10));
    }
    await one.limiter.real.settled();
    expect(one.limiter.real.waiting).toBe(2);
    server.resume();
    await until(async () => {
      if (one.limiter.real.waiting > 0) return false;
      const states = await one.limiter.peek(known, ALL);
      return states.tokens_per_month?.used === 600 && states.requests_per_day?.used === 51;
    }, 'delivery');
    // Its totals come from the store, which knows of that use as well.
    expect(await one.limiter.peek(unknown, ALL)).toMatchObject({ tokens_per_month: { used: 0 } });
  });

  test('the reservation of a request without an answer is released when Redis is back', async () => {
    await using one = await startReplica(server.url, {}, SHORT);
    const holder = newHolder();
    await one.limiter.peek(holder, ALL);
    server.pause();
    expect(await failure(Promise.resolve(one.limiter.admit(holder, ALL, 100)))).toMatchObject({
      name: 'RedisUnavailable',
    });
    server.resume();
    await until(async () => one.client.isUp && one.limiter.real.waiting === 0, 'delivery');
    await one.limiter.real.settled();
    await until(async () => (await one.limiter.peek(holder, ALL)).concurrency?.used === 0, 'the place');
    expect(await one.limiter.peek(holder, ALL)).toMatchObject({
      requests_per_day: { used: 0 },
      tokens_per_month: { used: 0 },
    });
    expect(one.counters.dropped).toEqual({});
  });
});

describe('releases that wait', () => {
  const WINDOW = 1000;
  const scopes = holderScopes(newHolder());
  const setUp = (limit = 9) => {
    const counters = new Counters();
    return { counters, pending: new PendingReleases(limit, WINDOW, counters) };
  };
  const use = (since: number, tokens: number) => usageReleaseOf(scopes, '', 1, tokensOnly(tokens), since);
  const leased = (member: string) =>
    pendingReleaseOf(new RedisLease(scopes, member, tokensOnly(0), () => undefined), tokensOnly(7));

  test.each([
    ['in one minute', [5, 5 + WINDOW - 1], { since: 5, requests: 2, amounts: tokensOnly(3) }],
    [
      'in one minute, the later first',
      [5 + WINDOW - 1, 5],
      { since: 5, requests: 2, amounts: tokensOnly(3) },
    ],
    ['of two minutes', [5, 5 + WINDOW], { since: 5 + WINDOW, requests: 1, amounts: tokensOnly(2) }],
    [
      'of two minutes, the later first',
      [5 + WINDOW, 5],
      { since: 5 + WINDOW, requests: 1, amounts: tokensOnly(1) },
    ],
  ] as const)(
    'usage %s is one release, and recent is what counts in the last minute',
    (_what, [first, second], recent) => {
      const { pending } = setUp();
      pending.add(use(first, 1));
      pending.add(use(second, 2));
      expect(pending.take(9)).toEqual([
        { scopes, member: '', orElse: 'use', requests: 2, amounts: tokensOnly(3), recent },
      ]);
    },
  );

  test('usage of other scopes is a release of its own', () => {
    const { pending } = setUp();
    const [owner, other] = [scopes.list[0], holderScope(newHolder())];
    const all = [scopes, makeScopes(scopes.slot, [owner, other]), makeScopes(newHolder(), [owner, other])];
    for (const each of [...all, ...all]) pending.add({ ...use(1, 1), scopes: each });
    expect(pending.take(9).map((each) => [each.scopes, each.requests])).toEqual(all.map((each) => [each, 2]));
  });

  test('are taken the oldest first; one of the same lease replaces it, also when no more may wait', () => {
    const { pending, counters } = setUp(2);
    for (const member of ['a:1', 'b:1', 'c:1', 'a:1']) pending.add(leased(member));
    expect([pending.size, counters.dropped]).toEqual([2, { overflow: 1 }]);
    expect([pending.take(1), pending.take(1), pending.size]).toEqual([[leased('a:1')], [leased('b:1')], 0]);
  });

  test.each([
    ['was not sent', 'away', 'a:1', { orElse: 'real', recent: { since: 40 } }],
    ['was not sent, by its id', 'away', 'a', { orElse: 'use', recent: { since: 0 } }],
    ['may have been executed', 'lost', 'a:1', { orElse: 'none', recent: { since: 40 } }],
    ['may have been executed, without a lease', 'deadline', '', 'unknown'],
    ['met a closed client', 'closed', 'a:1', 'closed'],
  ] as const)('a release that %s', (_what, reason, member, expected) => {
    const { pending, counters } = setUp();
    pending.keep(leased(member), new RedisUnavailable(reason, ''), false, 40);
    const [kept] = pending.take(9);
    if (typeof expected === 'string')
      expect([kept, counters.dropped]).toEqual([undefined, { [expected]: 1 }]);
    else expect(kept).toMatchObject(expected);
  });

  test('a release of a closed limiter, or that Redis rejected, is dropped; the first failure counts', () => {
    const { pending, counters } = setUp();
    pending.keep(leased('a:1'), new RedisUnavailable('away', ''), true, 40);
    pending.keep(leased('a:1'), new RedisCommandError('ERR', ''), false, 40);
    expect([pending.size, counters.dropped]).toEqual([0, { closed: 1, error: 1 }]);
    pending.keep(leased('a:1'), new RedisUnavailable('away', ''), false, 40);
    for (const late of pending.take(1)) pending.keep(late, new RedisUnavailable('away', ''), false, 50);
    expect(pending.take(1)).toMatchObject([{ recent: { since: 40 } }]);
  });

  test('are delivered in parts until Redis is down; what fails waits for the next round', async () => {
    const { pending } = setUp();
    const parts: string[][] = [];
    const deliver = async (some: readonly { member: string }[]) => {
      parts.push(some.map(({ member }) => leaseIdOf(member)));
      if (parts.length === 1) pending.add(leased('a:1'));
    };
    for (const member of ['a:1', 'b:1', 'c:1']) pending.add(leased(member));
    await pending.deliverAll(2, () => true, deliver);
    expect(parts).toEqual([['a', 'b'], ['c']]);
    pending.add(leased('d:1'));
    await pending.deliverAll(2, () => false, deliver);
    expect(pending.size).toBe(2);
    await pending.deliverAll(2, () => true, deliver);
    expect(parts).toEqual([['a', 'b'], ['c'], ['a', 'd']]);
  });
});
