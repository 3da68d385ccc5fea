// Three replicas, each with its own connection to one Redis, which is late once, for a while, or intermittently: together they
// admit no more than the limit plus what one of them had not been told, no request waits for long, and everything is counted
// once.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { TierLimits } from '../../src/config/limit-table.ts';
import { MemoryLimiter } from '../../src/limits/memory/memory-limiter.ts';
import { RedisLimiter } from '../../src/limits/redis-limiter.ts';
import { makeScope, makeScopes } from '../../src/limits/scope.ts';
import { SharedLimiter } from '../../src/limits/shared-limiter.ts';
import type { CallResult, RedisClient } from '../../src/redis/redis-client.ts';
import { type Cable, startCable } from '../helpers/cable.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { pause, until } from '../helpers/wait.ts';
import { startClient } from '../redis/recorder.ts';
import { type HolderAdmission, type HolderLease, holderScope, OfHolder } from './of-holder.ts';
import { Counters, newHolder, Store, seedsOf, unreachable } from './setting.ts';

/** A deadline that a busy machine keeps. */
const DEADLINE_MS = 150;
/** In both directions, so that every answer is late. */
const LATE_MS = 150;
const COUNT = 3;

interface Replica {
  readonly limiter: OfHolder<SharedLimiter>;
  readonly shared: RedisLimiter;
  readonly client: RedisClient;
  readonly cable: Cable;
  readonly counters: Counters;
  readonly outcomes: Readonly<Record<CallResult, number>>;
}

let server: RedisServer;
let stack: AsyncDisposableStack;
let replicas: Replica[];

beforeEach(async () => {
  stack = new AsyncDisposableStack();
  server = stack.use(await startRedis());
  replicas = [];
  for (let index = 0; index < COUNT; index += 1) replicas.push(await join(index));
}, REDIS_TIMEOUT);
afterEach(() => stack.disposeAsync());

async function join(index: number): Promise<Replica> {
  const cable = stack.use(await startCable(server.port));
  const url = `redis://127.0.0.1:${cable.port}`;
  const { client, outcomes } = await startClient(url, { commandMs: DEADLINE_MS, startMs: 20_000 });
  await until(() => client.isUp, 'Redis');
  const [counters, store] = [new Counters(), new Store()];
  const initialTotals = seedsOf(store, counters);
  const shared = new RedisLimiter({ redis: client, initialTotals, metrics: counters, renewMs: 100 });
  const local = new MemoryLimiter({ initialTotals, metrics: counters });
  const fleet = () => ({ index, count: COUNT });
  const limiter = new OfHolder(new SharedLimiter({ redis: client, shared, local, metrics: counters, fleet }));
  stack.defer(async () => {
    cable.pass();
    await limiter.real.close();
    await client.close();
  });
  return { limiter, shared, client, cable, counters, outcomes };
}

const delayAll = (ms: number) => Promise.all(replicas.map(({ cable }) => cable.delay(ms)));

async function isBack(): Promise<void> {
  const answers = ({ client, limiter, shared }: Replica) =>
    client.isUp && !limiter.real.isDegraded && shared.waiting === 0;
  await until(() => replicas.every(answers), 'Redis in every replica');
  await Promise.all(replicas.map(({ shared }) => shared.settled()));
}

/** Requests at all replicas in turn, at once. */
async function ask(holder: string, limits: TierLimits, count: number): Promise<HolderLease[]> {
  const all = await Promise.all(
    Array.from({ length: count }, async (_, number): Promise<HolderAdmission> => {
      const { limiter } = replicas[number % COUNT] ?? unreachable();
      return await limiter.admit(holder, limits, 0);
    }),
  );
  return all.flatMap((each) => (each.kind === 'admitted' ? [each.lease] : []));
}

/** Every replica has heard what all have used. */
async function hear(holder: string, limits: TierLimits): Promise<void> {
  for (const { limiter } of replicas) await limiter.peek(holder, limits);
}

test('one late answer: earlier usage counts, and the connection stays', async () => {
  const [holder, limits] = [newHolder(), { requests_per_minute: 100, concurrency: 20 }];
  const before = await ask(holder, limits, 15);
  await hear(holder, limits);
  for (const { cable, limiter } of replicas) {
    await hear(holder, limits);
    await cable.delay(2 * LATE_MS);
    const first = Promise.all([1, 2, 3].map(async () => await limiter.admit(holder, limits, 0)));
    // They are on their way by then.
    await pause(50);
    cable.pass();
    for (const each of await first) if (each.kind === 'admitted') before.push(each.lease);
    await isBack();
    await until(async () => {
      const states = await limiter.peek(holder, limits);
      return states.concurrency?.used === before.length;
    }, 'all of it to be known');
  }
  expect(replicas.some(({ outcomes }) => outcomes.deadline > 0)).toBe(true);
  await isBack();
  expect(replicas.map(({ cable }) => cable.accepted)).toEqual([1, 1, 1]);
  before.push(...(await ask(holder, limits, 60)));
  expect(before).toHaveLength(20);
  const [one] = replicas;
  expect(await one?.limiter.peek(holder, limits)).toMatchObject({
    requests_per_minute: { used: 20 },
    concurrency: { used: 20 },
  });
  for (const lease of before) lease.settle(0);
  await isBack();
  await until(
    async () => (await one?.limiter.peek(holder, limits))?.concurrency?.used === 0,
    'the end of all',
  );
});

test.each([
  ['requests_per_minute', 100, 60, 5000],
  ['concurrency', 20, 7, 1000],
  ['requests_per_day', 50, 20, 1000],
] as const)(
  'late for a while: no more than the limit of %s, and each replica has its share',
  async (name, limit, used, ms) => {
    const [holder, limits] = [newHolder(), { [name]: limit }];
    const leases = await ask(holder, limits, used);
    expect(leases).toHaveLength(used);
    await hear(holder, limits);
    await delayAll(LATE_MS);
    const end = performance.now() + ms;
    const waits: number[] = [];
    while (performance.now() < end) {
      const began = performance.now();
      leases.push(...(await ask(holder, limits, 30)));
      waits.push(performance.now() - began);
      await pause(50);
    }
    expect(leases.length).toBe(limit);
    // Those who find out wait, and a few when it is tried again.
    expect(waits.filter((ms) => ms > DEADLINE_MS / 2).length).toBeLessThan(10);
    await delayAll(0);
    await isBack();
    await until(async () => {
      const states = await replicas[0]?.limiter.peek(holder, limits);
      return states?.[name]?.used === limit;
    }, 'all of it to be known');
    expect(await ask(holder, limits, 30)).toHaveLength(0);
    for (const lease of leases) lease.settle(0);
    await isBack();
    expect(replicas.map(({ counters }) => counters.leases)).toEqual([0, 0, 0]);
  },
);

test('late intermittently, for any replica: no more than the limit in total', async () => {
  const [holder, limits] = [newHolder(), { requests_per_minute: 150, concurrency: 40 }];
  let admitted = 0;
  let running: HolderLease[] = [];
  let most = 0;
  await hear(holder, limits);
  for (let round = 0; round < 24; round += 1) {
    const { cable } = replicas[round % COUNT] ?? unreachable();
    if (round % 2 === 0) await cable.delay(LATE_MS);
    const some = await ask(holder, limits, 12);
    admitted += some.length;
    running.push(...some);
    most = Math.max(most, running.length);
    await pause(round % 5 === 0 ? 400 : 20);
    cable.pass();
    for (const lease of running.splice(0, 6)) lease.settle(0);
    await pause(20);
  }
  await isBack();
  admitted += (await ask(holder, limits, 60)).length;
  for (const lease of running) lease.settle(0);
  running = [];
  // What one had not heard of: what the two others were admitted since, which is a few rounds.
  expect(admitted).toBeGreaterThanOrEqual(100);
  expect(admitted).toBeLessThanOrEqual(150 + 24);
  expect(most).toBeLessThanOrEqual(40 + 24);
});

test('a release with a late answer counts once and is not counted as dropped', async () => {
  const [holder, limits] = [newHolder(), { tokens_per_month: 1_000 }];
  const { limiter, cable, counters, shared, outcomes } = replicas[0] ?? unreachable();
  const admission = await limiter.admit(holder, limits, 500);
  if (admission.kind === 'refused') throw new Error('there is room');
  const late = outcomes.deadline;
  await cable.delay(LATE_MS);
  admission.lease.settle(70);
  await until(() => outcomes.deadline > late && shared.waiting > 0, 'an answer to be late');
  cable.pass();
  await isBack();
  expect(await limiter.peek(holder, limits)).toMatchObject({ tokens_per_month: { used: 70 } });
  expect(counters.dropped).toEqual({});
});

test('a replica without last known counters takes its share of the whole limit', async () => {
  const [holder, limits] = [newHolder(), { requests_per_minute: 10 }];
  await delayAll(LATE_MS);
  const all = await ask(holder, limits, 90);
  expect(all).toHaveLength(10);
});

test('late for a while: holders of a team together have no more than its limits and its budget', async () => {
  const [team, ...holders] = Array.from({ length: 4 }, newHolder);
  const limits: TierLimits = { requests_per_minute: 60, cost_per_month: 90 };
  const of = (number: number) =>
    makeScopes(team ?? '', [
      holderScope(holders[number % 3] ?? unreachable()),
      makeScope({ kind: 'team', id: team ?? '' }, limits),
    ]);
  const askAll = async (count: number, cost: number) => {
    const all = await Promise.all(
      Array.from({ length: count }, async (_, number) => {
        const { limiter } = replicas[number % COUNT] ?? unreachable();
        return await limiter.real.admit(of(Math.floor(number / COUNT)), { tokens: 0, cost });
      }),
    );
    return all.flatMap((each) => (each.kind === 'admitted' ? [each.lease] : []));
  };
  const leases = await askAll(30, 1);
  expect(leases).toHaveLength(30);
  for (const { limiter } of replicas) await limiter.real.peek(of(0));
  await delayAll(LATE_MS);
  const end = performance.now() + 1500;
  while (performance.now() < end) {
    leases.push(...(await askAll(30, 3)));
    await pause(50);
  }
  // 30 for 1 each, and what fits of those for 3: each replica has its third of the rest.
  expect(leases).toHaveLength(30 + 18);
  await delayAll(0);
  await isBack();
  await until(async () => {
    const [, ofTeam] = (await replicas[0]?.limiter.real.peek(of(0))) ?? [];
    return (
      ofTeam?.of('cost_per_month')?.used === 30 + 18 * 3 && ofTeam.of('requests_per_minute')?.used === 48
    );
  }, 'all of it to be known');
  expect(await askAll(30, 3)).toHaveLength(2);
  for (const lease of leases) lease.settle({ tokens: 0, cost: 0 });
});
