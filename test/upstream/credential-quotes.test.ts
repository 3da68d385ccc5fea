// Whether a text quotes a credential, however it is written there; and that nothing else is taken for one.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { UpstreamConfig } from '../../src/config/schema/config-schema.ts';
import { CredentialQuotes } from '../../src/upstream/credential-quotes.ts';

const KEY = 'sk-AAA/BBB+ccc=1';
const CONFIG: Extract<UpstreamConfig, { kind: 'http' }> = {
  kind: 'http',
  base_url: 'https://host/v1?sig=query-secret-1&api-version=2024-10-21',
  api_key: KEY,
  headers: {
    'api-key': 'header-secret-1',
    authorization: `Basic ${Buffer.from('user:pass-word-1').toString('base64')}`,
    'x-token': 'Bearer nested-secret-1',
  },
  query: { key: 'query-secret-2', deployment: 'gpt-4o-mini' },
  max_concurrency: 1,
  send_model: true,
  stream_usage: 'inject',
  timeouts: { connect: 1, headers: 1, first_token: 1, idle: 1, total: 1 },
};
const credentials = new CredentialQuotes([CONFIG]);

const hex = (letter: string, digits: number) => letter.charCodeAt(0).toString(16).padStart(digits, '0');
/** Ways in which a letter, or all of a text, can be written. */
const LETTER: readonly ((letter: string) => string)[] = [
  (letter) => letter,
  (letter) => (letter === '/' ? '\\/' : letter),
  (letter) => `\\u${hex(letter, 4)}`,
  (letter) => `\\u${hex(letter, 4).toUpperCase()}`,
  (letter) => `\\x${hex(letter, 2)}`,
  (letter) => `%${hex(letter, 2)}`,
  (letter) => `%${hex(letter, 2).toUpperCase()}`,
  (letter) => `&#${letter.charCodeAt(0)};`,
  (letter) => `&#x${hex(letter, 2)};`,
];
const TEXT: readonly ((text: string) => string)[] = [
  (text) => text,
  (text) => JSON.stringify(text).slice(1, -1),
  (text) => encodeURIComponent(text),
  (text) => text.replaceAll('&', '&amp;').replaceAll('"', '&quot;'),
];

describe('a credential', () => {
  test.each([
    'sig=query-secret-1',
    'query-secret-2',
    'header-secret-1',
    'pass-word-1',
    'user:pass-word-1',
    'nested-secret-1',
    KEY,
  ])('is found in an error: %s', (value) => {
    expect(credentials.areQuotedIn(`{"error":{"message":"wrong: ${value}."}}`)).toBe(true);
  });

  test('is found in every way of writing, and in several in one another', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(LETTER.length - 1), { minLength: KEY.length, maxLength: KEY.length }),
        fc.array(fc.constantFrom(...TEXT), { maxLength: 3 }),
        (ways, outer) => {
          const written = Array.from(KEY, (letter, at) => LETTER[ways[at] ?? 0]?.(letter) ?? letter).join('');
          const text = outer.reduce((inner, write) => write(inner), `{"message":"bad ${written}"}`);
          expect(credentials.areQuotedIn(text)).toBe(true);
        },
      ),
      { numRuns: 300 },
    );
  });

  test('is found within Base64, whatever stands around it', () => {
    fc.assert(
      fc.property(
        fc.string(),
        fc.string(),
        fc.constantFrom('base64' as const, 'base64url' as const),
        (before, after, form) => {
          const coded = Buffer.from(`${before}${KEY}${after}`).toString(form);
          expect(credentials.areQuotedIn(`{"authorization":${JSON.stringify(coded)}}`)).toBe(true);
        },
      ),
      { numRuns: 200 },
    );
  });
});

describe('a long random credential', () => {
  const long = 'sk-vend/AbCdEf+GhIjKlMnOpQr=StUv_1234567890';
  const own = new CredentialQuotes([{ ...CONFIG, api_key: long }]);

  test.each([
    ['in capitals', long.toUpperCase()],
    ['in hexadecimal digits', Buffer.from(long).toString('hex')],
    ['with named entities', long.replace('/', '&sol;').replace('+', '&plus;').replace('=', '&equals;')],
    ['wrapped', `${long.slice(0, 20)}\n${long.slice(20)}`],
    ['wrapped within a string', `${long.slice(0, 20)}\\r\\n  ${long.slice(20)}`],
    ['cut at its end', long.slice(0, 30)],
    ['cut at its beginning', long.slice(-30)],
    ['cut, in Base64', Buffer.from(long).toString('base64').slice(0, 42)],
  ])('is found %s', (_, written) => {
    expect(own.areQuotedIn(`{"error":{"message":"bad ${written} here"}}`)).toBe(true);
  });

  test.each(['sk-vend/AbCd***7890', `${long.slice(0, 12)}…`, 'sk-vend/AbCdEf+G...'])(
    'is not quoted by the parts that vendors show: %s',
    (written) => {
      expect(own.areQuotedIn(`Incorrect API key provided: ${written}`)).toBe(false);
    },
  );
});

test.each([
  'Incorrect API key provided: sk-AAA/***c=1.',
  'The API version 2024-10-21 has no deployment gpt-4o-mini.',
  `sk-AAA/BBB+ccc=2 ${'\\u00'.repeat(100)} %zz &#xffffffff; \\`,
  '',
])('what quotes none is shown: %s', (text) => {
  expect(credentials.areQuotedIn(text)).toBe(false);
});

test('a long text of nothing but escapes is read in time', () => {
  const text = '\\\\u005c%25'.repeat(100_000);
  // In quadratic time it would take longer than a test may.
  expect(credentials.areQuotedIn(text)).toBe(false);
});
