// Totals from a usage store that answers, fails, is slow, hangs or returns nonsense, for one or many callers.
import { expect, test } from 'vitest';
import { InitialTotals, type InitialTotalsOptions } from '../../src/limits/initial-totals.ts';
import { holderScope } from './of-holder.ts';
import { Counters, totals } from './setting.ts';

const SOME = totals({ requests_per_day: 3, tokens_per_month: 70 });

function seeds(read: InitialTotalsOptions['read'], options: Partial<InitialTotalsOptions> = {}) {
  const counters = new Counters();
  return { seeds: new InitialTotals({ read, metrics: counters, deadlineMs: 20_000, ...options }), counters };
}

test('concurrent reads for one holder share one result (single-flight)', async () => {
  let asked = 0;
  const { seeds: one } = seeds(async () => {
    asked += 1;
    return SOME;
  });
  expect(
    await Promise.all([one.read(holderScope('a')), one.read(holderScope('a')), one.read(holderScope('b'))]),
  ).toEqual([SOME, SOME, SOME]);
  expect(asked).toBe(2);
  expect(await one.read(holderScope('a'))).toEqual(SOME);
  expect(asked).toBe(3);
});

test.each<[string, InitialTotalsOptions['read']]>([
  ['rejects', () => Promise.reject(new Error('away'))],
  [
    'throws',
    () => {
      throw new Error('away');
    },
  ],
  ['hangs', () => new Promise(() => {})],
  ['says less than nothing', async () => totals({ requests_per_day: -1, tokens_per_month: 0 })],
  ['says no number', async () => totals({ requests_per_day: 0, tokens_per_month: Number.NaN })],
])(
  'a store that %s gives no totals, is counted and starts a backoff for this holder',
  async (_what, read) => {
    let now = 0;
    let asked = 0;
    const { seeds: one, counters } = seeds(
      (holder) => {
        asked += 1;
        return read(holder);
      },
      { now: () => now, backoffMs: 5000, deadlineMs: 30 },
    );
    expect(await one.read(holderScope('a'))).toBeUndefined();
    expect(counters.seedFailures).toBe(1);
    now = 4999;
    expect([one.isBackingOff(holderScope('a')), one.isBackingOff(holderScope('b'))]).toEqual([true, false]);
    expect(await one.read(holderScope('a'))).toBeUndefined();
    expect(asked).toBe(1);
    now = 5000;
    expect(one.isBackingOff(holderScope('a'))).toBe(false);
    expect(await one.read(holderScope('a'))).toBeUndefined();
    expect([asked, counters.seedFailures]).toEqual([2, 2]);
  },
);

test('concurrent reads are bounded, others wait in order, and the queue is bounded', async () => {
  let running = 0;
  let most = 0;
  const ends: (() => void)[] = [];
  const { seeds: one, counters } = seeds(
    async () => {
      running += 1;
      most = Math.max(most, running);
      await new Promise<void>((resolve) => ends.push(resolve));
      running -= 1;
      return SOME;
    },
    { maxRunning: 2, maxWaiting: 3 },
  );
  const all = Array.from({ length: 8 }, (_, number) => one.read(holderScope(`${number}`)));
  expect(await Promise.all(all.slice(5))).toEqual([undefined, undefined, undefined]);
  expect(counters.seedFailures).toBe(3);
  let isOver = false;
  const answers = Promise.all(all.slice(0, 5)).finally(() => {
    isOver = true;
  });
  while (!isOver) {
    ends.shift()?.();
    await new Promise(setImmediate);
  }
  expect(await answers).toEqual([SOME, SOME, SOME, SOME, SOME]);
  expect([most, running, ends.length]).toEqual([2, 0, 0]);
  const last = one.read(holderScope('last'));
  await new Promise(setImmediate);
  ends.shift()?.();
  expect(await last).toEqual(SOME);
});

test('a read that times out in the queue leaves it, and an abandoned read keeps its slot until it ends', async () => {
  const ends: (() => void)[] = [];
  let asked = 0;
  const { seeds: one } = seeds(
    async () => {
      asked += 1;
      await new Promise<void>((resolve) => ends.push(resolve));
      return SOME;
    },
    { maxRunning: 1, maxWaiting: 1, deadlineMs: 30 },
  );
  expect(await Promise.all([one.read(holderScope('a')), one.read(holderScope('b'))])).toEqual([
    undefined,
    undefined,
  ]);
  expect(asked).toBe(1);
  expect(await one.read(holderScope('c'))).toBeUndefined();
  expect(asked).toBe(1);
  ends.shift()?.();
  await new Promise(setImmediate);
  const later = one.read(holderScope('d'));
  await new Promise(setImmediate);
  expect(asked).toBe(2);
  ends.shift()?.();
  expect(await later).toEqual(SOME);
});

test('a comparison that is read with others waits for no slot, and its failure is that of a comparison', async () => {
  const { seeds: one, counters } = seeds(() => new Promise(() => {}), {
    maxRunning: 1,
    maxWaiting: 0,
    deadlineMs: 30,
    compare: ({ id }) => (id === 'a' ? Promise.resolve(SOME) : undefined),
  });
  const running = one.read(holderScope('running'));
  expect(await one.read(holderScope('a'), 'compare')).toEqual(SOME);
  expect([await one.read(holderScope('b'), 'compare'), counters.comparisonFailures]).toEqual([undefined, 1]);
  expect(await running).toBeUndefined();
});
