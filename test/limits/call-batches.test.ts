// Calls that go to Redis together: what one event-loop turn reserves and releases is decided as one after the other, in one call; a
// release far from the limits waits for the next reservation, and near them it does not.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { TierLimits } from '../../src/config/limit-table.ts';
import { type CallBatch, CallBatches } from '../../src/limits/call-batches.ts';
import { NO_AMOUNTS } from '../../src/limits/limiter.ts';
import { usageReleaseOf } from '../../src/limits/redis-lease.ts';
import { makeScope, makeScopes } from '../../src/limits/scope.ts';
import { REDIS_TIMEOUT } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import { type HolderLease, holderScopes } from './of-holder.ts';
import {
  admitted,
  memoryRig,
  newHolder,
  RedisSetting,
  type Replica,
  type Rig,
  startReplica,
  unreachable,
} from './setting.ts';
import { recordOf } from './states.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 100);
/** Of which the tests use little. */
const WIDE: TierLimits = {
  requests_per_minute: 10_000,
  tokens_per_minute: 1_000_000,
  tokens_per_month: 1_000_000,
  concurrency: 1000,
};

let setting: RedisSetting;

beforeAll(async () => {
  setting = await RedisSetting.start();
}, REDIS_TIMEOUT);
afterAll(() => setting?.stop());

/** Commands since the last call, those in scripts included. */
async function commands(): Promise<number> {
  const stats = String(await setting.server.command('INFO', 'commandstats'));
  await setting.server.command('CONFIG', 'RESETSTAT');
  return [...stats.matchAll(/^cmdstat_(\S+):calls=(\d+)/gm)]
    .filter(([, name = '']) => !/^(info|config|ping|set$)/.test(name))
    .reduce((sum, [, , calls]) => sum + Number(calls), 0);
}

describe('the batches', () => {
  const scopes = holderScopes('holder', WIDE);
  const release = (of = scopes) => usageReleaseOf(of, '', 0, NO_AMOUNTS, 0);
  const turn = () => new Promise(setImmediate);
  const sizes = (sent: readonly CallBatch[]) =>
    sent.map(({ releases, reservations }) => [releases.length, reservations.length]);

  test('have the calls of a turn for the same scopes and limits, and no more than their maximum', async () => {
    const sent: CallBatch[] = [];
    const batches = new CallBatches(3, 60_000, (batch) => sent.push(batch));
    for (let number = 0; number < 4; number += 1)
      void batches.reserve(holderScopes('holder', WIDE), `${number}`, NO_AMOUNTS);
    batches.release(release(), false);
    void batches.reserve(holderScopes('holder', { concurrency: 1 }), '5', NO_AMOUNTS);
    expect(sizes(sent)).toEqual([[0, 3]]);
    await turn();
    expect(sizes(sent)).toEqual([
      [0, 3],
      [1, 1],
      [0, 1],
    ]);
  });

  test('hold releases that may wait until a reservation, the maximum, a flush or the time', async () => {
    const sent: CallBatch[] = [];
    const batches = new CallBatches(3, 60_000, (batch) => sent.push(batch));
    batches.release(release(), true);
    await turn();
    expect(sent).toEqual([]);
    void batches.reserve(scopes, '1', NO_AMOUNTS);
    batches.release(release(), true);
    await turn();
    expect(sizes(sent.splice(0))).toEqual([[2, 1]]);
    for (let number = 0; number < 4; number += 1) batches.release(release(), true);
    expect(sizes(sent.splice(0))).toEqual([[3, 0]]);
    batches.flush();
    expect(sizes(sent.splice(0))).toEqual([[1, 0]]);

    const short = new CallBatches(3, 1, (batch) => sent.push(batch));
    short.release(release(), true);
    await until(() => sent.length > 0, 'the time to pass');
    expect(sizes(sent)).toEqual([[1, 0]]);
  });
});

describe('in Redis', () => {
  test('requests of one turn are one call, each with the state after it', async () => {
    await using one = await startReplica(setting.server.url);
    const holder = newHolder();
    await one.limiter.peek(holder, WIDE);
    await commands();
    const all = await Promise.all(Array.from({ length: 50 }, () => one.limiter.admit(holder, WIDE, 10)));
    expect(await setting.server.calls('evalsha')).toBe(1);
    expect(await commands()).toBeLessThanOrEqual(6);
    const used = all.map(({ states }) => [
      states.requests_per_minute?.used,
      states.tokens_per_month?.used,
      states.concurrency?.used,
    ]);
    expect(used).toEqual(all.map((_, index) => [index + 1, 10 * index + 10, index + 1]));
    for (const each of all) admitted(each).lease.settle(5);
    await one.limiter.real.settled();
    expect(await setting.server.calls('evalsha')).toBe(1);
    expect(await one.limiter.peek(holder, WIDE)).toMatchObject({
      requests_per_minute: { used: 50 },
      tokens_per_minute: { used: 250 },
      tokens_per_month: { used: 250 },
      concurrency: { used: 0 },
    });
    expect(one.counters.leases).toBe(0);
  });

  test.each([
    ['with a month', WIDE],
    ['a minute alone', { requests_per_minute: 10_000, concurrency: 1000 }],
  ])('one request after the other is at most 6 commands: %s', async (_name, limits) => {
    await using one = await startReplica(setting.server.url);
    const holder = newHolder();
    const ask = async () => admitted(await one.limiter.admit(holder, limits, 10)).lease.settle(5);
    await ask();
    await commands();
    for (let number = 0; number < 20; number += 1) await ask();
    // On a machine that stalls, some releases go alone.
    expect(await commands()).toBeLessThanOrEqual(20 * 6 + 20);
    await one.limiter.real.settled();
    const expiry = Number(await setting.server.command('PTTL', `tollgate:limit:{${holder}}:holder`));
    expect(expiry).toBeGreaterThan(0);
    expect(await one.limiter.peek(holder, limits)).toMatchObject({
      requests_per_minute: { used: 21 },
      concurrency: { used: 0 },
    });
  });

  test('the set of leases has an expiry, whatever comes with what', async () => {
    await using one = await startReplica(setting.server.url);
    for (const limits of [WIDE, { requests_per_minute: 10_000 }, { requests_per_minute: 10 }]) {
      const holder = newHolder();
      let last: HolderLease | undefined;
      for (let number = 0; number < 8; number += 1) {
        const { lease } = admitted(await one.limiter.admit(holder, limits, 10));
        last?.settle(5);
        if (number % 3 === 0) await one.limiter.real.settled();
        last = lease;
        const life = Number(await setting.server.command('PTTL', `tollgate:limit:{${holder}}:leases`));
        expect(life).toBeGreaterThan(30_000);
        if (number % 4 !== 3) continue;
        // Now the set is empty, which takes its expiry.
        lease.settle(5);
        await one.limiter.real.settled();
        last = undefined;
      }
      last?.settle(5);
    }
  });

  test('a release far from the limits is known here at once, and elsewhere soon', async () => {
    await using one = await startReplica(setting.server.url);
    await using other = await startReplica(setting.server.url);
    const holder = newHolder();
    admitted(await one.limiter.admit(holder, WIDE, 10)).lease.settle(5);
    expect((await one.limiter.peek(holder, WIDE)).tokens_per_month?.used).toBe(5);
    const { lease } = admitted(await one.limiter.admit(holder, WIDE, 10));
    lease.settle(5);
    await until(async () => (await other.limiter.peek(holder, WIDE)).concurrency?.used === 0, 'the release');
    expect((await other.limiter.peek(holder, WIDE)).tokens_per_month?.used).toBe(10);
  });

  test.each<[string, TierLimits, boolean]>([
    ['far from all', WIDE, true],
    ['few requests', { ...WIDE, requests_per_minute: 60 }, false],
    ['few slots', { ...WIDE, concurrency: 20 }, false],
    ['tokens for few requests', { ...WIDE, tokens_per_month: 600 }, false],
    ['a budget for few requests', { ...WIDE, cost_per_month: 1800 }, false],
  ])(
    'a release waits for the next reservation only far from the limits: %s',
    async (_name, limits, waits) => {
      await using one = await startReplica(setting.server.url);
      const holder = newHolder();
      admitted(await one.limiter.admit(holder, limits, 10)).lease.settle(5);
      await one.limiter.real.settled();
      let sent = 0;
      // A stall of the machine may let the time pass.
      for (let round = 0; round < 5 && sent !== (waits ? 1 : 2); round += 1) {
        await commands();
        admitted(await one.limiter.admit(holder, limits, 10)).lease.settle(5);
        await new Promise(setImmediate);
        // On one connection: what was sent before has been executed by then.
        await one.client.run((redis) => redis.ping());
        sent = await setting.server.calls('evalsha');
        await one.limiter.real.settled();
      }
      expect(sent).toBe(waits ? 1 : 2);
    },
  );

  test('of leases that end in one call, one that Redis has lost counts what was used, and the others replace what they reserved', async () => {
    await using one = await startReplica(setting.server.url);
    const holder = newHolder();
    await one.limiter.peek(holder, WIDE);
    const admit = (tokens: number) => one.limiter.admit(holder, WIDE, tokens);
    const leases = (await Promise.all([20, 20, 20].map(admit))).map((each) => admitted(each).lease);
    const key = `tollgate:limit:{${holder}}:leases`;
    const members = await setting.server.command('ZRANGE', key, 0, -1);
    await setting.server.command('ZREM', key, Array.isArray(members) ? String(members[1]) : '');
    await commands();
    for (const lease of leases) lease.settle(5);
    const { states, lease } = admitted(await admit(100));
    expect(await setting.server.calls('evalsha')).toBe(1);
    // Its slot is free when the leases are counted again.
    const used = { requests: 4, tokens: 5 + 25 + 5 + 100, running: 2 };
    expect(states).toMatchObject({
      requests_per_minute: { used: used.requests },
      tokens_per_minute: { used: used.tokens },
      tokens_per_month: { used: used.tokens },
      concurrency: { used: used.running },
    });
    lease.settle(1);
    await one.limiter.real.settled();
    expect(await one.limiter.peek(holder, WIDE)).toMatchObject({
      requests_per_minute: { used: used.requests },
      tokens_per_minute: { used: used.tokens - 99 },
      concurrency: { used: used.running - 1 },
    });
    expect(await setting.server.command('ZCARD', key)).toBe(0);
  });

  test('of 4000 requests at four replicas, exactly as many as the limit are admitted, and then as many as come back', async () => {
    await using stack = new AsyncDisposableStack();
    const replicas: Replica[] = [];
    for (let number = 0; number < 4; number += 1)
      replicas.push(stack.use(await startReplica(setting.server.url)));
    for (const limits of [{ requests_per_minute: 700 }, { tokens_per_minute: 7000 }, { concurrency: 700 }]) {
      const holder = newHolder();
      const all = await Promise.all(
        Array.from({ length: 4000 }, async (_, number) => {
          // Over some turns, so that batches have any size.
          for (let wait = number % 7; wait > 0; wait -= 1) await new Promise(setImmediate);
          return await (replicas[number % 4] ?? unreachable()).limiter.admit(holder, limits, 10);
        }),
      );
      const running = all.flatMap((each) => (each.kind === 'admitted' ? [each.lease] : []));
      expect(running).toHaveLength(700);
      if (limits.concurrency === undefined) continue;
      // Those that end and those that come share turns.
      for (const lease of running.splice(0, 100)) lease.settle(0);
      const [first = unreachable()] = replicas;
      await Promise.all(replicas.map(({ limiter }) => limiter.real.settled()));
      const more = await Promise.all(
        Array.from({ length: 300 }, () => first.limiter.admit(holder, limits, 10)),
      );
      expect(more.filter(({ kind }) => kind === 'admitted')).toHaveLength(100);
    }
  });
});

/** What happens in one turn: which running requests end and with how many tokens, then which requests come. */
interface Turn {
  readonly ends: readonly (readonly [number, number])[];
  readonly comes: readonly number[];
  readonly ms: number;
}

async function play(
  rig: Rig,
  limits: TierLimits,
  turns: readonly Turn[],
  isTogether: boolean,
): Promise<unknown> {
  const holder = newHolder();
  const seen: unknown[] = [];
  let running: HolderLease[] = [];
  await rig.limiter.peek(holder, limits);
  for (const { ends, comes, ms } of turns) {
    for (const [which, tokens] of ends) {
      const [taken] = running.splice(which % Math.max(1, running.length), 1);
      taken?.settle(tokens);
    }
    const asked = [];
    for (const tokens of comes) {
      const admission = rig.limiter.admit(holder, limits, tokens);
      asked.push(admission);
      if (!isTogether) await admission;
    }
    const all = await Promise.all(asked);
    for (const each of all) {
      seen.push(each.states, each.kind === 'admitted' ? each.lease.tokens : [each.limit, each.retryAfterMs]);
      if (each.kind === 'admitted') running.push(each.lease);
    }
    await rig.settled();
    seen.push(await rig.limiter.peek(holder, limits));
    await rig.advance(ms);
  }
  for (const lease of running) lease.settle(1);
  running = [];
  await rig.settled();
  seen.push(await rig.limiter.peek(holder, limits), rig.counters.leases);
  return seen;
}

test('whatever ends and comes in one turn is decided as in memory, one after the other', async () => {
  const limit = (...values: number[]) => fc.option(fc.constantFrom(...values), { nil: undefined });
  const limitsOf = fc
    .record({
      requests_per_minute: limit(5, 40, 400),
      tokens_per_minute: limit(100, 1000, 100_000),
      requests_per_day: limit(20, 1000),
      tokens_per_month: limit(400, 100_000),
      concurrency: limit(2, 10, 400),
      cost_per_month: limit(900, 300_000),
    })
    .map(
      (limits): TierLimits =>
        Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined)),
    );
  const turnOf = fc.record({
    ends: fc.array(fc.tuple(fc.nat(50), fc.nat(120)), { maxLength: 6 }),
    comes: fc.array(fc.oneof(fc.constant(0), fc.nat(60), fc.nat(400)), { maxLength: 12 }),
    ms: fc.constantFrom(0, 0, 1, 20_000, 60_000),
  });
  await fc.assert(
    fc.asyncProperty(limitsOf, fc.array(turnOf, { maxLength: 8 }), async (limits, turns) => {
      await using redis = await setting.rig({ leaseMs: 2 ** 30 });
      await using memory = await memoryRig();
      expect(await play(redis, limits, turns, true)).toEqual(await play(memory, limits, turns, false));
    }),
    { numRuns: RUNS },
  );
});

test('holders of a team in one turn: each call is decided in all of its scopes', async () => {
  await using one = await startReplica(setting.server.url);
  const team = newHolder();
  const of = (number: number) => {
    const holder = `${team}-${number}`;
    return makeScopes(team, [
      makeScope({ kind: 'holder', id: holder }, { requests_per_minute: 15 }),
      makeScope({ kind: 'team', id: team }, { concurrency: 40, cost_per_month: 1e6 }),
      makeScope({ kind: 'model', holderId: holder, model: 'm' }, WIDE),
    ]);
  };
  const all = await Promise.all(
    Array.from({ length: 100 }, (_, number) =>
      one.limiter.real.admit(of(number % 4), { tokens: 1, cost: 1 }),
    ),
  );
  expect(all.filter(({ kind }) => kind === 'admitted')).toHaveLength(40);
  for (const each of all) {
    if (each.kind === 'admitted') each.lease.settle({ tokens: 1, cost: 2 });
    else
      expect([each.scope.kind, each.limit]).toBeOneOf([
        ['team', 'concurrency'],
        ['holder', 'requests_per_minute'],
      ]);
  }
  await one.limiter.real.settled();
  const states = await Promise.all([0, 1, 2, 3].map((number) => one.limiter.real.peek(of(number))));
  expect(states[0]?.[1] && recordOf(states[0][1])).toMatchObject({
    concurrency: { used: 0 },
    cost_per_month: { used: 80 },
  });
  expect(states.reduce((sum, [holder]) => sum + (holder?.of('requests_per_minute')?.used ?? 0), 0)).toBe(40);
});
