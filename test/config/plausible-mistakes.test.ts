// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the configuration look like placeholders
// Mistakes that people make in a configuration, as other programs, other formats or other languages taught them: each has its place and
// says what to write.
import { describe, expect, it } from 'vitest';
import { parseBytes } from '../../src/config/load-config.ts';
import { errorOf, FILE, load, MINIMAL, placesBefore, placesOf } from './sample.ts';

const WHOLE = 'must be a whole number in decimal digits, such as 20';
const UNIT = 'must be a whole number with a unit (ms, s, m, h, d), such as 30s';
const SIZE = 'must be a whole number with a unit (B, KB, MB, GB, KiB, MiB, GiB), such as 32MiB';
const SHARE = 'must be a share between 0 and 1, such as 0.8 for 80%';
const AMOUNT = 'must be an amount in decimal digits, such as 2.5';
const bytesFault = (bytes: Buffer) => errorOf(() => parseBytes(bytes, FILE, {})).message;

describe('the form of a value', () => {
  it.each([
    [
      'listen: 8080',
      '1:9 listen: must be a mapping of fields: `host`, `port`, `trusted_proxies`, `keep_alive`, `max_connections`, `tls`',
    ],
    [
      'listen: 0.0.0.0:8080',
      '1:9 listen: must be a mapping of fields: `host`, `port`, `trusted_proxies`, `keep_alive`, `max_connections`, `tls`',
    ],
    [
      'listen:\n  port:8080',
      '2:3 listen: must be a mapping of fields: `host`, `port`, `trusted_proxies`, `keep_alive`, `max_connections`, `tls`; a space is missing behind a colon',
    ],
    ['admin: false', '1:8 admin: must be a mapping of fields: `host`, `port`, `hosts`, `tls`, `sso`'],
    ['tiers:\n  - Pro', '2:3 tiers: must be a mapping of fields: `Free`, `Lite`, `Pro`'],
    [
      'tiers: { Pro: unlimited }',
      expect.stringMatching(/^1:15 tiers.Pro: must be a mapping of fields: `requests_per_minute`, /),
    ],
  ])('%j', (lines, place) => expect(placesBefore(lines)).toEqual([place]));

  const model = (value: string) => `upstreams: { a: { builtin: echo } }\nmodels: ${value}\n`;

  it.each([
    [model('{ m: a }'), /^2:14 models\.m: must be a mapping of fields/],
    [
      model('\n  - name: m'),
      /^3:3 models: must be a mapping, with a name and a colon in place of each dash$/,
    ],
    [
      model('{ m: { targets: [a] } }'),
      /^2:26 models\.m\.targets\[0\]: must be a mapping of fields: `upstream`, `model`, /,
    ],
    [
      model('{ m: { targets: { upstream: a, model: m } } }'),
      /targets: must be a list: begin each entry with a dash$/,
    ],
    [
      model('{ m: { endpoints: chat, targets: [{ upstream: a, model: m }] } }'),
      /endpoints: must be a list: put it in brackets$/,
    ],
  ])('%j', (text, place) => expect(placesOf(text)).toEqual([expect.stringMatching(place)]));

  it('names a missing space where it is the only line of a section', () => {
    expect(
      placesOf(`upstreams:\n  a:\n    base_url:https://a.example/v1\n${model('').split('\n')[1]}`),
    ).toContainEqual(
      expect.stringMatching(
        /^3:5 upstreams\.a: must be a mapping of fields; a space is missing behind a colon$/,
      ),
    );
  });
});

describe('names from elsewhere', () => {
  it.each([
    ['tiers: { Pro: { rpm: 10 } }', 'tiers.Pro: unknown key `rpm`; here it is `requests_per_minute`'],
    ['tiers: { Pro: { tpm: 10 } }', 'tiers.Pro: unknown key `tpm`; here it is `tokens_per_minute`'],
    ['database: sqlite:a.db', 'unknown key `database`; here it is `store`'],
    [
      'log_level: debug',
      'unknown key `log_level`; the level of the log is in the environment: LOG_LEVEL=debug',
    ],
    [
      'log: { level: debug }',
      'unknown key `log`; the level of the log is in the environment: LOG_LEVEL=debug',
    ],
    ['max-body: 1MiB', 'unknown key `max-body`; did you mean `max_body`?'],
    ['tier: { Pro: {} }', 'unknown key `tier`; did you mean `tiers`?'],
    ['tiers: { pro: {} }', 'tiers: unknown key `pro`; did you mean `Pro`?'],
    ['tiers: { Enterprise: {} }', 'tiers: unknown key `Enterprise`; known here: `Free`, `Lite`, `Pro`'],
    ['x-targets: &t [a]', 'unknown key `x-targets`; see config.schema.json'],
    // Not a field of a budget here.
    [
      'listen: { monthly: 5 }',
      'listen: unknown key `monthly`; known here: `host`, `port`, `trusted_proxies`, `keep_alive`, `max_connections`, `tls`',
    ],
  ])('%j', (lines, message) => {
    const [place = '', ...more] = placesBefore(lines);
    expect([place.replace(/^1:\d+ /, ''), more]).toEqual([message, []]);
  });

  it('of prices and budgets', () => {
    const priced = (price: string, more = '') =>
      `currency: EUR\nupstreams: { a: { builtin: echo } }\nmodels: { m: { price: ${price}, targets: [{ upstream: a, model: m }] } }\n${more}`;
    const found = placesOf(priced('{ prompt: 2.5, completion: 10 }')).join('\n');
    expect(found).toContain('unknown key `prompt`; here it is `input`');
    expect(found).toContain('unknown key `completion`; here it is `output`');
    const budget = (text: string) =>
      placesOf(priced('{ input: 1, output: 1 }', `tiers: { Pro: { budget: ${text} } }`));
    expect(budget('{ monthly: 5 }')).toContainEqual(
      expect.stringContaining('`monthly`; here it is `per_month`'),
    );
    expect(budget('50')).toEqual([
      '4:25 tiers.Pro.budget: must be a mapping of fields: `per_month`, `per_day`, `currency`, `soft`',
    ]);
    for (const amount of ['$50', '"0,50"', '2030-01-01', '1e3'])
      expect(budget(`{ per_month: ${amount} }`)).toEqual([`4:38 tiers.Pro.budget.per_month: ${AMOUNT}`]);
    expect(budget('{ per_month: -5 }')).toEqual(['4:38 tiers.Pro.budget.per_month: must be at least 0']);
    expect(budget('{ per_month: 0 }')).toEqual(['4:38 tiers.Pro.budget.per_month: must be more than 0']);
    expect(budget('{ per_month: 5, currency: USD }')).toEqual([
      expect.stringContaining('is USD, but the `currency` of the configuration is EUR'),
    ]);
    for (const soft of ['80', '80%', '1', '0', '-0.5', 'none'])
      expect(budget(`{ per_month: 5, soft: ${soft} }`)).toEqual([`4:47 tiers.Pro.budget.soft: ${SHARE}`]);
  });
});

describe('numbers', () => {
  it.each(['1_000_000', '"1,000,000"', '1e6', '1M', 'unlimited', '1.5', '0x10'])('a limit of %s', (value) =>
    expect(placesBefore(`tiers: { Pro: { tokens_per_day: ${value} } }`)).toEqual([
      `1:33 tiers.Pro.tokens_per_day: ${WHOLE}`,
    ]),
  );

  it.each([
    ['-1', 'must be at least 1'],
    ['0', 'must be at least 1'],
    ['99999999999999999999', 'must be at most 9007199254740991'],
  ])('a limit of %s', (value, message) =>
    expect(placesBefore(`tiers: { Pro: { tokens_per_day: ${value} } }`)).toEqual([
      `1:33 tiers.Pro.tokens_per_day: ${message}`,
    ]),
  );

  it.each(['30', '30sec', '30 s', '1m30s', 'PT30S', '1.5m'])('a duration of %s', (value) =>
    expect(placesBefore(`retry: { deadline: ${value} }`)).toEqual([`1:20 retry.deadline: ${UNIT}`]),
  );

  it.each(['32 MB', '32M', '33554432', '32mb'])('a size of %s', (value) =>
    expect(placesBefore(`max_body: ${value}`)).toEqual([`1:11 max_body: ${SIZE}`]),
  );
});

describe('the file', () => {
  it('may have a byte order mark, lines that end as on Windows, and be JSON', () => {
    for (const text of [
      `\ufeff${MINIMAL}`,
      MINIMAL.replaceAll('\n', '\r\n'),
      JSON.stringify({
        upstreams: { a: { builtin: 'echo' } },
        models: { m: { targets: [{ upstream: 'a', model: 'm' }] } },
      }),
    ])
      expect(parseBytes(Buffer.from(text), FILE, {}).warnings).toEqual([]);
  });

  it.each(['utf16le', 'latin1'] as const)('is not %s', (encoding) => {
    const text = `# Schlüssel\n${MINIMAL}`;
    expect(bytesFault(Buffer.from(text, encoding))).toBe(
      encoding === 'latin1' ? `${FILE}:1:7: is not UTF-8 here` : `${FILE}:1:1: is UTF-16: save it as UTF-8`,
    );
    expect(bytesFault(Buffer.from(`\ufeff${text}`, 'utf16le'))).toContain('is UTF-16');
  });

  it('has the place of the quote that does not end, and nothing that follows from it', () => {
    expect(placesBefore('branding: { name: "Acme }')).toEqual([
      '1:19 not valid YAML: the quote that begins here does not end',
    ]);
    expect(placesBefore("branding:\n  name: 'Acme\n  contact: a")).toEqual([
      '2:9 not valid YAML: the quote that begins here does not end',
    ]);
  });

  it('uses merge keys, tags and unknown anchors in vain', () => {
    const text =
      'upstreams:\n  a: &a { builtin: echo }\n  b: { <<: *a }\n  c: *d\nmodels: { m: { targets: [{ upstream: a, model: m }] } }\nredis: !ENV R\n';
    const found = placesOf(text).join('\n');
    expect(found).toContain(
      '3:8 upstreams.b: has a merge key, which YAML 1.2 does not support; use an alias for the whole value',
    );
    expect(found).toContain('4:6 upstreams.c: is an alias of an anchor that is not defined before it');
    expect(found).toContain('redis: has a tag; tags are not supported');
  });

  it('takes what another program writes for a variable as it is, with a warning', () => {
    const at = (key: string) =>
      `upstreams: { a: { base_url: "https://a.example/v1", api_key: ${key} } }\nmodels: { m: { targets: [{ upstream: a, model: m }] } }`;
    for (const key of ['$OPENAI_KEY', '"%OPENAI_KEY%"', 'os.environ/OPENAI_KEY'])
      expect(load(at(key)).warnings.map(({ message }) => message)).toEqual([
        expect.stringContaining('a variable of the environment is written `${NAME}` here'),
      ]);
    expect(placesOf(at('"${OPENAI_KEY}"'))[0]).toContain(
      'the environment variable OPENAI_KEY, which is not set',
    );
    expect(placesOf(at('"${file:/nowhere}"'))[0]).toContain(
      'refers to the file /nowhere, which does not exist',
    );
  });
});
