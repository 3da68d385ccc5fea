// Even shares of connections among workers: who closes how many, and that it ends.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ConnectionShares } from '../../src/http/accept/connection-shares.ts';
import { ConnectionShedding } from '../../src/http/accept/connection-shedding.ts';

const holders = (...counts: number[]) => counts.map((connections) => ({ connections }));
function ordered(...counts: number[]) {
  const excess = new ConnectionShares().excess(holders(...counts), 0);
  return excess && [excess.keep, ...excess.above.map(({ connections }) => connections)];
}

test.each([
  [
    [2, 0],
    [1, 2],
  ],
  [[1, 1], undefined],
  [[2, 1], undefined],
  [
    [5, 3],
    [4, 5],
  ],
  [
    [64, 0],
    [32, 64],
  ],
  [[35, 29], undefined],
  [
    [36, 28],
    [32, 36],
  ],
  [
    [30, 30, 0],
    [20, 30, 30],
  ],
  [[7], undefined],
  [[], undefined],
])('of %j connections the share, and those above it: %j', (counts, expected) => {
  expect(ordered(...counts)).toEqual(expected);
});

test('what does not help is tried less and less often, and at once again after it was even', () => {
  const shares = new ConnectionShares();
  const times: number[] = [];
  for (let now = 0; now < 60_000; now += 100)
    if (shares.excess(holders(8, 0), now) !== undefined) times.push(now);
  expect(times.slice(0, 4)).toEqual([0, 200, 600, 1_200]);
  expect(times.length).toBeLessThan(30);
  expect(shares.excess(holders(4, 4), 60_000)).toBeUndefined();
  expect(shares.excess(holders(8, 0), 60_000)).toMatchObject({ keep: 4 });
});

test('wherever clients connect anew, shares become even', () => {
  const counts = fc.array(fc.nat(200), { minLength: 2, maxLength: 16 });
  fc.assert(
    fc.property(counts, fc.infiniteStream(fc.nat()), (start, places) => {
      const workers = start.map((connections) => ({ connections }));
      const total = start.reduce((sum, count) => sum + count, 0);
      const shares = new ConnectionShares();
      let now = 0;
      for (let round = 0; round < 60; round += 1, now += 20_000) {
        const { above = [], keep = 0 } = shares.excess(workers, now) ?? {};
        for (const [worker, count] of above.map((each) => [each, each.connections - keep] as const)) {
          worker.connections -= count;
          for (let each = 0; each < count; each += 1) {
            const at = workers[Number(places.next().value) % workers.length];
            if (at !== undefined) at.connections += 1;
          }
        }
      }
      const share = Math.ceil(total / workers.length);
      expect(workers.reduce((sum, { connections }) => sum + connections, 0)).toBe(total);
      expect(Math.max(...workers.map(({ connections }) => connections))).toBeLessThanOrEqual(share * 1.1);
    }),
  );
});

test('connections above the share announce their end, within a second, and none where others wait', () => {
  let now = 0;
  const shedding = new ConnectionShedding(() => now);
  const ended: number[] = [];
  const connection = (id: number, canEnd = true) => ({
    announceEnd() {
      if (canEnd) ended.push(id);
      return canEnd;
    },
  });
  const never = () => false;
  shedding.onRequest(connection(0), 10, never);
  shedding.order(8);
  const first = connection(1);
  shedding.onRequest(first, 10, never);
  shedding.onRequest(connection(2, false), 10, never);
  shedding.onRequest(connection(3), 10, never);
  shedding.onRequest(connection(4), 10, never);
  expect([ended, shedding.leaving]).toEqual([[1, 3], 2]);
  shedding.onClose(first);
  shedding.onClose(connection(9));
  expect(shedding.leaving).toBe(1);
  // Clients have left by themselves.
  shedding.onRequest(connection(5), 9, never);
  shedding.onRequest(connection(6), 20, () => true);
  shedding.onRequest(connection(7), 20, never);
  shedding.order(8);
  now = 1_001;
  shedding.onRequest(connection(8), 20, never);
  expect(ended).toEqual([1, 3]);
  // The second begins with the order.
  shedding.order(8);
  now += 1_000;
  shedding.onRequest(connection(9), 20, never);
  expect(ended).toEqual([1, 3, 9]);
});
