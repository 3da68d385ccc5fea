import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { RecentMap } from '../src/recent-map.ts';

describe('a recent map', () => {
  test('keeps what was set last, tells what it forgets, and is a map otherwise', () => {
    const key = fc.integer({ min: 0, max: 6 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 4 }), fc.array(fc.tuple(key, fc.boolean())), (most, steps) => {
        const forgotten: number[] = [];
        const map = new RecentMap<number, number>(most, (each, value) => forgotten.push(each, value));
        let expected: number[] = [];
        const gone: number[] = [];
        for (const [each, isSet] of steps) {
          expected = expected.filter((other) => other !== each);
          if (isSet) {
            map.set(each, each * 10);
            expected.push(each);
            if (expected.length > most) {
              const [oldest = 0] = expected.splice(0, 1);
              gone.push(oldest, oldest * 10);
            }
          } else map.delete(each);
          expect([...map.keys()]).toEqual(expected);
        }
        expect(forgotten).toEqual(gone);
        expect(map.size).toBe(expected.length);
      }),
    );
  });

  test('spares entries that ask for it once, at most 32 of them at a time', () => {
    const evicted: number[] = [];
    const spare = new Set<number>();
    const map = new RecentMap<number, number>(
      100,
      (key) => evicted.push(key),
      (value) => spare.delete(value),
    );
    for (let index = 0; index < 100; index += 1) map.set(index, index);
    for (let index = 0; index < 40; index += 1) if (index !== 2) spare.add(index);
    map.set(100, 100);
    expect(evicted).toEqual([2]);
    expect([...map.keys()].slice(-3)).toEqual([100, 0, 1]);
    map.set(101, 101);
    // 3 to 34 were spared, then the bound counts.
    expect(evicted).toEqual([2, 35]);
    expect(map.size).toBe(100);
  });
});
