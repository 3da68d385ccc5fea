// The order in which targets are asked.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { order } from '../../src/upstream/selection.ts';

interface Target {
  readonly name: string;
  readonly weight: number;
  readonly priority: number;
}

const target = (name: string, weight = 1, priority = 1): Target => ({ name, weight, priority });
const names = (targets: readonly Target[], random: () => number) =>
  order(targets, random).map(({ name }) => name);

describe('order', () => {
  test('is by priority, whatever the chance', () => {
    const targets = [target('a', 1, 1), target('b', 100, 2), target('c', 100, 3)];
    for (const random of [0, 0.5, 0.999999]) expect(names(targets, () => random)).toEqual(['a', 'b', 'c']);
  });

  test('follows the weights within a priority', () => {
    const targets = [target('a', 3), target('b', 1)];
    expect(names(targets, () => 0)).toEqual(['a', 'b']);
    expect(names(targets, () => 0.74)).toEqual(['a', 'b']);
    expect(names(targets, () => 0.76)).toEqual(['b', 'a']);
  });

  test('comes near the weights over many draws', () => {
    let seed = 1;
    const random = () => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed / 2_147_483_647;
    };
    const counts = new Map<string, number>();
    for (let i = 0; i < 20_000; i++) {
      const [first] = names([target('a', 3), target('b', 1), target('c', 0.5)], random);
      counts.set(first ?? '', (counts.get(first ?? '') ?? 0) + 1);
    }
    expect((counts.get('a') ?? 0) / 20_000).toBeCloseTo(3 / 4.5, 1);
    expect((counts.get('b') ?? 0) / 20_000).toBeCloseTo(1 / 4.5, 1);
  });

  test('leaves out a target without weight, except when it is the only one', () => {
    expect(names([target('a', 0), target('b', 1)], () => 0)).toEqual(['b']);
    expect(names([target('a', 0)], () => 0)).toEqual(['a']);
  });

  test('has each target of weight once, for any targets and any chance', () => {
    const targets = fc.array(
      fc.record({
        weight: fc.double({ min: 0.001, max: 1e6, noNaN: true }),
        priority: fc.integer({ min: 1, max: 4 }),
      }),
      { minLength: 1, maxLength: 12 },
    );
    fc.assert(
      fc.property(targets, fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (some, chance) => {
        const all = some
          .toSorted((a, b) => a.priority - b.priority)
          .map(({ weight, priority }, index) => target(String(index), weight, priority));
        const ordered = order(all, () => chance);
        expect(new Set(ordered)).toEqual(new Set(all));
        expect(ordered.length).toBe(all.length);
        expect(ordered.map(({ priority }) => priority)).toEqual(all.map(({ priority }) => priority));
      }),
    );
  });
});
