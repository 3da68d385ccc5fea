// The leases of a process by scope, and what a change of a lease is checked against.
import { describe, expect, test } from 'vitest';
import { utcDateAt } from '../../src/limits/calendar.ts';
import {
  checksOfChange,
  LeaseIds,
  leaseIdOf,
  MAX_BATCH,
  OwnLeases,
  pendingReleaseOf,
  RedisLease,
  usageReleaseOf,
} from '../../src/limits/redis-lease.ts';
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

describe('the renewal of all leases', () => {
  const leasesOf = (slots: number, each: number) => {
    const leases = new OwnLeases();
    for (let number = 0; number < slots * each; number += 1)
      leases.add(new RedisLease(scopesOf(`${number % slots}`, 'a'), `${number}:1`, AMOUNTS, () => undefined));
    return leases;
  };

  test('is a call for each slot and part, and a failed one is left to the next time', async () => {
    const sent: (readonly unknown[])[] = [];
    const call = async (scopes: { readonly slot: string }, args: readonly unknown[]) => {
      sent.push([scopes.slot, ...args]);
      throw new Error('away');
    };
    await leasesOf(1, MAX_BATCH + 2).renewAll({ call }, () => true);
    const members = Array.from({ length: MAX_BATCH + 2 }, (_, number) => `${number}:1`);
    expect(sent).toEqual([
      ['0', 'renew', ...members.slice(0, MAX_BATCH)],
      ['0', 'renew', ...members.slice(MAX_BATCH)],
    ]);
    await leasesOf(3, 1).renewAll({ call }, () => sent.length < 4);
    expect(sent.slice(2)).toEqual([
      ['0', 'renew', '0:1'],
      ['1', 'renew', '1:1'],
    ]);
  });

  test('has no more calls at once than a batch', async () => {
    let [running, most, all] = [0, 0, 0];
    const call = async () => {
      all += 1;
      running += 1;
      most = Math.max(most, running);
      await new Promise(setImmediate);
      running -= 1;
    };
    await leasesOf(2 * MAX_BATCH + 1, 1).renewAll({ call }, () => true);
    expect([most, all, running]).toEqual([MAX_BATCH, 2 * MAX_BATCH + 1, 0]);
  });
});

test('ids of leases are counted, and differ between processes', () => {
  const [one, other] = [new LeaseIds(), new LeaseIds()];
  const [first = '', second] = [one.next(), one.next()];
  expect(first).toMatch(/^[0-9a-f]{16}\.1$/);
  expect([second, leaseIdOf(`${first}:5:7`), leaseIdOf(first)]).toEqual([
    first.replace(/1$/, '2'),
    first,
    first,
  ]);
  expect(other.next()).not.toBe(first);
});

test('a release of a lease counts what it used; one known by its id alone, as use', () => {
  const scopes = scopesOf('slot', 'a');
  const used = { tokens: 1, cost: 2 };
  const release = (member: string) =>
    pendingReleaseOf(new RedisLease(scopes, member, AMOUNTS, () => {}), used);
  const NONE = { since: 0, requests: 0, amounts: { tokens: 0, cost: 0 } };
  const whole = { scopes, member: 'id:1', amounts: used, requests: 0, orElse: 'real', recent: NONE };
  expect(release('id:1')).toEqual(whole);
  expect(release('id')).toEqual({ ...whole, member: 'id', orElse: 'use' });
  expect(usageReleaseOf(scopes, '', 3, used, 40)).toEqual({
    ...whole,
    member: '',
    requests: 3,
    orElse: 'use',
    recent: { since: 40, requests: 3, amounts: used },
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
