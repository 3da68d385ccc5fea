import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LatencyAverage } from '../../src/upstream/latency.ts';

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
