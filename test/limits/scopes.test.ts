// Several scopes of one request, in memory and in Redis: all or nothing, the limit and the owner that reject, budgets, totals of
// each scope, other scopes for a running request, and in Redis the commands, expired leases and a lost set of leases.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { TierLimits } from '../../src/config/limit-table.ts';
import type { Admission, Admitted, Limiter, Rejected } from '../../src/limits/limiter.ts';
import { scriptScopesOf } from '../../src/limits/reserve-script.ts';
import { makeScope, makeScopes, type Scopes } from '../../src/limits/scope.ts';
import { REDIS_TIMEOUT, startCluster } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import {
  type MakeRig,
  memoryRig,
  NOON,
  newHolder,
  RedisSetting,
  type Replica,
  startReplica,
  totals,
  unreachable,
} from './setting.ts';
import { recordsOf } from './states.ts';

let setting: RedisSetting;

beforeAll(async () => {
  setting = await RedisSetting.start();
}, REDIS_TIMEOUT);
beforeEach(() => setting.server.flush());
afterAll(() => setting?.stop());

const WIDE: TierLimits = { requests_per_minute: 1000, tokens_per_minute: 100_000, concurrency: 100 };
const MONTH_END = Date.UTC(2027, 5, 1);

interface Names {
  readonly holder?: string;
  readonly team?: string;
  readonly key?: string;
  readonly model?: string;
}

interface Limits {
  readonly holder?: TierLimits;
  readonly key?: TierLimits;
  readonly team?: TierLimits;
  readonly model?: TierLimits;
}

/** The holder's scope, and one for each of the others that has limits here. */
function scopesOf(
  { holder = newHolder(), team = newHolder(), key = 'k', model = 'm' }: Names,
  limits: Limits,
): Scopes {
  const slot = limits.team === undefined ? holder : team;
  return makeScopes(slot, [
    makeScope({ kind: 'holder', id: holder }, limits.holder ?? {}),
    ...(limits.key === undefined ? [] : [makeScope({ kind: 'key', lineage: `${holder}${key}` }, limits.key)]),
    ...(limits.team === undefined ? [] : [makeScope({ kind: 'team', id: team }, limits.team)]),
    ...(limits.model === undefined
      ? []
      : [makeScope({ kind: 'model', holderId: holder, model }, limits.model)]),
  ]);
}

function admitted(admission: Admission): Admitted {
  if (admission.kind === 'refused')
    throw new Error(`refused by ${admission.limit} of ${admission.scope.kind}`);
  return admission;
}

function refused(admission: Admission): Rejected {
  if (admission.kind === 'admitted') throw new Error('admitted');
  return admission;
}

const amounts = (tokens: number, cost = 0) => ({ tokens, cost });

/** How much is used of a limit in each scope. */
async function used(limiter: Limiter, scopes: Scopes, name: keyof TierLimits) {
  return (await limiter.peek(scopes)).map((states) => states.of(name)?.used);
}

describe.each<[string, MakeRig]>([
  ['in memory', memoryRig],
  ['in Redis', () => setting.rig()],
])('%s', (_name, makeRig) => {
  test.each(['holder', 'key', 'team', 'model'] as const)(
    'a rejection by the %s uses nothing in any scope, and names it',
    async (kind) => {
      await using rig = await makeRig();
      const limiter = rig.limiter.real;
      for (const tight of [
        { requests_per_minute: 1 },
        { tokens_per_minute: 15 },
        { requests_per_day: 1 },
        { tokens_per_month: 15 },
        { concurrency: 1 },
        { cost_per_day: 15 },
        { cost_per_month: 15 },
      ]) {
        const [limit] = Object.keys(tight);
        const limits = { holder: WIDE, key: WIDE, team: WIDE, model: WIDE };
        const scopes = scopesOf({}, { ...limits, [kind]: { ...WIDE, ...tight } });
        admitted(await limiter.admit(scopes, amounts(10, 10)));
        const before = recordsOf(await limiter.peek(scopes));
        const rejected = refused(await limiter.admit(scopes, amounts(10, 10)));
        expect([rejected.scope.kind, rejected.limit, rejected.reason]).toEqual([kind, limit, 'spent']);
        expect(rejected.state).toEqual(
          rejected.states.find((_, index) => scopes.list[index]?.kind === kind)?.of(rejected.limit),
        );
        expect(recordsOf(await limiter.peek(scopes))).toEqual(before);
      }
    },
  );

  test('of several scopes that reject, the one with the longest wait is named, and of equal ones the holder', async () => {
    await using rig = await makeRig();
    const limiter = rig.limiter.real;
    const one = { requests_per_minute: 1 };
    const equal = scopesOf({}, { holder: one, key: one, team: one, model: one });
    admitted(await limiter.admit(equal, amounts(0)));
    expect(refused(await limiter.admit(equal, amounts(0))).scope.kind).toBe('holder');
    const day = scopesOf({}, { holder: one, key: one, team: { requests_per_day: 1 }, model: one });
    admitted(await limiter.admit(day, amounts(0)));
    const rejected = refused(await limiter.admit(day, amounts(0)));
    expect([rejected.scope.kind, rejected.limit, rejected.retryAfterMs]).toEqual([
      'team',
      'requests_per_day',
      43_200_000,
    ]);
    const large = scopesOf({}, { holder: { requests_per_day: 1 }, model: { tokens_per_minute: 5 } });
    admitted(await limiter.admit(large, amounts(1)));
    expect(refused(await limiter.admit(large, amounts(6)))).toMatchObject({
      scope: { kind: 'model' },
      limit: 'tokens_per_minute',
      reason: 'too_large',
    });
  });

  test('holders of a team share its limits, and not their own; keys of a holder share those of the holder', async () => {
    await using rig = await makeRig();
    const limiter = rig.limiter.real;
    const [team, one, other] = [newHolder(), newHolder(), newHolder()];
    const limits = {
      holder: { requests_per_minute: 3 },
      key: { requests_per_minute: 2 },
      team: { requests_per_minute: 4 },
    };
    const of = (holder: string, key: string) => scopesOf({ holder, team, key }, limits);
    const ask = async (holder: string, key: string) => {
      const admission = await limiter.admit(of(holder, key), amounts(0));
      return admission.kind === 'admitted' ? 'admitted' : admission.scope.kind;
    };
    expect([await ask(one, 'a'), await ask(one, 'a'), await ask(one, 'a')]).toEqual([
      'admitted',
      'admitted',
      'key',
    ]);
    expect([await ask(one, 'b'), await ask(one, 'b')]).toEqual(['admitted', 'holder']);
    expect([await ask(other, 'a'), await ask(other, 'a')]).toEqual(['admitted', 'team']);
    expect(await used(limiter, of(other, 'a'), 'requests_per_minute')).toEqual([1, 1, 4]);
  });

  test('a budget reserves the estimate and is settled by the real cost; what costs nothing fits in a spent one', async () => {
    await using rig = await makeRig();
    const limiter = rig.limiter.real;
    const scopes = scopesOf({}, { holder: { cost_per_month: 100 }, team: { cost_per_day: 60 } });
    const first = admitted(await limiter.admit(scopes, amounts(10, 50)));
    expect(refused(await limiter.admit(scopes, amounts(10, 20)))).toMatchObject({
      scope: { kind: 'team' },
      limit: 'cost_per_day',
      reason: 'spent',
    });
    expect(refused(await limiter.admit(scopes, amounts(10, 101)))).toMatchObject({
      scope: { kind: 'holder' },
      limit: 'cost_per_month',
      reason: 'too_large',
      retryAfterMs: undefined,
    });
    first.lease.settle(amounts(10, 5));
    await rig.settled();
    const second = admitted(await limiter.admit(scopes, amounts(10, 20)));
    expect(recordsOf(second.states)).toEqual([
      { cost_per_month: { limit: 100, used: 25, remaining: 75, resetMs: MONTH_END - NOON } },
      { cost_per_day: { limit: 60, used: 25, remaining: 35, resetMs: 43_200_000 } },
    ]);
    // An answer that cost more than its estimate is booked, and uses up the rest.
    second.lease.settle(amounts(10, 500));
    await rig.settled();
    expect(refused(await limiter.admit(scopes, amounts(1, 1))).limit).toBe('cost_per_month');
    admitted(await limiter.admit(scopes, amounts(1_000_000, 0)));
    expect(await used(limiter, scopes, 'cost_per_day')).toEqual([undefined, 505]);
  });

  test('a budget that appears later counts what was used before', async () => {
    await using rig = await makeRig();
    const limiter = rig.limiter.real;
    const [holder, team] = [newHolder(), newHolder()];
    for (const id of [holder, team])
      rig.store.totals.set(id, totals({ cost_per_month: 40, requests_per_day: 7 }));
    const plain = scopesOf(
      { holder, team },
      { holder: { requests_per_day: 100 }, team: { requests_per_minute: 100 } },
    );
    admitted(await limiter.admit(plain, amounts(10, 25))).lease.settle(amounts(10, 25));
    await rig.settled();
    // The store is asked for the team only now, and knows of the request by then.
    rig.store.totals.set(team, totals({ cost_per_month: 65, requests_per_day: 8 }));
    const budgets = scopesOf(
      { holder, team },
      { holder: { cost_per_month: 100 }, team: { cost_per_month: 100 } },
    );
    const rejected = refused(await limiter.admit(budgets, amounts(1, 36)));
    expect(rejected).toMatchObject({ limit: 'cost_per_month', scope: { kind: 'holder' } });
    expect(rejected.states.map((each) => each.of('cost_per_month')?.used)).toEqual([65, 65]);
    expect(rig.store.asked).toBe(2);
  });

  test('totals of the scopes that need them are read at once, each its own', async () => {
    await using rig = await makeRig();
    const limiter = rig.limiter.real;
    const day = { requests_per_day: 100 };
    const scopes = scopesOf({}, { holder: day, key: WIDE, team: day, model: day });
    for (const [index, { id }] of scopes.list.entries())
      rig.store.totals.set(id, totals({ requests_per_day: 10 * (index + 1) }));
    const { states } = admitted(await limiter.admit(scopes, amounts(0)));
    expect(states.map((each) => each.of('requests_per_day')?.used)).toEqual([11, undefined, 31, 41]);
    expect(rig.store.asked).toBe(3);
    admitted(await limiter.admit(scopes, amounts(0)));
    expect(rig.store.asked).toBe(3);
  });

  test('of a report: hundreds of scopes, whose totals are read together', async () => {
    await using rig = await makeRig();
    const limiter = rig.limiter.real;
    const holder = newHolder();
    const [first] = scopesOf({ holder }, { holder: WIDE }).list;
    const models = Array.from({ length: 300 }, (_, index) =>
      makeScope({ kind: 'model', holderId: holder, model: `m${index}` }, { requests_per_day: index + 1 }),
    );
    for (const [index, { id }] of models.entries())
      rig.store.totals.set(id, totals({ requests_per_day: index }));
    const states = await limiter.peek(makeScopes(holder, [first, ...models]));
    expect(recordsOf(states.slice(1)).map(({ requests_per_day: day }) => [day?.limit, day?.used])).toEqual(
      models.map((_, index) => [index + 1, index]),
    );
  });

  test('where the store fails for one scope, that one starts at 0 and is read again', async () => {
    await using rig = await makeRig();
    const limiter = rig.limiter.real;
    const day = { requests_per_day: 100 };
    const scopes = scopesOf({}, { holder: day, team: day });
    const [holder, team = unreachable()] = scopes.list;
    let isAway = true;
    rig.store.answer = (id) => {
      if (id === team.id && isAway) throw new Error('the store is away');
      return totals({ requests_per_day: id === holder.id ? 10 : 20 });
    };
    admitted(await limiter.admit(scopes, amounts(0)));
    expect(await used(limiter, scopes, 'requests_per_day')).toEqual([11, 1]);
    isAway = false;
    await rig.advance(5000);
    admitted(await limiter.admit(scopes, amounts(0)));
    await rig.learned();
    expect(await used(limiter, scopes, 'requests_per_day')).toEqual([12, 22]);
  });

  test('a running request gets more scopes: it is counted once in each', async () => {
    await using rig = await makeRig();
    const limiter = rig.limiter.real;
    const [holder, team] = [newHolder(), newHolder()];
    const limits = { holder: { ...WIDE, requests_per_minute: 1, concurrency: 1 }, team: WIDE };
    const early = admitted(await limiter.admit(scopesOf({ holder, team }, limits), amounts(1)));
    const all = scopesOf({ holder, team }, { ...limits, model: { ...WIDE, tokens_per_minute: 100 } });
    expect(refused(await limiter.admit(all, amounts(101), early.lease))).toMatchObject({
      scope: { kind: 'model' },
    });
    const later = admitted(await limiter.admit(all, amounts(70), early.lease));
    const sums = async () => [
      await used(limiter, all, 'requests_per_minute'),
      await used(limiter, all, 'tokens_per_minute'),
      await used(limiter, all, 'concurrency'),
    ];
    expect(await sums()).toEqual([
      [1, 1, 1],
      [70, 70, 70],
      [1, 1, 1],
    ]);
    later.lease.settle(amounts(50));
    early.lease.settle(amounts(9));
    await rig.settled();
    expect(await sums()).toEqual([
      [1, 1, 1],
      [50, 50, 50],
      [0, 0, 0],
    ]);
    expect(rig.counters.leases).toBe(0);
  });

  test('what a running request uses counts at once in all scopes', async () => {
    await using rig = await makeRig();
    const limiter = rig.limiter.real;
    const limits = { ...WIDE, cost_per_day: 100 };
    const scopes = scopesOf({}, { holder: limits, team: limits });
    const { lease } = admitted(await limiter.admit(scopes, amounts(0)));
    limiter.use(scopes, amounts(30, 40));
    await rig.settled();
    expect(await used(limiter, scopes, 'tokens_per_minute')).toEqual([30, 30]);
    expect(await used(limiter, scopes, 'cost_per_day')).toEqual([40, 40]);
    lease.settle(amounts(0, 2));
    await rig.settled();
    expect(await used(limiter, scopes, 'cost_per_day')).toEqual([42, 42]);
  });
});

describe('in Redis', () => {
  const COMMANDS = [
    'time',
    'mget',
    'zadd',
    'pexpire',
    'set',
    'setrange',
    'zrem',
    'get',
    'hset',
    'hmget',
    'zcount',
    'zcard',
    'zrange',
    'zrangebyscore',
    'zscore',
  ];
  const commands = async () => {
    let sum = 0;
    for (const name of COMMANDS) sum += await setting.server.calls(name);
    await setting.server.command('CONFIG', 'RESETSTAT');
    return sum;
  };

  test.each([
    ['one scope', {}, 1],
    ['four scopes', { key: WIDE, team: WIDE, model: WIDE }, 4],
  ])('the commands of a request: %s', async (_name, more, count) => {
    await using one = await startReplica(setting.server.url);
    const limiter = one.limiter.real;
    const scopes = scopesOf({}, { holder: { ...WIDE, cost_per_month: 1e9 }, ...more });
    admitted(await limiter.admit(scopes, amounts(10, 10))).lease.settle(amounts(5, 5));
    await limiter.settled();
    await commands();
    const { lease } = admitted(await limiter.admit(scopes, amounts(10, 10)));
    expect(await commands()).toBe(4 + count);
    lease.settle(amounts(5, 5));
    await limiter.settled();
    expect(await commands()).toBe(3 + count);
  });

  test('of 300 requests of three holders at three replicas, exactly as many as the team may are admitted', async () => {
    await using stack = new AsyncDisposableStack();
    const replicas: Replica[] = [];
    for (let number = 0; number < 3; number += 1)
      replicas.push(stack.use(await startReplica(setting.server.url)));
    const team = newHolder();
    const holders = [newHolder(), newHolder(), newHolder()];
    for (const limits of [
      { requests_per_minute: 20 },
      { concurrency: 20 },
      { cost_per_month: 200 },
      { tokens_per_day: 200 },
    ]) {
      await setting.server.flush();
      const all = await Promise.all(
        Array.from({ length: 300 }, async (_, number) => {
          const { limiter } = replicas[number % 3] ?? unreachable();
          const holder = holders[Math.floor(number / 3) % 3] ?? unreachable();
          return await limiter.real.admit(
            scopesOf({ holder, team }, { holder: WIDE, team: limits }),
            amounts(10, 10),
          );
        }),
      );
      expect(all.filter(({ kind }) => kind === 'admitted')).toHaveLength(20);
      for (const each of all) if (each.kind === 'admitted') each.lease.settle(amounts(10, 10));
      await Promise.all(replicas.map(({ limiter }) => limiter.real.settled()));
    }
  });

  test('the leases of a dead process are undone in all of their scopes, whoever of the team comes first', async () => {
    await using rig = await setting.rig();
    const limiter = rig.limiter.real;
    const team = newHolder();
    const limits = { ...WIDE, cost_per_day: 1000 };
    const dead = scopesOf({ team }, { holder: limits, key: limits, team: limits, model: limits });
    // Their totals are known before.
    await limiter.peek(dead);
    for (let number = 0; number < 3; number += 1) admitted(await limiter.admit(dead, amounts(10, 20)));
    expect(await used(limiter, dead, 'cost_per_day')).toEqual([60, 60, 60, 60]);
    await rig.advance(rig.leaseMs);
    // It is met for the first time: its totals are read, and the call is repeated.
    const other = scopesOf({ team }, { holder: limits, team: limits });
    expect(recordsOf(admitted(await limiter.admit(other, amounts(1, 1))).states)).toMatchObject([
      { concurrency: { used: 1 }, tokens_per_minute: { used: 1 }, cost_per_day: { used: 1 } },
      {
        concurrency: { used: 1 },
        tokens_per_minute: { used: 1 },
        cost_per_day: { used: 1 },
        requests_per_minute: { used: 4 },
      },
    ]);
    expect(await used(limiter, dead, 'cost_per_day')).toEqual([0, 0, 1, 0]);
    expect(await used(limiter, dead, 'tokens_per_minute')).toEqual([0, 0, 1, 0]);
    expect(await used(limiter, dead, 'concurrency')).toEqual([0, 0, 1, 0]);
    expect(await used(limiter, dead, 'requests_per_minute')).toEqual([3, 3, 4, 3]);
  });

  test.each(['all', 'leases', 'team'] as const)(
    'loses %s while requests run: nobody is locked out, and sums stay exact',
    async (what) => {
      await using rig = await setting.rig();
      const limiter = rig.limiter.real;
      const limits = { concurrency: 2, cost_per_day: 1000 };
      const scopes = scopesOf({}, { holder: limits, team: limits });
      const running = [
        admitted(await limiter.admit(scopes, amounts(10, 20))),
        admitted(await limiter.admit(scopes, amounts(10, 20))),
      ];
      expect(refused(await limiter.admit(scopes, amounts(10, 20))).limit).toBe('concurrency');
      const [leases = '', , team = ''] = scriptScopesOf(scopes).keys;
      if (what === 'all') await setting.server.flush();
      else await setting.server.command('DEL', what === 'leases' ? leases : team);
      await rig.setWall(NOON);
      if (what === 'team') {
        // Its leases say what runs.
        expect(refused(await limiter.admit(scopes, amounts(10, 20))).scope.kind).toBe('holder');
        expect(await used(limiter, scopes, 'concurrency')).toEqual([2, 2]);
        for (const { lease } of running) lease.settle(amounts(10, 30));
        await rig.settled();
        expect(await used(limiter, scopes, 'concurrency')).toEqual([0, 0]);
        return;
      }
      await rig.advance(rig.leaseMs);
      const next = [
        admitted(await limiter.admit(scopes, amounts(10, 20))),
        admitted(await limiter.admit(scopes, amounts(10, 20))),
      ];
      expect(refused(await limiter.admit(scopes, amounts(10, 20))).limit).toBe('concurrency');
      for (const { lease } of [...running, ...next]) lease.settle(amounts(10, 30));
      await rig.settled();
      expect(await used(limiter, scopes, 'concurrency')).toEqual([0, 0]);
      if (what === 'all') expect(await used(limiter, scopes, 'cost_per_day')).toEqual([120, 120]);
    },
  );

  test('a running request that has fewer scopes gives back what it held in the others', async () => {
    await using rig = await setting.rig();
    const limiter = rig.limiter.real;
    const [holder, team] = [newHolder(), newHolder()];
    const limits = { ...WIDE, cost_per_day: 1000 };
    const all = scopesOf({ holder, team }, { holder: limits, team: limits, model: limits });
    const { lease } = admitted(await limiter.admit(all, amounts(10, 10)));
    const fewer = scopesOf({ holder, team }, { holder: limits, team: limits });
    admitted(await limiter.admit(fewer, amounts(20, 20), lease));
    expect(await used(limiter, all, 'cost_per_day')).toEqual([20, 20, 0]);
    expect(await used(limiter, all, 'tokens_per_minute')).toEqual([20, 20, 0]);
    expect(await used(limiter, all, 'concurrency')).toEqual([1, 1, 0]);
    expect(await used(limiter, all, 'requests_per_minute')).toEqual([1, 1, 1]);
    lease.settle(amounts(5, 5));
    await rig.settled();
    expect(await used(limiter, all, 'cost_per_day')).toEqual([5, 5, 0]);
    expect(await used(limiter, all, 'concurrency')).toEqual([0, 0, 0]);
  });

  test('a holder that changes its team starts new minute windows, and its totals are those of the store', async () => {
    await using rig = await setting.rig();
    const limiter = rig.limiter.real;
    const holder = newHolder();
    const limits = { requests_per_minute: 5, requests_per_day: 5 };
    const alone = scopesOf({ holder }, { holder: limits });
    admitted(await limiter.admit(alone, amounts(0))).lease.settle(amounts(0));
    await rig.settled();
    rig.store.totals.set(holder, totals({ requests_per_day: 1 }));
    const member = scopesOf({ holder }, { holder: limits, team: WIDE });
    expect(recordsOf(admitted(await limiter.admit(member, amounts(0))).states)[0]).toMatchObject({
      requests_per_minute: { used: 1 },
      requests_per_day: { used: 2 },
    });
  });

  test('works on a Cluster: all keys of a team are on one node', { timeout: REDIS_TIMEOUT }, async () => {
    await using cluster = await startCluster();
    await using one = await startReplica(cluster.url, { renewMs: 10 });
    await until(() => one.client.isUp, 'the Cluster');
    const limiter = one.limiter.real;
    const limits = { concurrency: 2, cost_per_month: 1000 };
    for (const team of Array.from({ length: 10 }, newHolder)) {
      const all = [newHolder(), newHolder(), newHolder()].map((holder) =>
        scopesOf({ holder, team }, { holder: WIDE, key: WIDE, team: limits, model: WIDE }),
      );
      const [first = unreachable(), second = unreachable(), third = unreachable()] = all;
      const leases = [
        admitted(await limiter.admit(first, amounts(10, 10))).lease,
        admitted(await limiter.admit(second, amounts(10, 10))).lease,
      ];
      expect(refused(await limiter.admit(third, amounts(10, 10))).scope.kind).toBe('team');
      for (const lease of leases) lease.settle(amounts(10, 30));
      await limiter.settled();
      expect(await used(limiter, third, 'cost_per_month')).toEqual([undefined, undefined, 60, undefined]);
      expect(await used(limiter, third, 'concurrency')).toEqual([0, 0, 0, 0]);
    }
    expect(one.counters.dropped).toEqual({});
  });
});
