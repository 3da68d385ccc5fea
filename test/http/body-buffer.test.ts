// Pieces of a body become the same bytes, whatever was announced and however they are cut.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BodyBuffer } from '../../src/http/pieces/body-buffer.ts';

test('any pieces with any announced length give their concatenation', () => {
  const piece = fc.nat({ max: 300_000 });
  fc.assert(
    fc.property(
      fc.array(piece, { maxLength: 8 }),
      fc.option(fc.nat({ max: 1_000_000 })),
      (sizes, announced) => {
        const pieces = sizes.map((size, index) => Buffer.alloc(size, index + 1));
        const body = new BodyBuffer(10_000_000, announced ?? undefined);
        for (const each of pieces) expect(body.push(each)).toBe(true);
        expect(body.size).toBe(sizes.reduce((sum, size) => sum + size, 0));
        expect(body.take().equals(Buffer.concat(pieces))).toBe(true);
      },
    ),
    { numRuns: 60 },
  );
});

test.each([100, 600_000])('%i bytes fit a limit of the same size, and exceed a smaller one', (size) => {
  for (const cut of [1, 7, size - 1]) {
    const within = new BodyBuffer(size);
    expect(within.push(Buffer.alloc(cut))).toBe(true);
    expect(within.push(Buffer.alloc(size - cut))).toBe(true);
    expect(within.take()).toHaveLength(size);
    const over = new BodyBuffer(size - 1);
    expect(over.push(Buffer.alloc(cut)) && over.push(Buffer.alloc(size - cut))).toBe(false);
    expect(over.size).toBeLessThan(size);
  }
});

test('a single piece of a small body is not copied', () => {
  const body = new BodyBuffer(1000, 3);
  const piece = Buffer.from('abc');
  body.push(piece);
  expect(body.take()).toBe(piece);
});

test.each([true, false])(
  'the memory of pieces is freed once they are copied, if they are handed over: %s',
  (isHandedOver) => {
    const large = { take: (bytes: number) => Buffer.allocUnsafeSlow(bytes), arrived: () => {} };
    const body = new BodyBuffer(1_000_000, undefined, isHandedOver ? large : undefined);
    const pieces = [40_000, 40_000, 400_000].map((size) => Buffer.alloc(size));
    for (const piece of pieces) body.push(piece);
    expect(pieces.map(({ length }) => length)).toEqual(isHandedOver ? [0, 0, 0] : [40_000, 40_000, 400_000]);
    expect(body.take()).toHaveLength(480_000);
  },
);

test('an announced length alone allocates nothing', () => {
  const before = process.memoryUsage().arrayBuffers;
  const bodies = Array.from({ length: 200 }, () => new BodyBuffer(1e9, 1e9));
  for (const body of bodies) body.push(Buffer.from('x'));
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(10_000_000);
});

test('many small pieces are copied together, because each takes more memory than its bytes', () => {
  const body = new BodyBuffer(1000);
  const pieces = Array.from({ length: 900 }, () => Buffer.from('a'));
  for (const piece of pieces) body.push(piece);
  for (const piece of pieces) piece.write('b');
  const text = body.take().toString();
  expect(text).toHaveLength(900);
  expect(text.split('b').length - 1).toBeLessThan(300);
});
