// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the configuration look like placeholders
// No credential in any message, however wrong the file is. FUZZ_RUNS sets the number of wrong files.
import { inspect } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { describeConfig } from '../../src/config/check/summary.ts';
import { ConfigError, parseConfig } from '../../src/config/load-config.ts';
import { errorOf, load, MINIMAL } from './sample.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 300);

/** Every credential begins with the same sign, so that a part of one is found as well. */
const MARK = 'Zq7Xk';
const secret = (name: string): string => `${MARK}${name}9f3a${MARK}`;

const ENV = {
  OPENAI_API_KEY: secret('env'),
  SECRET: secret('envsecret'),
  HEADER: secret('envheader'),
  URL: `https://user:${secret('envurl')}@h.example/v1`,
};

const FILE = `# a configuration with every kind of credential
listen: { host: 127.0.0.1, port: 8080 }
store: postgres://gate:${secret('store')}@db.example/gate?password=${secret('storequery')}
redis: rediss://:${secret('redis')}@cache.example:6379/0 # ${secret('comment')}
secret: "${secret('secret')}"
upstreams:
  openai:
    base_url: https://api.example.com/v1?key=${secret('basequery')}
    api_key: ${secret('literal')}
    headers:
      x-team: ${secret('header')}
      api-key: '${secret('quoted')}'
    query: { key: ${secret('query')}, plain: "\${HEADER}" }
    max_concurrency: 20
  mixed: { base_url: https://m.example/v1, api_key: ${secret('flow')}, headers: { a: ${secret('flowheader')}, b: \${HEADER} } }
  # api_key: ${secret('commented')}
  fromenv:
    base_url: \${URL}
    api_key: \${OPENAI_API_KEY}
    headers: { x: "\${MISSING:-${secret('default')}}" }
  block:
    base_url: https://b.example
    api_key: |
      ${secret('block')}
  folded:
    base_url: https://user:${secret('basepassword')}@f.example/v1
    api_key:
      ${secret('nextline')}
models:
  m:
    targets:
      - { upstream: openai, model: gpt }
      - upstream: mixed
        model: other
    tiers: [Free, Pro]
billing: { provider: stripe, secret_key: ${secret('stripe')}, webhook_secret: ${secret('webhook')} }
max_body: 1MiB
`;

function expectNoSecret(error: unknown): void {
  if (!(error instanceof ConfigError)) throw error;
  const texts = [
    error.message,
    JSON.stringify(error),
    JSON.stringify(error.faults),
    inspect(error, { depth: 9 }),
    error.stack ?? '',
  ];
  for (const text of texts) expect(text).not.toContain(MARK);
}

const attempt = (text: string): void => {
  try {
    parseConfig(text, 'config.yaml', ENV);
  } catch (error) {
    expectNoSecret(error);
  }
};

type Change = (text: string) => string;
const at = (text: string, where: number): number => Math.floor(where * text.length);
const lineOf = (lines: readonly string[], where: number): number => Math.floor(where * lines.length);
const position = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

const changes: fc.Arbitrary<Change> = fc.oneof(
  fc
    .tuple(
      position,
      fc.constantFrom(...'{}[]:,"\'#&*!|>-%@`\n\t \\~$?'.split(''), ': ', ' #', '\n  ', '${', '*a', '- '),
    )
    .map(
      ([where, piece]): Change =>
        (text) =>
          text.slice(0, at(text, where)) + piece + text.slice(at(text, where)),
    ),
  fc.tuple(position, fc.integer({ min: 1, max: 4 })).map(
    ([where, count]): Change =>
      (text) =>
        text.slice(0, at(text, where)) + text.slice(at(text, where) + count),
  ),
  fc.tuple(position, position).map(
    ([from, to]): Change =>
      (text) => {
        const lines = text.split('\n');
        const [line = ''] = lines.splice(lineOf(lines, from), 1);
        lines.splice(lineOf(lines, to), 0, line);
        return lines.join('\n');
      },
  ),
  position.map(
    (where): Change =>
      (text) => {
        const lines = text.split('\n');
        const index = lineOf(lines, where);
        return [...lines.slice(0, index + 1), ...lines.slice(index)].join('\n');
      },
  ),
  fc.tuple(position, fc.constantFrom('', '  ', '      ', '\t')).map(
    ([where, indent]): Change =>
      (text) => {
        const lines = text.split('\n');
        const index = lineOf(lines, where);
        lines[index] = indent + (lines[index] ?? '').trimStart();
        return lines.join('\n');
      },
  ),
  position.map(
    (where): Change =>
      (text) =>
        text.slice(0, at(text, where)),
  ),
  fc
    .constantFrom<[string, string]>(
      ['api_key:', 'api_kye:'],
      ['secret:', 'secrets:'],
      ['headers:', 'header:'],
      ['api_key:', 'api_key'],
      ['api_key: ', 'api_key:'],
      ['headers:', 'timeouts:'],
      ['api_key:', 'max_concurrency:'],
      ['query:', 'stream_usage:'],
      ['model:', 'models:'],
      ['port:', 'secret:'],
      ['://', ':/'],
      ['@', ' @'],
      ['@', ''],
      ['https', 'htps'],
      ['}', ''],
      ['"', ''],
      ["'", ''],
      [', ', ' '],
      [', ', '\n    '],
    )
    .map(
      ([from, to]): Change =>
        (text) =>
          text.replaceAll(from, to),
    ),
);

describe('credentials', () => {
  it('are in no fault of a file that was changed at random', () => {
    fc.assert(
      fc.property(fc.array(changes, { minLength: 1, maxLength: 3 }), (list) => {
        attempt(list.reduce((text, change) => change(text), FILE));
      }),
      { numRuns: RUNS },
    );
  });

  it('are in no fault of a file that is cut anywhere or has one character too many or too few', () => {
    // Other places in each run.
    const step = Math.max(1, Math.round(3000 / RUNS));
    for (let index = Math.floor(Math.random() * step); index < FILE.length; index += step) {
      attempt(FILE.slice(0, index));
      attempt(FILE.slice(0, index) + FILE.slice(index + 1));
      attempt(`${FILE.slice(0, index)}:${FILE.slice(index)}`);
    }
  });

  it.each([
    ['an unknown field', `upstreams: { u: { api_kye: ${secret('a')} } }`],
    ['a field of a wrong kind', `upstreams: { u: { api_key: [${secret('a')}], headers: ${secret('b')} } }`],
    ['a mapping in its place', `upstreams: { u: { api_key: { ${secret('a')}: ${secret('b')} } } }`],
    ['a number', `max_body: 1\nsecret: ${secret('a')}\nsecret: ${secret('b')}`],
    ['a header without a value', `upstreams: { u: { headers: { ${secret('a')} } } }`],
    ['a header with a wrong name', `upstreams: { u: { headers: { "${secret('a')} ": x } } }`],
    ['a lost space', `upstreams: { u: { base_url: https://a.example, api_key:${secret('a')} } }`],
    ['a lost comma', `upstreams: { u: { base_url: https://a.example api_key: ${secret('a')} } }`],
    ['a lost colon', `upstreams:\n  u:\n    api_key ${secret('a')}\n    base_url: x`],
    [
      'a line that ran into the one before',
      `models: { m: { targets: [{ upstream: u\n api_key:${secret('a')}, model: 1 }] } }`,
    ],
    [
      'the second line of a value',
      `models: { m: { targets: [{ upstream: u, model: x\n api_key:${secret('a')}, weight: bad }] } }`,
    ],
    [
      'a line that became part of the value before it',
      `models: { m: { targets: [{ upstream: u, model: x\n ${secret('a')}, weight: bad }] } }`,
    ],
    [
      'a value that another field ran into',
      `models: { m: { targets: [{ upstream: u, model: x api_key:${secret('a')}, weight: bad }] } }`,
    ],
    ['a field that lost its space', `billing: { provider: stripe, webhook_secret:${MARK} }`],
    [
      'a value that is visible in one place and a credential in another',
      `models: { m: { targets: [&t { upstream: u, model: ${secret('a')}, weight: bad }] } }\nupstreams: { u: { base_url: https://a.example, headers: *t } }`,
    ],
    ['an alias', `upstreams: { u: { api_key: *${secret('a')} } }`],
    ['an anchor', `upstreams: { u: { api_key: &${secret('a')} x y } }`],
    ['a tag', `upstreams: { u: { api_key: !${secret('a')} x } }`],
    ['an anchored credential in a visible field', `secret: &s ${secret('a')}\nmax_body: *s`],
    ['a malformed reference', `secret: \${${secret('a')}-}`],
    ['a reference with a default', `secret: "\${X:-${secret('a')}\\u0001}"`],
    ['a wrong character', `secret: "${secret('a')}\\u0001"`],
    ['a wrong URL', `store: postgres:/u:${secret('a')}@h/db`],
    ['a URL without a host', `redis: redis://:${secret('a')}`],
    ['a password with signs', `redis: http://u:p@${secret('a')}@h?x@y`],
    ['a file that is only that', secret('a')],
    ['a list of it', `- ${secret('a')}`],
    ['an open quote', `secret: "${secret('a')}\nmax_body: 1`],
    ['a bad escape', `secret: "${secret('a')}\\q"`],
  ])('are not shown by %s', (_, text) => {
    const error = errorOf(() => parseConfig(text, 'config.yaml', ENV));
    expect(error.faults.length).toBeGreaterThan(0);
    expectNoSecret(error);
  });

  it('from the environment are not shown in any field that does not want them', () => {
    const fields = [
      'listen: { host: X }',
      'listen: { port: X }',
      'listen: { trusted_proxies: [X] }',
      'store: X',
      'redis: X',
      'public_url: X',
      'max_body: X',
      'tiers: { X: {} }',
      'retry: { attempts: X, after_send: X, budget: X }',
      'drain: { timeout: X }',
      'branding: { name: a, color: X }',
      'cors: { origins: [X] }',
      'billing: { provider: X }',
      'upstreams: { u: { base_url: X, builtin: X, stream_usage: X, max_concurrency: X, timeouts: { idle: X } } }',
      'models: { m: { targets: [{ upstream: X, model: X, weight: X, priority: X }], tiers: [X], response_model: X } }',
      'upstreams: X',
    ];
    for (const field of fields) {
      expectNoSecret(errorOf(() => parseConfig(field.replaceAll('X', '"${SECRET}"'), 'config.yaml', ENV)));
    }
  });

  it('leave the rest of the line readable', () => {
    const { faults } = errorOf(() =>
      load(
        `upstreams: { u: { base_url: "https://a.b/v1?k=v", api_key: ${secret('a')}, max_concurrency: many, headers: { x: "\${T}" } } } # note\n`,
        { T: 't' },
      ),
    );
    const fault = faults.find(({ message }) => message.includes('max_concurrency'));
    expect(fault?.excerpt.split('\n')).toEqual([
      'upstreams: { u: { base_url: "https://a.b/v1?****", api_key: ****, max_concurrency: many, headers: { x: "${T}" } } }',
      `${' '.repeat(83)}^`,
    ]);
  });

  it('are not guessed from what a value of the environment is near to', () => {
    const text = MINIMAL.replace('model: echo }]', 'model: echo }], response_model: "${R}"').replace(
      'upstream: demo',
      'upstream: "${U}"',
    );
    expect(errorOf(() => load(text, { U: 'dem', R: 'alia' })).faults.map(({ message }) => message)).toEqual([
      'models.echo.targets[0].upstream: there is no upstream of this name (from the environment: U)',
      'models.echo.response_model: must be one of `alias`, `upstream` (from the environment: R)',
    ]);
  });

  it('in comments are not shown either', () => {
    const [fault] = errorOf(() => load(`max_body: 1 # was a secret\n${MINIMAL}`)).faults;
    expect(fault?.excerpt).toBe('max_body: 1\n          ^');
  });

  it('are not in the description of a configuration, nor in its hash as text', () => {
    const config = load(
      `secret: ${secret('a')}${secret('b')}\nupstreams: { u: { base_url: "https://h.example/${secret('path')}?k=${secret('q')}", api_key: ${secret('k')}, headers: { api-key: ${secret('h')} }, query: { x: ${secret('p')} } } }\nmodels: { m: { targets: [{ upstream: u, model: x }] } }`,
    );
    expect(describeConfig(config)).not.toContain(MARK);
    expect(JSON.stringify(config.warnings)).not.toContain(MARK);
    expect(config.hash).toMatch(/^[0-9a-f]{12}$/);
  });

  it('are not in warnings', () => {
    const { warnings } = load(`secret: ${secret('a')} # ${secret('c')}\n${MINIMAL}`);
    expect(warnings.map(({ message }) => message)).toEqual([
      'secret: is shorter than 32 characters; use a long random string',
    ]);
    expect(JSON.stringify(warnings)).not.toContain(MARK);
  });
});
