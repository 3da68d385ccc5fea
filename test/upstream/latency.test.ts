import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LatencyAverage } from '../../src/upstream/target-latency.ts';

function setting() {
  const clock = { now: 7000 };
  return { clock, latency: new LatencyAverage(() => clock.now) };
}

describe('the average time to the first token', () => {
  test('is unknown before the first sample, and that sample after it', () => {
    const { latency } = setting();
    expect(latency.value).toBeUndefined();
    latency.observe(120);
    expect(latency.value).toBe(120);
  });

  test('believes bad news at once', () => {
    const { clock, latency } = setting();
    latency.observe(100);
    clock.now += 5;
    latency.observe(3000);
    expect(latency.value).toBe(3000);
  });

  test('believes good news in time', () => {
    const { clock, latency } = setting();
    latency.observe(1000);
    clock.now += 100;
    latency.observe(100);
    expect(latency.value).toBeGreaterThan(980);
    for (let second = 0; second < 100; second += 1) {
      clock.now += 1000;
      latency.observe(100);
    }
    expect(latency.value).toBeCloseTo(100, 0);
  });

  test('holds for a while without samples, then fades', () => {
    const { clock, latency } = setting();
    latency.observe(1000);
    clock.now += 10_000;
    expect(latency.value).toBe(1000);
    clock.now += 10_000;
    expect(latency.value).toBeCloseTo(1000 / Math.E, 6);
    clock.now += 1_000_000;
    expect(latency.value).toBeLessThan(1);
  });

  test('of a request that was cut short above it holds for as long, and one below it changes nothing', () => {
    const { clock, latency } = setting();
    latency.observe(1000);
    clock.now += 10_000;
    latency.observeAtLeast(2000);
    latency.observeAtLeast(1500);
    clock.now += 10_000;
    expect(latency.value).toBe(2000);
    clock.now += 10_000;
    expect(latency.value).toBeCloseTo(2000 / Math.E, 6);
  });

  test('ignores what is no time', () => {
    const { latency } = setting();
    for (const ms of [Number.NaN, -1, Number.POSITIVE_INFINITY]) latency.observe(ms);
    expect(latency.value).toBeUndefined();
  });

  test('is never outside its samples while they come', () => {
    const sample = fc.record({ wait: fc.nat(10_000), ms: fc.nat(60_000) });
    fc.assert(
      fc.property(fc.array(sample, { minLength: 1, maxLength: 50 }), (samples) => {
        const { clock, latency } = setting();
        const seen: number[] = [];
        for (const { wait, ms } of samples) {
          clock.now += wait;
          latency.observe(ms);
          seen.push(ms);
          expect(latency.value).toBeGreaterThanOrEqual(Math.min(...seen) - 1e-6);
          expect(latency.value).toBeLessThanOrEqual(Math.max(...seen) + 1e-6);
        }
      }),
      { numRuns: 100 },
    );
  });
});

describe('the 95th percentile', () => {
  /** From the first question on. */
  function counting() {
    const all = setting();
    expect(all.latency.p95).toBeUndefined();
    return all;
  }

  test('is unknown with fewer than 20 times, and counts from the first question on', () => {
    const { clock, latency } = setting();
    for (let i = 0; i < 50; i += 1) latency.observe(100);
    expect(latency.p95).toBeUndefined();
    for (let i = 0; i < 19; i += 1) latency.observe(100);
    expect(latency.p95).toBeUndefined();
    latency.observe(100);
    expect(latency.p95).toBe(100);
    clock.now += 1;
    expect(latency.p95).toBe(100);
  });

  test('is what 95 of 100 did not exceed', () => {
    const { latency } = counting();
    for (let ms = 100; ms > 0; ms -= 1) latency.observe(ms * 10);
    expect(latency.p95).toBe(950);
  });

  test('is never below 10 ms', () => {
    const { latency } = counting();
    for (let i = 0; i < 30; i += 1) latency.observe(1);
    expect(latency.p95).toBe(10);
  });

  test('knows the last 128 only', () => {
    const { clock, latency } = counting();
    for (let i = 0; i < 128; i += 1) latency.observe(5000);
    for (let i = 0; i < 128; i += 1) latency.observe(100);
    clock.now += 1000;
    expect(latency.p95).toBe(100);
  });

  test('knows the last five minutes only', () => {
    const { clock, latency } = counting();
    for (let i = 0; i < 20; i += 1) latency.observe(100);
    clock.now += 300_000;
    expect(latency.p95).toBe(100);
    clock.now += 1000;
    expect(latency.p95).toBeUndefined();
    for (let i = 0; i < 20; i += 1) latency.observe(700);
    expect(latency.p95).toBe(700);
  });

  test('is made anew once in a second', () => {
    const { clock, latency } = counting();
    for (let i = 0; i < 20; i += 1) latency.observe(100);
    expect(latency.p95).toBe(100);
    for (let i = 0; i < 20; i += 1) latency.observe(900);
    clock.now += 999;
    expect(latency.p95).toBe(100);
    clock.now += 1;
    expect(latency.p95).toBe(900);
  });

  test('agrees with all of its samples sorted', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 10, max: 60_000 }), { minLength: 20, maxLength: 300 }),
        (times) => {
          const { latency } = counting();
          for (const ms of times) latency.observe(ms);
          const last = times.slice(-128).sort((a, b) => a - b);
          const p95 = latency.p95 ?? Number.NaN;
          const share = (ms: number) => last.filter((each) => each <= ms).length / last.length;
          expect(last).toContain(p95);
          expect(share(p95)).toBeGreaterThanOrEqual(0.95);
          expect(share(p95 - 1)).toBeLessThan(0.95);
        },
      ),
      { numRuns: 100 },
    );
  });
});

describe('a request that was overtaken', () => {
  test('after less than is usual says nothing', () => {
    const { clock, latency } = setting();
    expect(latency.p95).toBeUndefined();
    for (let i = 0; i < 20; i += 1) latency.observe(500);
    for (let i = 0; i < 200; i += 1) {
      clock.now += 100;
      latency.observeAtLeast(20);
    }
    expect(latency.p95).toBe(500);
    expect(latency.value).toBeGreaterThan(100);
  });

  test('after more than is usual keeps its place among the slow: the percentile does not sink by hedging', () => {
    const { clock, latency } = setting();
    expect(latency.p95).toBeUndefined();
    for (let i = 0; i < 200; i += 1) latency.observe(i % 10 === 0 ? 2000 : 100);
    const asked = latency.p95 ?? 0;
    expect(asked).toBe(2000);
    // From now on the slow ones are overtaken, a little after that time.
    for (let i = 0; i < 500; i += 1) {
      clock.now += 100;
      if (i % 10 === 0) latency.observeAtLeast(asked + 5);
      else latency.observe(100);
      expect(latency.p95).toBeGreaterThanOrEqual(2000);
    }
    expect(latency.value).toBeGreaterThan(1500);
  });

  test('is all that is known of a target that has never answered', () => {
    const { latency } = setting();
    latency.observeAtLeast(800);
    expect(latency.value).toBe(800);
    latency.observeAtLeast(Number.NaN);
    expect(latency.value).toBe(800);
  });
});
