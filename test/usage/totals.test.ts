// Sums in memory: every column of a row is added, rows of different keys stay apart, and what was told does not change.
import { expect, test } from 'vitest';
import { USAGE_SUMS, type UsageRow, type UsageSums, usageSums } from '../../src/store/usage-record.ts';
import { UsageTotals } from '../../src/usage/records/usage-totals.ts';

/** Another number in every column. */
const sums = (factor: number): UsageSums => usageSums((name) => factor * (USAGE_SUMS.indexOf(name) + 1));
const row = (of: UsageSums, upstream = 'up'): UsageRow => ({
  hour: '2026-01-02T03',
  holderId: 'holder',
  prefix: '01234567',
  model: 'model',
  upstream,
  teamId: '',
  tier: 'Lite',
  target: 'gpt-1',
  endpoint: 'chat',
  sums: of,
});

test('every column of equal rows is added, and other rows stay apart', () => {
  const totals = new UsageTotals();
  totals.addAll([row(sums(1)), row(sums(100)), row(sums(7), 'other')]);
  expect([...totals.rows()]).toEqual([row(sums(101)), row(sums(7), 'other')]);
  expect([totals.size, totals.requests]).toEqual([2, 108]);
});

test('a sum stays a whole number that the store can hold', () => {
  const totals = new UsageTotals();
  const most = usageSums(() => Number.MAX_SAFE_INTEGER);
  totals.addAll([row(most), row(sums(1))]);
  expect([...totals.rows()]).toEqual([row(most)]);
});

test('later additions change neither added nor returned rows', () => {
  const totals = new UsageTotals();
  const first = row(sums(1));
  totals.add(first);
  const told = [...totals.rows()];
  totals.add(row(sums(1)));
  expect([first, ...told]).toEqual([row(sums(1)), row(sums(1))]);
});
