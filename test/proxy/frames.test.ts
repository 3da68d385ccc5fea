import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { spliceSpans } from '../../src/proxy/request/request-scan.ts';
import { surplusFields } from '../../src/wire/sse-fields.ts';
import { SseFrameScanner } from '../../src/wire/sse-frames.ts';
import { framesOf } from '../fuzz/oracles.ts';
import { properties, scanFrames } from '../fuzz/properties.ts';

/** What each piece (`|` between them) brought, frame by frame, and the rest. */
function scan(stream: string): { batches: string[][]; rest: string } {
  const scanner = new SseFrameScanner();
  const batches = stream.split('|').map((piece) => {
    const { bytes, ends } = scanner.push(Buffer.from(piece));
    return ends.map((end, i) => bytes.toString('utf8', i === 0 ? 0 : ends[i - 1], end));
  });
  return { batches, rest: scanner.rest().toString() };
}

describe('framing', () => {
  test.each([
    ['LF', 'data: a\n\ndata: b\n\n', [['data: a\n\n', 'data: b\n\n']]],
    ['CRLF', 'data: a\r\n\r\ndata: b\r\n\r\n', [['data: a\r\n\r\n', 'data: b\r\n\r\n']]],
    ['CR', 'data: a\r\rdata: b\r\r', [['data: a\r\r', 'data: b\r\r']]],
    [
      'mixed',
      'data: a\r\n\ndata: b\n\r\ndata: c\r\r\ndata: d\n\r',
      [['data: a\r\n\n', 'data: b\n\r\n', 'data: c\r\r\n', 'data: d\n\r']],
    ],
    [
      'several lines in a frame',
      'event: x\r\ndata: a\r\ndata: b\n: c\r\r',
      [['event: x\r\ndata: a\r\ndata: b\n: c\r\r']],
    ],
    ['blank lines at the start and between', '\n\r\ndata: a\n\n\n', [['\n', '\r\n', 'data: a\n\n', '\n']]],
    ['one CRLF is no blank line', 'data: a\r\ndata: b\r\n', [[]]],
    ['cut in the line end', 'data: a\n|\n', [[], ['data: a\n\n']]],
    ['cut in a field name', 'da|ta: a\n\nda', [[], ['data: a\n\n']]],
    [
      'cut in a CRLF within a frame',
      'data: a\r|\ndata: b\r|\n\r\n',
      [[], [], ['data: a\r\ndata: b\r\n\r\n']],
    ],
    ['cut before the blank CRLF', 'data: a\r\n|\r\n', [[], ['data: a\r\n\r\n']]],
    [
      'frames held and whole in one piece',
      'data: a|a\n\ndata: b\n\ndata: c|\n\n',
      [[], ['data: aa\n\n', 'data: b\n\n'], ['data: c\n\n']],
    ],
    ['empty pieces', '|data: a\n||\n|', [[], [], [], ['data: a\n\n'], []]],
    ['a byte order mark', '\ufeffdata: a\n\n', [['\ufeffdata: a\n\n']]],
  ])('%s', (_, stream, batches) => {
    const result = scan(stream);
    expect(result.batches).toEqual(batches);
    expect([...result.batches.flat(), result.rest].join('')).toBe(stream.replaceAll('|', ''));
  });

  test('a frame that ends with CR is returned at once, and a following LF as a frame of its own', () => {
    expect(scan('data: a\r\n\r|\ndata: b\r\n\r|\n').batches).toEqual([
      ['data: a\r\n\r'],
      ['\n', 'data: b\r\n\r'],
      ['\n'],
    ]);
    expect(scan('data: a\r\r|data: b\r\r').batches).toEqual([['data: a\r\r'], ['data: b\r\r']]);
    expect(scan('data: a\r\r|\n|\n').batches).toEqual([['data: a\r\r'], ['\n'], ['\n']]);
    expect(scan('data: a\r\r||\n').batches).toEqual([['data: a\r\r'], [], ['\n']]);
  });

  test('a multi-byte character may be cut anywhere', () => {
    const whole = Buffer.from('data: 匀😀é\n\n');
    for (let at = 0; at <= whole.length; at++) {
      const { frames, rest } = scanFrames([
        Buffer.from(whole.subarray(0, at)),
        Buffer.from(whole.subarray(at)),
      ]);
      expect([frames.map(String), rest.length]).toEqual([[whole.toString()], 0]);
    }
  });

  test('every short stream gives the same frames, however it is cut', () => {
    const streams: string[] = [''];
    for (let i = 0; i < streams.length && (streams[i] ?? '').length < 7; i++) {
      for (const next of ['\r', '\n', 'x']) streams.push((streams[i] ?? '') + next);
    }
    for (const stream of streams) {
      const bytes = Buffer.from(stream);
      const expected = framesOf(bytes);
      const whole = expected.frames.join('|');
      for (let cutsAt = 0; cutsAt < 1 << Math.max(0, bytes.length - 1); cutsAt++) {
        const cutting: Buffer[] = [];
        let start = 0;
        for (let i = 1; i <= bytes.length; i++) {
          if (i < bytes.length && ((cutsAt >> (i - 1)) & 1) === 0) continue;
          cutting.push(Buffer.from(bytes.subarray(start, i)));
          start = i;
        }
        const { frames, rest } = scanFrames(cutting);
        // The mark of a frame's end goes behind a line feed that came late.
        const joined = frames.join('|').replaceAll('\r|\n', '\r\n');
        if (joined !== whole || rest.toString() !== expected.rest.toString()) {
          expect({ stream, cutsAt, joined, rest }).toEqual({
            stream,
            cutsAt,
            joined: whole,
            rest: expected.rest,
          });
        }
      }
    }
    expect(streams.length).toBe(3280);
  });
});

describe('a batch', () => {
  test('is a view of a piece that holds only whole frames', () => {
    const piece = Buffer.from('data: a\n\ndata: b\n\n');
    expect(new SseFrameScanner().push(piece).bytes).toBe(piece);
    const more = Buffer.from('data: a\n\ndata: b\n\nda');
    const { bytes, ends } = new SseFrameScanner().push(more);
    expect([bytes.buffer === more.buffer, bytes.byteOffset, ends]).toEqual([true, more.byteOffset, [9, 18]]);
  });

  test('copies the held part of a frame, so that the piece may be reused', () => {
    const scanner = new SseFrameScanner();
    const piece = Buffer.from('data: a');
    scanner.push(piece);
    piece.fill(0);
    expect(scanner.rest().toString()).toBe('data: a');
    expect(scanner.push(Buffer.from('\n\n')).bytes.toString()).toBe('data: a\n\n');
  });

  test('does not change with later pieces', () => {
    const scanner = new SseFrameScanner();
    scanner.push(Buffer.from('data: a'));
    const { bytes } = scanner.push(Buffer.from('\n\nxx'));
    scanner.push(Buffer.from('yyyyyyyyyyyyyyyy\n\nzzzz'));
    expect(bytes.toString()).toBe('data: a\n\n');
  });

  test('has a frame that arrived in many pieces', () => {
    const scanner = new SseFrameScanner();
    const text = `data: ${'abcdefghij'.repeat(50_000)}\n\n`;
    const frames: string[] = [];
    for (const byte of Buffer.from(text)) {
      const { bytes, ends } = scanner.push(Buffer.from([byte]));
      if (ends.length > 0) frames.push(bytes.toString());
    }
    expect(frames.length).toBe(1);
    expect(frames[0] === text).toBe(true);
    expect(scanner.rest().length).toBe(0);
  });
});

describe('the boundary', () => {
  test('is reached when nothing is held', () => {
    const scanner = new SseFrameScanner();
    const boundaries = ['', 'da', 'ta: a\n', '\n', 'data: b\n\nx', '\r', '\r', '\n', 'y'].map((piece) => {
      scanner.push(Buffer.from(piece));
      return scanner.rest().length === 0;
    });
    expect(boundaries).toEqual([true, false, false, true, false, false, true, true, false]);
  });

  test('may be followed by a comment without changing the events of the stream', () => {
    const stream = Buffer.from('data: a\r\n\r\ndata: b\r\rdata: c\n\n: x\r\n\r\nevent: e\r\ndata: d\r\n\r\n');
    const eventsOf = (bytes: Buffer) =>
      framesOf(bytes)
        .frames.map((frame) =>
          frame
            .toString()
            .split(/\r\n|\r|\n/)
            .filter((line) => /^[^:]/.test(line))
            .join('\n'),
        )
        .filter((lines) => lines !== '');
    for (let at = 0; at <= stream.length; at++) {
      const scanner = new SseFrameScanner();
      const out = [scanner.push(Buffer.from(stream.subarray(0, at))).bytes];
      if (scanner.rest().length === 0) out.push(Buffer.from(': keep-alive\n\n'));
      out.push(scanner.push(Buffer.from(stream.subarray(at))).bytes);
      expect(eventsOf(Buffer.concat(out)), `at ${at}`).toEqual([
        'data: a',
        'data: b',
        'data: c',
        'event: e\ndata: d',
      ]);
    }
  });
});

describe('the limit', () => {
  const tooLarge = expect.objectContaining({ code: 'upstream_unusable_response' });

  test('allows a frame of exactly this size, in one piece or many', () => {
    const frame = 'data: abcd\n\n';
    for (const pieces of [[frame], [...frame], [frame + frame, frame], ['data:', ' abcd\n\n']]) {
      const scanner = new SseFrameScanner(frame.length);
      const frames = pieces.flatMap((piece) => scanner.push(Buffer.from(piece)).ends).length;
      expect(frames).toBe(pieces.join('').length / frame.length);
    }
  });

  test('rejects one more byte, in one piece or many, complete or not', () => {
    const frame = 'data: abcde\n\n';
    for (const pieces of [
      [frame],
      [...frame],
      ['data: abcdefg'],
      ['data:', ' abcdefg'],
      ['data: abcd\n\n', frame],
    ]) {
      const scanner = new SseFrameScanner(12);
      expect(() => pieces.map((piece) => scanner.push(Buffer.from(piece)))).toThrow(tooLarge);
      expect(() => scanner.push(Buffer.from('\n\n'))).toThrow(tooLarge);
    }
  });

  test('returns earlier frames first, and rejects the next piece', () => {
    for (const piece of [
      'data: a\n\ndata: b\n\ndata: abcdefghi',
      'data: a\n\ndata: b\n\ndata: abcdefghi\n\ndata: c\n\n',
    ]) {
      const scanner = new SseFrameScanner(12);
      expect(scanner.push(Buffer.from(piece)).ends).toEqual([9, 18]);
      expect(scanner.rest().toString()).toBe(piece.slice(18));
      expect(() => scanner.push(Buffer.from('\n\n'))).toThrow(tooLarge);
      expect(() => scanner.push(Buffer.from('\n\n'))).toThrow(tooLarge);
    }
  });

  test('is 1 MiB by default', () => {
    expect(() => new SseFrameScanner().push(Buffer.alloc(1024 * 1024, 'x'))).not.toThrow();
    expect(() => new SseFrameScanner().push(Buffer.alloc(1024 * 1024 + 1, 'x'))).toThrow(tooLarge);
  });
});

describe('a frame without its surplus lines', () => {
  test.each([
    ['CR, then LF', 'data: a\rid: 1\n\n', 'data: a\r\n\n'],
    ['CR, then CRLF', 'data: a\rid: 1\r\n\n', 'data: a\r\n\n'],
    ['CR, then two of them', 'data: a\rid: 1\nretry: 2\n\n', 'data: a\r\n\n'],
    ['CR, then data', 'data: a\rid: 1\ndata: b\n\n', 'data: a\rdata: b\n\n'],
    ['LF', 'data: a\nid: 1\n\n', 'data: a\n\n'],
  ])('keeps its blank line: %s', (_, frame, left) => {
    const bytes = Buffer.from(frame);
    const spans = surplusFields(bytes, 0, bytes.length, false, true);
    if (spans === undefined || spans === 'all') throw new Error('there are surplus lines and others');
    const edits = spans.map((span) => ({ span, bytes: Buffer.alloc(0) }));
    expect(spliceSpans(bytes, edits).toString()).toBe(left);
  });
});

describe('any stream', () => {
  test('keeps all lines of a frame but the surplus ones', () => {
    fc.assert<unknown>(properties['a frame without its surplus lines has all its other lines'], {
      numRuns: 300,
    });
  });

  test('gives the same frames however it is cut', () => {
    fc.assert<unknown>(properties['the frames do not depend on how the stream is cut'], { numRuns: 300 });
  });

  test('gives the same facts however it is cut', () => {
    fc.assert<unknown>(properties['what was metered does not depend on how the stream is cut'], {
      numRuns: 200,
    });
  });
});
