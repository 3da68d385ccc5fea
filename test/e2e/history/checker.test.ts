// The checker on histories written by hand: each promise broken once, and what looks like it and is none.
import { describe, expect, test } from 'vitest';
import { check, excerpt, type Rule } from './checker.ts';
import type { Answer, Call, Disturbance, Issue, Operation, Revoke, Rotate, StoredKey } from './operation.ts';
import { measure } from './report.ts';
import { Weather } from './timeline.ts';

const issue = (key: string, at = 0): Issue => ({
  kind: 'issue',
  client: 0,
  invokedAt: at,
  completedAt: at + 10,
  key,
});
const call = (key: string, at: number, answer: Answer, replica = 0): Call => {
  return { kind: 'call', client: 1, invokedAt: at, completedAt: at + 10, key, replica, answer };
};
const rotate = (key: string, at: number, answer: Answer, successor?: string, replica = 0): Rotate => {
  return { kind: 'rotate', client: 2, invokedAt: at, completedAt: at + 10, key, replica, answer, successor };
};
const revoke = (key: string, at: number, more: Partial<Revoke> = {}): Revoke => {
  const told = { outcome: 'revoked', storedAt: at + 5, confirmedBy: [] } as const;
  return { kind: 'revoke', client: 3, invokedAt: at, completedAt: at + 10, key, ...told, ...more };
};
const away = (subject: Disturbance['subject'], from: number, to: number, replica?: number): Disturbance => {
  return { subject, how: 'paused', replica, from, to };
};
const row = (
  key: string,
  state: StoredKey['state'],
  replacedBy: string | null = null,
  holder = 'h',
): StoredKey => {
  return { key, state, replacedBy, holder };
};

function broken(operations: Operation[], disturbances: Disturbance[] = [], stored?: StoredKey[]): Rule[] {
  return check({ operations, disturbances }, stored).map(({ rule }) => rule);
}

const FOR_EVER = [away('store', 0, Number.POSITIVE_INFINITY), away('redis', 0, Number.POSITIVE_INFINITY)];

describe('a dead key', () => {
  const LATE: Rule = 'a dead key is refused in time';

  test.each<[string, Operation[], Disturbance[], Rule[]]>([
    ['accepted at once', [revoke('a', 100), call('a', 120, 'accepted')], [], []],
    ['accepted after 3 s', [revoke('a', 100), call('a', 3200, 'accepted')], [], [LATE]],
    [
      'that a rotation ended',
      [rotate('a', 100, 'accepted', 'b', 1), call('a', 3200, 'accepted')],
      [],
      [LATE],
    ],
    [
      'that one call was refused',
      [rotate('a', 50, 'broken'), call('a', 100, 'refused', 1), call('a', 3200, 'accepted')],
      [away('replica', 50, 60, 0)],
      [LATE],
    ],
    [
      'that was already dead',
      [revoke('a', 100, { outcome: 'already' }), call('a', 3200, 'accepted')],
      [],
      [LATE],
    ],
    [
      'whose end was never told',
      [revoke('a', 100, { outcome: 'unknown', storedAt: undefined }), call('a', 9000, 'accepted')],
      [],
      [],
    ],
    ['asked before its end', [call('a', 104, 'accepted'), revoke('a', 100)], [], []],
    [
      'with the store away until lately',
      [revoke('a', 100), call('a', 9000, 'accepted')],
      [away('store', 200, 7000), away('redis', 0, 9500)],
      [],
    ],
    [
      'with the store back for 3 s, once',
      [revoke('a', 100), call('a', 9000, 'accepted')],
      [away('store', 200, 500), away('store', 3600, 9500), away('redis', 0, 9500)],
      [LATE],
    ],
    [
      'with Redis there all the time',
      [revoke('a', 100), call('a', 5200, 'accepted')],
      [away('store', 200, 9500)],
      [LATE],
    ],
    [
      'with a Redis that forgot',
      [revoke('a', 100), call('a', 5200, 'accepted')],
      [away('store', 200, 9500), away('memory', 300, 310)],
      [],
    ],
    ['with both away for less than 60 s', [revoke('a', 100), call('a', 60_000, 'accepted')], FOR_EVER, []],
    [
      'with both away for more than 60 s',
      [revoke('a', 100), call('a', 60_200, 'accepted')],
      FOR_EVER,
      [LATE],
    ],
    [
      'at a replica that slept',
      [revoke('a', 100), call('a', 4000, 'accepted')],
      [away('replica', 150, 4001, 0)],
      [],
    ],
    [
      'while another replica slept',
      [revoke('a', 100), call('a', 4000, 'accepted')],
      [away('replica', 150, 4001, 1)],
      [LATE],
    ],
  ])('%s', (_, operations, disturbances, expected) => {
    expect(broken([issue('a'), ...operations], disturbances)).toEqual(expected);
  });

  test('is refused at once by who rotated it', () => {
    const ended = [issue('a'), rotate('a', 100, 'accepted', 'b')];
    expect(broken([...ended, call('a', 105, 'accepted'), call('a', 120, 'accepted', 1)])).toEqual([]);
    expect(broken([...ended, call('a', 120, 'accepted')])).toEqual(['who ended a key refuses it at once']);
  });

  test('is refused at once by who confirmed it', () => {
    const ended = [issue('a'), revoke('a', 100, { confirmedBy: [1] })];
    expect(broken([...ended, call('a', 105, 'accepted', 1), call('a', 120, 'accepted', 0)])).toEqual([]);
    expect(broken([...ended, call('a', 120, 'accepted', 1)])).toEqual([
      'who confirmed the end of a key refuses it',
    ]);
  });
});

describe('a living key', () => {
  const REFUSED: Rule = 'a living key is never refused';

  test.each<[string, Operation[], Rule[]]>([
    ['refused', [call('a', 100, 'refused')], [REFUSED]],
    ['refused by its rotation', [rotate('a', 100, 'refused')], [REFUSED]],
    ['refused before its end was asked for', [call('a', 80, 'refused'), revoke('a', 100)], [REFUSED]],
    ['refused while its end was under way', [call('a', 95, 'refused'), revoke('a', 100)], []],
    [
      'refused after an end with an unknown outcome',
      [rotate('a', 100, 'unavailable'), call('a', 9000, 'refused')],
      [],
    ],
    [
      'two rotations at once, of which one is refused',
      [rotate('a', 100, 'accepted', 'b'), rotate('a', 101, 'refused', undefined, 1)],
      [],
    ],
    ['a successor refused', [rotate('a', 100, 'accepted', 'b'), call('b', 120, 'refused', 2)], [REFUSED]],
  ])('%s', (_, operations, expected) => {
    const disturbances = [away('store', 100, 110)];
    expect(broken([issue('a'), ...operations], disturbances)).toEqual(expected);
  });

  test('is told from one that was never issued', () => {
    expect(broken([issue('a'), call('x', 100, 'refused')])).toEqual([]);
    expect(broken([issue('a'), call('x', 100, 'accepted')])).toEqual(['an invented key is never accepted']);
  });
});

describe('an answer', () => {
  test('is 503 while something is away, and shortly after', () => {
    const asked = [issue('a'), call('a', 5000, 'unavailable')];
    expect(broken(asked)).toEqual(['503 only while something is away']);
    expect(broken(asked, [away('store', 1000, 1900)])).toEqual(['503 only while something is away']);
    expect(broken(asked, [away('store', 1000, 2100)])).toEqual([]);
    expect(broken(asked, [away('cable', 4000, 6000, 1)])).toEqual(['503 only while something is away']);
  });

  test('is missing when the replica was killed, and not otherwise', () => {
    const asked = [issue('a'), call('a', 5000, 'broken')];
    expect(broken(asked)).toEqual(['every request is answered']);
    expect(broken(asked, [away('redis', 4000, 6000)])).toEqual(['every request is answered']);
    expect(broken(asked, [away('replica', 5005, Number.POSITIVE_INFINITY, 0)])).toEqual([]);
    expect(broken([issue('a'), call('a', 1, 'other')])).toEqual(['every request is answered']);
  });
});

describe('the store', () => {
  const KEPT: Rule = 'the store keeps what was told';
  const ONE: Rule = 'a holder has one key';
  const lost = revoke('a', 100, { outcome: 'unknown', storedAt: undefined });

  test.each<[string, Operation[], StoredKey[], Rule[]]>([
    ['has the key', [], [row('a', 'active')], []],
    ['has lost the key', [], [], [KEPT]],
    [
      'has the rotation',
      [rotate('a', 100, 'accepted', 'b')],
      [row('a', 'invalidated', 'b'), row('b', 'active')],
      [],
    ],
    [
      'has another successor',
      [rotate('a', 100, 'accepted', 'b')],
      [row('a', 'invalidated', 'c'), row('b', 'invalidated', 'c'), row('c', 'active')],
      [KEPT, KEPT],
    ],
    [
      'has forgotten the rotation',
      [rotate('a', 100, 'accepted', 'b')],
      [row('a', 'active'), row('b', 'active')],
      [ONE, KEPT],
    ],
    [
      'has a rotation whose answer was lost',
      [rotate('a', 100, 'broken')],
      [row('a', 'invalidated', 'c'), row('c', 'active')],
      [],
    ],
    ['has a rotation that nobody asked for', [], [row('a', 'invalidated', 'c'), row('c', 'active')], [KEPT]],
    ['has forgotten the revocation', [revoke('a', 100)], [row('a', 'active')], [KEPT]],
    ['has a revocation that nobody asked for', [], [row('a', 'revoked')], [ONE, KEPT]],
    ['has a revocation whose answer was lost', [lost], [row('a', 'revoked')], []],
    [
      'has no active key left for a holder',
      [rotate('a', 100, 'broken')],
      [row('a', 'invalidated', 'c'), row('c', 'invalidated')],
      [ONE],
    ],
  ])('%s', (_, operations, stored, expected) => {
    const killed = [away('replica', 0, 1000, 0)];
    expect(broken([issue('a'), ...operations], killed, stored).sort()).toEqual(expected.sort());
  });

  test('gives one successor', () => {
    const twice = [issue('a'), rotate('a', 100, 'accepted', 'b'), rotate('a', 100, 'accepted', 'c', 1)];
    expect(broken(twice)).toEqual(['a key is rotated once']);
    expect(broken([issue('a'), rotate('a', 100, 'accepted', 'b'), revoke('a', 101)])).toEqual([
      'a key is rotated once',
    ]);
  });
});

test('the longest calm is the longest gap, whatever overlaps', () => {
  const weather = new Weather({
    disturbances: [
      away('store', 100, 400),
      away('store', 200, 300),
      away('store', 700, 800),
      away('redis', 0, 1000),
    ],
  });
  expect(weather.longestCalm(0, 0, 1000, ['store'])).toBe(300);
  expect(weather.longestCalm(0, 250, 350, ['store'])).toBe(0);
  expect(weather.longestCalm(0, 0, 1000, ['cable'])).toBe(1000);
});

test('a message shows the history of the key and of what was away, and nothing else', () => {
  const history = {
    operations: [
      issue('a'),
      issue('b'),
      revoke('a', 100),
      call('b', 4000, 'accepted'),
      call('a', 4000, 'accepted'),
    ],
    disturbances: [away('redis', 50, 200), away('redis', 90_000, 90_001)],
  };
  const [found] = check(history);
  const text = found === undefined ? '' : excerpt(history, found);
  expect(text.split('\n').map((line) => /"(?:kind|subject)":"(\w+)"/.exec(line)?.[1])).toEqual([
    undefined,
    'redis',
    'revoke',
    'call',
  ]);
});

test('what is measured is told apart by what was away', () => {
  const { lags, unavailable, operations } = measure({
    operations: [issue('a'), revoke('a', 100), call('a', 500, 'accepted'), call('a', 20_000, 'unavailable')],
    disturbances: [away('store', 19_000, 21_000)],
  });
  expect(operations).toMatchObject({ 'call accepted': 1, 'call unavailable': 1, 'revoke revoked': 1 });
  expect(lags.get('well')).toEqual({ longest: 395, accepted: 1, requests: 1 });
  expect(unavailable.get('store away')).toEqual({ count: 1, requests: 1 });
});
