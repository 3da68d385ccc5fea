// Budgets near their end: which are shown, with the figures of now, and how often the store is asked.
import { beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { Terms } from '../../src/config/terms.ts';
import { nearBudget } from '../../src/console/api/api-schemas.ts';
import { NearBudgets } from '../../src/console/near-budgets.ts';
import { budgetOwner } from '../../src/console/pages/budget-pages.ts';
import type { Store } from '../../src/store/store.ts';
import { newKey } from '../store/samples.ts';
import { STORE_KINDS, storeForEachTest } from '../store/stores.ts';
import { batch, row } from '../store/usage-samples.ts';

const UNIT = 1e9;
const TEAM = '00000000-0000-4000-8000-000000000001';
const BY = { actor: null, reason: null, at: new Date().toISOString() };

let store: Store;
let clock: number;
let reads: number;

const now = () => new Date(clock).toISOString();
const day = () => now().slice(0, 10);
const month = () => now().slice(0, 7);

beforeEach(() => {
  clock = Date.now();
  reads = 0;
});

function budgets() {
  return new NearBudgets({
    store: {
      usage: store.usage,
      organisation: store.organisation,
      findHolder: (id) => store.findHolder(id),
      findKey: (prefix) => store.findKey(prefix),
      budgets: {
        ...store.budgets,
        latestNotices: (...args) => {
          reads += 1;
          return store.budgets.latestNotices(...args);
        },
      },
    },
    config: () => ({
      tiers: { Pro: { cost_per_month: 100 * UNIT } },
      models: { 'gpt-*': { limits: { Pro: { cost_per_day: 4 * UNIT } } } } as never,
    }),
    now: () => clock,
  });
}

/** A key with its holder, which has used so many units today. */
async function holder(
  id: string,
  used: number,
  terms: Terms = {},
  own: Partial<Parameters<Store['addKey']>[0]> = {},
) {
  const key = { ...newKey(), ...own };
  await store.addKey(key, { kind: 'new', id, tier: 'Pro', name: `${id} & Co`, terms, teamId: TEAM }, null);
  await use(id, key.prefix, used);
  return key;
}

function use(holderId: string, prefix: string, units: number) {
  const sums = { cost: units * UNIT };
  const where = { hour: now().slice(0, 13), holderId, prefix, model: 'gpt-4o', teamId: TEAM, tier: 'Pro' };
  return store.usage.addUsage(batch([row({ ...where, sums })]));
}

const notice = (scope: string, period = month(), threshold = 0) =>
  store.budgets.addNotice({ scope, period, budget: 1, threshold }, now(), null);

describe.each(STORE_KINDS)('in $name', (kind) => {
  storeForEachTest(kind, (opened) => {
    store = opened;
  });
  beforeEach(async () => {
    const terms = { budget: { per_month: 1000 * UNIT, soft: [0.1] } };
    await store.organisation.addTeam({ id: TEAM, name: 'search', terms }, BY, {});
  });

  test('the nearest is first, each with its owner, its budget and what is used now', async () => {
    await holder('a', 85);
    await holder('b', 120, { budget: { per_month: 110 * UNIT } });
    const key = await holder('c', 9, {}, { terms: { budget: { per_day: 10 * UNIT } } });
    await notice('a');
    await notice('a', month(), 1_000_000);
    await notice('b');
    await notice(`key:${key.prefix}`, day());
    await notice('model:c:gpt-*', day());
    await notice(TEAM);
    const found = await budgets().current();
    // As the API describes them.
    expect(z.array(nearBudget).parse(found)).toEqual(found);
    expect(found.map(({ share, ...each }) => ({ ...each, share: Math.round(share * 1000) }))).toEqual([
      {
        scope: 'model',
        id: 'c',
        name: 'c & Co',
        model: 'gpt-*',
        window: 'day',
        budget: 4,
        used: 9,
        share: 2250,
      },
      {
        scope: 'holder',
        id: 'b',
        name: 'b & Co',
        model: null,
        window: 'month',
        budget: 110,
        used: 120,
        share: 1091,
      },
      {
        scope: 'key',
        id: key.prefix,
        name: null,
        model: null,
        window: 'day',
        budget: 10,
        used: 9,
        share: 900,
      },
      {
        scope: 'holder',
        id: 'a',
        name: 'a & Co',
        model: null,
        window: 'month',
        budget: 100,
        used: 85,
        share: 850,
      },
      {
        scope: 'team',
        id: 'search',
        name: 'search',
        model: null,
        window: 'month',
        budget: 1000,
        used: 214,
        share: 214,
      },
    ]);
    expect(found.map((each) => budgetOwner(each).text.replaceAll(/<.?span[^>]*>/g, ''))).toEqual([
      '<a href="/console/holders/c">c &#38; Co</a> holder, with gpt-*',
      '<a href="/console/holders/b">b &#38; Co</a> holder',
      `<a href="/console/keys/${key.prefix}">${key.prefix}</a> key`,
      '<a href="/console/holders/a">a &#38; Co</a> holder',
      '<a href="/console/teams/search">search</a> team',
    ]);
  });

  test('what was raised, removed, revoked, or is of another period is not shown', async () => {
    await holder('raised', 85, { budget: { per_month: 500 * UNIT } });
    await holder('unlimited', 85, { budget: { per_month: null } });
    const key = await holder('revoked', 9, {}, { terms: { budget: { per_day: 10 * UNIT } } });
    await store.revokeKey(key.prefix, null, now());
    await holder('earlier', 85);
    for (const scope of ['raised', 'unlimited', 'gone', 'key:00000000', 'model:gone:x', 'model:', 'key:x'])
      await notice(scope);
    await notice(`key:${key.prefix}`, day());
    await notice('earlier', '2020-01');
    expect(await budgets().current()).toEqual([]);
  });

  test('the key of a lineage is the one in use', async () => {
    const old = await holder('a', 9, {}, { terms: { budget: { per_day: 10 * UNIT } } });
    const successor = { ...newKey(), terms: { budget: { per_day: 10 * UNIT } } };
    await store.rotateKey(old, successor);
    await notice(`key:${old.prefix}`, day());
    expect(await budgets().current()).toMatchObject([{ scope: 'key', id: successor.prefix, used: 9 }]);
  });
});

describe('the store', () => {
  const [sqlite = STORE_KINDS[0]] = STORE_KINDS;
  if (sqlite === undefined) throw new Error('no store');
  storeForEachTest(sqlite, (opened) => {
    store = opened;
  });

  test('is asked once in ten seconds, however many look, and again after it was away', async () => {
    const near = budgets();
    await Promise.all(Array.from({ length: 20 }, () => near.current()));
    clock += 9000;
    await near.current();
    expect(reads).toBe(1);
    clock += 1000;
    await near.current();
    expect(reads).toBe(2);
  });

  test('gives at most fifty budgets', async () => {
    for (let index = 0; index < 60; index += 1) await notice(`nobody-${index}`);
    await store.organisation.addTeam({ id: TEAM, name: 'x', terms: {} }, BY, {});
    for (let index = 0; index < 55; index += 1) {
      await holder(`h-${index}`, 99);
      await notice(`h-${index}`);
    }
    expect(await budgets().current()).toHaveLength(50);
  });
});
