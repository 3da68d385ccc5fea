// A large body that is sent in pieces: the same bytes, in short writes, of memory that nobody else gets meanwhile.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BodyPieces } from '../../src/http/pieces/body-pieces.ts';
import type { BodyReader } from '../../src/http/pieces/body-source.ts';
import { BufferPool } from '../../src/http/pieces/buffer-pool.ts';

async function readAll(reader: BodyReader): Promise<Buffer[]> {
  const pieces: Buffer[] = [];
  for (let piece = await reader.next(); piece !== undefined; piece = await reader.next()) pieces.push(piece);
  return pieces;
}

test('any pieces are sent as their concatenation, in writes that are neither empty nor long, and rarely short', async () => {
  const size = fc.oneof(fc.nat({ max: 40 }), fc.nat({ max: 40_000 }), fc.nat({ max: 600_000 }));
  await fc.assert(
    fc.asyncProperty(fc.array(size, { maxLength: 6 }), async (sizes) => {
      const parts = sizes.map((length, index) => Buffer.alloc(length, `${index}abc`));
      const whole = Buffer.concat(parts);
      const body = new BodyPieces(parts);
      expect(body.length).toBe(whole.length);
      expect(body.toBuffer().equals(whole)).toBe(true);
      // Again and again: for a retry, or for two at a time.
      const [sent, second] = await Promise.all([readAll(body.open()), readAll(body.open())]);
      expect(Buffer.concat(sent).equals(whole)).toBe(true);
      expect(Buffer.concat(second).equals(whole)).toBe(true);
      for (const piece of sent) {
        expect(piece.length).toBeGreaterThan(0);
        expect(piece.length).toBeLessThanOrEqual(128 * 1024);
      }
      expect(sent.length).toBeLessThanOrEqual(2 * Math.ceil(whole.length / (128 * 1024)) + parts.length + 1);
    }),
    { numRuns: 60 },
  );
});

test('readers hold the buffer until none reads a piece', async () => {
  const pool = new BufferPool();
  const slab = pool.take(300_000);
  slab.bytes.fill('x');
  const body = new BodyPieces([
    slab.bytes.subarray(0, 10),
    Buffer.from('other'),
    slab.bytes.subarray(20, 300_000),
  ]);
  const [first, second] = [body.open(), body.open()];
  slab.release();
  const sent = await readAll(first);
  expect(Buffer.concat(sent)).toHaveLength(300_000 - 5);
  // It has read all, but the system may not have taken it.
  first.released?.();
  first.released?.();
  expect(pool.retained).toBe(0);
  second.cancel();
  expect(pool.retained).toBe(0);
  expect(sent[1]?.length).toBeGreaterThan(0);
  second.released?.();
  expect(pool.retained).toBeGreaterThan(300_000);
});

test('a body whose buffer was released before it was opened is not sent', async () => {
  const pool = new BufferPool();
  const slab = pool.take(300_000);
  const body = new BodyPieces([slab.bytes.subarray(0, 300_000)]);
  slab.release();
  await expect(body.open().next()).rejects.toMatchObject({ code: 'internal_error' });
});
