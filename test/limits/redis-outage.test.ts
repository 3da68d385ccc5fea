// Releases of the Redis limiter while Redis is unavailable: they wait within bounds and are delivered once, and abandoned
// reservations are released.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { TierLimits } from '../../src/config/limit-table.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import { failure } from '../redis/recorder.ts';
import { holderScopes, tokensOnly } from './of-holder.ts';
import { admitted, newHolder, startReplica } from './setting.ts';

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
