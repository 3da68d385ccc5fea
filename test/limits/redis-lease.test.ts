// The leases of a process by scope, and what a change of a lease is checked against.
import { describe, expect, test } from 'vitest';
import { utcDateAt } from '../../src/limits/calendar.ts';
import { checksOfChange, OwnLeases, RedisLease } from '../../src/limits/redis-lease.ts';
import { leaseMemberOf } from '../../src/limits/reserve-answer.ts';
import { makeScope, makeScopes } from '../../src/limits/scope.ts';

const AMOUNTS = { tokens: 5, cost: 7 };
const scopesOf = (slot: string, ...ids: string[]) => {
  const [first = makeScope({ kind: 'holder', id: 'none' }, {}), ...rest] = ids.map((id) =>
    makeScope({ kind: 'holder', id }, { concurrency: 1 }),
  );
  return makeScopes(slot, [first, ...rest]);
};

describe('the leases of a process', () => {
  const settled: RedisLease[] = [];
  const leaseOf = (...scopes: Parameters<typeof scopesOf>): RedisLease => {
    const lease: RedisLease = new RedisLease(scopesOf(...scopes), 'id', AMOUNTS, () => settled.push(lease));
    return lease;
  };
  const countsOf = (leases: OwnLeases, ...ids: string[]) =>
    ids.map((id) => leases.runningIn(makeScope({ kind: 'holder', id }, {}).id));

  test('are counted in the scopes that they have now', () => {
    const leases = new OwnLeases();
    const [one, two] = [leaseOf('slot', 'a', 'b'), leaseOf('slot', 'a')];
    leases.add(one);
    leases.add(two);
    expect(countsOf(leases, 'a', 'b', 'c')).toEqual([2, 1, 0]);
    leases.move(one, scopesOf('slot', 'a', 'c'));
    expect(countsOf(leases, 'a', 'b', 'c')).toEqual([2, 0, 1]);
    leases.move(one, scopesOf('other', 'b'));
    expect(countsOf(leases, 'a', 'b', 'c')).toEqual([1, 1, 0]);
    expect([...leases.parts(10)]).toEqual([[two], [one]]);
    leases.remove(one);
    leases.remove(one);
    leases.remove(two);
    expect(countsOf(leases, 'a', 'b', 'c')).toEqual([0, 0, 0]);
    expect([...leases.parts(10)]).toEqual([]);
  });

  test('do not come back by a change after they were settled', () => {
    const leases = new OwnLeases();
    const lease = leaseOf('slot', 'a');
    leases.add(lease);
    leases.remove(lease);
    lease.settle(AMOUNTS);
    leases.move(lease, scopesOf('slot', 'b'));
    expect(settled).toEqual([lease]);
    expect(countsOf(leases, 'a', 'b')).toEqual([0, 0]);
    expect([...leases.parts(10)]).toEqual([]);
  });

  test('are renewed in parts', () => {
    const leases = new OwnLeases();
    const all = Array.from({ length: 5 }, () => leaseOf('slot', 'a'));
    for (const lease of all) leases.add(lease);
    expect([...leases.parts(2)]).toEqual([all.slice(0, 2), all.slice(2, 4), all.slice(4)]);
  });
});

describe('a change of a lease is checked against', () => {
  const MINUTE = 60_000;
  const START = Date.UTC(2030, 0, 31, 12);
  const WINDOW = START - 10_000;
  /** In the order of the table: requests and tokens a minute, requests and tokens a day, tokens a month, running, cost a day and month. */
  const COUNTS = [1, 20, 1, 20, 20, 1, 20, 20];
  const usageAt = (wallMs: number, windowStart: number | undefined) => ({
    wallMs,
    date: utcDateAt(wallMs),
    windowLeftMs: windowStart === undefined ? 0 : windowStart + MINUTE - wallMs,
    counts: COUNTS,
  });
  const member = leaseMemberOf('id', AMOUNTS, {
    verdicts: [],
    begun: String(START * 1000),
    tags: `a=${WINDOW},bb=${WINDOW + 1000}`,
    scopes: [],
  });
  const checks = (usages: ReturnType<typeof usageAt>[], tags: string[], lease: object = {}) =>
    checksOfChange(usages, tags, { member, amounts: AMOUNTS, isHeld: true, ...lease }, MINUTE).map(
      ({ usage, hasSlot }) => ({ counts: usage.counts, hasSlot }),
    );
  const later = START + 1000;

  test('what is used in each of its scopes without its own amounts, as far as they are in the window', () => {
    expect(
      checks(
        [
          usageAt(later, WINDOW),
          usageAt(later, WINDOW + 1000),
          usageAt(later, WINDOW),
          usageAt(later, undefined),
        ],
        ['a', 'bb', 'bb', 'a'],
      ),
    ).toEqual([
      { counts: [1, 15, 1, 15, 15, 1, 13, 13], hasSlot: true },
      { counts: [1, 15, 1, 15, 15, 1, 13, 13], hasSlot: true },
      { counts: [1, 20, 1, 15, 15, 1, 13, 13], hasSlot: true },
      { counts: [1, 20, 1, 15, 15, 1, 13, 13], hasSlot: true },
    ]);
  });

  test('all that is used in a new scope, and where Redis has lost the lease', () => {
    expect(checks([usageAt(later, WINDOW), usageAt(later, WINDOW)], ['c', 'b'])).toEqual([
      { counts: COUNTS, hasSlot: false },
      { counts: COUNTS, hasSlot: false },
    ]);
    expect(checks([usageAt(later, WINDOW)], ['a'], { isHeld: false })).toEqual([
      { counts: COUNTS, hasSlot: true },
    ]);
    expect(checks([usageAt(later, WINDOW)], ['a'], { member: 'id' })).toEqual([
      { counts: COUNTS, hasSlot: true },
    ]);
  });

  test('the rest of a day and month that began after it', () => {
    const [nextDay, nextMonth] = [START + 12 * 3_600_000 - 1, START + 12 * 3_600_000];
    expect(checks([usageAt(nextDay, undefined), usageAt(nextMonth, undefined)], ['a', 'a'])).toEqual([
      { counts: [1, 20, 1, 15, 15, 1, 13, 13], hasSlot: true },
      { counts: COUNTS, hasSlot: true },
    ]);
    const later = START - 12 * 3_600_000 - 1;
    expect(checks([usageAt(later, undefined)], ['a'])).toEqual([
      { counts: [1, 20, 1, 20, 15, 1, 20, 13], hasSlot: true },
    ]);
  });
});
