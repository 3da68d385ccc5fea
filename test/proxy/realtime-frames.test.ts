// The reader of frames against a writer of frames: whatever the messages are and wherever the network cuts them, it finds the
// same texts, the same ends and the same Close; and bytes that are no frames harm nobody.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  closeFrame,
  MAX_TEXT,
  textFrame,
  WebSocketFrameReader,
} from '../../src/realtime/websocket/websocket-frames.ts';

interface Frame {
  readonly opcode: number;
  readonly isFinal: boolean;
  readonly payload: Buffer;
  readonly mask: Buffer | undefined;
}

function encode({ opcode, isFinal, payload, mask }: Frame): Buffer {
  const { length } = payload;
  const size = length < 126 ? 0 : length < 65_536 ? 2 : 8;
  const extended = Buffer.alloc(size);
  if (size === 2) extended.writeUInt16BE(length);
  if (size === 8) extended.writeBigUInt64BE(BigInt(length));
  const second = (mask === undefined ? 0 : 0x80) | (size === 0 ? length : size === 2 ? 126 : 127);
  const head = Buffer.from([(isFinal ? 0x80 : 0) | opcode, second]);
  if (mask === undefined) return Buffer.concat([head, extended, payload]);
  const masked = payload.map((byte, index) => byte ^ (mask[index % 4] ?? 0));
  return Buffer.concat([head, extended, mask, masked]);
}

const bytes = (max: number) => fc.uint8Array({ maxLength: max }).map((each) => Buffer.from(each));
const payload = fc.oneof(
  { weight: 8, arbitrary: bytes(200) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(125, 126, 127, 65_535, 65_536, 70_000).map((size) => Buffer.alloc(size, 0x61)),
  },
);
const mask = fc.option(
  fc.uint8Array({ minLength: 4, maxLength: 4 }).map((each) => Buffer.from(each)),
  { nil: undefined },
);

/** A message in one frame or several, with pings between them. */
const message = fc
  .record({
    opcode: fc.constantFrom(1, 2),
    parts: fc.array(payload, { minLength: 1, maxLength: 4 }),
    ping: bytes(125),
    mask,
  })
  .map(({ opcode, parts, ping, mask }) => {
    const frames = parts.flatMap((part, index): Frame[] => [
      ...(index === 0 ? [] : [{ opcode: 9, isFinal: true, payload: ping, mask }]),
      { opcode: index === 0 ? opcode : 0, isFinal: index === parts.length - 1, payload: part, mask },
    ]);
    return { frames, text: opcode === 1 ? Buffer.concat(parts) : undefined };
  });

/** Cuts bytes into pieces of these sizes, again and again. */
function* cut(all: Buffer, sizes: readonly number[]): Generator<Buffer> {
  for (let at = 0, turn = 0; at < all.length; turn += 1) {
    const size = sizes[turn % sizes.length] ?? 1;
    yield all.subarray(at, at + size);
    at += size;
  }
}

function readerOf() {
  const texts: string[] = [];
  const closes: number[] = [];
  const long: number[] = [];
  const reader = new WebSocketFrameReader({
    onText: (text) => texts.push(text.toString('latin1')),
    onLongText: (size) => long.push(size),
    onClose: (code) => closes.push(code),
  });
  return { reader, texts, closes, long };
}

describe('the frame reader', () => {
  test('finds all texts, wherever they are cut', () => {
    fc.assert(
      fc.property(
        fc.array(message, { maxLength: 6 }),
        fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1, maxLength: 5 }),
        (messages, sizes) => {
          const { reader, texts, closes } = readerOf();
          const all = Buffer.concat(messages.flatMap(({ frames }) => frames.map(encode)));
          for (const piece of cut(all, sizes)) expect(reader.push(piece)).toBe(piece.length);
          expect(texts).toEqual(
            messages.flatMap(({ text }) => (text === undefined ? [] : [text.toString('latin1')])),
          );
          expect([reader.isLost, reader.betweenMessages, closes]).toEqual([false, true, []]);
        },
      ),
      { numRuns: 150 },
    );
  });

  test('stops only at frame boundaries', () => {
    fc.assert(
      fc.property(
        fc.array(message, { minLength: 1, maxLength: 4 }),
        fc.array(fc.integer({ min: 1, max: 90 }), { minLength: 1, maxLength: 4 }),
        (messages, sizes) => {
          const { reader } = readerOf();
          const frames = messages.flatMap((each) => each.frames.map(encode));
          const ends: number[] = [];
          let at = 0;
          for (const piece of cut(Buffer.concat(frames), sizes)) {
            for (let from = 0; from < piece.length; ) {
              const count = reader.push(piece.subarray(from), true);
              from += count;
              at += count;
              if (reader.atBoundary) ends.push(at);
            }
          }
          let sum = 0;
          expect(ends).toEqual(frames.map((each) => (sum += each.length)));
        },
      ),
      { numRuns: 100 },
    );
  });

  test('accepts any bytes without an error and in bounded memory', () => {
    fc.assert(
      fc.property(fc.array(bytes(300), { maxLength: 20 }), fc.boolean(), (pieces, stop) => {
        const { reader, texts } = readerOf();
        for (const piece of pieces) {
          const count = reader.push(piece, stop);
          expect(count).toBeLessThanOrEqual(piece.length);
          expect(count > 0 || piece.length === 0).toBe(true);
        }
        expect(texts.join('').length).toBeLessThanOrEqual(6000);
        if (reader.isLost) expect(reader.atBoundary).toBe(false);
      }),
      { numRuns: 300 },
    );
  });

  test.each([
    ['a reserved bit', [0xc1, 0]],
    ['a reserved opcode', [0x83, 0]],
    ['a reserved control frame', [0x8b, 0]],
    ['a control frame in parts', [0x09, 0]],
    ['a control frame that is too long', [0x89, 126, 0, 126]],
    ['a part of nothing', [0x80, 0]],
    ['a message within a message', [0x01, 0, 0x81, 0]],
    ['a length beyond all numbers', [0x82, 127, 255, 0, 0, 0, 0, 0, 0, 0]],
  ])('stops reading after %s', (_what, wrong) => {
    const { reader, texts } = readerOf();
    reader.push(Buffer.from(wrong));
    expect(reader.isLost).toBe(true);
    reader.push(textFrame('later'));
    expect(texts).toEqual([]);
  });

  test('skips a text that is too long, in one frame and in many', () => {
    const { reader, texts, long } = readerOf();
    const part = Buffer.alloc(65_536, 0x61);
    reader.push(encode({ opcode: 1, isFinal: true, payload: Buffer.alloc(MAX_TEXT + 1), mask: undefined }));
    for (let i = 0; i <= 16; i++)
      reader.push(encode({ opcode: i === 0 ? 1 : 0, isFinal: i === 16, payload: part, mask: undefined }));
    reader.push(encode({ opcode: 1, isFinal: true, payload: Buffer.alloc(MAX_TEXT, 0x62), mask: undefined }));
    reader.push(textFrame('short'));
    expect(long).toEqual([MAX_TEXT + 1, 17 * 65_536]);
    expect(texts.map((text) => text.length)).toEqual([MAX_TEXT, 5]);
  });

  test.each([
    [1000, 'bye', false],
    [4404, '', true],
    [1001, 'x'.repeat(123), true],
  ])('reads the Close %i that `closeFrame` writes', (code, reason, isMasked) => {
    const { reader, closes } = readerOf();
    reader.push(closeFrame(code, reason, isMasked));
    expect([closes, reader.hasClosed, reader.atBoundary]).toEqual([[code], true, true]);
  });

  test('reads a Close without a code', () => {
    const { reader, closes } = readerOf();
    reader.push(Buffer.from([0x88, 0]));
    expect(closes).toEqual([1005]);
  });
});

test('a text that the gateway masks is read as it was, and the length of its frame is right', () => {
  fc.assert(
    fc.property(payload, fc.array(fc.nat(50), { maxLength: 4 }), (text, cuts) => {
      const texts: string[] = [];
      const onText = (each: Buffer) => void texts.push(each.toString('latin1'));
      const reader = new WebSocketFrameReader({ onText, onClose() {} }, MAX_TEXT, true);
      let rest = textFrame(text, true);
      for (const size of cuts) {
        reader.push(rest.subarray(0, size));
        rest = rest.subarray(size);
      }
      reader.push(rest);
      expect([texts, reader.atBoundary]).toEqual([[text.toString('latin1')], true]);
    }),
    { numRuns: 100 },
  );
});

test('a server does not read frames without a mask', () => {
  const reader = new WebSocketFrameReader({ onText: () => expect.fail(), onClose() {} }, MAX_TEXT, true);
  reader.push(textFrame('x'));
  expect(reader.isLost).toBe(true);
});
