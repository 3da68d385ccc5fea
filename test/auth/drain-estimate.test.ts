// The announced wait of rejected callers: its bounds, its growth, and the result for callers that obey it.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { DrainEstimate, MAX_DRAIN_MS, MIN_DRAIN_MS } from '../../src/auth/hashing/drain-estimate.ts';

const parameters = {
  slots: fc.integer({ min: 1, max: 64 }),
  serviceMs: fc.double({ min: 0.01, max: 5000, noNaN: true }),
};

describe('the estimate', () => {
  test('stays within its bounds for any measurements and any number of rejections', () => {
    const step = fc.record({
      ahead: fc.nat(1_000_000),
      measured: fc.double(),
      passed: fc.double({ min: 0, max: 1e6, noNaN: true }),
      random: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
    });
    fc.assert(
      fc.property(parameters.slots, parameters.serviceMs, fc.array(step), (slots, initialMs, steps) => {
        let [now, chance] = [0, 0];
        const estimate = new DrainEstimate({ slots, initialMs, now: () => now, random: () => chance });
        for (const { ahead, measured, passed, random } of steps) {
          now += passed;
          chance = random;
          estimate.measured(measured);
          const told = estimate.retryAfterMs(ahead);
          expect(Number.isSafeInteger(told)).toBe(true);
          expect(told).toBeGreaterThanOrEqual(MIN_DRAIN_MS);
          expect(told).toBeLessThanOrEqual(MAX_DRAIN_MS);
        }
      }),
    );
  });

  test('never falls while callers are rejected at one moment, and grows at the measured rate', () => {
    fc.assert(
      fc.property(parameters.slots, parameters.serviceMs, fc.nat(1000), (slots, initialMs, ahead) => {
        const estimate = new DrainEstimate({ slots, initialMs, now: () => 0, random: () => 0 });
        const told = Array.from({ length: 500 }, () => estimate.retryAfterMs(ahead));
        for (const [index, wait] of told.entries()) {
          expect(wait).toBeGreaterThanOrEqual(told[index - 1] ?? 0);
          const served = ((ahead + index + 1) * initialMs) / slots;
          const expected = Math.min(Math.max(served, MIN_DRAIN_MS), MAX_DRAIN_MS / 1.5);
          expect(Math.abs(wait - expected)).toBeLessThanOrEqual(1 + expected * 1e-6);
        }
      }),
    );
  });

  test('is forgotten after the announced time', () => {
    let now = 0;
    const estimate = new DrainEstimate({ slots: 1, initialMs: 25, now: () => now, random: () => 0 });
    for (let index = 0; index < 10_000; index += 1) estimate.retryAfterMs(16);
    expect(estimate.retryAfterMs(16)).toBe(Math.round(MAX_DRAIN_MS / 1.5));
    now += MAX_DRAIN_MS;
    expect(estimate.retryAfterMs(0)).toBe(MIN_DRAIN_MS);
  });

  test('follows the measurements', () => {
    const estimate = new DrainEstimate({ slots: 2, initialMs: 1, now: () => 0, random: () => 0 });
    for (let index = 0; index < 200; index += 1) estimate.measured(1000);
    expect(estimate.retryAfterMs(9)).toBeGreaterThan(4900);
    expect(estimate.retryAfterMs(9)).toBeLessThan(5600);
  });
});

/** Runs callers who obey against a queue. @returns when the last was served, the attempts of all, and the most of one */
function simulate(
  callers: number,
  slots: number,
  serviceMs: number,
  maxWaiting: number,
  random: () => number,
) {
  let now = 0;
  const estimate = new DrainEstimate({ slots, initialMs: serviceMs, now: () => now, random });
  const busyUntil = Array.from({ length: slots }, () => 0);
  const arrivals = Array.from({ length: callers }, () => ({ at: 0, attempts: 0 }));
  let [allAttempts, mostAttempts] = [0, 0];
  while (arrivals.length > 0) {
    arrivals.sort((a, b) => b.at - a.at);
    const caller = arrivals.pop();
    if (caller === undefined) break;
    now = caller.at;
    caller.attempts += 1;
    allAttempts += 1;
    const backlog = busyUntil.reduce((sum, until) => sum + Math.max(0, until - now), 0) / serviceMs;
    if (backlog < slots + maxWaiting) {
      const first = busyUntil.indexOf(Math.min(...busyUntil));
      busyUntil[first] = Math.max(now, busyUntil[first] ?? 0) + serviceMs;
      mostAttempts = Math.max(mostAttempts, caller.attempts);
    } else {
      arrivals.push({ at: now + estimate.retryAfterMs(Math.ceil(backlog)), attempts: caller.attempts });
    }
  }
  return { lastAt: Math.max(...busyUntil), allAttempts, mostAttempts };
}

/** Uniform from 0 up to 1, from a seed (mulberry32). */
function uniform(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

test('callers that obey retry-after are all served in little more time than the work takes, with few attempts', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 20, max: 1500 }),
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 10, max: 50 }),
      fc.integer(),
      (callers, slots, serviceMs, seed) => {
        const { lastAt, allAttempts, mostAttempts } = simulate(callers, slots, serviceMs, 16, uniform(seed));
        const work = (callers * serviceMs) / slots;
        expect(lastAt).toBeLessThanOrEqual(2 * work + 2 * MAX_DRAIN_MS);
        const waits = work / (MAX_DRAIN_MS / 1.5);
        expect(allAttempts / callers).toBeLessThanOrEqual(3 + waits);
        // One of a thousand random waits may be too short many times: the most in 4,000 such runs is 7 + 3 * waits.
        expect(mostAttempts).toBeLessThanOrEqual(10 + Math.ceil(3 * waits));
      },
    ),
    { numRuns: 30 },
  );
});
