import { describe, expect, it } from 'vitest';
import { ConfigError, formatFault } from '../../src/config/load-config.ts';
import { errorOf, FILE, faultsOf, load, MINIMAL, placesBefore, placesOf, withUpstream } from './sample.ts';

describe('faults', () => {
  it('come all at once, in the order of the file, each at its value or key', () => {
    const text = [
      'listen: { host: "a b", prot: 1, port: 0x10 }', // 1
      'store: mysql://h/x', // 2
      'upstreams:', // 3
      '  openai:', // 4
      '    base_url: ftp://api.example.com', // 5
      '    api_kye: x', // 6
      '    timeouts: { connect: 3, headers: 0s }', // 7
      '    max_concurrency: 1e3', // 8
      '    stream_usage: inyect', // 9
      '    stream_usage: off', // 10
      '  none: {}', // 11
      'models:', // 12
      '  "a*b*c": { targets: [] }', // 13
      '  m:', // 14
      '    targets:', // 15
      '      - { upstream: opnai, model: "x*", weight: 0 }', // 16
      '      - { model: y, weight: 0 }', // 17
      '    tiers: []', // 18
      'tiers:', // 19
      '  Lite: { requests_per_minute: 0, stripe_price: price_1 }', // 20
      'retry: { attempts: yes, after_send: on, budget: 2 }', // 21
      'cors: { origins: [https://a.example/b] }', // 22
      'max_body: 32', // 23
    ].join('\n');
    expect(placesOf(text)).toEqual([
      '1:17 listen.host: must be a host name or an IP address, without port and brackets',
      '1:24 listen: unknown key `prot`; did you mean `port`?',
      '1:39 listen.port: must be a whole number in decimal digits, such as 20',
      '2:8 store: must be sqlite:PATH or a postgres:// URL',
      '5:15 upstreams.openai.base_url: must be a URL that begins with http:// or https:// and names a host',
      '6:5 upstreams.openai: unknown key `api_kye`; did you mean `api_key`?',
      '7:26 upstreams.openai.timeouts.connect: must be a whole number with a unit (ms, s, m, h, d), such as 30s',
      '7:38 upstreams.openai.timeouts.headers: must be at least 1ms',
      '8:22 upstreams.openai.max_concurrency: must be a whole number in decimal digits, such as 20',
      '9:19 upstreams.openai.stream_usage: must be one of `inject`, `off`; did you mean `inject`?',
      '10:5 upstreams.openai.stream_usage: is given twice',
      '11:3 upstreams.none: needs a `base_url`, or `builtin: echo`',
      '13:3 models["a*b*c"]: has more than one `*`',
      '13:23 models["a*b*c"].targets: must not be empty',
      '16:21 models.m.targets[0].upstream: there is no upstream `opnai`; did you mean `openai`?',
      '16:35 models.m.targets[0].model: has a `*`, but the name of this model has none',
      '17:9 models.m.targets[1].upstream: is missing',
      '18:12 models.m.tiers: is empty, so that no key can reach this model; leave it out for all tiers',
      '20:32 tiers.Lite.requests_per_minute: must be at least 1',
      '20:49 tiers.Lite.stripe_price: needs the section `billing`',
      '21:20 retry.attempts: must be a whole number in decimal digits, such as 20',
      '21:37 retry.after_send: must be true or false',
      '21:49 retry.budget: must be at most 1',
      '22:19 cors.origins[0]: must be an origin such as https://app.example.com, without a path, or *',
      '23:11 max_body: must be a whole number with a unit (B, KB, MB, GB, KiB, MiB, GiB), such as 32MiB',
    ]);
  });

  it('are printed as FILE:LINE:COLUMN, the message, the line and a caret', () => {
    const [fault] = faultsOf(`${`\n\tretry:  { attempts: three }`.replace('\t', '')}\n${MINIMAL}`);
    if (fault === undefined) throw new Error('no fault');
    expect(formatFault(fault)).toBe(
      [
        'config.yaml:2:21: retry.attempts: must be a whole number in decimal digits, such as 20',
        '  retry:  { attempts: three }',
        '                      ^',
      ].join('\n'),
    );
    expect(fault).toMatchObject({ file: FILE, line: 2, column: 21 });
  });

  it('keep their places with CRLF, a byte order mark, tabs and wide characters', () => {
    expect(placesOf(`# x\r\nmax_body: 1\r\n${MINIMAL}`)[0]).toMatch(/^2:11 /);
    expect(placesOf(`\ufeff# x\nmax_body: 1\n${MINIMAL}`)[0]).toMatch(/^2:11 /);
    const [fault] = faultsOf(`branding: {\tname: "ß😀",\tcolor: red }\n${MINIMAL}`);
    expect(fault?.column).toBe(33);
    expect(fault?.excerpt.split('\n')[1]).toBe(`${' '.repeat(11)}\t${' '.repeat(12)}\t       ^`);
  });

  it.each([
    [' ', 'must be a name of 1 to 60 visible characters'],
    ['x'.repeat(61), 'must be a name of 1 to 60 visible characters'],
    ['😀'.repeat(61), 'must be a name of 1 to 60 visible characters'],
    ['a\u0007', 'has a control character: U+0007 at position 2'],
    ['😀\u200b', 'has a control character: U+200B at position 2'],
    ['a\u200d😀', 'has a control character: U+200D at position 2'],
  ])('refuse the name %j', (name, message) => {
    const text = (value: string) => `branding: { name: ${JSON.stringify(value)} }\n${MINIMAL}`;
    expect(placesOf(text(name))).toEqual([`1:19 branding.name: ${message}`]);
    for (const valid of ['😀'.repeat(60), 'Team 👩‍💻🏳️‍🌈🏴󠁧󠁢󠁥󠁮󠁧󠁿'])
      expect(load(text(valid)).dynamic.branding).toMatchObject({ name: valid });
  });

  it('have the caret below the fault, whatever is masked before and behind it', () => {
    const secret = 'sk-0123456789abcdef';
    const upstream = (...members: string[]) => `upstreams: { u: { ${members.join(', ')} } }\nmodels: {}\n`;
    for (const members of [
      ['max_concurrency: red', `api_key: ${secret}`],
      [`api_key: ${secret}`, 'max_concurrency: red'],
      [`api_key: ${secret}`, 'max_concurrency: red', `headers: { x: ${secret} }`],
    ]) {
      const fault = faultsOf(upstream(...members)).find(({ message }) => message.includes('max_concurrency'));
      const [line = '', caret = ''] = fault?.excerpt.split('\n') ?? [];
      expect(line).not.toContain(secret);
      expect([members, line.slice(caret.indexOf('^'))]).toEqual([members, expect.stringMatching(/^red\b/)]);
    }
  });

  it('show a part of a long line', () => {
    const [fault] = faultsOf(`max_body: ${'9'.repeat(5000)}\n${MINIMAL}`);
    expect(fault?.excerpt.length).toBeLessThan(300);
    const [late] = faultsOf(`listen: { host: 127.0.0.1,${' '.repeat(5000)}port: red }\n${MINIMAL}`);
    const [line = '', caret = ''] = late?.excerpt.split('\n') ?? [];
    expect(line.slice(caret.indexOf('^'))).toMatch(/^red }/);
  });

  it('do not flood: at most a hundred are kept and the rest counted', () => {
    const error = errorOf(() =>
      load(`listen: { ${Array.from({ length: 150 }, (_, i) => `z${i}: 1`).join(', ')} }\n${MINIMAL}`),
    );
    expect(error.faults).toHaveLength(100);
    expect(error.message).toMatch(/\nand 50 more$/);
  });

  it('are the message of the error', () => {
    const error = errorOf(() => load('max_body: 1'));
    expect(error).toBeInstanceOf(ConfigError);
    expect(error.message).toBe(error.faults.map(formatFault).join('\n'));
  });
});

/** The fault of a character that YAML takes for an alias or an anchor. */
const STAR = (text: string) =>
  `1:${text.search(/[*&]/) + 1} not valid YAML: \`*\` and \`&\` have a meaning of their own; a value or name that begins with one has to be in quotes`;

describe('a file without structure', () => {
  it.each([
    ['', '1:1 the file is empty'],
    ['# only a comment\n', '1:1 the file is empty'],
    ['---\n', '1:1 the file is empty'],
    ['~', '1:1 the top level must be a mapping of fields'],
    ['\njust text', '2:1 the top level must be a mapping of fields'],
    ['- a', '1:1 the top level must be a mapping of fields'],
    [`${MINIMAL}---\n${MINIMAL}`, '3:1 the file has more than one YAML document; only one is allowed'],
    ['listen: { host: "a\nb: c', '1:17 not valid YAML: the quote that begins here does not end'],
    ['listen:\n\thost: a', '2:1 not valid YAML: this line is indented with a tab; use spaces'],
    [
      'tiers:\n  Free: {}\n   Pro: {}',
      '3:1 not valid YAML: this line is indented differently from the others of its section',
    ],
    ['tiers:\n  Free: {}\n  Pro {}', '3:3 not valid YAML: this name has no colon, or no space after it'],
    ['listen: @a', '1:9 not valid YAML: this value has to be in quotes'],
    [
      'listen: a: b',
      '1:9 not valid YAML: a value with `: ` in it has to be in quotes, and the fields of a section begin on lines of their own, all with the same indentation',
    ],
    ...['model: *', '*: 1', '* : { a: 1 }', 'model: [*, a]', 'model: &'].map((text): [string, string] => [
      text,
      STAR(text),
    ]),
    ['a: 1\nb:\n  *:\n    c: 1', STAR('*').replace('1:1', '3:3')],
    [
      'a: { color: #1a4fa0 }',
      '1:22 not valid YAML: a { is not closed; a `#` after a space begins a comment, and a value with one has to be in quotes',
    ],
    [
      'a: "\\q"',
      '1:5 not valid YAML: unknown escape in double quotes; single quotes take a backslash as it is',
    ],
    [
      'a: [',
      '1:5 not valid YAML: a [ is not closed; a `#` after a space begins a comment, and a value with one has to be in quotes',
    ],
  ])('%j', (text, place) => expect(placesOf(text)[0]).toBe(place));

  it('that is nested without end is refused', () => {
    expect(placesOf(`a: ${'['.repeat(20_000)}`)).toEqual([
      expect.stringMatching(/^1:\d+ the file is nested too deeply$/),
    ]);
  });
});

describe('what YAML has and a configuration does not', () => {
  it.each([
    ['redis: !!int 5', '1:14 redis: has a tag; tags are not supported'],
    ['redis: !mine x', '1:14 redis: has a tag; tags are not supported'],
    ['listen: !mine {}', '1:15 listen: has a tag; tags are not supported'],
    [
      'listen: { <<: { port: 1 } }',
      '1:11 listen: has a merge key, which YAML 1.2 does not support; use an alias for the whole value',
    ],
    ['? [a]\n: b', '1:3 has a key that is not a plain name'],
    ['"": b', '1:1 has an empty key'],
    ['__proto__: { port: 1 }', '1:1 has the key __proto__, which is not allowed'],
    [
      'listen: &a { trusted_proxies: [*a] }',
      '1:32 listen.trusted_proxies[0]: is an alias of a value that contains it',
    ],
    [
      'max_body: *.1',
      '1:11 max_body: is an alias of an anchor that is not defined before it (quote a value that begins with `*`)',
    ],
    ['listen: { port: 1 }\nlisten: { port: 2 }', '2:1 listen: is given twice'],
    ['listen: { port: 1, port: 1 }', '1:20 listen.port: is given twice'],
  ])('%j', (lines, place) => expect(placesBefore(lines)).toContain(place));

  it('takes anchors and aliases, and finds faults at the place of use', () => {
    const text = [
      'upstreams:',
      '  a: &a { base_url: &url https://a.example/v1, timeouts: &t { idle: 5s } }',
      '  b: { base_url: *url, timeouts: *t }',
      '  c: *a',
      'models: { m: { targets: [{ upstream: a, model: x }, { upstream: b, model: x }] } }',
    ].join('\n');
    const { a, b, c } = load(text).dynamic.upstreams;
    expect(b).toEqual(a);
    expect(c).toEqual(a);
    expect(a?.timeouts.idle).toBe(5000);
    expect(placesOf(text.replace('base_url: *url', 'max_concurrency: *url'))).toEqual([
      '3:3 upstreams.b: needs a `base_url`, or `builtin: echo`',
      '3:25 upstreams.b.max_concurrency: must be a whole number in decimal digits, such as 20',
    ]);
  });

  it('bounds what aliases expand to', () => {
    const many = (count: number): string =>
      `listen: { trusted_proxies: [&a 10.0.0.1${', *a'.repeat(count)}] }\n${MINIMAL}`;
    expect(load(many(1000)).static.listen.trusted_proxies).toHaveLength(1001);
    expect(placesOf(many(1001))).toEqual(['1:1 the file has far too many values, with its aliases followed']);
    const bomb = Array.from({ length: 12 }, (_, i) =>
      i === 0
        ? 'a0: &a0 [x, x, x, x, x, x, x, x, x, x]'
        : `a${i}: &a${i} [${Array.from({ length: 10 }, () => `*a${i - 1}`).join(', ')}]`,
    ).join('\n');
    expect(placesOf(bomb)).toEqual(['1:1 the file has far too many values, with its aliases followed']);
  });
});

describe('names', () => {
  it.each([
    ['lissten: {}', '1:1 unknown key `lissten`; did you mean `listen`?'],
    ['maxBody: 1MiB', '1:1 unknown key `maxBody`; did you mean `max_body`?'],
    ['admin: { hots: x }', '1:10 admin: unknown key `hots`; did you mean `host`?'],
    ['drain: { wait: 1s }', '1:10 drain: unknown key `wait`; known here: `delay`, `timeout`'],
    ['completely_else: 1', '1:1 unknown key `completely_else`; see config.schema.json'],
    ['tiers: { free: {} }', '1:10 tiers: unknown key `free`; did you mean `Free`?'],
    ['tiers: { Gold: {} }', '1:10 tiers: unknown key `Gold`; known here: `Free`, `Lite`, `Pro`'],
    [
      'passthrough: { upstream: demon, paths: [/v1/files] }',
      '1:26 passthrough.upstream: there is no upstream `demon`; did you mean `demo`?',
    ],
    [
      'passthrough: { upstream: demo, paths: [/v1/files] }',
      '1:26 passthrough.upstream: is a builtin, which keeps no objects',
    ],
    [
      'passthrough: { upstream: other, paths: [/v1/files] }',
      '1:26 passthrough.upstream: there is no upstream `other`',
    ],
    ['workers: many', '1:10 workers: must be `auto`, or a whole number, 1 to 256'],
    ['public_url: https://u:p@a.example', '1:13 public_url: must not hold a user or password'],
    ...['postgres://u:p/w@h/db', 'postgres://u:p@s/w@h/db', 'postgres://u:1#w@h/db'].map((url) => [
      `secret: ${'s'.repeat(32)}\nstore: "${url}"`,
      '2:8 store: must have a user and password that are percent-encoded: `/` is %2F, `#` is %23',
    ]),
    [
      'redis: redis://:p/w@h',
      '1:8 redis: must have a user and password that are percent-encoded: `/` is %2F, `#` is %23',
    ],
  ])('%s', (lines, place) => expect(placesBefore(lines)).toEqual([place]));

  it.each([
    ['models: { "a*b*c": T }', 'models["a*b*c"]: has more than one `*`'],
    ['models: { " a": T }', 'models[" a"]: is not a model name: use 1 to 256 visible characters'],
    [
      'models: { "a\\u0007": T }',
      'models["a\\u0007"]: is not a model name: it has a control character: U+0007 at position 2',
    ],
  ])('%s', (models, message) => {
    const text = `upstreams: { demo: { builtin: echo } }\n${models.replace('T', '{ targets: [{ upstream: demo, model: x }] }')}`;
    expect(placesOf(text)).toEqual([`2:11 ${message}`]);
  });

  it('of upstreams are letters, digits and a few signs', () => {
    expect(placesOf(withUpstream('builtin: echo').replaceAll(/\bu\b/g, '"u v"'))[0]).toMatch(
      /^3:3 upstreams\["u v"\]: is not a name/,
    );
  });

  it('of models may look like anything else, also like what every object has', () => {
    const target = '{ targets: [{ upstream: constructor, model: toString }] }';
    const { models, upstreams } = load(
      `upstreams: { constructor: { builtin: echo } }\nmodels: { constructor: ${target}, "org/m:7b-1.10": ${target}, 1.10: ${target}, on: ${target} }`,
    ).dynamic;
    expect(Object.keys(models)).toEqual(['constructor', 'org/m:7b-1.10', '1.10', 'on']);
    expect(models['toString']).toBeUndefined();
    expect(upstreams['toString']).toBeUndefined();
  });
});

describe('left out and missing', () => {
  const VALUE = 'is empty: write a value, or leave it out';
  const FIELDS = 'is empty: write its fields, `{}` for none of them, or leave it out';
  const SOME_FIELDS = 'is empty: write its fields, or leave it out';

  it.each([
    ['redis:', '1:1', `redis: ${VALUE}`],
    ['secret: ~', '1:1', `secret: ${VALUE}`],
    ['listen: null', '1:1', `listen: ${FIELDS}`],
    ['tiers:', '1:1', `tiers: ${FIELDS}`],
    ['tiers: { Free: }', '1:10', `tiers.Free: ${FIELDS}`],
    ['tiers:\n  Pro:\n    tokens_per_day:', '3:5', `tiers.Pro.tokens_per_day: ${VALUE}`],
    ['tiers: { Pro: { concurrency: null } }', '1:17', `tiers.Pro.concurrency: ${VALUE}`],
    ['tiers: { Pro: { endpoints: } }', '1:17', `tiers.Pro.endpoints: ${VALUE}`],
    ['retry: { attempts: }', '1:10', `retry.attempts: ${VALUE}`],
    ['drain: { timeout: ~ }', '1:10', `drain.timeout: ${VALUE}`],
    ['budgets: { unpriced: }', '1:12', `budgets.unpriced: ${VALUE}`],
    ['budgets: { webhook: }', '1:12', `budgets.webhook: ${SOME_FIELDS}`],
    ['free_keys: { per_ip_per_day: }', '1:14', `free_keys.per_ip_per_day: ${VALUE}`],
  ])('%j is a fault', (lines, place, message) =>
    expect(placesBefore(lines)).toEqual([`${place} ${message}`]),
  );

  it.each([
    ['price: { input: 1, output: 1, cached_input: }', '4:39', `price.cached_input: ${VALUE}`],
    ['price:', '4:9', `price: ${SOME_FIELDS}`],
    ['tiers:', '4:9', `tiers: ${VALUE}`],
    ['timeouts: { total: }', '4:21', `timeouts.total: ${VALUE}`],
    ['limits: { Pro: }', '4:19', `limits.Pro: ${FIELDS}`],
    ['limits: { Pro: { tokens_per_day: } }', '4:26', `limits.Pro.tokens_per_day: ${VALUE}`],
    [
      'price: { input: 1, output: 1 }\n        limits: { Pro: { budget: { per_day: 5, per_month: } } }',
      '5:48',
      `limits.Pro.budget.per_month: ${VALUE}`,
    ],
    [
      'price: { input: 1, output: 1 }\n        limits: { Pro: { budget: { per_day: 5, soft: } } }',
      '5:48',
      `limits.Pro.budget.soft: ${VALUE}`,
    ],
    [
      'price: { input: 1, output: 1 }\n        limits: { Pro: { budget: { per_day: } } }',
      '5:36',
      `limits.Pro.budget.per_day: ${VALUE}`,
    ],
  ])('%j of a model is a fault', (lines, place, message) =>
    expect(
      placesOf(
        `upstreams: { u: { builtin: echo } }\nmodels:\n    m:\n        ${lines}\n        targets: [{ upstream: u, model: x }]\n`,
      ),
    ).toEqual([`${place} models.m.${message}`]),
  );

  it.each([
    [
      'models: { m: { targets: [{ upstream: u, model: x }] } }',
      ['1:1 upstreams: is missing', '1:38 models.m.targets[0].upstream: there is no upstream `u`'],
    ],
    ['upstreams: { u: { builtin: echo } }', ['1:1 models: is missing']],
    ['upstreams:\nmodels:', ['1:1 upstreams: is empty', '2:1 models: is empty']],
    ['upstreams: {}\nmodels: {}', ['1:1 upstreams: has no entries', '2:1 models: has no entries']],
    ['upstreams: { u: }\nmodels: { m: }', ['1:14 upstreams.u: is empty', '2:11 models.m: is empty']],
    ['upstreams: { u: { builtin: echo } }\nmodels: { m: {} }', ['2:11 models.m.targets: is missing']],
    ['upstreams: { u: { builtin: echo } }\nmodels: { m: { targets: } }', ['2:16 models.m.targets: is empty']],
    [
      'upstreams: { u: { builtin: echo } }\nmodels: { m: { targets: [] } }',
      ['2:25 models.m.targets: must not be empty'],
    ],
    [
      'upstreams: { u: { builtin: echo } }\nmodels: { m: { targets: [{ upstream: u }, { upstream: u, model: "" }] } }',
      ['2:26 models.m.targets[0].model: is missing', '2:65 models.m.targets[1].model: must not be empty'],
    ],
    [
      'upstreams: x\nmodels: [x]',
      [
        '1:12 upstreams: must be a mapping',
        '2:9 models: must be a mapping, with a name and a colon in place of each dash',
      ],
    ],
  ])('%j', (text, places) => expect(placesOf(text)).toEqual(places));

  it.each([
    [
      'listen: [a]',
      '1:9 listen: must be a mapping of fields: `host`, `port`, `trusted_proxies`, `keep_alive`, `max_connections`, `tls`',
    ],
    ['listen: { host: [a] }', '1:17 listen.host: must be a single value'],
    ['listen: { host: { a: b } }', '1:17 listen.host: must be a single value'],
    [
      'listen: { trusted_proxies: 10.0.0.1 }',
      '1:28 listen.trusted_proxies: must be a list: put it in brackets',
    ],
    ['listen: { trusted_proxies: [10.0.0.1, ~] }', '1:39 listen.trusted_proxies[1]: is empty'],
    ['tiers: {}', '1:1 tiers: offers no tier; leave it out to offer all three'],
  ])('%s', (lines, place) => expect(placesBefore(lines)).toEqual([place]));
});

describe('a port that is out of range', () => {
  it.each([
    ['redis: redis://h:99999', 'redis'],
    ['redis: redis://:secret@h:65536/1', 'redis'],
    ['redis: redis://h:0', 'redis'],
    ['redis: redis://h:1000000', 'redis'],
    ['redis: redis://h:port', 'redis'],
    ['redis: redis-sentinel://a:26379,b:99999/m', 'redis'],
    ['redis: redis-cluster://[::1]:99999', 'redis'],
    ['store: postgres://u:secret@h:99999/d', 'store'],
    ['public_url: https://h:99999/', 'public_url'],
    ['cors: { origins: ["https://h:99999"] }', 'cors.origins[0]'],
    ['billing: { provider: stripe, api_base: "https://h:99999" }', 'billing.api_base'],
    ['branding: { terms: "https://h:99999/t#top" }', 'branding.terms'],
    ['branding: { contact: "https://h:99999" }', 'branding.contact'],
    ['budgets: { webhook: { url: "https://h:99999", secret: s } }', 'budgets.webhook.url'],
    ['upstreams: { u: { base_url: "https://h:1", proxy: "http://p:99999" } }', 'upstreams.u.proxy'],
  ])('is named: %s', (line, field) => {
    const rest = line.startsWith('upstreams') ? '' : MINIMAL;
    expect(faultsOf(`${line}\n${rest}`).map(({ message }) => message)).toContain(
      `${field}: must have a port from 1 to 65535`,
    );
  });
});

describe('addresses', () => {
  const of = (lines: string): readonly string[] =>
    placesOf(withUpstream(lines)).map((place) => place.replace('upstreams.u.', ''));

  it.each([
    ['base_url: ftp://a.example', 'must be a URL that begins with http:// or https:// and names a host'],
    ['base_url: api.example.com/v1', 'must be a URL that begins with http:// or https:// and names a host'],
    ['base_url: https:///v1', 'must be a URL that begins with http:// or https:// and names a host'],
    ['base_url: "https://a b/v1"', 'must be a URL without white space or backslashes'],
    ['base_url: https://a.example\\v1', 'must be a URL without white space or backslashes'],
    ['base_url: https://a.example:99999/v1', 'must have a port from 1 to 65535'],
    ['base_url: https://a.example:8a/v1', 'must have a port from 1 to 65535'],
    ['base_url: https://[::1]:65536/v1', 'must have a port from 1 to 65535'],
    ['base_url: https://::ffff/v1', 'must be a URL that begins with http:// or https:// and names a host'],
    [
      'base_url: ftp://a.example:99999',
      'must be a URL that begins with http:// or https:// and names a host',
    ],
    [
      'base_url: https://u:p@a.example/v1',
      'must not hold a user or password; put credentials into `api_key` or `headers`',
    ],
    [
      'base_url: https://@a.example/v1',
      'must not hold a user or password; put credentials into `api_key` or `headers`',
    ],
    ['base_url: https://a.example/v1#', 'must not have a fragment (`#…`)'],
    ['base_url: https://a.example/v1#x', 'must not have a fragment (`#…`)'],
    [
      'base_url: https://a.example/v1/chat/completions',
      'must be the root of the API: `chat/completions` is appended by the gateway',
    ],
    ['base_url: ""', 'must not be empty'],
  ])('%s', (line, message) => expect(of(line)).toEqual([`4:15 base_url: ${message}`]));

  it.each([
    'https://a.example',
    'HTTPS://A.example/v1/',
    'http://[::1]:8000/v1?x=y',
    'http://10.0.0.1:8000/v1',
  ])('base_url: %s is kept as it is', (url) =>
    expect(load(withUpstream(`base_url: ${url}`)).dynamic.upstreams['u']).toMatchObject({ base_url: url }),
  );

  it.each([
    ['store: sqlite:', 8],
    ['store: sqlite://data/x.db', 8],
    ['store: ./data/x.db', 8],
    ['store: postgres:/h/x', 8],
    ['redis: http://h', 8],
    ['redis: localhost:6379', 8],
    ['public_url: https://a.example/?x', 13],
    ['public_url: a.example', 13],
    ['listen: { host: "[::1]" }', 17],
    ['listen: { host: "127.0.0.1:80" }', 17],
    ['listen: { port: 65536 }', 17],
    ['listen: { port: -1 }', 17],
    ['listen: { trusted_proxies: [10.0.0.0/33] }', 29],
    ['listen: { trusted_proxies: [proxy.example] }', 29],
    ['listen: { trusted_proxies: ["::1/129"] }', 29],
  ])('%s is refused', (line, column) => {
    const places = placesBefore(line).filter((place) => !place.includes('not supported'));
    expect(places).toHaveLength(1);
    expect(places[0]).toMatch(new RegExp(`^1:${column} `));
  });

  it('of two listeners must not be the same', () => {
    expect(placesBefore('admin: { port: 8080 }')).toEqual([
      '1:16 admin.port: is the port of `listen` as well',
    ]);
    expect(placesBefore('listen: { host: 0.0.0.0, port: 9090 }')).toEqual([
      '1:32 admin.port: is the port of `listen` as well',
    ]);
    expect(placesBefore('listen: { port: 1 }', { PORT: '9090' })).toEqual([
      '1:17 admin.port: is the port of `listen` as well, which the environment variable PORT sets',
    ]);
    expect(load(`listen: { port: 0 }\nadmin: { port: 0 }\n${MINIMAL}`).static.admin.port).toBe(0);
  });
});

describe('upstreams', () => {
  const of = (lines: string): readonly string[] => placesOf(withUpstream(lines));

  it.each([
    ['{}', '3:3 upstreams.u: needs a `base_url`, or `builtin: echo`'],
    [
      'base_url: https://a.example\nbuiltin: echo',
      '5:5 upstreams.u.builtin: and `base_url` are mutually exclusive; remove one of them',
    ],
    ['builtin: mirror', '4:14 upstreams.u.builtin: must be `echo`'],
    ['builtin: echo\napi_key: x', '5:5 upstreams.u.api_key: has no effect with `builtin`; remove it'],
    ['builtin: echo\nheaders: { a: b }', '5:5 upstreams.u.headers: has no effect with `builtin`; remove it'],
    [
      'base_url: https://a.example\nheaders: { "a b": c }',
      '5:16 upstreams.u.headers.****: is not a valid header name',
    ],
    [
      'base_url: https://a.example\nheaders: { a: b, A: c }',
      '5:22 upstreams.u.headers.A: is given twice, with different case',
    ],
    [
      'base_url: https://a.example\nheaders: { a: "" }',
      '5:19 upstreams.u.headers.a: is a credential and must not be empty',
    ],
    ['base_url: https://a.example\nheaders: { a: }', '5:16 upstreams.u.headers.****: is empty'],
    [
      'base_url: https://a.example\nheaders: { a: "b\\nc: d" }',
      '5:19 upstreams.u.headers.a: has a character that is not allowed in an HTTP header (only visible ASCII, space and tab are)',
    ],
    [
      'base_url: https://a.example\nquery: { a: b, A: c }',
      '5:20 upstreams.u.query.A: is given twice, with different case',
    ],
    [
      'base_url: https://a.example?a=b\nquery: { a: c }',
      '5:14 upstreams.u.query.a: is also in the query of `base_url`',
    ],
    [
      'base_url: https://a.example\napi_key: x\nheaders: { Authorization: y }',
      '6:16 upstreams.u.headers.Authorization: is also set by `api_key`; remove one of them',
    ],
  ])('%j', (lines, place) => expect(of(lines)).toEqual([place]));

  it.each(['Host', 'content-length', 'Transfer-Encoding', 'connection', 'keep-alive', 'te', 'upgrade'])(
    'cannot set the header %s',
    (header) =>
      expect(of(`base_url: https://a.example\nheaders: { ${header}: x }`)).toEqual([
        `5:16 upstreams.u.headers${header.includes('-') ? `.${header}` : `.${header}`}: is a header that the gateway sets itself`,
      ]),
  );

  it.each([
    ['http://a.example/v1', 'api_key: x', 1],
    ['http://a.example/v1', 'headers: { api-key: x }', 1],
    ['http://a.example/v1', 'headers: { x-team: x }', 0],
    ['http://a.example/v1', '', 0],
    ['https://a.example/v1', 'api_key: x', 0],
    ['http://localhost:1/v1', 'api_key: x', 0],
    ['http://127.8.0.1:1/v1', 'api_key: x', 0],
    ['http://[::1]:1/v1', 'api_key: x', 0],
  ])('at %s with %j has %d warnings', (url, line, count) => {
    const { warnings } = load(withUpstream(`base_url: ${url}\n${line}`));
    expect(warnings.map(({ line: at, column, message }) => `${at}:${column} ${message}`)).toEqual(
      count === 0
        ? []
        : ['4:15 upstreams.u.base_url: sends its credential over plain http to another machine'],
    );
  });
});

describe('models', () => {
  const of = (models: string, more = ''): readonly string[] =>
    placesOf(
      `models: ${models}\nupstreams: { one: { builtin: echo }, two: { builtin: echo } }\n${more}`,
      // Columns are counted in what is given.
    ).map((place) => place.replace(/^1:(\d+)/, (_, column) => `1:${Number(column) - 'models: '.length}`));

  it.each([
    [
      '{ m: { targets: [{ upstream: on, model: x }] } }',
      '1:30 models.m.targets[0].upstream: there is no upstream `on`; did you mean `one`?',
    ],
    [
      '{ m: { targets: [{ upstream: something, model: x }] } }',
      '1:30 models.m.targets[0].upstream: there is no upstream `something`',
    ],
    [
      '{ m: { targets: [{ upstream: one, model: "x-*" }] } }',
      '1:42 models.m.targets[0].model: has a `*`, but the name of this model has none',
    ],
    [
      '{ "m*": { targets: [{ upstream: one, model: "**" }] } }',
      '1:45 models["m*"].targets[0].model: has more than one `*`',
    ],
    [
      '{ m: { targets: [{ upstream: one, model: x, weight: -1 }] } }',
      '1:53 models.m.targets[0].weight: must be at least 0',
    ],
    [
      '{ m: { targets: [{ upstream: one, model: x, priority: 0 }] } }',
      '1:55 models.m.targets[0].priority: must be at least 1',
    ],
    [
      '{ m: { targets: [{ upstream: one, model: x }], tiers: [Pro, Pro] } }',
      '1:61 models.m.tiers[1]: is listed twice',
    ],
    [
      '{ m: { targets: [{ upstream: one, model: x }], tiers: [pro] } }',
      '1:56 models.m.tiers[0]: must be one of `Free`, `Lite`, `Pro`; did you mean `Pro`?',
    ],
    [
      '{ m: { targets: [{ upstream: one, model: x }], response_model: aliass } }',
      '1:64 models.m.response_model: must be one of `alias`, `upstream`; did you mean `alias`?',
    ],
    [
      '{ m: { targets: [{ upstream: one, model: x }], price: { input: 1 } } }',
      '1:48 models.m.price.output: is missing',
    ],
  ])('%s', (models, place) => expect(of(models)).toEqual([place]));

  it('may have a weight of 0 beside another', () => {
    const text =
      'upstreams: { u: { builtin: echo } }\nmodels: { m: { targets: [{ upstream: u, model: x, weight: 0 }, { upstream: u, model: y, weight: 0.5 }] } }';
    expect(load(text).dynamic.models['m']?.targets.map(({ weight }) => weight)).toEqual([0, 0.5]);
  });

  it('must be in reach of a tier that is on offer', () => {
    const model = '{ m: { targets: [{ upstream: one, model: x }], tiers: [Lite, Pro] } }';
    expect(of(model, 'tiers: { Free: {} }')).toEqual([
      '1:48 models.m.tiers: lists no tier that is on offer, so that no key can reach this model; `tiers` has `Free`',
    ]);
    expect(
      load(`upstreams: { one: { builtin: echo } }\nmodels: ${model}\ntiers: { Pro: {} }`).dynamic.tiers,
    ).toEqual({ Pro: {} });
    expect(load(`upstreams: { one: { builtin: echo } }\nmodels: ${model}`).dynamic.tiers).toEqual({
      Free: {},
      Lite: {},
      Pro: {},
    });
  });
});
