// The limits of a fleet when Redis is paused, killed, flushed, read-only, full or corrupted while requests run: requests
// continue within the limits of this process, each is settled where it was admitted, and Redis takes over again by itself.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { TierLimits } from '../../src/config/limit-table.ts';
import type { Admission, Lease } from '../../src/limits/limiter.ts';
import { MemoryLimiter } from '../../src/limits/memory/memory-limiter.ts';
import { RedisLimiter } from '../../src/limits/redis-limiter.ts';
import { makeScope, makeScopes, type Scopes } from '../../src/limits/scope.ts';
import { SharedLimiter } from '../../src/limits/shared-limiter.ts';
import type { RedisClient } from '../../src/redis/redis-client.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import { PATIENT, startClient } from '../redis/recorder.ts';
import { COST, type HolderAdmission, holderScope, OfHolder, tokensOnly } from './of-holder.ts';
import { admitted, Counters, newHolder, refused, Store, seedsOf, totals } from './setting.ts';

const LIMITS: TierLimits = {
  requests_per_minute: 10,
  tokens_per_minute: 10_000,
  requests_per_day: 1000,
  tokens_per_month: 100_000,
  concurrency: 8,
};
/** A deadline that a slow machine keeps, and that a test can wait for. */
const DEADLINE_MS = 500;

interface Gateway extends AsyncDisposable {
  readonly limiter: OfHolder<SharedLimiter>;
  readonly shared: RedisLimiter;
  readonly local: OfHolder<MemoryLimiter>;
  readonly client: RedisClient;
  readonly counters: Counters;
  readonly store: Store;
  admit(holder: string, tokens?: number): Promise<HolderAdmission>;
}

let server: RedisServer;

beforeEach(async () => {
  server = await startRedis();
}, REDIS_TIMEOUT);
afterEach(() => server?.stop());

async function gateway(commandMs = PATIENT): Promise<Gateway> {
  const { client } = await startClient(server.url, { commandMs, heartbeatMs: 50 });
  const [counters, store] = [new Counters(), new Store()];
  const initialTotals = seedsOf(store, counters);
  const shared = new RedisLimiter({ redis: client, initialTotals, metrics: counters, renewMs: 20 });
  const local = new MemoryLimiter({ initialTotals, metrics: counters });
  const limiter = new OfHolder(new SharedLimiter({ redis: client, shared, local, metrics: counters }));
  await until(() => client.isUp && !limiter.real.isDegraded, 'Redis');
  return {
    limiter,
    shared,
    local: new OfHolder(local),
    client,
    counters,
    store,
    admit: async (holder, tokens = 10) => await limiter.admit(holder, LIMITS, tokens),
    async [Symbol.asyncDispose]() {
      await limiter.real.close();
      await client.close();
    },
  };
}

async function isBack({ limiter, client, shared }: Gateway): Promise<void> {
  await until(() => client.isUp && !limiter.real.isDegraded && shared.waiting === 0, 'Redis');
  await shared.settled();
}

test('with Redis up the limiter in Redis decides', async () => {
  await using one = await gateway();
  await using other = await gateway();
  const holder = newHolder();
  for (let number = 0; number < 5; number += 1) {
    admitted(await one.admit(holder)).lease.settle(10);
    admitted(await other.admit(holder)).lease.settle(10);
    await Promise.all([one.shared.settled(), other.shared.settled()]);
  }
  expect(refused(await one.admit(holder)).limit).toBe('requests_per_minute');
  expect(refused(await other.admit(holder)).limit).toBe('requests_per_minute');
  expect(await other.limiter.peek(holder, LIMITS)).toMatchObject({ tokens_per_month: { used: 100 } });
  expect([one.counters.degraded, one.local.real.size, one.counters.leases]).toEqual([0, 0, 0]);
});

test('started without Redis this process decides, and Redis as soon as it is up', async () => {
  await server.kill();
  const { client } = await startClient(server.url, { startMs: 20, commandMs: DEADLINE_MS });
  const [counters, store] = [new Counters(), new Store()];
  const initialTotals = seedsOf(store, counters);
  const shared = new RedisLimiter({ redis: client, initialTotals, metrics: counters });
  const local = new MemoryLimiter({ initialTotals, metrics: counters });
  const limiter = new OfHolder(new SharedLimiter({ redis: client, shared, local, metrics: counters }));
  expect([limiter.real.isDegraded, counters.degraded]).toEqual([true, 1]);
  const holder = newHolder();
  const all = await Promise.all(
    Array.from({ length: 20 }, () => limiter.admit(holder, { requests_per_minute: 7 }, 0)),
  );
  expect(all.filter(({ kind }) => kind === 'admitted')).toHaveLength(7);
  await server.start();
  await until(() => !limiter.real.isDegraded, 'Redis');
  expect(counters.degraded).toBe(0);
  // What was admitted without Redis is known there now.
  await until(async () => {
    const states = await limiter.peek(holder, { requests_per_minute: 7, concurrency: 9 });
    return states.concurrency?.used === 7 && states.requests_per_minute?.used === 7;
  }, 'what runs');
  expect(refused(await limiter.admit(holder, { requests_per_minute: 7 }, 0)).limit).toBe(
    'requests_per_minute',
  );
  for (const each of all) if (each.kind === 'admitted') each.lease.settle(0);
  await shared.settled();
  expect(await limiter.peek(holder, { concurrency: 9 })).toMatchObject({ concurrency: { used: 0 } });
  expect(counters.leases).toBe(0);
  await limiter.real.close();
  await client.close();
});

/** What makes Redis useless for writing, and what mends it. */
const OUTAGES: [string, () => Promise<void>, () => Promise<void>][] = [
  ['paused', async () => server.pause(), async () => server.resume()],
  ['killed', () => server.kill(), () => server.start()],
  ['a replica that takes no writes', () => server.replicaOf(), () => server.promote()],
];

describe.each(OUTAGES)('Redis is %s while requests run', (_what, begin, end) => {
  test('the limits hold in this process, waits are short, and leases are settled where they were admitted', async () => {
    await using one = await gateway(DEADLINE_MS);
    const holder = newHolder();
    one.store.totals.set(holder, totals({ requests_per_day: 100, tokens_per_month: 5000 }));
    const before = [admitted(await one.admit(holder, 50)), admitted(await one.admit(holder, 50))];
    await begin();

    // Whoever is first finds out; nobody else waits.
    const all = await Promise.all(Array.from({ length: 40 }, () => one.admit(holder)));
    const here = all.flatMap((each) => (each.kind === 'admitted' ? [each] : []));
    // Redis had two of this holder.
    expect(here).toHaveLength(6);
    for (const each of all) if (each.kind === 'refused') expect(each.limit).toBe('concurrency');
    await until(() => one.limiter.real.isDegraded, 'the outage');
    expect(one.counters.degraded).toBe(1);
    // Known holders do not even wait for a turn of the loop.
    expect(one.limiter.admit(holder, LIMITS, 0)).toMatchObject({ kind: 'refused', limit: 'concurrency' });
    expect(here[0]?.states).toMatchObject({
      requests_per_minute: { used: 3 },
      requests_per_day: { used: 103 },
      tokens_per_month: { used: 5110 },
      concurrency: { used: 3 },
    });

    for (const each of here.slice(0, 5)) each.lease.settle(20);
    for (const each of here.slice(0, 5)) each.lease.settle(9999);
    before[0]?.lease.settle(70);
    await one.shared.settled();
    expect(await one.limiter.peek(holder, LIMITS)).toMatchObject({
      requests_per_minute: { used: 8 },
      tokens_per_minute: { used: 230 },
      concurrency: { used: 2 },
    });
    admitted(await one.admit(holder)).lease.settle(0);
    admitted(await one.admit(holder)).lease.settle(0);
    expect(refused(await one.admit(holder)).limit).toBe('requests_per_minute');

    await end();
    await isBack(one);
    expect(one.counters.degraded).toBe(0);
    // What began in this process ends in it.
    for (const each of here.slice(5)) each.lease.settle(20);
    before[1]?.lease.settle(70);
    await one.shared.settled();
    await until(
      async () => (await one.limiter.peek(holder, LIMITS)).concurrency?.used === 0,
      'the last place',
    );
    expect(one.counters.leases).toBe(0);
    expect(await one.local.peek(holder, { concurrency: 8 })).toMatchObject({ concurrency: { used: 0 } });
    // No request more than allowed, but for those that Redis has lost.
    const { requests_per_minute } = await one.limiter.peek(holder, LIMITS);
    expect(requests_per_minute?.used).toBe(_what === 'killed' ? 8 : 10);
  });
});

test('after an outage without data loss Redis has the usage of the outage', async () => {
  await using one = await gateway();
  const holder = newHolder();
  const held = admitted(await one.admit(holder, 50));
  await server.replicaOf();
  await until(() => one.limiter.real.isDegraded, 'the outage');
  for (let number = 0; number < 5; number += 1) admitted(await one.admit(holder)).lease.settle(40);
  held.lease.settle(70);
  await server.promote();
  await isBack(one);
  expect(await one.limiter.peek(holder, LIMITS)).toMatchObject({
    requests_per_minute: { used: 6 },
    tokens_per_minute: { used: 270 },
    requests_per_day: { used: 6 },
    tokens_per_month: { used: 270 },
    concurrency: { used: 0 },
  });
  expect(one.counters.dropped).toEqual({});
});

test('a second outage starts with the totals of the store', async () => {
  await using one = await gateway();
  const holder = newHolder();
  for (const used of [100, 900]) {
    one.store.totals.set(holder, totals({ requests_per_day: used, tokens_per_month: used }));
    await server.kill();
    await until(() => one.limiter.real.isDegraded, 'the outage');
    expect(admitted(await one.admit(holder)).states).toMatchObject({ requests_per_day: { used: used + 1 } });
    await server.start();
    await isBack(one);
    // Until Redis knows of the request that runs, it counts here, in the next outage too.
    await until(
      async () => (await one.local.peek(holder, LIMITS)).concurrency?.used === 0,
      'Redis to know what runs',
    );
  }
});

test('flushed while requests run: no request fails, totals come from the store, leases are settled', async () => {
  await using one = await gateway();
  const holder = newHolder();
  const { lease } = admitted(await one.admit(holder, 50));
  one.store.totals.set(holder, totals({ requests_per_day: 300, tokens_per_month: 7000 }));
  await server.flush();
  expect(admitted(await one.admit(holder, 10)).states).toMatchObject({
    requests_per_day: { used: 301 },
    tokens_per_month: { used: 7010 },
    concurrency: { used: 1 },
  });
  lease.settle(60);
  await one.shared.settled();
  expect(await one.limiter.peek(holder, LIMITS)).toMatchObject({
    tokens_per_minute: { used: 10 },
    tokens_per_month: { used: 7070 },
    concurrency: { used: 1 },
  });
  expect(one.limiter.real.isDegraded).toBe(false);
});

test('out of memory: this process decides, call by call, until there is room', async () => {
  await using one = await gateway();
  const holder = newHolder();
  await server.config('maxmemory', 1);
  const all: HolderAdmission[] = [];
  for (let number = 0; number < 20; number += 1) {
    const admission = await one.admit(holder);
    all.push(admission);
    if (admission.kind === 'admitted') admission.lease.settle(10);
  }
  expect(all.filter(({ kind }) => kind === 'admitted')).toHaveLength(10);
  expect([one.limiter.real.isDegraded, one.counters.degraded]).toEqual([true, 1]);
  await server.config('maxmemory', 0);
  await until(async () => {
    await one.admit(newHolder());
    return !one.limiter.real.isDegraded;
  }, 'Redis');
  admitted(await one.admit(holder)).lease.settle(10);
});

test('what was admitted while Redis was full is entered there with the first admission that has room', async () => {
  await using one = await gateway();
  const holder = newHolder();
  await server.config('maxmemory', 1);
  const here = admitted(await one.admit(holder));
  expect(one.limiter.real.isDegraded).toBe(true);
  await server.config('maxmemory', 0);
  const there = admitted(await one.admit(newHolder()));
  expect(one.limiter.real.isDegraded).toBe(false);
  // Redis is asked now.
  const used = async () => (await one.limiter.peek(holder, LIMITS)).concurrency?.used;
  await until(async () => (await used()) === 1, 'the running request in Redis');
  for (const { lease } of [here, there]) lease.settle(10);
  await one.shared.settled();
  expect(await used()).toBe(0);
});

test('a value of another type for a holder: one call in this process, then Redis again', async () => {
  await using one = await gateway();
  const holder = newHolder();
  await server.command('SET', `tollgate:limit:{${holder}}:leases`, 'x');
  admitted(await one.admit(holder)).lease.settle(0);
  expect(one.local.real.size).toBe(1);
  admitted(await one.admit(holder)).lease.settle(0);
  expect([one.limiter.real.isDegraded, one.counters.degraded, one.local.real.size]).toEqual([false, 0, 1]);
});

test('close leaves no timers, and later settlements count as dropped', async () => {
  await using one = await gateway();
  const { lease } = admitted(await one.admit(newHolder()));
  await one.limiter.real.close();
  await one.client.close();
  lease.settle(10);
  await one.shared.settled();
  expect(one.counters.dropped).toEqual({ closed: 1 });
  expect(one.counters.leases).toBe(0);
});

describe('changed tokens of a running request', () => {
  const tokensOf = async ({ limiter }: Gateway, holder: string) => {
    const { requests_per_minute, tokens_per_minute, concurrency } = await limiter.peek(holder, LIMITS);
    return [requests_per_minute?.used, tokens_per_minute?.used, concurrency?.used];
  };

  test('that Redis has admitted, while Redis is away: it keeps its slot and is settled once', async () => {
    await using one = await gateway(DEADLINE_MS);
    const holder = newHolder();
    const { lease } = admitted(await one.admit(holder, 1));
    server.pause();
    const changed = admitted(await one.limiter.admit(holder, LIMITS, 500, lease));
    expect(refused(await one.limiter.admit(holder, LIMITS, 10_000, changed.lease)).limit).toBe(
      'tokens_per_minute',
    );
    server.resume();
    await isBack(one);
    changed.lease.settle(70);
    changed.lease.settle(9);
    await one.shared.settled();
    await until(async () => (await tokensOf(one, holder))[2] === 0, 'the place');
    expect(await tokensOf(one, holder)).toEqual([1, 70, 0]);
    expect(one.counters.leases).toBe(0);
  });

  test('that was admitted without Redis, before and after Redis is back', async () => {
    await using one = await gateway(DEADLINE_MS);
    const holder = newHolder();
    server.pause();
    const { lease } = admitted(await one.admit(holder, 1));
    const here = admitted(await one.limiter.admit(holder, LIMITS, 300, lease)).lease;
    expect(await tokensOf(one, holder)).toEqual([1, 300, 1]);
    server.resume();
    await isBack(one);
    await until(async () => (await tokensOf(one, holder))[2] === 1, 'what runs');
    const there = admitted(await one.limiter.admit(holder, LIMITS, 700, here)).lease;
    expect(await tokensOf(one, holder)).toEqual([1, 700, 1]);
    there.settle(50);
    await one.shared.settled();
    expect(await tokensOf(one, holder)).toEqual([1, 50, 0]);
    expect(one.counters.leases).toBe(0);
  });
});

test('peek does not read a full Redis, so that local admissions count', async () => {
  await using one = await gateway();
  const holder = newHolder();
  await server.config('maxmemory', 1);
  let count = 0;
  for (let number = 0; number < 20; number += 1) {
    const admission = await one.admit(holder);
    if (admission.kind === 'refused') continue;
    count += 1;
    admission.lease.settle(10);
    await one.limiter.peek(holder, LIMITS);
  }
  expect(count).toBe(10);
});

describe('several scopes', () => {
  const BUDGET: TierLimits = { cost_per_month: 10_000, concurrency: 8 };
  const of = (holder: string, team: string, model = false) =>
    makeScopes(team, [
      holderScope(holder, LIMITS),
      makeScope({ kind: 'team', id: team }, BUDGET),
      ...(model ? [makeScope({ kind: 'model', holderId: holder, model: 'm' }, LIMITS)] : []),
    ]);
  const usedOf = async ({ limiter }: Gateway, scopes: Scopes) =>
    (await limiter.real.peek(scopes)).map((states) =>
      (['requests_per_minute', 'tokens_per_minute', 'cost_per_month', 'concurrency'] as const).map(
        (name) => states.of(name)?.used,
      ),
    );
  const leaseOf = (admission: Admission): Lease => {
    if (admission.kind === 'refused') throw new Error(`refused by ${admission.limit}`);
    return admission.lease;
  };

  test('an outage counts in each of them: what ran before, during and after it, of two holders of a team', async () => {
    await using one = await gateway();
    const [team, holder, other] = [newHolder(), newHolder(), newHolder()];
    one.store.totals.set(team, totals({ cost_per_month: 1000 }));
    const [first, second] = [of(holder, team), of(other, team)];
    const limiter = one.limiter.real;
    const before = leaseOf(await limiter.admit(first, tokensOnly(50)));
    leaseOf(await limiter.admit(second, tokensOnly(10))).settle(tokensOnly(10));
    await one.shared.settled();
    await limiter.peek(second);
    await server.replicaOf();
    await until(() => limiter.isDegraded, 'the outage');
    const during = [
      leaseOf(await limiter.admit(first, tokensOnly(20))),
      leaseOf(await limiter.admit(second, tokensOnly(20))),
    ];
    // It continues from what Redis last said of each: of the team when the second holder was asked about.
    expect(await usedOf(one, first)).toEqual([
      [2, 70, undefined, 2],
      [undefined, undefined, 1000 + 100 * COST, 3],
    ]);
    // All of the rest of the budget, and not a billionth more.
    const rest = { tokens: 0, cost: 9000 - 100 * COST };
    expect((await limiter.admit(second, { tokens: 0, cost: rest.cost + 1 })).kind).toBe('refused');
    leaseOf(await limiter.admit(second, rest)).settle({ tokens: 0, cost: 0 });
    before.settle(tokensOnly(40));
    during[0]?.settle(tokensOnly(5));
    await server.promote();
    await isBack(one);
    await until(async () => (await usedOf(one, second))[1]?.[3] === 1, 'what runs to be known');
    during[1]?.settle(tokensOnly(7));
    await one.shared.settled();
    expect(await usedOf(one, first)).toEqual([
      [2, 45, undefined, 0],
      [undefined, undefined, 1000 + 62 * COST, 0],
    ]);
    expect(await usedOf(one, second)).toEqual([
      [3, 17, undefined, 0],
      [undefined, undefined, 1000 + 62 * COST, 0],
    ]);
    expect([one.counters.leases, one.counters.dropped]).toEqual([0, {}]);
  });

  test('a running request gets another scope while Redis is away: it is counted once in each', async () => {
    await using one = await gateway(DEADLINE_MS);
    const [team, holder] = [newHolder(), newHolder()];
    const limiter = one.limiter.real;
    const early = leaseOf(await limiter.admit(of(holder, team), tokensOnly(1)));
    server.pause();
    const all = of(holder, team, true);
    const later = leaseOf(await limiter.admit(all, tokensOnly(100), early));
    server.resume();
    await isBack(one);
    later.settle(tokensOnly(30));
    later.settle(tokensOnly(9));
    await one.shared.settled();
    await until(async () => (await usedOf(one, all))[1]?.[3] === 0, 'the place');
    expect(await usedOf(one, all)).toEqual([
      [1, 30, undefined, 0],
      [undefined, undefined, 30 * COST, 0],
      [1, 30, undefined, 0],
    ]);
    expect([one.counters.leases, one.counters.dropped]).toEqual([0, {}]);
  });

  test('a reply that does not come leaves nothing reserved in any of them', async () => {
    await using one = await gateway(DEADLINE_MS);
    const scopes = of(newHolder(), newHolder());
    await one.limiter.real.peek(scopes);
    server.pause();
    const lease = leaseOf(await one.limiter.real.admit(scopes, tokensOnly(100)));
    lease.settle(tokensOnly(30));
    server.resume();
    await isBack(one);
    await until(async () => (await usedOf(one, scopes))[0]?.[0] === 1, 'the request');
    expect(await usedOf(one, scopes)).toEqual([
      [1, 30, undefined, 0],
      [undefined, undefined, 30 * COST, 0],
    ]);
  });
});
