// What the simulation of bench/affinity.ts has to show: prefix caches are hit, and no target has too much.
import { describe, expect, test } from 'vitest';
import { AFFINITY_SETTINGS, simulateAffinity } from '../../bench/affinity.ts';

const SMALL = { ...AFFINITY_SETTINGS, seconds: 500, arrivals: 3, targets: 6 };

describe('targets that come and go, with three replicas', () => {
  test.each([1, 2, 3])(
    'with seed %i affinity hits nine tenths of perfect stickiness, and no target has 1.25 times the mean',
    (seed) => {
      const { ofPerfect, maxLoad, requests } = simulateAffinity('affinity', { ...SMALL, seed });
      expect(requests).toBeGreaterThan(5_000);
      expect(ofPerfect).toBeGreaterThanOrEqual(0.9);
      expect(maxLoad).toBeLessThanOrEqual(1.25);
    },
  );

  test.each(['weighted', 'least_requests'] as const)('%s hits less', (balance) => {
    expect(simulateAffinity(balance, SMALL).ofPerfect).toBeLessThan(0.75);
  });
});
