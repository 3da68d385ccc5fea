// What a replica counts of a holder while Redis does not answer, from what Redis said last.
import { expect, test } from 'vitest';
import { LIMITS } from '../../src/config/limit-table.ts';
import { utcDateAt } from '../../src/limits/calendar.ts';
import { LastKnownCounters, shareOf } from '../../src/limits/last-known.ts';
import { NO_AMOUNTS } from '../../src/limits/limiter.ts';
import { tokensOnly } from './of-holder.ts';

const LEASE_MS = 60_000;
const WALL_MS = Date.UTC(2030, 0, 31, 12);
const date = utcDateAt(WALL_MS);

/** Redis said 7 of each count, with 20 s of the minute left, at the moment 0. */
function lastKnown(own: number, hasTotals = true) {
  const usage = { wallMs: WALL_MS, date, windowLeftMs: 20_000, counts: LIMITS.map(() => 7) };
  return new LastKnownCounters({ usage, hasTotals, now: 0, own, checkAt: 0, leaseMs: LEASE_MS });
}

/** By name. */
function countsAt(known: LastKnownCounters, now: number, wallMs = WALL_MS) {
  const { counts } = known.at({ now, wallMs, date: utcDateAt(wallMs) });
  return Object.fromEntries(LIMITS.map(({ name, index }) => [name, counts[index]]));
}

test('requests of others run until their leases end, those of this process until they end', () => {
  const known = lastKnown(2);
  expect(countsAt(known, LEASE_MS - 1)['concurrency']).toBe(7);
  expect(countsAt(known, LEASE_MS)['concurrency']).toBe(2);
  known.settled(NO_AMOUNTS, NO_AMOUNTS);
  known.settled(NO_AMOUNTS, NO_AMOUNTS);
  expect(countsAt(known, LEASE_MS)['concurrency']).toBe(0);
  // One that began before Redis said how many run is not known to be of this process.
  known.settled(NO_AMOUNTS, NO_AMOUNTS);
  known.entered();
  expect(countsAt(known, LEASE_MS)['concurrency']).toBe(1);
  expect(countsAt(known, 0)['concurrency']).toBe(6);
});

test('tokens are corrected by what was used, and never negative; requests stay', () => {
  const known = lastKnown(1);
  known.settled(tokensOnly(5), tokensOnly(1));
  expect(countsAt(known, 0)).toMatchObject({
    requests_per_minute: 7,
    tokens_per_minute: 3,
    tokens_per_month: 3,
  });
  known.settled(tokensOnly(100), NO_AMOUNTS);
  expect(countsAt(known, 0)).toMatchObject({ requests_per_day: 7, tokens_per_minute: 0, tokens_per_day: 0 });
});

test('each window counts until it ends; days and months only where their totals are complete', () => {
  const known = lastKnown(0);
  expect(known.at({ now: 5_000, wallMs: WALL_MS, date }).windowLeftMs).toBe(15_000);
  expect(countsAt(known, 19_999)['requests_per_minute']).toBe(7);
  expect(countsAt(known, 20_000)).toMatchObject({
    requests_per_minute: 0,
    tokens_per_minute: 0,
    requests_per_day: 7,
  });
  const tomorrow = Date.UTC(2030, 1, 1);
  expect(countsAt(known, 0, tomorrow)).toMatchObject({ requests_per_day: 0, tokens_per_month: 0 });
  expect(countsAt(lastKnown(0, false), 0)).toMatchObject({
    requests_per_minute: 7,
    tokens_per_day: 0,
    tokens_per_month: 0,
  });
});

test('the shares of all replicas add up to what is left', () => {
  for (const left of [0, 1, 7, 100])
    for (const count of [1, 2, 3, 7]) {
      const shares = Array.from({ length: count }, (_, index) => shareOf(left, 'holder', { index, count }));
      expect(shares.reduce((sum, share) => sum + share, 0)).toBe(left);
      expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(1);
    }
});
