// The behaviour of the memory limiter alone: synchronous decisions, bounded memory, and independence of the wall clock.
import { expect, test } from 'vitest';
import { NO_AMOUNTS } from '../../src/limits/limiter.ts';
import { AdmittedInRoom } from '../../src/limits/memory/joint-room.ts';
import { MemoryLimiter } from '../../src/limits/memory/memory-limiter.ts';
import { makeScope, makeScopes, type Scopes } from '../../src/limits/scope.ts';
import { type HolderLease, holderScope, holderScopes, OfHolder } from './of-holder.ts';
import {
  admitted,
  Counters,
  memoryRig,
  NOON,
  newHolder,
  refused,
  Store,
  seedsOf,
  totals,
} from './setting.ts';

const LIMITS = { requests_per_minute: 2, requests_per_day: 100, concurrency: 5 };

test('a holder whose totals are known or not needed is decided synchronously', async () => {
  await using rig = await memoryRig();
  const holder = newHolder();
  expect(rig.limiter.admit(holder, { requests_per_minute: 5 }, 1)).toMatchObject({ kind: 'admitted' });
  const first = rig.limiter.admit(holder, LIMITS, 1);
  expect(first).toBeInstanceOf(Promise);
  admitted(await first);
  expect(rig.limiter.admit(holder, LIMITS, 1)).toMatchObject({
    kind: 'refused',
    limit: 'requests_per_minute',
  });
  expect(rig.limiter.peek(holder, LIMITS)).toMatchObject({ concurrency: { used: 2 } });
});

test.each([3_600_000, -3_600_000, 86_400_000, -86_400_000, -5000])(
  'a wall clock change by %s ms neither ends nor extends a window or a request',
  async (ms) => {
    await using rig = await memoryRig();
    const holder = newHolder();
    admitted(await rig.limiter.admit(holder, LIMITS, 1));
    admitted(await rig.limiter.admit(holder, LIMITS, 1));
    await rig.setWall(NOON + ms);
    expect(refused(await rig.limiter.admit(holder, LIMITS, 1))).toMatchObject({
      limit: 'requests_per_minute',
      retryAfterMs: 59_999,
      states: { concurrency: { used: 2 } },
    });
    await rig.advance(59_998);
    expect(refused(await rig.limiter.admit(holder, LIMITS, 1)).retryAfterMs).toBe(1);
    await rig.advance(1);
    admitted(await rig.limiter.admit(holder, LIMITS, 1));
  },
);

test('the number of holders is bounded; those without requests are evicted first, the longest idle first', async () => {
  const counters = new Counters();
  const limiter = new OfHolder(
    new MemoryLimiter({
      initialTotals: seedsOf(new Store(), counters),
      metrics: counters,
      // Three in one minute.
      maxScopes: 1,
      now: () => 0,
    }),
  );
  const once = { requests_per_minute: 1 };
  const remembers = async (holder: string) =>
    (await limiter.peek(holder, once)).requests_per_minute?.used === 1;
  const busy = admitted(await limiter.admit('busy', once, 0));
  for (const holder of ['a', 'b']) admitted(await limiter.admit(holder, once, 0)).lease.settle(0);
  // Being refused is being seen.
  refused(await limiter.admit('a', once, 0));
  admitted(await limiter.admit('c', once, 0)).lease.settle(0);
  expect([limiter.real.size, counters.holders]).toEqual([3, 3]);
  expect([await remembers('busy'), await remembers('a'), await remembers('b'), await remembers('c')]).toEqual(
    [true, true, false, true],
  );
  const others = [];
  for (let number = 0; number < 5; number += 1)
    others.push(admitted(await limiter.admit(`${number}`, once, 0)));
  // Those with requests under way are never forgotten.
  expect(limiter.real.size).toBe(6);
  expect(await remembers('busy')).toBe(true);
  for (const { lease } of [busy, ...others]) lease.settle(0);
  admitted(await limiter.admit('new', once, 0)).lease.settle(0);
  for (let number = 0; number < 10; number += 1) await limiter.admit('new', once, 0);
  expect([limiter.real.size, counters.holders, counters.leases]).toEqual([3, 3, 0]);
});

test('no number of other holders, keys or models gives a holder a new minute before the last one is over', async () => {
  const counters = new Counters();
  let now = 0;
  const limiter = new MemoryLimiter({
    initialTotals: seedsOf(new Store(), counters),
    metrics: counters,
    maxScopes: 4,
    now: () => now,
  });
  const once = { requests_per_minute: 1 };
  const admit = async (holder: string) => {
    const admission = await limiter.admit(holderScopes(holder, once), NO_AMOUNTS);
    if (admission.kind === 'admitted') admission.lease.settle(NO_AMOUNTS);
    return admission.kind;
  };
  expect(await admit('first')).toBe('admitted');
  now = 59_000;
  for (let other = 1; other < 12; other += 1) await admit(`other ${other}`);
  expect([await admit('first'), limiter.size]).toEqual(['refused', 12]);
  // Memory has a bound all the same.
  for (let other = 12; other < 40; other += 1) await admit(`other ${other}`);
  expect(limiter.size).toBe(12);
  now = 120_000;
  expect([await admit('next'), limiter.size, counters.holders]).toEqual(['admitted', 4, 4]);
});

test('scopes whose counters were evicted are counted by the new ones, whichever request of theirs comes first', async () => {
  const counters = new Counters();
  const limiter = new MemoryLimiter({
    initialTotals: seedsOf(new Store(), counters),
    metrics: counters,
    maxScopes: 1,
    now: () => 0,
  });
  const once = { requests_per_minute: 1 };
  const [cached, fresh] = [
    makeScopes('a', [holderScope('a', once)]),
    makeScopes('a', [holderScope('a', once)]),
  ];
  const admit = async (scopes: Scopes) => {
    const admission = await limiter.admit(scopes, NO_AMOUNTS);
    if (admission.kind === 'admitted') admission.lease.settle(NO_AMOUNTS);
    return admission.kind;
  };
  expect([await admit(cached), await admit(cached)]).toEqual(['admitted', 'refused']);
  for (const other of ['b', 'c', 'd']) await admit(holderScopes(other, once));
  expect([await admit(cached), await admit(fresh), await admit(cached)]).toEqual([
    'admitted',
    'refused',
    'refused',
  ]);
});

test('scopes that had room before their counters were evicted are counted with the others afterwards', async () => {
  const counters = new Counters();
  const initialTotals = seedsOf(new Store(), counters);
  const limiter = new MemoryLimiter({ initialTotals, metrics: counters, maxScopes: 1, now: () => 0 });
  const twice = { requests_per_minute: 2 };
  const [cached, fresh] = [
    makeScopes('a', [holderScope('a', twice)]),
    makeScopes('a', [holderScope('a', twice)]),
  ];
  const admit = async (scopes: Scopes) => {
    const admission = await limiter.admit(scopes, NO_AMOUNTS);
    if (admission.kind === 'admitted') admission.lease.settle(NO_AMOUNTS);
    return admission.kind;
  };
  await admit(cached);
  for (const other of ['b', 'c', 'd']) await admit(holderScopes(other, twice));
  expect([await admit(cached), await admit(fresh), await admit(cached)]).toEqual([
    'admitted',
    'admitted',
    'refused',
  ]);
});

test('a request whose amounts change in a later minute ends where it began, while others run', async () => {
  await using rig = await memoryRig();
  const [holder, limits] = [newHolder(), { concurrency: 9, tokens_per_minute: 99 }];
  const admit = async (held?: HolderLease) =>
    admitted(await rig.limiter.admit(holder, limits, 1, held)).lease;
  const first = await admit();
  await rig.advance(60_000);
  const second = await admit();
  (await admit(first)).settle(1);
  await rig.advance(60_000);
  await admit();
  second.settle(1);
  await rig.advance(60_000);
  await admit();
  expect(rig.limiter.peek(holder, limits)).toMatchObject({ concurrency: { used: 2 } });
});

test.each(
  ['requests_per_minute', 'tokens_per_day', 'cost_per_month', 'concurrency'].flatMap((limit) =>
    [0, 1].map((at) => [limit, at] as const),
  ),
)('the room that is left admits until %s of the scope at %i is used', async (limit, at) => {
  await using rig = await memoryRig();
  const limits = { [limit]: limit === 'concurrency' || limit === 'requests_per_minute' ? 3 : 30 };
  const scopes = makeScopes(newHolder(), [
    holderScope(newHolder(), at === 0 ? limits : {}),
    makeScope({ kind: 'team', id: newHolder() }, at === 1 ? limits : {}),
  ]);
  const admit = () => rig.limiter.real.admit(scopes, { tokens: 10, cost: 10 });
  expect(await admit()).not.toBeInstanceOf(AdmittedInRoom);
  expect([admit(), admit()]).toEqual([expect.any(AdmittedInRoom), expect.any(AdmittedInRoom)]);
  expect(admit()).toMatchObject({ kind: 'refused', limit, scope: scopes.list[at] });
});

test.each([
  ['tokens_per_minute', 60_000],
  ['tokens_per_day', 86_400_000],
  ['tokens_per_month', 31 * 86_400_000],
])(
  'changed amounts replace what the request holds of %s, and nothing that others use later',
  async (limit, ms) => {
    await using rig = await memoryRig();
    const [holder, limits] = [newHolder(), { [limit]: 10 }];
    const admit = async (tokens: number, held?: HolderLease) =>
      await rig.limiter.admit(holder, limits, tokens, held);
    const { lease } = admitted(await admit(6));
    admitted(await admit(10, lease));
    refused(await admit(11, lease));
    await rig.advance(ms);
    admitted(await admit(6));
    refused(await admit(5, lease));
    admitted(await admit(4, lease));
  },
);

test('totals that were forgotten are read again for scopes that were used before', async () => {
  const [counters, store] = [new Counters(), new Store()];
  const limiter = new MemoryLimiter({ initialTotals: seedsOf(store, counters), metrics: counters });
  const scopes = makeScopes('a', [holderScope('a', { requests_per_day: 5 })]);
  const used = async () => (await limiter.admit(scopes, NO_AMOUNTS)).states[0]?.of('requests_per_day')?.used;
  expect([await used(), await used()]).toEqual([1, 2]);
  store.totals.set('a', totals({ requests_per_day: 2 }));
  limiter.forgetTotals();
  expect(await used()).toBe(5);
});

test('what ended requests held is not counted beside totals that are read again', async () => {
  const [counters, store] = [new Counters(), new Store()];
  const limiter = new MemoryLimiter({ initialTotals: seedsOf(store, counters), metrics: counters });
  const scopes = makeScopes('a', [holderScope('a', { tokens_per_day: 1000 })]);
  const admit = async (tokens: number) => {
    const admission = await limiter.admit(scopes, { tokens, cost: 0 });
    if (admission.kind !== 'admitted') throw new Error('not admitted');
    return admission;
  };
  const [ended, running] = [await admit(100), await admit(10)];
  ended.lease.settle({ tokens: 40, cost: 0 });
  store.totals.set('a', totals({ tokens_per_day: 40 }));
  limiter.forgetTotals();
  expect((await admit(0)).states[0]?.of('tokens_per_day')?.used).toBe(50);
  running.lease.settle(NO_AMOUNTS);
});
