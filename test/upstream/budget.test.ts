import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { backoff, RetryBudget } from '../../src/upstream/retry-budget.ts';

function setting(share = 0.2, floor = 3) {
  const state = { now: 12_345, share };
  const budget = new RetryBudget({ share: () => state.share, now: () => state.now, floor });
  const first = (times: number) => {
    for (let index = 0; index < times; index += 1) budget.deposit();
  };
  /** How many of so many wishes are granted. */
  const extra = (times: number) => {
    let granted = 0;
    for (let index = 0; index < times; index += 1) granted += budget.withdraw() ? 1 : 0;
    return granted;
  };
  return { state, budget, first, extra };
}

describe('the retry budget', () => {
  test('allows three a second without any traffic to speak of', () => {
    const { state, extra } = setting();
    expect(extra(10)).toBe(3);
    state.now += 333;
    expect(extra(10)).toBe(0);
    state.now += 1;
    expect(extra(10)).toBe(1);
    state.now += 3_600_000;
    expect(extra(10)).toBe(3);
  });

  test('allows the share of the first attempts, and the floor is not added to it', () => {
    const { first, extra, budget } = setting();
    first(100);
    expect(budget.available).toBe(20);
    expect(extra(100)).toBe(20);
    expect(budget.available).toBe(0);
  });

  test('ten tenths are one', () => {
    const { first, extra } = setting(0.1, 0);
    first(9);
    expect(extra(1)).toBe(0);
    first(1);
    expect(extra(5)).toBe(1);
  });

  test('forgets what was deposited more than ten seconds ago', () => {
    const { state, first, extra, budget } = setting(1, 0);
    first(1000);
    state.now += 5000;
    first(1);
    state.now += 5000;
    expect(budget.available).toBe(1);
    state.now += 100_000;
    expect(extra(10)).toBe(0);
  });

  test('uses the oldest deposits first', () => {
    const { state, first, extra } = setting(1, 0);
    first(2);
    state.now += 5000;
    first(2);
    expect(extra(2)).toBe(2);
    state.now += 5000;
    expect(extra(10)).toBe(2);
  });

  test('follows a share that changes, and a share of nothing leaves the floor', () => {
    const { state, first, extra } = setting(0.5);
    first(20);
    state.share = 0;
    first(100);
    expect(extra(100)).toBe(10);
    state.now += 20_000;
    first(100);
    expect(extra(100)).toBe(3);
  });

  test('a clock that steps back grants nothing', () => {
    const { state, extra } = setting();
    expect(extra(5)).toBe(3);
    state.now -= 5000;
    expect(extra(5)).toBe(0);
    state.now += 5000;
    expect(extra(5)).toBe(0);
  });

  test('for any traffic: never more than share and floor and one burst of the floor', () => {
    const step = fc.record({ wait: fc.nat(3000), first: fc.nat(60), extra: fc.nat(60) });
    const share = fc.double({ min: 0, max: 1, noNaN: true });
    fc.assert(
      fc.property(share, fc.nat(5), fc.array(step, { maxLength: 60 }), (ofFirst, floor, steps) => {
        const { state, first, extra } = setting(ofFirst, floor);
        const start = state.now;
        let [firsts, extras, least] = [0, 0, 0];
        for (const each of steps) {
          state.now += each.wait;
          first(each.first);
          firsts += each.first;
          extras += extra(each.extra);
          const seconds = (state.now - start) / 1000;
          expect(extras).toBeLessThanOrEqual(ofFirst * firsts + floor * seconds + floor + 1e-6);
          // The floor is always granted: after a second of quiet, whatever came before.
          state.now += 1000;
          least = Math.min(floor, each.extra);
          const granted = extra(least);
          extras += granted;
          expect(granted).toBe(least);
        }
      }),
      { numRuns: 200 },
    );
  });

  test('with much traffic and every request failing, upstreams get at most 1.2 times as much', () => {
    const { state, first, extra } = setting();
    let [firsts, extras] = [0, 0];
    for (let second = 0; second < 300; second += 1) {
      for (let tick = 0; tick < 10; tick += 1) {
        state.now += 100;
        first(10);
        firsts += 10;
        extras += extra(20);
      }
    }
    expect((firsts + extras) / firsts).toBeLessThanOrEqual(1.2005);
    expect((firsts + extras) / firsts).toBeGreaterThan(1.19);
  });
});

describe('backoff', () => {
  test('is drawn from a span that doubles from 100 ms to 2 s', () => {
    const longest = (attempt: number) => backoff(attempt, () => 1);
    expect([1, 2, 3, 4, 5, 6, 7, 1000].map(longest)).toEqual([100, 200, 400, 800, 1600, 2000, 2000, 2000]);
    expect(backoff(5, () => 0)).toBe(0);
    expect(backoff(3, () => 0.5)).toBe(200);
  });

  test('comes after what the upstream asked for, never before', () => {
    expect(backoff(1, () => 0, 5000)).toBe(5000);
    expect(backoff(1, () => 0.5, 5000)).toBe(5050);
  });
});
