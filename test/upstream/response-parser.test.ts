// The reader of answers: whatever is sent is understood in one way, however the bytes are cut, or refused.
// FUZZ_RUNS sets the number of runs of each property.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { InvalidResponse } from '../../src/upstream/http/response-head.ts';
import { type Progress, ResponseParser } from '../../src/upstream/http/response-parser.ts';
import type { ResponseHeaders } from '../../src/upstream/transport.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 500);

interface Reading {
  readonly status: number | undefined;
  readonly headers: ResponseHeaders | undefined;
  readonly body: string;
  /** `refused`, or how far it came; `closed` when only the end of the connection ended it. */
  readonly end: Progress | 'refused' | 'closed';
  /** Why it was refused, as the log has it. */
  readonly fault?: string | undefined;
}

/** Ends a line, a head, a chunk or a body, whatever it is taken for. */
const EARLIER = Buffer.from('\n\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n');

/** @param pieces the bytes, as they come from the connection, which then ends */
function read(pieces: readonly Buffer[]): Reading {
  let status: number | undefined;
  let headers: ResponseHeaders | undefined;
  const body: Buffer[] = [];
  const parser = new ResponseParser({
    onHead(...head) {
      expect(status).toBeUndefined();
      [status, headers] = head;
    },
    onBody(bytes, start, end) {
      expect(status).toBeDefined();
      expect(end).toBeGreaterThan(start);
      body.push(Buffer.from(bytes.subarray(start, end)));
    },
  });
  parser.expect();
  let end: Reading['end'] = 'open';
  let fault: string | undefined;
  try {
    for (const [index, piece] of pieces.entries()) {
      // The socket's memory is used again for the next piece, and holds more behind this one: what came before.
      const lent = Buffer.concat([piece, EARLIER]);
      end = parser.push(lent, piece.length);
      lent.fill(0);
      if (end !== 'open') {
        if (end === 'reusable' && index < pieces.length - 1) end = 'surplus';
        break;
      }
    }
    if (end === 'open' && parser.finish() === 'spent') end = 'closed';
  } catch (error) {
    expect(error).toBeInstanceOf(InvalidResponse);
    if (error instanceof Error) fault = error.message;
    end = 'refused';
  }
  return { status, headers, body: Buffer.concat(body).toString('latin1'), end, fault };
}

function attempt(push: () => Progress): Progress | 'refused' {
  try {
    return push();
  } catch (error) {
    expect(error).toBeInstanceOf(InvalidResponse);
    return 'refused';
  }
}

const whole = (text: string) => read([Buffer.from(text, 'latin1')]);
const bytewise = (text: string) => read(Array.from(Buffer.from(text, 'latin1'), (byte) => Buffer.of(byte)));

/** Nothing of it is kept in pieces that are cut at these places. */
function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [...new Set([0, ...places.map((place) => place % (bytes.length + 1)), bytes.length])].sort(
    (a, b) => a - b,
  );
  return at.slice(1).map((end, index) => bytes.subarray(at[index], end));
}

describe('an answer', () => {
  test.each<[string, string, Partial<Reading>]>([
    [
      'of known length',
      'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok',
      { status: 200, body: 'ok', end: 'reusable' },
    ],
    [
      'without a reason',
      'HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n',
      { status: 200, body: '', end: 'reusable' },
    ],
    ['with an empty reason', 'HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n', { status: 200, end: 'reusable' }],
    [
      'in chunks',
      'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
      { body: 'ok', end: 'reusable' },
    ],
    [
      'in chunks with extensions, blanks, capitals and trailers',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n002 ;a="b"\r\nok\r\nA\r\n0123456789\r\n0;x\r\nT: u\r\nv: w\r\n\r\n',
      { body: 'ok0123456789', end: 'reusable' },
    ],
    ['that ends with its connection', 'HTTP/1.1 200 OK\r\na: b\r\n\r\nok', { body: 'ok', end: 'closed' }],
    ['of HTTP/1.0', 'HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok', { body: 'ok', end: 'spent' }],
    [
      'of HTTP/1.0 that keeps the connection',
      'HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 2\r\n\r\nok',
      { body: 'ok', end: 'reusable' },
    ],
    [
      'that closes',
      'HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 2\r\n\r\nok',
      { body: 'ok', end: 'spent' },
    ],
    [
      'without content',
      'HTTP/1.1 204 No Content\r\na: b\r\n\r\n',
      { status: 204, body: '', end: 'reusable' },
    ],
    [
      'with more behind it',
      'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokay',
      { body: 'ok', end: 'surplus' },
    ],
    [
      'with a second one behind it',
      `${'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'.repeat(2)}`,
      { body: 'ok', end: 'surplus' },
    ],
    [
      'behind an interim one',
      'HTTP/1.1 103 Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n',
      { status: 200, end: 'reusable' },
    ],
    [
      'with a status that nobody knows',
      'HTTP/1.1 999 ?\r\ncontent-length: 0\r\n\r\n',
      { status: 999, end: 'reusable' },
    ],
  ])('%s', (_name, text, expected) => {
    expect(whole(text)).toMatchObject(expected);
    expect(bytewise(text)).toMatchObject({
      ...expected,
      ...(expected.end === 'reusable' ? {} : { end: expected.end }),
    });
  });

  test('has the headers that are read, in lower case, without blanks around their values, several as a list', () => {
    const { headers } = whole(
      'HTTP/1.1 200 OK\r\nRetry-After:1\r\nx-request-id: \t2 3\t \r\nretry-after: 4\r\nset-cookie: a=b\r\nOpenAI-Version:\r\n__proto__: p\r\nconstructor: c\r\nretry-after: 5\r\ncontent-length: 0\r\n\r\n',
    );
    expect(headers).toEqual({
      'retry-after': ['1', '4', '5'],
      'x-request-id': '2 3',
      'openai-version': '',
      'content-length': '0',
    });
  });
});

describe('is refused:', () => {
  const ok = 'HTTP/1.1 200 OK\r\n';
  const chunked = `${ok}transfer-encoding: chunked\r\n\r\n`;
  test.each([
    [
      'two kinds of length',
      `${ok}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n`,
      'both content-length and transfer-encoding',
    ],
    ['two lengths', `${ok}content-length: 2\r\ncontent-length: 3\r\n\r\n`, 'an invalid content-length'],
    ['one length twice', `${ok}content-length: 2\r\ncontent-length: 2\r\n\r\n`, 'an invalid content-length'],
    ['a list of lengths', `${ok}content-length: 2, 2\r\n\r\n`, 'an invalid content-length'],
    ['a negative length', `${ok}content-length: -2\r\n\r\n`, 'an invalid content-length'],
    ['a length with a sign', `${ok}content-length: +2\r\n\r\n`, 'an invalid content-length'],
    ['an empty length', `${ok}content-length:\r\n\r\n`, 'an invalid content-length'],
    ['a length of 2^64', `${ok}content-length: 18446744073709551616\r\n\r\n`, 'an invalid content-length'],
    ['a hexadecimal length', `${ok}content-length: 0x2\r\n\r\n`, 'an invalid content-length'],
    [
      'a coding that is not chunked',
      `${ok}transfer-encoding: gzip\r\n\r\n`,
      'a transfer coding other than chunked',
    ],
    ['two codings', `${ok}transfer-encoding: gzip, chunked\r\n\r\n`, 'a transfer coding other than chunked'],
    [
      'an empty coding before chunked',
      `${ok}transfer-encoding: ,chunked\r\n\r\n`,
      'a transfer coding other than chunked',
    ],
    [
      'chunked twice',
      `${ok}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n`,
      'a transfer coding other than chunked',
    ],
    ['a chunk in 0x', `${chunked}0x2\r\nok\r\n`, 'a chunk size that is not hexadecimal'],
    ['a chunk with a sign', `${chunked}-2\r\nok\r\n`, 'a chunk size that is not hexadecimal'],
    ['a chunk without a size', `${chunked}\r\nok\r\n`, 'a chunk without a size'],
    [
      'a chunk with an extension and no size',
      `${chunked};a\r\nok\r\n`,
      'a chunk size that is not hexadecimal',
    ],
    ['a chunk of 2^64', `${chunked}10000000000000000\r\nok\r\n`, 'a chunk size with too many digits'],
    ['a chunk that is longer', `${chunked}2\r\nokay\r\n`, 'chunk data longer than the chunk size'],
    ['a chunk line that ends in LF', `${chunked}2\nok\r\n`, 'a chunk size that is not hexadecimal'],
    ['a chunk line that ends in CR', `${chunked}2\rok\r\n`, 'a chunk size line without CRLF'],
    ['a chunk that ends in LF', `${chunked}2\r\nok\n0\r\n\r\n`, 'chunk data longer than the chunk size'],
    [
      'a chunk with NUL in its extension',
      `${chunked}2;\0\r\nok\r\n`,
      'a control character in a chunk extension',
    ],
    ['a long extension', `${chunked}2;${'x'.repeat(5_000)}\r\nok\r\n`, 'a chunk extension that is too long'],
    ['trailers without end', `${chunked}0\r\n${'a: b\r\n'.repeat(5_000)}`, 'trailers that are too long'],
    ['a trailer that ends in LF', `${chunked}0\r\na: b\n\r\n`, 'a control character in a trailer'],
    ['a head that ends in LF', 'HTTP/1.1 200 OK\ncontent-length: 0\n\n\r\n\r\n', 'an invalid status line'],
    [
      'a head that ends in LF, and nothing behind it',
      'HTTP/1.1 200 OK\ncontent-length: 0\n\n',
      'a line in the head without CRLF',
    ],
    ['a head whose last lines end in LF', `${ok}content-length: 0\n\n`, 'a line in the head without CRLF'],
    ['LF in a head', `${ok}a: b\nc: d\r\n\r\n`, 'an invalid character in the head'],
    ['CR in a head', `${ok}a: b\rc: d\r\n\r\n`, 'an invalid character in the head'],
    ['NUL in a head', `${ok}a: b\0c\r\n\r\n`, 'an invalid character in the head'],
    ['a line that goes on', `${ok}a: b\r\n c\r\n\r\n`, 'an invalid header line'],
    ['a blank before the colon', `${ok}a : b\r\n\r\n`, 'an invalid header line'],
    ['no colon', `${ok}a\r\n\r\n`, 'an invalid header line'],
    ['no name', `${ok}: b\r\n\r\n`, 'an invalid header line'],
    ['a name with a blank', `${ok}a b: c\r\n\r\n`, 'an invalid header line'],
    ['a head of 32 KiB', `${ok}a: ${'x'.repeat(32 * 1024)}\r\n\r\n`, 'a head of more than 16384 bytes'],
    ['a head without end', `${ok}a: ${'x'.repeat(17 * 1024)}`, 'a head of more than 16384 bytes'],
    ['a status of 99', 'HTTP/1.1 099 x\r\n\r\n', 'an invalid status line'],
    ['a status of two digits', 'HTTP/1.1 99 x\r\n\r\n', 'an invalid status line'],
    ['a status of four digits', 'HTTP/1.1 2000 x\r\n\r\n', 'an invalid status line'],
    ['a negative status', 'HTTP/1.1 -20 x\r\n\r\n', 'an invalid status line'],
    ['garbage', 'hello there', 'bytes that are not an HTTP response'],
    ['HTTP/0.9', '<html>hello</html>', 'bytes that are not an HTTP response'],
    ['HTTP/2.0', 'HTTP/2.0 200 OK\r\n\r\n', 'an invalid status line'],
    ['a frame of HTTP/2', '\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80', 'bytes that are not an HTTP response'],
    ['TLS', '\x15\x03\x01\0\x02\x02\x46', 'bytes that are not an HTTP response'],
    ['a request', 'GET / HTTP/1.1\r\n\r\n', 'an invalid status line'],
    ['blanks before', ' HTTP/1.1 200 OK\r\n\r\n', 'an invalid status line'],
    ['an empty line before', '\r\nHTTP/1.1 200 OK\r\n\r\n', 'an invalid status line'],
    ['a change of protocol', 'HTTP/1.1 101 x\r\nupgrade: h2c\r\n\r\n', 'an unexpected protocol switch (101)'],
    ['fifty interim answers', 'HTTP/1.1 100 Continue\r\n\r\n'.repeat(50), 'more than 5 interim responses'],
  ])('%s', (_name, text, fault) => {
    expect(whole(text).fault).toBe(fault);
    expect([whole(text).end, bytewise(text).end]).toEqual(['refused', 'refused']);
    expect(whole(text).status === undefined || text.includes('chunked')).toBe(true);
  });
});

test.each([
  ['nothing', ''],
  ['half a head', 'HTTP/1.1 200 OK\r\ncontent-le'],
  ['an interim answer alone', 'HTTP/1.1 100 Continue\r\n\r\n'],
  ['less than its length', 'HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok'],
  ['half a chunk', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nok'],
  ['no last chunk', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n'],
  ['a last chunk without its end', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n'],
])('an answer that was cut is not complete: %s', (_name, text) => {
  expect([whole(text).end, bytewise(text).end]).toEqual(['open', 'open']);
});

// --- properties -----------------------------------------------------------------------------------------------------

const bodyText = fc.string({
  unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)),
  maxLength: 60,
});
const token = fc
  .stringMatching(/^[a-z][a-z0-9-]{0,8}$/)
  .filter((name) => !/^(content-length|transfer-encoding|connection)$/.test(name));
const value = fc.stringMatching(/^[!-~]?[ -~]{0,12}$/);

const valid = fc
  .record({
    interim: fc.integer({ min: 0, max: 5 }),
    status: fc.integer({ min: 200, max: 599 }).filter((status) => status !== 204 && status !== 304),
    headers: fc.array(fc.tuple(token, value), { maxLength: 4 }),
    parts: fc.array(bodyText, { maxLength: 4 }),
    framing: fc.constantFrom<'length' | 'chunked' | 'close'>('length', 'chunked', 'close'),
    extension: fc.constantFrom('', ';a', ' ; a=b'),
    trailers: fc.array(fc.tuple(token, value), { maxLength: 2 }),
  })
  .map(({ interim, status, headers, parts, framing, extension, trailers }) => {
    const body = parts.join('');
    const lines = (some: readonly (readonly [string, string])[]) =>
      some.map(([n, v]) => `${n}: ${v}\r\n`).join('');
    const frame = {
      length: `content-length: ${body.length}\r\n`,
      chunked: 'transfer-encoding: chunked\r\n',
      close: '',
    };
    const chunks = parts
      .filter((part) => part !== '')
      .map((part) => `${part.length.toString(16)}${extension}\r\n${part}\r\n`);
    const content = framing === 'chunked' ? `${chunks.join('')}0\r\n${lines(trailers)}\r\n` : body;
    return {
      text: `${'HTTP/1.1 102 x\r\n\r\n'.repeat(interim)}HTTP/1.1 ${status} x\r\n${lines(headers)}${frame[framing]}\r\n${content}`,
      expected: { status, body, end: framing === 'close' ? 'closed' : 'reusable' } as const,
    };
  });

test('what is valid is read as it was meant, however it is cut', () => {
  fc.assert(
    fc.property(valid, fc.array(fc.nat(2_000), { maxLength: 8 }), ({ text, expected }, places) => {
      expect(read(cut(Buffer.from(text, 'latin1'), places))).toMatchObject(expected);
    }),
    { numRuns: RUNS },
  );
});

test('what is spoiled is read in one way or refused, however it is cut, and is never read past its end', () => {
  const spoil = fc.record({
    at: fc.nat(400),
    remove: fc.nat(3),
    insert: fc.constantFrom(
      '',
      '\r',
      '\n',
      '\r\n',
      '\0',
      ' ',
      ':',
      '0',
      'f',
      ';',
      '\r\n\r\n',
      'content-length: 3\r\n',
      'transfer-encoding: chunked\r\n',
    ),
  });
  fc.assert(
    fc.property(
      valid,
      fc.array(spoil, { minLength: 1, maxLength: 3 }),
      fc.array(fc.nat(2_000), { maxLength: 8 }),
      ({ text }, spoils, places) => {
        let spoiled = text;
        for (const { at, remove, insert } of spoils) {
          const place = at % (spoiled.length + 1);
          spoiled = spoiled.slice(0, place) + insert + spoiled.slice(place + remove);
        }
        const bytes = Buffer.from(spoiled, 'latin1');
        const once = read([bytes]);
        const inPieces = read(cut(bytes, places));
        // What is refused may have been refused before or behind a part of the body, which depends on the pieces.
        if (once.end === 'refused') expect(inPieces.end).toBe('refused');
        else expect(inPieces).toEqual(once);
      },
    ),
    { numRuns: RUNS },
  );
});

test('an answer reads the same after any other of its origin', () => {
  const line = fc.constantFrom(
    'retry-after: 1\r\n',
    'Retry-After: 1\r\n',
    'retry-after: 12\r\n',
    'retry-after: 1\r\r\n',
    'retry-after: 1\n\r\n',
    'retry-after: 1\0\r\n',
    'retry-after : 1\r\n',
    ' retry-after: 1\r\n',
    'x-request-id: retry-after: 1\r\n',
    'server: a\r\n',
    'server: b\r\n',
    'content-length: 0\r\n',
  );
  const lines = fc.array<string>(line, { maxLength: 70 });
  const edit = fc.record({
    at: fc.nat(70),
    more: fc.array<string>(line, { maxLength: 2 }),
    repeats: fc.constantFrom(1, 20),
  });
  // Heads of an origin have most lines in common, and lines that have long been the same are compared together.
  const heads = fc.tuple(lines, fc.array(edit, { minLength: 1, maxLength: 4 })).map(([first, edits]) => {
    const headOf = ({ at, more }: { at: number; more: string[] }) =>
      `HTTP/1.1 204 x\r\n${first.toSpliced(at, 1, ...more).join('')}\r\n`;
    return edits.flatMap((each) => Array.from({ length: each.repeats }, () => headOf(each)));
  });
  fc.assert(
    fc.property(heads, (texts) => {
      let headers: ResponseHeaders | undefined;
      const parser = new ResponseParser({
        onHead(_, given) {
          headers = given;
        },
        onBody() {},
      });
      for (const text of texts) {
        const alone = whole(text);
        headers = undefined;
        parser.expect();
        const after = attempt(() => parser.push(Buffer.from(text, 'latin1')));
        expect({ end: after, headers }).toEqual({ end: alone.end, headers: alone.headers });
        if (after === 'refused') break;
      }
    }),
    { numRuns: RUNS },
  );
});

test('any bytes are answered with a reading or a refusal', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), fc.boolean(), (bytes, headed) => {
      const head = headed ? 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n' : '';
      const all = Buffer.concat([Buffer.from(head), bytes]);
      expect(['refused', 'open', 'closed', 'reusable', 'spent', 'surplus']).toContain(read([all]).end);
    }),
    { numRuns: RUNS },
  );
});
