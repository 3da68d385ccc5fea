import { inspect } from 'node:util';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Key } from '../../src/auth/key/key.ts';
import { holdsKey, maskKeys } from '../../src/telemetry/log/key-mask.ts';

const TEXT = '0123456789abcdef0123456789abcdef';
const hex = (length: number) =>
  fc.string({ unit: fc.constantFrom(...'0123456789abcdef'), minLength: length, maxLength: length });

describe('a key', () => {
  test('has 32 lowercase hexadecimal characters, of which the first 8 are its prefix', () => {
    fc.assert(
      fc.property(hex(32), (text) => {
        const key = Key.parse(text);
        expect(key?.reveal()).toBe(text);
        expect(key?.prefix).toBe(text.slice(0, 8));
        expect(Key.fromHeader(`Bearer ${text}`)?.reveal()).toBe(text);
      }),
    );
  });

  test('is no other text', () => {
    const others = [
      '',
      TEXT.slice(1),
      `${TEXT}0`,
      TEXT.toUpperCase(),
      TEXT.replace('a', 'g'),
      ` ${TEXT}`,
      `${TEXT}\n`,
      `${TEXT} `,
      TEXT.replace('0', '０'),
      `sk-${TEXT}`,
      TEXT.replace('a', '\u0430'),
    ];
    for (const other of others) expect(Key.parse(other)).toBeUndefined();
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(Key.parse(text) === undefined).toBe(!/^[0-9a-f]{32}$/.test(text) || text.length !== 32);
      }),
    );
  });

  test('in a header follows the scheme, in any case, and one or more spaces', () => {
    for (const scheme of ['Bearer ', 'bearer ', 'BEARER ', 'bEaReR ', 'Bearer  ', 'bearer     '])
      expect(Key.fromHeader(`${scheme}${TEXT}`)?.reveal()).toBe(TEXT);
  });

  test('in a header has no other form', () => {
    const others = [
      '',
      'Bearer',
      'Bearer ',
      TEXT,
      `Bearer\t${TEXT}`,
      ` Bearer ${TEXT}`,
      `Bearer ${TEXT} `,
      `Bearer ${TEXT}\n`,
      `Bearer ${TEXT}, Bearer ${TEXT}`,
      `Bearer${TEXT}`,
      `Bearer ${TEXT.slice(1)}`,
      `Bearer ${TEXT}0`,
      `bearer ${TEXT.toUpperCase()}`,
      `Basic ${TEXT}`,
      `Bearer ${TEXT.toUpperCase()}`,
      `Bearer sk-${TEXT}`,
    ];
    for (const other of others) expect(Key.fromHeader(other)).toBeUndefined();
  });

  test('is generated from 16 random bytes', () => {
    const sizes: number[] = [];
    const key = Key.generate((size) => {
      sizes.push(size);
      return Uint8Array.from({ length: size }, (_, index) => index * 17);
    });
    expect(sizes).toEqual([16]);
    expect(key.reveal()).toBe('00112233445566778899aabbccddeeff');
    expect(new Set(Array.from({ length: 1000 }, () => Key.generate().reveal())).size).toBe(1000);
  });

  test('shows only its prefix in a template, in JSON, in a log, in an error and to inspection', () => {
    const key = Key.parse(TEXT);
    const error = new Error(`about ${key}`, { cause: { key } });
    const shown = [
      String(key),
      `${key}`,
      JSON.stringify({ key, keys: [key] }),
      inspect({ key }, { depth: null, showHidden: true, getters: true }),
      inspect(error, { depth: null, showHidden: true }),
      JSON.stringify(Object.entries(key ?? {})),
      JSON.stringify({ ...key }),
    ];
    for (const text of shown) expect(text).not.toContain(TEXT.slice(8, 20));
    expect(String(key)).toBe('01234567…');
    expect(JSON.stringify({ key })).toBe('{"key":"01234567…"}');
    expect(inspect(key)).toBe('Key(01234567…)');
  });
});

test('masking shortens everything that could be a key to its prefix, in either case', () => {
  expect(maskKeys(`a ${TEXT} b`)).toBe('a 01234567… b');
  expect(maskKeys(`--x=${TEXT.toUpperCase()}!`)).toBe('--x=01234567…!');
  expect(maskKeys(`${TEXT}${TEXT}`)).toBe('01234567…');
  const encoded = TEXT.replace(/./g, (digit, index) =>
    index % 3 === 0 ? digit : `%${digit.charCodeAt(0).toString(16)}`,
  );
  expect(maskKeys(`/x?k=${encoded}&%zz`)).toBe('/x?k=01234567…&%zz');
  expect([TEXT, `a.${TEXT}`, encoded, 'x'].map(holdsKey)).toEqual([true, true, true, false]);
  expect(maskKeys('100%25 is no key, and stays as it is')).toBe('100%25 is no key, and stays as it is');
  expect(maskKeys('0123456789abcdef is short')).toBe('0123456789abcdef is short');
});
