import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decodeString, JsonScanner, MAX_DEPTH } from '../../src/wire/json/json.ts';
import { properties } from '../fuzz/properties.ts';

/** Scans the text as it is; the fault and where, or null. */
function faultOf(text: string | Buffer): string | null {
  const bytes = Buffer.from(text);
  const scanner = new JsonScanner();
  scanner.reset(bytes);
  scanner.skipValue();
  return scanner.finish() ? null : `${scanner.fault} @${scanner.faultAt}`;
}

/** The top-level keys that are `name`, by place, and whether the whole text was valid. */
function membersNamed(text: string, name: string): number[] {
  const scanner = new JsonScanner();
  scanner.reset(Buffer.from(text));
  const places: number[] = [];
  expect(scanner.enterObject()).toBe(true);
  for (let place = 0; scanner.nextMember(); place++) {
    if (scanner.keyIs(name)) places.push(place);
    scanner.skipValue();
  }
  expect(scanner.finish()).toBe(true);
  return places;
}

describe('what is JSON', () => {
  test.each([
    ['null', 'true', 'false', '""', '[]', '{}', '0', '-0', '10', '1.0', '0.1000000000000000055'],
    ['1e3', '1E+3', '-1.5e-10', '0e0', '12345678901234567890', '9223372036854775807', '1e999'],
    [' \t\r\n1 \t\r\n', '[1 , 2]', '{ "a" : 1 , "b" : [ ] }', '{"":{}}', '[[],[[]]]', '{"a":1,"a":2}'],
    ['"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\u00e9\\uD83D\\ude00"', '"\\ud800"', '"é😀\u2028\x7f"', '"\\u0000"'],
  ])('%s and its like are', (...texts) => {
    for (const text of texts) {
      expect(() => JSON.parse(text)).not.toThrow();
      expect(faultOf(text), text).toBeNull();
    }
  });

  test.each([
    ['', 'it ends too early @0'],
    ['  ', 'it ends too early @2'],
    ['{', 'it ends too early @1'],
    ['[1', 'it ends too early @2'],
    ['[1,', 'it ends too early @3'],
    ['{"a"', 'it ends too early @4'],
    ['{"a":', 'it ends too early @5'],
    ['{"a":1', 'it ends too early @6'],
    ['"abc', 'it ends too early @4'],
    ['"abc\\', 'it ends too early @5'],
    ['"\\u12', 'it ends too early @5'],
    ['tru', 'it ends too early @3'],
    ['-', 'it ends too early @1'],
    ['1.', 'it ends too early @2'],
    ['1e', 'it ends too early @2'],
    ['1e+', 'it ends too early @3'],
    ['[1,]', 'unexpected byte @3'],
    ['[,1]', 'unexpected byte @1'],
    ['[1 2]', 'unexpected byte @3'],
    ['[1}', 'unexpected byte @2'],
    ['{"a":1]', 'unexpected byte @6'],
    ['{"a":1,}', 'unexpected byte @7'],
    ['{,}', 'unexpected byte @1'],
    ['{a:1}', 'unexpected byte @1'],
    ["{'a':1}", 'unexpected byte @1'],
    ['{"a" 1}', 'unexpected byte @5'],
    ['{"a"::1}', 'unexpected byte @5'],
    ['{1:1}', 'unexpected byte @1'],
    ['{"a":1 "b":2}', 'unexpected byte @7'],
    ['True', 'unexpected byte @0'],
    ['nul1', 'unexpected byte @3'],
    ['[falsXe,12345678]', 'unexpected byte @5'],
    ['NaN', 'unexpected byte @0'],
    ['+1', 'unexpected byte @0'],
    ['.5', 'unexpected byte @0'],
    ['1.e3', 'unexpected byte @2'],
    ['-a', 'unexpected byte @1'],
    ['1e+a', 'unexpected byte @3'],
    ['/**/1', 'unexpected byte @0'],
    ['\ufeff1', 'unexpected byte @0'],
    ['\u00a01', 'unexpected byte @0'],
    ['\x0b1', 'unexpected byte @0'],
    ['\f1', 'unexpected byte @0'],
    ['[\0]', 'unexpected byte @1'],
    ['01', 'more bytes after the value @1'],
    ['[01]', 'unexpected byte @2'],
    ['-01', 'more bytes after the value @2'],
    ['1d5', 'more bytes after the value @1'],
    ['1D5', 'more bytes after the value @1'],
    ['1a', 'more bytes after the value @1'],
    ['0x1', 'more bytes after the value @1'],
    ['{}{}', 'more bytes after the value @2'],
    ['{},', 'more bytes after the value @2'],
    ['"a"b', 'more bytes after the value @3'],
    ['nullx', 'more bytes after the value @4'],
    ['"a\nb"', 'raw control character in a string @2'],
    ['"\0"', 'raw control character in a string @1'],
    ['{"a\tb":1}', 'raw control character in a string @3'],
    ['"\\x"', 'invalid escape in a string @2'],
    ['"\\u12g4"', 'invalid escape in a string @5'],
    ['"\\U0041"', 'invalid escape in a string @2'],
    ['"\\\'"', 'invalid escape in a string @2'],
    ['"\\\n"', 'invalid escape in a string @2'],
  ])('%j is not', (text, fault) => {
    expect(() => JSON.parse(text)).toThrow();
    expect(faultOf(text)).toBe(fault);
  });

  test('a special byte is found at every position of a long string, at any memory offset', () => {
    for (let shift = 0; shift < 4; shift++) {
      for (let at = 0; at < 40; at++) {
        const text = (middle: string) => `"${'x'.repeat(at)}${middle}${'é'.repeat(12)}"`;
        const scan = (json: string) => {
          const bytes = Buffer.alloc(shift + Buffer.byteLength(json), 0x20);
          bytes.write(json, shift);
          return faultOf(bytes.subarray(shift));
        };
        expect(scan(text(''))).toBeNull();
        expect(scan(text('\\"'))).toBeNull();
        expect(scan(text('\\\\'))).toBeNull();
        for (const control of ['\0', '\n', '\x1f']) {
          expect(scan(text(control))).toBe(`raw control character in a string @${at + 1}`);
        }
        expect(scan(text('"'))).toBe(`more bytes after the value @${at + 2}`);
        expect(scan(text('\\q'))).toBe(`invalid escape in a string @${at + 2}`);
      }
    }
  });

  test('every byte from 0x20 except quote and backslash is plain in a string, lower ones are rejected', () => {
    for (let byte = 0; byte < 256; byte++) {
      const text = Buffer.concat([Buffer.from('"abcdefg'), Buffer.from([byte]), Buffer.from('hijklmnop"')]);
      const isPlain = byte >= 0x20 && byte !== 0x22 && byte !== 0x5c;
      expect(faultOf(text) === null, `byte ${byte}`).toBe(isPlain);
    }
  });

  test('a backslash and u are followed by four hexadecimal digits', () => {
    for (let byte = 0; byte < 256; byte++) {
      for (let place = 0; place < 4; place++) {
        const text = Buffer.from('"\\u0000"');
        text[3 + place] = byte;
        expect(faultOf(text) === null, `byte ${byte}`).toBe(/^[0-9a-fA-F]$/.test(String.fromCharCode(byte)));
      }
    }
  });

  test('no byte behind the range is read', () => {
    for (const [text, tail] of [
      ['[1', ']'],
      ['"abcdef', '"'],
      ['"abcdefghijklmnop', 'qrst"'],
      ['"\\', '""'],
      ['"\\u00', '41"'],
      ['{"a"', ':1}'],
      ['{"a":', '1}'],
      ['tr', 'ue'],
      ['-', '1'],
      ['1.', '5'],
      ['1e', '5'],
      ['1e-', '5'],
      ['', '1'],
    ] as const) {
      const scanner = new JsonScanner();
      scanner.reset(Buffer.from(text + tail), 0, text.length);
      scanner.skipValue();
      expect(scanner.finish(), text).toBe(false);
      expect(scanner.faultAt, text).toBe(text.length);
    }
    const scanner = new JsonScanner();
    scanner.reset(Buffer.from('12345'), 1, 3);
    expect(scanner.skipValue() && scanner.pos).toBe(3);
    expect(scanner.finish()).toBe(true);
  });

  test('1000 nested containers are the maximum, and depth costs no stack', () => {
    const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
    expect(faultOf(nested(MAX_DEPTH))).toBeNull();
    expect(faultOf(nested(MAX_DEPTH + 1))).toBe('nested deeper than 1000 levels @1000');
    expect(faultOf('['.repeat(100_000))).toBe('nested deeper than 1000 levels @1000');
    expect(faultOf('{"a":'.repeat(100_000))).toBe('nested deeper than 1000 levels @5000');
    expect(faultOf(`[${nested(MAX_DEPTH - 1)},${nested(MAX_DEPTH - 1)}]`)).toBeNull();
    // Containers that the caller entered count too.
    const scanner = new JsonScanner();
    scanner.reset(Buffer.from(`{"a":[${nested(MAX_DEPTH - 1)}]}`));
    expect(scanner.enterObject() && scanner.nextMember() && scanner.enterArray()).toBe(true);
    expect(scanner.skipValue()).toBe(false);
    expect(scanner.fault).toBe('nested deeper than 1000 levels');
    scanner.reset(Buffer.from('['.repeat(MAX_DEPTH + 1)));
    for (let depth = 0; depth < MAX_DEPTH; depth++)
      expect(scanner.enterArray() && scanner.nextElement()).toBe(true);
    expect([scanner.enterArray(), scanner.fault]).toEqual([false, 'nested deeper than 1000 levels']);
  });

  test('long texts of escapes, quotes or short strings take linear time', () => {
    // A scan that looks for the same far quote behind every escape would take minutes here.
    expect(faultOf(`"${'\\n'.repeat(4_000_000)}"`)).toBeNull();
    expect(faultOf(`"${'x'.repeat(100)}${'\\"yyyyyyyyyyyyyyyy'.repeat(400_000)}"`)).toBeNull();
    expect(faultOf(`[${'"a",'.repeat(2_000_000)}""]`)).toBeNull();
    expect(faultOf(`{${'"\\u006dode":0,'.repeat(500_000)}"":0}`)).toBeNull();
  });
});

describe('walking', () => {
  test('visits members and elements in order, with the positions of their values', () => {
    const bytes = Buffer.from(' { "a" : [ 1 , {"b":2} ] , "c" : "d" } ');
    const scanner = new JsonScanner();
    scanner.reset(bytes);
    const values: string[] = [];
    const value = () => {
      scanner.peek();
      const { pos } = scanner;
      scanner.skipValue();
      values.push(bytes.toString('utf8', pos, scanner.pos));
    };
    expect(scanner.enterObject()).toBe(true);
    expect(scanner.nextMember() && scanner.keyIs('a') && !scanner.keyIs('b')).toBe(true);
    expect(scanner.enterObject()).toBe(false);
    expect(scanner.enterArray()).toBe(true);
    while (scanner.nextElement()) value();
    expect(scanner.nextMember() && scanner.keyIs('c')).toBe(true);
    expect(bytes.toString('utf8', scanner.keySpan.start, scanner.keySpan.end)).toBe('"c"');
    value();
    expect(scanner.nextMember()).toBe(false);
    expect(scanner.finish()).toBe(true);
    expect(values).toEqual(['1', '{"b":2}', '"d"']);
  });

  test.each([
    '{',
    '{"a"',
    '{"a":1',
    '{"a":1,',
    '{"a":1,}',
    '{"a":1]',
    '{"a":1 "b":2}',
    '{"a":1}}',
    '{1:2}',
    '[1,]',
    '[1',
    '[1}',
    '[,]',
    '[1 2]',
  ])('%s ends with a permanent fault', (text) => {
    const scanner = new JsonScanner();
    scanner.reset(Buffer.from(text));
    if (scanner.enterObject()) while (scanner.nextMember()) scanner.skipValue();
    else if (scanner.enterArray()) while (scanner.nextElement()) scanner.skipValue();
    expect(scanner.finish()).toBe(false);
    const { fault, faultAt } = scanner;
    expect(fault).not.toBeNull();
    expect([
      scanner.enterObject(),
      scanner.enterArray(),
      scanner.nextMember(),
      scanner.nextElement(),
    ]).toEqual([false, false, false, false]);
    expect([scanner.skipValue(), scanner.finish()]).toEqual([false, false]);
    expect([scanner.fault, scanner.faultAt]).toEqual([fault, faultAt]);
  });

  test('skips a member whose key is invalid', () => {
    for (const text of ['{1:2}', '{"a" 1}', '{"a', '{"a\\x":1}', '{"a":1,}']) {
      const scanner = new JsonScanner();
      scanner.reset(Buffer.from(text));
      expect(scanner.enterObject()).toBe(true);
      if (text.endsWith(',}')) expect(scanner.nextMember() && scanner.skipValue()).toBe(true);
      expect(scanner.nextMember()).toBe(false);
    }
  });

  test('recognizes a key with any escapes', () => {
    const keys = ['model', 'mod\\u0065l', '\\u006D\\u006f\\u0064\\u0065\\u006c', 'mode\\u006C'];
    const others = [
      'mode',
      'models',
      'Model',
      'mod\\u0045l',
      'mode\\n',
      'm\\/del',
      'mode\\u016c',
      '',
      'mode\\u006cx',
      'xodel',
      'modex',
    ];
    for (const key of keys) expect(membersNamed(`{"x":1,"${key}":2}`, 'model'), key).toEqual([1]);
    for (const key of others) expect(membersNamed(`{"x":1,"${key}":2}`, 'model'), key).toEqual([]);
  });

  test('notices line breaks between tokens, not in escapes', () => {
    const sees = (text: string) => {
      const scanner = new JsonScanner();
      scanner.reset(Buffer.from(text));
      expect(scanner.skipValue() && scanner.finish()).toBe(true);
      return scanner.sawLineBreak;
    };
    expect(sees('{"a": [1,\t2], "b":"\\n\\r"}')).toBe(false);
    for (const text of ['{\n"a":1}', '{"a":\r1}', '[1,\n2]', '[1\n]', '1\n', '{"a"\n:1}', '[\n]']) {
      expect(sees(text), JSON.stringify(text)).toBe(true);
    }
  });

  test('starts afresh with the next text after a fault', () => {
    const scanner = new JsonScanner();
    scanner.reset(Buffer.from('[[[[1 \n 2'));
    expect(scanner.skipValue()).toBe(false);
    scanner.reset(Buffer.from('{"a":[]}'));
    expect(scanner.skipValue() && scanner.finish()).toBe(true);
    expect([scanner.fault, scanner.sawLineBreak]).toEqual([null, false]);
  });
});

test('string tokens are decoded like JSON.parse', () => {
  for (const token of ['""', '"abc"', '"é😀"', '"\\u00e9\\n\\"\\\\"', '"\\ud800"']) {
    const bytes = Buffer.from(`[${token}]`);
    expect(decodeString(bytes, { start: 1, end: bytes.length - 1 })).toBe(JSON.parse(token));
  }
});

test('the scanner accepts what JSON.parse accepts, for any text', () => {
  fc.assert<unknown>(properties['the scanner accepts what JSON.parse accepts'], { numRuns: 500 });
});
