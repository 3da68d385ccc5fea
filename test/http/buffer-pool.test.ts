// Memory of large bodies is used again, and never by two at a time.
import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { BufferPool, type PooledBuffer, pooledBufferOf } from '../../src/http/pieces/buffer-pool.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

type Step =
  | { readonly kind: 'take'; readonly bytes: number }
  | { readonly kind: 'hold' | 'release'; readonly which: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('take' as const), bytes: fc.nat({ max: 3 * MIB }) }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('hold' as const), which: fc.nat() }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('release' as const), which: fc.nat() }) },
);

test('no two buffers share memory, and none loses it, in any order of take, hold and release', () => {
  const most = 4 * MIB;
  let again = 0;
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const pool = new BufferPool({ maxRetained: most });
      const live: { slab: PooledBuffer; bytes: Buffer; holds: number; mark: number }[] = [];
      for (const [number, each] of steps.entries()) {
        if (each.kind === 'take') {
          const before = pool.retained;
          const slab = pool.take(each.bytes);
          if (pool.retained < before) again += 1;
          expect(slab.bytes.length).toBeGreaterThanOrEqual(each.bytes);
          mark(slab.bytes, number);
          live.push({ slab, bytes: slab.bytes, holds: 1, mark: number });
        } else if (live.length > 0) {
          const at = each.which % live.length;
          const one = live[at];
          if (one === undefined) continue;
          if (each.kind === 'hold') {
            one.slab.hold();
            one.holds += 1;
          } else {
            one.slab.release();
            one.holds -= 1;
            if (one.holds === 0) {
              live.splice(at, 1);
              // Who still has a view of it sees nothing, and cannot take it back.
              expect(one.bytes).toHaveLength(0);
              expect(() => one.slab.hold()).toThrow();
              expect(() => one.slab.release()).toThrow();
            }
          }
        }
        expect(pool.retained).toBeLessThanOrEqual(most);
        expect(new Set(live.map(({ bytes }) => bytes.buffer)).size).toBe(live.length);
        for (const one of live) {
          expect(isMarked(one.bytes, one.mark)).toBe(true);
          expect(pooledBufferOf(one.bytes.subarray(5, 9))).toBe(one.slab);
        }
      }
    }),
    { numRuns: 100 },
  );
  expect(again).toBeGreaterThan(0);
});

/** At both ends and in the middle: two slabs of one memory would overwrite each other's. */
function mark(bytes: Buffer, value: number): void {
  for (const at of placesIn(bytes)) bytes.writeInt32LE(value, at);
}

function isMarked(bytes: Buffer, value: number): boolean {
  return placesIn(bytes).every((at) => bytes.readInt32LE(at) === value);
}

function placesIn({ length }: Buffer): number[] {
  return [0, length >> 1, length - 4];
}

test('released memory is reused for bodies of similar size', () => {
  const pool = new BufferPool();
  const first = pool.take(MIB);
  first.bytes.write('of the first');
  first.release();
  expect(pool.retained).toBe(MIB);
  const others = [pool.take(2 * MIB), pool.take(MIB + 1), pool.take(MIB / 4)];
  expect(pool.retained).toBe(MIB);
  const second = pool.take(0.6 * MIB);
  expect(pool.retained).toBe(0);
  // The same memory, though nothing says what stands in it.
  expect(second.bytes.toString('latin1', 0, 12)).toBe('of the first');
  for (const other of others) other.release();
  second.release();
});

/** Releases buffers. @returns their memory as the pool has it: detached if it was freed */
function released(buffers: readonly PooledBuffer[]): readonly ArrayBuffer[] {
  const moved = vi.spyOn(ArrayBuffer.prototype, 'transfer');
  for (const buffer of buffers) buffer.release();
  const { calls, results } = moved.mock;
  const memories = results.flatMap(({ value }, index) => (calls[index]?.length === 0 ? [value] : []));
  moved.mockRestore();
  return memories;
}

test('memory beyond the bound, and of very large buffers, is freed at once', () => {
  let told = 0;
  const pool = new BufferPool({
    maxRetained: 3 * MIB,
    gauge: {
      set: (bytes) => {
        told = bytes;
      },
    },
  });
  const slabs = [pool.take(2 * MIB), pool.take(2 * MIB), pool.take(MIB), pool.take(33 * MIB)];
  const memories = released(slabs);
  expect(pool.retained).toBe(3 * MIB);
  expect(told).toBe(3 * MIB);
  expect(memories.map(({ detached }) => detached)).toEqual([false, true, false, true]);
});

test('unused free buffers are returned to the system after a while', async () => {
  const pool = new BufferPool({ idleMs: 20 });
  const memories = released(Array.from({ length: 4 }, () => pool.take(8 * MIB)));
  expect(memories.map(({ byteLength }) => byteLength)).toEqual([8, 8, 8, 8].map((each) => each * MIB));
  await vi.waitFor(() => expect(pool.retained).toBe(0), { timeout: 10_000 });
  // Without any collection.
  expect(memories.map(({ detached }) => detached)).toEqual([true, true, true, true]);
  const again = pool.take(8 * MIB);
  again.bytes.fill(1);
  again.release();
});
