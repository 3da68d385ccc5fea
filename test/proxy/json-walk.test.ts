// A scan that goes on from where it stopped: the same verdict as a scan of the whole, whatever the shape, and no byte twice.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { LargeScan } from '../../src/proxy/request/large-request.ts';
import { wants } from '../../src/proxy/request/request-members.ts';
import { scanRequest, textAt } from '../../src/proxy/request/request-scan.ts';
import { JsonScanner } from '../../src/wire/json/json.ts';
import { JsonWalk } from '../../src/wire/json/json-walk.ts';
import { properties } from '../fuzz/properties.ts';

const NOBODY = { depth: -1, key() {}, value() {} };

/** The fault and its place; null and 0 where there is none. */
function walked(text: string, step: number): [string | null, number] {
  const bytes = Buffer.from(text);
  const walk = new JsonWalk(NOBODY);
  for (let end = 0; end < bytes.length; ) {
    end = Math.min(bytes.length, end + step);
    walk.advance(bytes, end, end === bytes.length);
  }
  return [walk.fault, walk.fault === null ? 0 : walk.faultAt];
}

function scanned(text: string): [string | null, number] {
  const scanner = new JsonScanner();
  scanner.reset(Buffer.from(text));
  scanner.skipValue();
  scanner.finish();
  return [scanner.fault, scanner.fault === null ? 0 : scanner.faultAt];
}

test.each([
  '-',
  '-0',
  '01',
  '1.',
  '1.5e',
  '1.5e+',
  '1.5E-07',
  '1e5.0',
  '--1',
  '+1',
  '.5',
  '[1.5,-2e3,0,0.0]',
  '"\\u00e',
  '"\\u00e9\\ud83d\\n"',
  '"\\u00g0"',
  '"a\\\\\\\\\\\\"',
  '"a\\\\\\\\\\"',
  '"a\u0001"',
  'tru',
  'true',
  'truex',
  'nul}',
  '[true,false,null]',
  '{"a":tru}',
  '{"a" :1 , "b": [ ] , "c" : { } }  ',
  '{"a":1,}',
  '[1,]',
  '[1 2]',
  '{"a" 1}',
  '{1:2}',
  '{}x',
  '{} {}',
  '  ',
  '[}',
  '{]',
  '"',
])('%j has the same result in pieces of any size', (text) => {
  for (let step = 1; step <= text.length; step++) expect(walked(text, step)).toEqual(scanned(text));
});

test('values that nobody reads are checked like those that are read, however the text is cut', () => {
  const name = 'values that nobody reads are checked like those that are read, however the text is cut';
  fc.assert<unknown>(properties[name], { numRuns: 500 });
});

test('only the values within members that are read are reported', () => {
  const bytes = Buffer.from(
    `{"read":[1,[2]],"ignored":[3,[4],{"a":5}],"again":[6],"end":"${'x'.repeat(20)}"}`,
  );
  const found: string[] = [];
  let isIgnored = false;
  const walk = new JsonWalk({
    depth: 2,
    key(depth, scanner) {
      if (depth === 1) isIgnored = scanner.keyIs('ignored');
    },
    ignoresWithin: () => isIgnored,
    value: (_, start, end) => found.push(bytes.toString('latin1', start, end)),
  });
  walk.advance(bytes, bytes.length, true);
  expect(walk.fault).toBeNull();
  expect(found.slice(0, -2)).toEqual(['1', '[2]', '[1,[2]]', '[3,[4],{"a":5}]', '6', '[6]']);
});

test('a depth of 1000 is accepted, and 1001 is rejected', () => {
  for (const depth of [999, 1000, 1001]) {
    for (const [open, close] of [
      ['[', ']'],
      ['{"a":', '}'],
    ] as const) {
      const text = open.repeat(depth) + (open === '[' ? '' : '1') + close.repeat(depth);
      for (const step of [1, 7, 100_000]) expect(walked(text, step)).toEqual(scanned(text));
      expect(walked(text, 64)[0]).toBe(depth > 1000 ? 'nested deeper than 1000 levels' : null);
    }
  }
});

describe('each piece of a uniform text costs the same', () => {
  const SIZE = 8_000_000;
  const fill = (part: string) => part.repeat(Math.floor(SIZE / part.length));
  test.each([
    ['white space in front', () => `${fill(' ')}{"model":"m"}`],
    ['white space behind', () => `{"model":"m"}${fill('\n')}`],
    ['white space within', () => `{"model"${fill('\t')}:"m"}`],
    ['a number', () => `{"model":"m","x":${fill('1')}}`],
    ['a fraction', () => `{"model":"m","x":-0.${fill('0')}e1}`],
    ['a string', () => `{"model":"m","x":"${fill('x')}"}`],
    ['backslashes', () => `{"model":"m","x":"${fill('\\\\')}"}`],
    ['escapes', () => `{"model":"m","x":"${fill('\\u00e9')}"}`],
    ['a key', () => `{"model":"m","${fill('k')}":1}`],
    ['tiny values', () => `{"model":"m","x":[${fill('1,')}1]}`],
    ['tiny members', () => `{"model":"m",${fill('"a":1,')}"b":1}`],
    [
      'members of the options',
      () => `{"model":"m","stream_options":{${fill('"a":1,')}"include_usage":true}}`,
    ],
    ['marks of attachments', () => `{"model":"m","x":["${fill(';base64,","')}"]}`],
    ['a mark without an end', () => `{"model":"m","x":";base64,${fill('A')}"}`],
  ])(
    '%s',
    (_, make) => {
      const body = Buffer.from(make());
      const scan = new LargeScan(wants([]));
      // In pieces this small, going back for each of them would read many gigabytes.
      for (let size = 500; size < body.length; size += 500) scan.advance(body, size);
      expect(scan.end(body)).toEqual(scanRequest(body));
    },
    20_000,
  );
});

test.each([
  ['a character that is cut by every piece', `{"model":"m","x":"${'😀€é'.repeat(50)}"}`, undefined],
  ['a byte order mark', '\ufeff{"model":"m"}', 'byte order mark'],
  ['half a surrogate in UTF-8', Buffer.from('{"model":"m","x":"\xed\xa0\x80"}', 'latin1'), 'at byte 18'],
  ['a character that does not end', Buffer.from('{"model":"m"}\xe2\x82', 'latin1'), 'at byte 13'],
  ['a byte that begins nothing, behind a fault', Buffer.from('{"model":}\xff', 'latin1'), 'not UTF-8'],
])('%s', (_, text, message) => {
  const body = Buffer.from(text);
  for (const step of [1, 2, 3, 5]) {
    const scan = new LargeScan(wants([]));
    const run = () => {
      for (let size = step; size < body.length; size += step) scan.advance(body, size);
      return scan.end(body).model;
    };
    if (message === undefined) expect(run()).toBe('m');
    else {
      expect(run).toThrow(GatewayError);
      expect(run).toThrow(message);
    }
  }
});

test('of a text that is longer than any id or word only the beginning is read', () => {
  const body = Buffer.from(`["${'x'.repeat(20_000_000)}","short \\u00e9"]`);
  const long = textAt(body, { start: 1, end: 20_000_003 });
  expect(long?.length).toBeLessThan(70_000);
  expect(textAt(body, { start: 20_000_004, end: body.length - 1 })).toBe('short é');
});
