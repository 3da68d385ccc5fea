// The scanner of forms: it finds every part wherever the network cut the bytes, and refuses what two readers could read
// differently.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { MultipartParser, type PartPosition } from '../../src/http/multipart/multipart-parser.ts';
import { boundaryOf, type PartHead } from '../../src/http/multipart/part-head.ts';

const B = 'x-boundary';

interface Seen {
  readonly parts: { head: PartHead; place: PartPosition; content: string }[];
  readonly closedAt: number;
}

/** What the scanner finds in a body that comes in these pieces, or what it says is wrong with it. */
function scan(pieces: readonly Buffer[], boundary = B): Seen | string {
  const parts: Seen['parts'] = [];
  let closedAt = -1;
  let head: PartHead | undefined;
  let content: Buffer[] = [];
  const scanner = new MultipartParser(boundary, {
    onPart(found) {
      head = found;
      content = [];
      return true;
    },
    onContent: (bytes) => void content.push(Buffer.from(bytes)),
    onPartEnd(place) {
      if (head !== undefined) parts.push({ head, place, content: Buffer.concat(content).toString('latin1') });
    },
    onClose(at) {
      closedAt = at;
    },
  });
  try {
    for (const piece of pieces) scanner.push(piece);
    scanner.end();
    return { parts, closedAt };
  } catch (error) {
    if (error instanceof GatewayError) return error.message;
    throw error;
  }
}

const once = (body: string, boundary = B) => scan([Buffer.from(body, 'latin1')], boundary);
const disposition = (rest: string) => `content-disposition: form-data; ${rest}`;
const part = (name: string, content: string, headers = '') =>
  `--${B}\r\n${disposition(`name="${name}"`)}${headers}\r\n\r\n${content}\r\n`;

/** Cuts bytes at the given places. */
function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [0, ...places.map((place) => place % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  return at.slice(1).map((end, index) => bytes.subarray(at[index], end));
}

/** Texts in which beginnings of boundaries and line ends of all kinds are likely. */
const nasty = fc
  .array(
    fc.constantFrom('a', '\r', '\n', '\r\n', '-', '--', '--x', `--${B.slice(0, -1)}`, `x--${B}`, B, '\0'),
    {
      maxLength: 12,
    },
  )
  .map((words) => words.join(''));

test('any form is parsed, in any pieces', () => {
  const forms = fc.array(fc.tuple(fc.constantFrom('a', 'model', 'file'), nasty), { maxLength: 5 });
  fc.assert(
    fc.property(forms, fc.array(fc.nat(), { maxLength: 20 }), (fields, places) => {
      const body = `${fields.map(([name, content]) => part(name, content)).join('')}--${B}--\r\n`;
      const bytes = Buffer.from(body, 'latin1');
      const seen = scan(cut(bytes, places));
      // A boundary at the beginning of a content, or behind half a line end, is refused.
      const isAmbiguous = fields.some(([, content]) => new RegExp(`(^|[\\r\\n])--${B}`).test(content));
      if (isAmbiguous) {
        expect(seen).toBeTypeOf('string');
        return;
      }
      if (typeof seen === 'string') throw new Error(seen);
      expect(seen.parts.map(({ head, content }) => [head.name, content])).toEqual(fields);
      for (const { place, content } of seen.parts) {
        expect(body.slice(place.contentStart, place.contentEnd)).toBe(content);
        expect(body.startsWith(`--${B}\r\n`, place.start)).toBe(true);
        expect(body.startsWith(`--${B}`, place.end)).toBe(true);
      }
      expect(seen.closedAt).toBe(body.length - `--${B}--\r\n`.length);
    }),
    { numRuns: 300 },
  );
});

test('any bytes have the same result in any pieces', () => {
  const words = fc.constantFrom(
    `--${B}`,
    '\r\n',
    '\n',
    '--',
    ':',
    ' ',
    disposition('name="model"'),
    disposition('name=a; filename="b"'),
    'content-type: text/plain',
    '\r\n\r\n',
    'x',
  );
  const begun = fc.array(words, { maxLength: 16 }).map((list) => list.join(''));
  const filler = 'x'.repeat(8150);
  const any = fc.oneof(
    begun,
    begun.map((rest) => `${filler}${rest}`),
    begun.map((rest) => `${part('a', 'b')}--${B}--\r\n${filler}${rest}`),
    begun.map((rest) => `${part('a', 'b')}${rest}`),
  );
  fc.assert(
    fc.property(any, fc.array(fc.nat(), { maxLength: 30 }), (body, places) => {
      const bytes = Buffer.from(body, 'latin1');
      expect(scan(cut(bytes, places))).toEqual(scan([bytes]));
    }),
    { numRuns: 500 },
  );
});

test('byte by byte has the same result', () => {
  const body = `${part('model', 'm')}${part('file', `\r\n--${B.slice(0, 4)}\r\n`)}--${B}--`;
  const bytes = Buffer.from(body, 'latin1');
  const each = [...bytes].map((byte) => Buffer.of(byte));
  expect(scan(each)).toEqual(scan([bytes]));
  expect(scan(each)).toMatchObject({ parts: [{ content: 'm' }, {}] });
});

test.each([
  ['an empty line in front', '\r\n', ''],
  ['several', '\r\n\r\n\r\n', ''],
  ['a preamble', 'This is a message in multipart format.\r\n-- x-boundary\r\n', ''],
  ['an empty line behind', '', '\r\n'],
  ['an epilogue', '', 'the end\r\n\n--x'],
  ['both', '\r\n', '\r\n\r\n'],
])('preamble and epilogue of RFC 2046 are ignored: %s', (_what, preamble, epilogue) => {
  const parts = `${part('a', 'b')}${part('file', 'c\r\n')}`;
  const bytes = Buffer.from(`${preamble}${parts}--${B}--\r\n${epilogue}`, 'latin1');
  const seen = scan([bytes]);
  if (typeof seen === 'string') throw new Error(seen);
  expect(seen.parts.map(({ head, content }) => [head.name, content])).toEqual([
    ['a', 'b'],
    ['file', 'c\r\n'],
  ]);
  expect(seen.parts[0]?.place.start).toBe(preamble.length);
  expect(seen.closedAt).toBe(preamble.length + parts.length);
  expect(scan([...bytes].map((byte) => Buffer.of(byte)))).toEqual(seen);
});

describe('is rejected with a reason and an offset', () => {
  const good = part('a', 'b');
  const end = `--${B}--\r\n`;
  const withHead = (lines: string) => `--${B}\r\n${lines}\r\n\r\nx\r\n${end}`;
  test.each([
    ['an empty body', '', 'it ends before its last boundary is complete, at byte 0'],
    [
      'a first boundary within a line',
      `hello${good}${end}`,
      'its first boundary does not begin a line, at byte 0',
    ],
    ['a first boundary behind LF', `\n${good}${end}`, 'its first boundary does not begin a line'],
    ['a first boundary behind CR', `\r${good}${end}`, 'its first boundary does not begin a line'],
    [
      'a long preamble',
      `${'x'.repeat(9000)}\r\n${good}${end}`,
      'does not begin within 8192 bytes, at byte 0',
    ],
    ['no boundary', 'x'.repeat(9000), 'does not begin within 8192 bytes, at byte 0'],
    ['a short body without one', 'hello', 'it ends before its last boundary is complete, at byte 5'],
    ['another boundary', (good + end).replaceAll(B, 'y-boundary'), 'it ends before its last boundary'],
    ['no last boundary', good, 'it ends before its last boundary'],
    ['half a last boundary', `${good}--${B}-`, 'it ends before its last boundary'],
    ['text on the line of the last boundary', `${good}--${B}--more\r\n`, 'is not followed by a line end'],
    ['LF behind the last boundary', `${good}--${B}--\n`, 'its last boundary is not followed by a line end'],
    ['half a line end behind it', `${good}--${B}--\r`, 'it ends before its last boundary is complete'],
    ['another form behind it', `${good}${end}${good}${end}`, 'a boundary follows its last boundary'],
    ['a boundary within the epilogue', `${good}${end}more--${B}`, 'a boundary follows its last boundary'],
    ['a long epilogue', `${good}${end}${'x'.repeat(9000)}`, 'more than 8192 bytes follow its last boundary'],
    ['a longer boundary', `${good}--${B}1\r\n`, 'a boundary is not followed by a line end'],
    ['padding', `--${B} \r\n`, 'a boundary is not followed by a line end, at byte'],
    [
      'LF alone',
      `--${B}\n${disposition('name="a"')}\n\nx\n${end}`,
      'a boundary is not followed by a line end',
    ],
    ['a boundary behind LF', `${part('a', `b\n--${B}\r\nc`)}${end}`, 'a boundary is not preceded by CRLF'],
    ['a boundary behind CR', `${part('a', `b\r--${B}\r\nc`)}${end}`, 'a boundary is not preceded by CRLF'],
    [
      'a boundary behind the head',
      `--${B}\r\n${disposition('name=a')}\r\n\r\n--${B}--`,
      'is not preceded by CRLF',
    ],
    ['no headers', `--${B}\r\n\r\n\r\nx\r\n${end}`, 'a header of a part is malformed'],
    ['no content-disposition', withHead('content-type: text/plain'), 'a part has no content-disposition'],
    [
      'two of them',
      withHead(`${disposition('name="a"')}\r\nContent-Disposition: form-data; name="model"`),
      'a part has more than one content-disposition',
    ],
    [
      'two names',
      withHead(disposition('name="a"; name="model"')),
      'content-disposition of a part is malformed',
    ],
    ['two names in two cases', withHead(disposition('name="a"; NAME="model"')), 'is malformed'],
    ['no name', withHead(disposition('filename="a"')), 'the content-disposition of a part is malformed'],
    ['an attachment', withHead('content-disposition: attachment; name="a"'), 'is malformed'],
    [
      'an encoded name',
      withHead(disposition(`name="a"; name*=utf-8''model`)),
      'the name of a part is encoded',
    ],
    ['a quote behind a backslash', withHead(disposition('name="a\\"; name=\\"model"')), 'is malformed'],
    ['an open quote', withHead(disposition('name="a')), 'is malformed'],
    ['words without quotes', withHead(disposition('name=a b')), 'is malformed'],
    [
      'a folded line',
      withHead(`content-disposition: form-data;\r\n name="a"`),
      'a header of a part is malformed',
    ],
    ['LF in the headers', withHead(`${disposition('name="a"')}\nx: y`), 'a header of a part is malformed'],
    ['NUL in the headers', withHead(disposition('name="a\0"')), 'a header of a part is malformed'],
    ['a space before the colon', withHead('content-disposition : form-data; name="a"'), 'is malformed'],
    [
      'base64',
      withHead(`${disposition('name="a"')}\r\ncontent-transfer-encoding: base64`),
      'a part has a transfer encoding',
    ],
    ['gzip', withHead(`${disposition('name="a"')}\r\ncontent-encoding: gzip`), 'a part has a content coding'],
    [
      'a form in the form',
      withHead(`${disposition('name="a"')}\r\ncontent-type: Multipart/mixed; boundary=y`),
      'a part is itself multipart',
    ],
    [
      'two types',
      withHead(`${disposition('name="a"')}\r\ncontent-type: a/b\r\ncontent-type: a/b`),
      'a part has more than one content-type',
    ],
    [
      'long headers',
      withHead(`${disposition('name="a"')}\r\nx: ${'y'.repeat(9000)}`),
      'more than 8192 bytes',
    ],
    ['long headers without end', `--${B}\r\n${'y'.repeat(9000)}`, 'more than 8192 bytes'],
    ['very many parts', good.repeat(1001), 'it has more than 1000 parts'],
  ])('%s', (_name, body, what) => {
    expect(once(body)).toContain(what);
    expect(once(body)).toMatch(/^The form is not valid: .*, at byte \d+\.$/);
  });
});

test.each([
  ['a name without quotes', 'name=a', { name: 'a', isFile: false }],
  ['names in any case', 'Name="a"; FileName="b"', { name: 'a', isFile: true }],
  ['a file name with a path', 'name="a"; filename="C:\\dir\\b.mp3"', { name: 'a', isFile: true }],
  ['an encoded file name', `name="a"; filename*=utf-8''n%C3%A4`, { name: 'a', isFile: true }],
  ['a semicolon within quotes', 'name="a;name=b"', { name: 'a;name=b', isFile: false }],
  ['a semicolon at the end', 'name="a";', { name: 'a', isFile: false }],
])('is accepted: %s', (_name, rest, head) => {
  const body = `--${B}\r\n${disposition(rest)}\r\nContent-Length: 1\r\ncontent-transfer-encoding: 8BIT\r\n\r\nx\r\n--${B}--`;
  expect(once(body)).toMatchObject({ parts: [{ head, content: 'x' }] });
});

describe('the boundary', () => {
  const type = 'multipart/form-data';
  test.each([
    [`${type}; boundary=abc`, 'abc'],
    [`${type};boundary="a b:c"`, 'a b:c'],
    [`${type}; charset=utf-8; Boundary=----WebKitFormBoundaryX`, '----WebKitFormBoundaryX'],
  ])('of %s', (header, boundary) => {
    expect(boundaryOf(header)).toBe(boundary);
  });

  test.each([
    type,
    `${type}; boundary=`,
    `${type}; boundary=""`,
    `${type}; boundary="a "`,
    `${type}; boundary=a; boundary=b`,
    `${type}; boundary=${'a'.repeat(71)}`,
    `${type}; boundary="a\\"b"`,
    `${type}; boundary=a b`,
    `${type}; boundary=ä`,
  ])('of %s is none', (header) => {
    expect(() => boundaryOf(header)).toThrow(expect.objectContaining({ code: 'invalid_form' }));
  });
});
