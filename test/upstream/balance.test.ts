import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Candidate,
  choose,
  firstWithRoom,
  type LoadBalance,
  rendezvousOrder,
} from '../../src/upstream/load-balance.ts';

/** A repeatable sequence from 0 to 1 (a linear congruential generator). */
function chance(seed = 1): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

function candidate(given: Partial<Candidate> = {}): Candidate {
  return { weight: 1, inFlight: 0, latencyMs: undefined, ...given };
}

/** The share of choices that fell on each. */
function shares(candidates: readonly Candidate[], balance: LoadBalance, draws = 20_000): number[] {
  const random = chance();
  const counts = candidates.map(() => 0);
  for (let index = 0; index < draws; index += 1) {
    const chosen = choose(candidates, balance, random) ?? -1;
    counts[chosen] = (counts[chosen] ?? 0) + 1;
  }
  return counts.map((count) => count / draws);
}

const MODES: readonly LoadBalance[] = ['weighted', 'least_requests', 'latency', 'affinity'];

describe.each(MODES)('%s', (balance) => {
  test('with nothing to compare, shares are as the weights', () => {
    const [three = 0, one = 0] = shares([candidate({ weight: 3 }), candidate()], balance);
    expect(three).toBeCloseTo(0.75, 1);
    expect(one).toBeCloseTo(0.25, 1);
  });

  test('always one of those with weight, for any chance', () => {
    const some = fc.record({
      weight: fc.oneof(fc.constant(0), fc.double({ min: 1e-3, max: 1e6, noNaN: true })),
      inFlight: fc.nat(500),
      latencyMs: fc.option(fc.nat(60_000), { nil: undefined }),
    });
    const number = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(fc.array(some, { maxLength: 8 }), fc.tuple(number, number), (candidates, [one, two]) => {
        const numbers = [one, two];
        const chosen = choose(candidates, balance, () => numbers.shift() ?? 0);
        if (chosen === undefined) expect(candidates.every(({ weight }) => weight === 0)).toBe(true);
        else expect(candidates[chosen]?.weight).toBeGreaterThan(0);
      }),
      { numRuns: 200 },
    );
  });
});

describe('weighted', () => {
  test('does not look at load or latency', () => {
    const busy = candidate({ inFlight: 100, latencyMs: 9000 });
    expect(shares([busy, candidate()], 'weighted')[0]).toBeCloseTo(0.5, 1);
  });
});

describe('least_requests', () => {
  test('of two, the one with fewer under way', () => {
    expect(shares([candidate({ inFlight: 2 }), candidate({ inFlight: 1 })], 'least_requests')).toEqual([
      0, 1,
    ]);
  });

  test('counts them against the weight', () => {
    const heavy = candidate({ weight: 10, inFlight: 9 });
    expect(shares([heavy, candidate({ inFlight: 1 })], 'least_requests')).toEqual([1, 0]);
  });

  test('the busiest of three is never chosen, and the others share', () => {
    const loads = [5, 0, 0].map((inFlight) => candidate({ inFlight }));
    const [busy = 0, one = 0, two = 0] = shares(loads, 'least_requests');
    expect(busy).toBe(0);
    expect(one).toBeCloseTo(0.5, 1);
    expect(two).toBeCloseTo(0.5, 1);
  });

  test('keeps a slow target to its share of the places', () => {
    // Each request stays for as long as its target takes; one takes twenty times as long.
    const random = chance(7);
    const takes = [20, 1, 1];
    const ends: number[][] = [[], [], []];
    const counts = [0, 0, 0];
    for (let time = 0; time < 3000; time += 1) {
      for (const [index, list] of ends.entries()) ends[index] = list.filter((end) => end > time);
      for (let request = 0; request < 3; request += 1) {
        const load = ends.map((list) => candidate({ inFlight: list.length }));
        const chosen = choose(load, 'least_requests', random) ?? 0;
        ends[chosen]?.push(time + (takes[chosen] ?? 0));
        counts[chosen] = (counts[chosen] ?? 0) + 1;
      }
    }
    // By weight alone it would be a third.
    expect((counts[0] ?? 0) / 9000).toBeLessThan(0.1);
    expect(counts[0]).toBeGreaterThan(0);
  });
});

describe('latency', () => {
  test('of two, the quicker one', () => {
    const [slow, quick] = [candidate({ latencyMs: 900 }), candidate({ latencyMs: 300 })];
    expect(shares([slow, quick], 'latency')).toEqual([0, 1]);
  });

  test('until so much is under way there that the other is due sooner', () => {
    const slow = candidate({ latencyMs: 900 });
    expect(shares([slow, candidate({ latencyMs: 300, inFlight: 1 })], 'latency')).toEqual([0, 1]);
    expect(shares([slow, candidate({ latencyMs: 300, inFlight: 3 })], 'latency')).toEqual([1, 0]);
  });

  test('a target of twice the weight may be nearly twice as slow', () => {
    const heavy = candidate({ weight: 2, latencyMs: 550 });
    expect(shares([heavy, candidate({ latencyMs: 300 })], 'latency')).toEqual([1, 0]);
  });

  test('an unknown target is tried, by one request and not by all', () => {
    const known = candidate({ latencyMs: 50, inFlight: 0 });
    expect(shares([known, candidate()], 'latency')).toEqual([0, 1]);
    expect(shares([known, candidate({ inFlight: 1 })], 'latency')).toEqual([1, 0]);
  });

  test('of two unknown ones, the less busy', () => {
    expect(shares([candidate({ inFlight: 1 }), candidate()], 'latency')).toEqual([0, 1]);
  });
});

describe('rendezvous hashing', () => {
  const named = (weights: Readonly<Record<string, number>>) =>
    Object.entries(weights).map(([name, weight]) => ({ name, weight }));
  const namesFor = (key: string, targets: ReturnType<typeof named>) =>
    rendezvousOrder(targets, key).map((index) => targets[index]?.name);
  const KEYS = Array.from({ length: 6_000 }, (_, index) => `key ${index}`);

  test('gives each target keys in proportion to its weight', () => {
    const targets = named({ a: 1, b: 2, c: 5, none: 0 });
    const counts = new Map<string | undefined, number>();
    for (const key of KEYS) {
      const [first] = namesFor(key, targets);
      counts.set(first, (counts.get(first) ?? 0) + 1);
    }
    expect((counts.get('a') ?? 0) / KEYS.length).toBeCloseTo(1 / 8, 1);
    expect((counts.get('c') ?? 0) / KEYS.length).toBeCloseTo(5 / 8, 1);
    expect(counts.has('none')).toBe(false);
  });

  test('does not depend on the order of the targets, and a target that leaves moves only its keys', () => {
    const weight = fc.double({ min: 0.01, max: 1e6, noNaN: true });
    fc.assert(
      fc.property(
        fc.string(),
        fc.dictionary(fc.string({ minLength: 1 }), weight, { minKeys: 2, maxKeys: 8 }),
        (key, weights) => {
          const targets = named(weights);
          const order = namesFor(key, targets);
          expect(namesFor(key, targets.toReversed())).toEqual(order);
          const [gone] = order.slice(-1);
          expect(
            namesFor(
              key,
              targets.filter(({ name }) => name !== gone),
            ),
          ).toEqual(order.slice(0, -1));
        },
      ),
    );
  });

  test('gives the order that it gave in earlier versions: replicas of two versions have to agree', () => {
    expect(namesFor('key', named({ a: 1, b: 1, c: 1, d: 1 }))).toEqual(['c', 'a', 'b', 'd']);
  });
});

describe('bounded load', () => {
  test('passes over a target above 1.25 times its share and two requests, by weight', () => {
    const loads = (...inFlight: number[]) => inFlight.map((each) => ({ weight: 1, inFlight: each }));
    expect(firstWithRoom(loads(1, 0, 0, 0))).toBe(0);
    expect(firstWithRoom(loads(2, 0, 0, 0))).toBe(1);
    // 1.25 of (9 + 1) / 2, and 2: room for the eighth, not for the ninth.
    expect(firstWithRoom(loads(7, 2))).toBe(0);
    expect(firstWithRoom(loads(8, 1))).toBe(1);
    expect(
      firstWithRoom([
        { weight: 3, inFlight: 40 },
        { weight: 1, inFlight: 0 },
      ]),
    ).toBe(1);
    expect(
      firstWithRoom([
        { weight: 3, inFlight: 30 },
        { weight: 1, inFlight: 20 },
      ]),
    ).toBe(0);
  });

  test('always finds one with room, so that none gets more than its bound', () => {
    const load = fc.record({
      weight: fc.double({ min: 0.01, max: 100, noNaN: true }),
      inFlight: fc.nat(1_000),
    });
    fc.assert(
      fc.property(fc.array(load, { minLength: 1, maxLength: 10 }), (loads) => {
        const { weight, inFlight } = loads[firstWithRoom(loads)] ?? { weight: 0, inFlight: 0 };
        const all = loads.reduce((sum, each) => sum + each.inFlight, 1);
        const weights = loads.reduce((sum, each) => sum + each.weight, 0);
        expect(inFlight + 1).toBeLessThanOrEqual((1.25 * all * weight) / weights + 2 + 1e-6);
      }),
    );
  });
});
