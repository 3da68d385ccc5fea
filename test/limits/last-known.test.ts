// What a replica counts of a holder while Redis does not answer, from what Redis said last.
import { expect, test } from 'vitest';
import { LIMITS } from '../../src/config/limit-table.ts';
import { utcDateAt } from '../../src/limits/calendar.ts';
import { LastKnown, LastKnownCounters, shareOf } from '../../src/limits/last-known.ts';
import { NO_AMOUNTS } from '../../src/limits/limiter.ts';
import { makeScopes } from '../../src/limits/scope.ts';
import { holderScope, tokensOnly } from './of-holder.ts';

const LEASE_MS = 60_000;
const WALL_MS = Date.UTC(2030, 0, 31, 12);
const date = utcDateAt(WALL_MS);

const countOf = ({ counts }: { readonly counts: string }) => (counts === 'running' ? 8 : 7);

/** Redis said 8 running requests and 7 of each other count, with 20 s of the minute left, at the moment 0. */
function lastKnown(own: number, hasTotals = true) {
  const usage = { wallMs: WALL_MS, date, windowLeftMs: 20_000, counts: LIMITS.map(countOf) };
  return new LastKnownCounters({ usage, hasTotals, now: 0, own, checkAt: 0, leaseMs: LEASE_MS });
}

/** By name. */
function countsAt(known: LastKnownCounters, now: number, wallMs = WALL_MS) {
  const { counts } = known.at({ now, wallMs, date: utcDateAt(wallMs) });
  return Object.fromEntries(LIMITS.map(({ name, index }) => [name, counts[index]]));
}

test('requests of others run until their leases end, those of this process until they end', () => {
  const known = lastKnown(2);
  expect(countsAt(known, LEASE_MS - 1)['concurrency']).toBe(8);
  expect(countsAt(known, LEASE_MS)['concurrency']).toBe(2);
  known.settled(NO_AMOUNTS, NO_AMOUNTS);
  expect(countsAt(known, LEASE_MS)['concurrency']).toBe(1);
  known.settled(NO_AMOUNTS, NO_AMOUNTS);
  expect(countsAt(known, LEASE_MS)['concurrency']).toBe(0);
  // One that began before Redis said how many run is not known to be of this process.
  known.settled(NO_AMOUNTS, NO_AMOUNTS);
  known.entered();
  expect(countsAt(known, LEASE_MS)['concurrency']).toBe(1);
  expect(countsAt(known, 0)['concurrency']).toBe(7);
});

test('tokens are corrected by what was used, and never negative; requests stay', () => {
  const cheap = lastKnown(1);
  cheap.settled(tokensOnly(2), tokensOnly(1));
  expect(countsAt(cheap, 0)).toMatchObject({ tokens_per_day: 6, cost_per_day: 4, cost_per_month: 4 });
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

test('a scope is compared with the store some seconds after it was met, then at intervals, and when Redis is back', () => {
  let now = 100.5;
  const [counted, other] = [holderScope('a', { requests_per_day: 9 }), holderScope('b', { concurrency: 9 })];
  const scopes = makeScopes('a', [counted, other]);
  const due: unknown[] = [];
  const known = new LastKnown({
    leaseMs: LEASE_MS,
    checkMs: 9000,
    now: () => now,
    runningIn: (scope) => (scope === counted.id ? 3 : 0),
    onDue: (...args) => due.push(args),
  });
  const usage = { wallMs: WALL_MS, date, windowLeftMs: 20_000, counts: LIMITS.map(() => 7) };
  const remember = (isProvisional = false) => {
    const states = [counted, other].map(() => ({ usage, isProvisional }));
    known.remember(scopes, { verdicts: [], begun: '', tags: '', scopes: states });
    return known.of(counted.id);
  };
  expect(known.of(counted.id)).toBeUndefined();
  expect(remember()).toMatchObject({ hasTotals: true, windowEndsAt: 20_100, checkAt: 5100.5 });
  expect(known.of(other.id)).toMatchObject({ hasTotals: false, checkAt: 5100.5 });
  const last = known.of(counted.id);
  expect(last && countsAt(last, 100 + LEASE_MS)['concurrency']).toBe(3);
  now = 5100.9;
  expect([remember()?.checkAt, due]).toEqual([5100.5, []]);
  now = 5101;
  expect([remember(true)?.hasTotals, due]).toEqual([false, []]);
  expect([remember()?.checkAt, due]).toEqual([5101 + 9000, [[scopes, 0]]]);
  expect([remember()?.checkAt, due.length]).toEqual([5101 + 9000, 1]);
  now = 5101 + 9000;
  expect([remember()?.checkAt, due.length]).toEqual([now + 9000, 2]);
  known.doubt();
  expect(known.of(counted.id)?.checkAt).toBe(now + 5000);
});

test('the rest of a division is for other replicas in other scopes', () => {
  const scopes = Array.from({ length: 50 }, (_, number) => `scope ${number}`);
  for (const index of [0, 1, 2]) {
    const sum = scopes.reduce((total, scope) => total + shareOf(1, scope, { index, count: 3 }), 0);
    expect(sum > 5 && sum < 30).toBe(true);
  }
});

test('the shares of all replicas add up to what is left', () => {
  for (const left of [0, 1, 7, 100])
    for (const count of [1, 2, 3, 7]) {
      const shares = Array.from({ length: count }, (_, index) => shareOf(left, 'holder', { index, count }));
      expect(shares.reduce((sum, share) => sum + share, 0)).toBe(left);
      expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(1);
    }
});
