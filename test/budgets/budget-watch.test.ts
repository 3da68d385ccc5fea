// When budgets are noticed: a real store and limiter, clocks of the test, and notices from replicas that see the same.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { BudgetWatch } from '../../src/budgets/budget-watch.ts';
import type { BudgetedLimits } from '../../src/config/terms.ts';
import { InitialTotals } from '../../src/limits/initial-totals.ts';
import type { Lease } from '../../src/limits/limiter.ts';
import { MemoryLimiter } from '../../src/limits/memory/memory-limiter.ts';
import { makeScope, makeScopes, type Scopes } from '../../src/limits/scope.ts';
import type { Store } from '../../src/store/store.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { openNewStore } from '../helpers/new-store.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { newKey } from '../store/samples.ts';

const UNIT = 1e9;
const MONTH: BudgetedLimits = { cost_per_month: 10 * UNIT, soft: [0.5, 0.8] };

let dir: TempDir;
let store: Store;
let clock: number;
let limiter: MemoryLimiter;
const watches: BudgetWatch[] = [];

beforeEach(async () => {
  dir = await tempDir();
  store = await openNewStore(dir.file('store.db'));
  clock = Date.parse('2030-01-30T12:00:00Z');
  const metrics = createMetrics();
  const read = async () => ({
    requests_per_day: 0,
    tokens_per_day: 0,
    tokens_per_month: 0,
    cost_per_day: 0,
    cost_per_month: 0,
  });
  const initialTotals = new InitialTotals({ read, metrics });
  limiter = new MemoryLimiter({ initialTotals, metrics, wallNow: () => clock });
});

afterEach(async () => {
  await Promise.all(watches.splice(0).map((each) => each.stop()));
  await store.close();
  await dir.remove();
});

/** A replica. @param isAway whether its store is */
function replica() {
  const [logged, woken]: [object[], string[]] = [[], []];
  const state = { isAway: false, peeks: 0, afterPeek: () => {} };
  const metrics = createMetrics();
  const watch = new BudgetWatch({
    limiter: {
      peek: async (scopes) => {
        state.peeks += 1;
        const states = await limiter.peek(scopes);
        // What is read is fixed with the first question.
        for (const each of states) expect(each.date).toBeDefined();
        state.afterPeek();
        return states;
      },
    },
    store: {
      organisation: store.organisation,
      findHolder: (id) => store.findHolder(id),
      budgets: {
        ...store.budgets,
        addNotice: (...args) => {
          if (state.isAway) throw new Error('away');
          return store.budgets.addNotice(...args);
        },
      },
    },
    config: () => ({ currency: 'EUR' }),
    onNotice: () => woken.push('notice'),
    logger: { warn: (about: unknown, text?: unknown) => logged.push({ about, text }) },
    metrics,
    now: () => clock,
    confirmMs: 1,
  });
  watches.push(watch);
  const counted = async () =>
    [
      ...(await metrics.registry.metrics()).matchAll(/^tollgate_budget_notices_total\{(.*)\} ([1-9]\d*)$/gm),
    ].map(([, labels, count]) => `${labels} ${count}`);
  return { watch, logged, woken, state, counted };
}

const scopesWith = (limits: BudgetedLimits, id = 'holder'): Scopes =>
  makeScopes(id, [makeScope({ kind: 'holder', id }, limits)]);

/** One request: reserves `estimate` units, and costs `cost`. */
async function request(watch: BudgetWatch, scopes: Scopes, cost: number, estimate = cost): Promise<void> {
  const admission = await limiter.admit(scopes, { tokens: 1, cost: estimate * UNIT });
  if (admission.kind === 'refused') {
    watch.spent(admission);
    return;
  }
  const { lease }: { lease: Lease } = admission;
  const reserved = lease.amounts.cost;
  lease.settle({ tokens: 1, cost: cost * UNIT });
  watch.settled(scopes, admission.states, cost * UNIT - reserved);
}

/** The notices in the store, as they are sent. */
async function notices(): Promise<readonly object[]> {
  const due = await store.budgets.takeNotices('', '9999', '9999-12-31T00:00:00.000Z', 100);
  return due.map(({ body }) => JSON.parse(body));
}

describe('a budget', () => {
  test('is noticed at each of its shares and when it is spent, once', async () => {
    const { watch, logged, woken, counted } = replica();
    const scopes = scopesWith(MONTH);
    for (let index = 0; index < 10; index += 1) await request(watch, scopes, 1);
    await until(() => woken.length === 3, 'three notices');
    for (let index = 0; index < 5; index += 1) await request(watch, scopes, 1);
    await watch.stop();
    expect(await notices()).toMatchObject([
      { type: 'budget.threshold', threshold: 0.5, budget: '10', currency: 'EUR', window: 'month' },
      {
        type: 'budget.threshold',
        threshold: 0.8,
        period: '2030-01',
        scope: { kind: 'holder', id: 'holder' },
      },
      { type: 'budget.spent', threshold: 1, used: expect.stringMatching(/^(9|10)$/) },
    ]);
    expect(logged).toMatchObject([
      { text: 'a budget is used up to a soft threshold' },
      { text: 'a budget is used up to a soft threshold' },
      { text: 'a budget is spent' },
    ]);
    expect((await counted()).toSorted()).toEqual([
      'scope="holder",type="spent" 1',
      'scope="holder",type="threshold" 2',
    ]);
  });

  test('is not noticed for what requests only reserved', async () => {
    const { watch, woken, state } = replica();
    const scopes = scopesWith(MONTH);
    await request(watch, scopes, 1, 9);
    expect(state.peeks).toBe(0);
    await request(watch, scopes, 3.9, 4);
    await request(watch, scopes, 0.1, 0.1);
    await until(() => woken.length === 1, 'the notice at exactly one half');
    expect(await notices()).toMatchObject([{ threshold: 0.5, used: '5' }]);
  });

  test('is noticed when a request costs more than it reserved', async () => {
    const { watch, woken } = replica();
    await request(watch, scopesWith(MONTH), 6.0000006, 1);
    await until(() => woken.length === 1, 'the notice');
    // As budgets, to the millionth.
    expect(await notices()).toMatchObject([{ threshold: 0.5, used: '6' }]);
  });

  test('is noticed as spent when it rejects, also where a little is left', async () => {
    const { watch, woken, logged } = replica();
    const scopes = scopesWith({ cost_per_day: 10 * UNIT });
    await request(watch, scopes, 9);
    await request(watch, scopes, 2);
    await until(() => woken.length === 1, 'the notice');
    await request(watch, scopes, 2);
    await watch.stop();
    expect(await notices()).toMatchObject([
      { type: 'budget.spent', window: 'day', period: '2030-01-30', used: '9', budget: '10' },
    ]);
    expect(logged).toMatchObject([{ text: 'a budget is spent, but for less than a request needs' }]);
  });

  test('without prices or thresholds costs no look at counters', async () => {
    const { watch, state } = replica();
    await request(watch, scopesWith({ requests_per_day: 1 }), 1);
    await request(watch, scopesWith({ cost_per_month: 10 * UNIT }, 'other'), 7);
    await watch.stop();
    expect(state.peeks).toBe(0);
    expect(await notices()).toEqual([]);
  });

  test('beyond four fifths is recorded for the console, once, and told to nobody', async () => {
    const { watch, woken, logged, state } = replica();
    const scopes = scopesWith({ cost_per_month: 10 * UNIT });
    const latest = () => store.budgets.latestNotices('2030-01', ['2030-01'], 9);
    await request(watch, scopes, 7.9);
    await request(watch, scopes, 0.2);
    await until(async () => (await latest()).length === 1, 'the record');
    await request(watch, scopes, 0.2);
    await watch.stop();
    expect([await latest(), woken, logged, state.peeks]).toEqual([
      [{ scope: expect.any(String), period: '2030-01' }],
      [],
      [],
      1,
    ]);
    expect(await notices()).toEqual([]);
  });

  test('is noticed by one of several replicas', async () => {
    const all = [replica(), replica(), replica()];
    const scopes = scopesWith(MONTH);
    await request(all[0]?.watch ?? expect.fail(), scopes, 4);
    await Promise.all(all.map(({ watch }) => request(watch, scopes, 1)));
    await Promise.all(all.map(({ watch }) => watch.stop()));
    expect(await notices()).toHaveLength(1);
    expect(all.reduce((sum, { logged }) => sum + logged.length, 0)).toBe(1);
  });

  test('is noticed again in the next month, and when it is raised', async () => {
    const { watch, woken } = replica();
    await request(watch, scopesWith(MONTH), 5);
    await until(() => woken.length === 1);
    await request(watch, scopesWith({ ...MONTH, cost_per_month: 9.5 * UNIT }), 0.1);
    await until(() => woken.length === 2, 'the notice of another budget');
    clock = Date.parse('2030-02-01T00:00:00Z');
    await request(watch, scopesWith(MONTH), 4.9);
    await request(watch, scopesWith(MONTH), 0.1);
    await until(() => woken.length === 3, 'the notice of the next month');
    expect(await notices()).toMatchObject([
      { budget: '10' },
      { budget: '9.5' },
      { period: '2030-02', used: '5' },
    ]);
  });

  test('that rejects as a month ends is noticed for that month, and for the next one when it is spent too', async () => {
    const { watch, woken } = replica();
    const scopes = scopesWith({ cost_per_month: 10 * UNIT });
    clock = Date.parse('2030-02-01T00:00:00Z') - 1;
    await request(watch, scopes, 9);
    const rejected = await limiter.admit(scopes, { tokens: 1, cost: 2 * UNIT });
    clock += 1;
    if (rejected.kind === 'refused') watch.spent(rejected);
    await until(() => woken.length === 1, 'the notice of the month that has ended');
    await request(watch, scopes, 9);
    await request(watch, scopes, 2);
    await until(() => woken.length === 2, 'the notice of the next month');
    expect(await notices()).toMatchObject([{ period: '2030-01' }, { period: '2030-02' }]);
  });

  test('is noticed for the month in which its counters were read', async () => {
    const { watch, woken, state } = replica();
    clock = Date.parse('2030-02-01T00:00:00Z') - 1;
    state.afterPeek = () => {
      clock += 1;
    };
    await request(watch, scopesWith(MONTH), 6);
    await until(() => woken.length === 1, 'the notice');
    expect(await notices()).toMatchObject([{ period: '2030-01', used: '6' }]);
  });

  test('is noticed for usage that is counted after its request has ended', async () => {
    const { watch, woken, state } = replica();
    const scopes = scopesWith(MONTH);
    await request(watch, scopes, 1);
    watch.settled(scopes, [], 0);
    expect(state.peeks).toBe(0);
    limiter.use(scopes, { tokens: 1, cost: 5 * UNIT });
    watch.settled(scopes, [], 5 * UNIT);
    await until(() => woken.length === 1, 'the notice');
    expect(await notices()).toMatchObject([{ threshold: 0.5, used: '6' }]);
  });

  test('is noticed once the store is back', async () => {
    const { watch, woken, state } = replica();
    state.isAway = true;
    await request(watch, scopesWith(MONTH), 5);
    await until(() => state.peeks > 2, 'repeated looks');
    state.isAway = false;
    await until(() => woken.length === 1, 'the notice');
    expect(await notices()).toHaveLength(1);
  });
});

test('of a holder, a team, a key and a model a notice names what operators know it by', async () => {
  const by = { actor: null, reason: null, at: '' };
  await store.organisation.addTeam({ id: 'team-1', name: 'Search', terms: {} }, by, {});
  await store.addKey(newKey(), { kind: 'new', id: 'holder', tier: 'Pro', name: 'Ann', terms: {} }, null);
  const { watch, woken } = replica();
  const scopes = makeScopes('team-1', [
    makeScope({ kind: 'holder', id: 'holder' }, MONTH),
    makeScope({ kind: 'key', lineage: '0123abcd' }, MONTH),
    makeScope({ kind: 'team', id: 'team-1' }, MONTH),
    makeScope({ kind: 'model', holderId: 'holder', model: 'gpt-4o' }, MONTH),
  ]);
  await request(watch, scopes, 6);
  await until(() => woken.length === 4, 'four notices');
  expect((await notices()).map((each) => Object(each).scope)).toEqual(
    expect.arrayContaining([
      { kind: 'holder', id: 'holder', name: 'Ann' },
      { kind: 'key', prefix: '0123abcd' },
      { kind: 'team', id: 'team-1', name: 'Search' },
      { kind: 'model', model: 'gpt-4o', holder: 'holder' },
    ]),
  );
});
