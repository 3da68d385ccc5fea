// The behaviour of the Redis limiter alone: one count for all replicas, leases of dead processes, and the keys in Redis and
// their expiry. The clock is that of Redis, except where a test needs another date.
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { TierLimits } from '../../src/config/limit-table.ts';
import { LIMITS, TOTAL_LIMITS } from '../../src/config/limit-table.ts';
import { utcDateAt } from '../../src/limits/calendar.ts';
import { WINDOW_MS } from '../../src/limits/limiter.ts';
import { packedLimits, reserveScript, scriptScopesOf } from '../../src/limits/reserve-script.ts';
import { REDIS_TIMEOUT, type RedisServer, startCluster } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import { failure } from '../redis/recorder.ts';
import { holderScopes } from './of-holder.ts';
import {
  admitted,
  newHolder,
  RedisSetting,
  type Replica,
  refused,
  startReplica,
  unreachable,
} from './setting.ts';

const ALL: TierLimits = {
  requests_per_minute: 100,
  tokens_per_minute: 1000,
  requests_per_day: 500,
  tokens_per_day: 40_000,
  tokens_per_month: 50_000,
  concurrency: 3,
};

let setting: RedisSetting;
let server: RedisServer;

beforeAll(async () => {
  setting = await RedisSetting.start();
  server = setting.server;
}, REDIS_TIMEOUT);
beforeEach(() => server.flush());
afterAll(() => setting?.stop());

const key = (holder: string, what: 'holder' | 'leases') => `tollgate:limit:{${holder}}:${what}`;

/** Reads the fields of a scope, or writes them, as reserve.lua has them. */
async function fields(holder: string, ...written: string[]): Promise<readonly number[]> {
  const script = `
    local format = '<' .. string.rep('I8', 17)
    if #ARGV > 0 then redis.call('SET', KEYS[1], struct.pack(format, unpack(ARGV))) end
    local values = { struct.unpack(format, redis.call('GET', KEYS[1])) }
    for index = 1, 17 do values[index] = string.format('%.0f', values[index]) end
    return values`;
  const found = await server.command('EVAL', script, 1, key(holder, 'holder'), ...written);
  return Array.isArray(found) ? found.map(Number) : [];
}

/** What the limiter has written, without the client's own probe. */
async function keys(): Promise<string[]> {
  const all = await server.command('KEYS', 'tollgate:limit:*');
  return Array.isArray(all) ? all.map(String).sort() : [];
}

describe('replicas', () => {
  test.each([
    ['requests_per_minute', 20],
    ['concurrency', 20],
    ['tokens_per_month', 200],
  ] as const)(
    'of 200 requests at three of them, exactly the limit of %s is admitted',
    async (name, limit) => {
      await using stack = new AsyncDisposableStack();
      const replicas: Replica[] = [];
      for (let number = 0; number < 3; number += 1) replicas.push(stack.use(await startReplica(server.url)));
      const holder = newHolder();
      const all = await Promise.all(
        Array.from({ length: 201 }, (_, number) => {
          const { limiter } = replicas[number % 3] ?? unreachable();
          return limiter.admit(holder, { [name]: limit }, 10);
        }),
      );
      expect(all.filter(({ kind }) => kind === 'admitted')).toHaveLength(20);
      expect(replicas.reduce((sum, { counters }) => sum + counters.leases, 0)).toBe(20);
      for (const each of all) if (each.kind === 'admitted') each.lease.settle(10);
      await Promise.all(replicas.map(({ limiter }) => limiter.real.settled()));
      expect(replicas.map(({ counters }) => counters.leases)).toEqual([0, 0, 0]);
      expect(await server.command('EXISTS', key(holder, 'leases'))).toBe(0);
    },
  );

  test('the reservation of one is unavailable to the others, and its settlement is available at once', async () => {
    await using one = await startReplica(server.url);
    await using other = await startReplica(server.url);
    const holder = newHolder();
    const { lease } = admitted(await one.limiter.admit(holder, { concurrency: 1 }, 0));
    refused(await other.limiter.admit(holder, { concurrency: 1 }, 0));
    lease.settle(0);
    await one.limiter.real.settled();
    admitted(await other.limiter.admit(holder, { concurrency: 1 }, 0));
  });
});

describe('a lease', () => {
  test('of a dead process expires and releases everything but the request', async () => {
    await using gone = await startReplica(server.url, { leaseMs: 150 });
    await using other = await startReplica(server.url, { leaseMs: 150 });
    const holder = newHolder();
    for (let number = 0; number < 3; number += 1) admitted(await gone.limiter.admit(holder, ALL, 100));
    await until(async () => (await other.limiter.peek(holder, ALL)).concurrency?.used === 0, 'expiry');
    expect(await other.limiter.peek(holder, ALL)).toMatchObject({
      requests_per_minute: { used: 3 },
      tokens_per_minute: { used: 0 },
      requests_per_day: { used: 3 },
      tokens_per_month: { used: 0 },
    });
    expect(await server.command('EXISTS', key(holder, 'leases'))).toBe(0);
  });

  test('that has expired is released by the next request of another process, far from the limits', async () => {
    await using gone = await startReplica(server.url);
    await using other = await startReplica(server.url);
    const holder = newHolder();
    const limits = { requests_per_minute: 1_000_000, concurrency: 1_000_000 };
    for (let number = 0; number < 3; number += 1) admitted(await gone.limiter.admit(holder, limits, 0));
    const members = await server.command('ZRANGE', key(holder, 'leases'), 0, -1);
    for (const member of Array.isArray(members) ? members : [])
      await server.command('ZADD', key(holder, 'leases'), 1, String(member));
    // The sixth number of the scope: no lease expires before this time.
    await server.command('SETRANGE', key(holder, 'holder'), 40, Buffer.alloc(8));
    const { states } = admitted(await other.limiter.admit(holder, limits, 0));
    expect(states).toMatchObject({ requests_per_minute: { used: 4 }, concurrency: { used: 1 } });
  });

  test('is renewed while its process and its request run', async () => {
    await using one = await startReplica(server.url, { renewMs: 10 });
    const holder = newHolder();
    const score = async (member: unknown) =>
      Number(await server.command('ZSCORE', key(holder, 'leases'), String(member)));
    const { lease } = admitted(await one.limiter.admit(holder, ALL, 100));
    const members = await server.command('ZRANGE', key(holder, 'leases'), 0, -1);
    const member: unknown = Array.isArray(members) ? members[0] : undefined;
    const first = await score(member);
    await until(async () => (await score(member)) > first + 50, 'renewal');
    lease.settle(0);
    await one.limiter.real.settled();
    const renewals = await server.calls('zadd');
    await server.command('CONFIG', 'RESETSTAT');
    expect(renewals).toBeGreaterThan(1);
    expect(await server.command('EXISTS', key(holder, 'leases'))).toBe(0);
  });

  test('many of many holders are renewed in batches', async () => {
    await using one = await startReplica(server.url, { renewMs: 10, leaseMs: 20_000 });
    const holders = Array.from({ length: 230 }, newHolder);
    await Promise.all(holders.map((holder) => one.limiter.admit(holder, {}, 0)));
    const [crowded] = holders;
    await Promise.all(Array.from({ length: 230 }, () => one.limiter.admit(crowded ?? '', {}, 0)));
    const time = await server.command('TIME');
    const now = Array.isArray(time) ? Number(time[0]) * 1000 + 1000 : 0;
    await until(async () => {
      for (const holder of holders) {
        const old = await server.command('ZCOUNT', key(holder, 'leases'), '-inf', now + 20_000);
        if (old !== 0) return false;
      }
      return true;
    }, 'renewal of all');
  });

  test('that has expired still counts its real tokens in the month when settled', async () => {
    await using rig = await setting.rig();
    const holder = newHolder();
    const { lease } = admitted(await rig.limiter.admit(holder, ALL, 100));
    await rig.advance(rig.leaseMs);
    expect(await rig.limiter.peek(holder, ALL)).toMatchObject({ tokens_per_month: { used: 0 } });
    lease.settle(70);
    await rig.settled();
    expect(await rig.limiter.peek(holder, ALL)).toMatchObject({
      tokens_per_minute: { used: 70 },
      tokens_per_month: { used: 70 },
      concurrency: { used: 0 },
    });
  });

  test('is not extended by a clock that is set back', async () => {
    await using rig = await setting.rig();
    const holder = newHolder();
    const start = Date.UTC(2027, 4, 17, 12);
    admitted(await rig.limiter.admit(holder, { concurrency: 1 }, 0));
    await rig.setWall(start - 3_600_000);
    refused(await rig.limiter.admit(holder, { concurrency: 1 }, 0));
    await rig.advance(rig.leaseMs);
    admitted(await rig.limiter.admit(holder, { concurrency: 1 }, 0));
  });
});

describe('in Redis', () => {
  test('an admission is one call, and its settlement is one call', async () => {
    await using one = await startReplica(server.url);
    const holder = newHolder();
    await one.limiter.peek(holder, ALL);
    await server.command('CONFIG', 'RESETSTAT');
    const { lease } = admitted(await one.limiter.admit(holder, ALL, 10));
    expect([await server.calls('evalsha'), await server.calls('eval')]).toEqual([1, 0]);
    lease.settle(5);
    await one.limiter.real.settled();
    expect([await server.calls('evalsha'), await server.calls('eval')]).toEqual([2, 0]);
  });

  test('the clock is that of Redis', async () => {
    const lua = readFileSync(new URL('../../src/limits/reserve.lua', import.meta.url), 'utf8');
    expect(lua).toContain("redis.call('TIME')");
    await using one = await startReplica(server.url, { windowMs: 200 });
    const holder = newHolder();
    const limits = { requests_per_minute: 1 };
    admitted(await one.limiter.admit(holder, limits, 0));
    await until(
      async () => (await one.limiter.admit(holder, limits, 0)).kind === 'admitted',
      'the next window',
    );
  });

  test('all keys of a holder have one hash tag, and each expires', async () => {
    await using one = await startReplica(server.url);
    const holder = newHolder();
    const { lease } = admitted(await one.limiter.admit(holder, ALL, 10));
    const named = ['holder', 'leases'] as const;
    expect(await keys()).toEqual(named.map((what) => key(holder, what)));
    const life = async (what: (typeof named)[number]) =>
      Number(await server.command('PTTL', key(holder, what)));
    const check = async () => {
      // The month, and some.
      expect(await life('holder')).toBeGreaterThan(86_400_000);
      expect(await life('holder')).toBeLessThanOrEqual(33 * 86_400_000);
    };
    await check();
    expect(await life('leases')).toBeGreaterThan(60_000);
    lease.settle(5);
    await one.limiter.real.settled();
    await check();
    expect(await keys()).toEqual([key(holder, 'holder')]);
  });

  test('without daily and monthly limits nothing stays longer than a minute', async () => {
    await using one = await startReplica(server.url);
    const holder = newHolder();
    admitted(await one.limiter.admit(holder, { requests_per_minute: 5 }, 10));
    for (const name of await keys())
      expect(Number(await server.command('PTTL', name))).toBeLessThanOrEqual(60_000);
    expect(await keys()).toHaveLength(2);
  });

  test('a new window lasts as long as any, however old the value is', async () => {
    await using rig = await setting.rig();
    const holder = newHolder();
    const life = async () => Number(await server.command('PTTL', key(holder, 'holder')));
    admitted(await rig.limiter.admit(holder, { requests_per_minute: 5 }, 10));
    await server.command('PEXPIRE', key(holder, 'holder'), 20_000);
    admitted(await rig.limiter.admit(holder, { requests_per_minute: 5 }, 10));
    expect(await life()).toBeLessThanOrEqual(20_000);
    await rig.advance(WINDOW_MS);
    admitted(await rig.limiter.admit(holder, { requests_per_minute: 5 }, 10));
    expect(await life()).toBeGreaterThan(50_000);
  });

  test('the end of a request that Redis has forgotten leaves nothing there', async () => {
    await using one = await startReplica(server.url);
    const { lease } = admitted(await one.limiter.admit(newHolder(), ALL, 10));
    await server.flush();
    lease.settle(10);
    await one.limiter.real.settled();
    expect(await keys()).toEqual([]);
  });

  test('days and months follow the calendar on any date', async () => {
    await using rig = await setting.rig();
    const any = fc.integer({ min: Date.UTC(2000, 0, 1), max: Date.UTC(2120, 0, 1) });
    const edge = fc
      .tuple(fc.integer({ min: 2000, max: 2120 }), fc.nat(11), fc.constantFrom(-1, 0))
      .map(([year, month, more]) => Date.UTC(year, month, 1) + more);
    const check = async (ms: number) => {
      await rig.setWall(ms);
      const holder = newHolder();
      admitted(await rig.limiter.admit(holder, ALL, 0));
      const held = await fields(holder);
      // Twice the number, plus 1 for known totals; a day and a month.
      expect([held[7], held[11]]).toEqual([utcDateAt(ms).day * 2 + 1, utcDateAt(ms).month * 2 + 1]);
      const life = Number(await server.command('PTTL', key(holder, 'holder')));
      const date = new Date(ms);
      expect(ms + life).toBeGreaterThan(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1));
    };
    await fc.assert(fc.asyncProperty(fc.oneof(any, edge), check), { numRuns: 300 });
  });

  test('keys without expiry, above the limit or malformed recover by themselves', async () => {
    await using one = await startReplica(server.url);
    const FUTURE = '99999999999999';
    for (const start of [
      '0',
      '1',
      FUTURE,
      'counted in the future',
      'text',
      'bytes',
      'short',
      'empty',
      'hash',
    ]) {
      await server.flush();
      const holder = newHolder();
      const name = key(holder, 'holder');
      if (start === 'text') await server.command('SET', name, 'what is this');
      else if (start === 'bytes') await server.command('SET', name, Buffer.alloc(17 * 8 + 5, 255));
      else if (start === 'short') await server.command('SET', name, Buffer.alloc(16, 255));
      else if (start === 'empty') await server.command('SET', name, '');
      else if (start === 'counted in the future')
        await fields(
          holder,
          '0',
          '0',
          '0',
          '7000',
          '0',
          '0',
          FUTURE,
          ...Array.from({ length: 10 }, () => '0'),
        );
      else if (start === 'hash') await server.command('HSET', name, 's', '1000');
      else
        await fields(
          holder,
          start,
          ...[1000, 5000, 7000, start, start, start, start, 9e15].map(String),
          ...Array.from({ length: 8 }, () => '9000000000000000'),
        );
      await server.command('ZADD', key(holder, 'leases'), 1, 'what is this', '+inf', 'a:1:2:3');
      const first = await one.limiter.admit(holder, ALL, 10);
      if (first.kind === 'refused') {
        // Its window seems to have begun now. It ends in time.
        expect(start).toBe(FUTURE);
        expect(first.retryAfterMs).toBeLessThanOrEqual(60_000);
        continue;
      }
      expect(first.states).toMatchObject({
        requests_per_minute: { used: 1 },
        tokens_per_minute: { used: 10 },
        requests_per_day: { used: 1 },
        tokens_per_month: { used: 10 },
      });
      for (const name of await keys()) expect(Number(await server.command('PTTL', name))).toBeGreaterThan(0);
    }
  });

  // Within one window a value is written in place, and with a new window as a whole.
  test.each([WINDOW_MS, 1])(
    'replicas of two versions share a holder, and a limit known to one affects no other: windows of %d ms',
    async (windowMs) => {
      await using older = await startReplica(server.url, { windowMs });
      const added = { name: 'requests_per_month', window: 'month', counts: 'requests', about: '' } as const;
      const scriptOfNewer = older.client.script({
        name: 'newer',
        lua: reserveScript([...LIMITS, added]),
        isBinary: true,
      });
      const holder = newHolder();
      /** Whether its totals are known to the newer version, and the count of the added limit. */
      const newer = async (...totals: number[]) => {
        const limits = packedLimits([[[LIMITS.length + 1, 1000]]]);
        const args = [
          WINDOW_MS,
          30_000,
          'peek',
          '',
          0,
          0,
          limits,
          ...(totals.length === 0 ? [] : [1, ...totals]),
        ];
        const { keys } = scriptScopesOf(holderScopes(holder));
        const answer = await scriptOfNewer(keys, args);
        const value: unknown = Array.isArray(answer) ? answer[3] : undefined;
        if (!Buffer.isBuffer(value)) return answer;
        // The window of the added limit, odd where usage before is known, and its count are the last fields.
        return [value.readUInt32LE(value.length - 16) % 2, value.readUInt32LE(value.length - 8)];
      };
      const used = async () => (await older.limiter.peek(holder, ALL)).requests_per_day?.used;

      const { lease } = admitted(await older.limiter.admit(holder, ALL, 10));
      expect(await newer()).toEqual([0, 1]);
      expect(await newer(1, ...TOTAL_LIMITS.map(() => 7), 40)).toEqual([1, 41]);
      expect(await used()).toBe(8);
      lease.settle(10);
      admitted(await older.limiter.admit(holder, ALL, 10)).lease.settle(10);
      await older.limiter.real.settled();
      expect(await used()).toBe(9);
      // Neither reads totals again because of the other.
      expect(await newer()).toEqual([1, 41]);
      expect(older.store.asked).toBe(1);

      await server.flush();
      admitted(await older.limiter.admit(holder, ALL, 10));
      expect(await newer()).toEqual([0, 1]);
      expect(await used()).toBe(1);
    },
  );

  test('leases of another type are removed', async () => {
    await using one = await startReplica(server.url);
    const holder = newHolder();
    await server.command('SET', key(holder, 'leases'), 'what is this');
    expect(await failure(Promise.resolve(one.limiter.admit(holder, ALL, 10)))).toMatchObject({
      code: 'WRONGTYPE',
    });
    admitted(await one.limiter.admit(holder, ALL, 10));
  });

  test('works on a Cluster', { timeout: REDIS_TIMEOUT }, async () => {
    await using cluster = await startCluster();
    await using one = await startReplica(cluster.url, { renewMs: 10 });
    await until(() => one.client.isUp, 'the Cluster');
    for (const holder of Array.from({ length: 20 }, newHolder)) {
      const { lease } = admitted(await one.limiter.admit(holder, { ...ALL, concurrency: 1 }, 10));
      refused(await one.limiter.admit(holder, { ...ALL, concurrency: 1 }, 10));
      lease.settle(30);
      await one.limiter.real.settled();
      expect(await one.limiter.peek(holder, ALL)).toMatchObject({
        tokens_per_month: { used: 30 },
        concurrency: { used: 0 },
      });
    }
    expect(one.counters.dropped).toEqual({});
  });
});
