// `tollgate check` exits with 0 exactly where `serve` starts, and changes nothing. FUZZ_RUNS sets the number of random configurations.
import { mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { PassThrough } from 'node:stream';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { startApp } from '../../src/app.ts';
import { dynamicShape, staticShape } from '../../src/config/schema/config-schema.ts';
import { startFault } from '../../src/start-fault.ts';
import { createLogger, readLogLevel } from '../../src/telemetry/log/logger.ts';
import { fieldRows } from '../../tools/configuration-tables.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { runCommand, runProgram } from '../helpers/gateway.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 40);
const PAIR = makeCertificate();

type Tree = { [name: string]: unknown };

let root: TempDir;
/** Of the present configuration. */
let folder: string;
let count = 0;
/** A URL where nothing listens. */
let nowhere: string;

beforeAll(async () => {
  root = await tempDir();
  nowhere = `127.0.0.1:${await closedPort()}`;
});
afterAll(() => root.remove());

function newFolder(): void {
  count += 1;
  folder = root.file(String(count));
  mkdirSync(folder);
  writeFileSync(join(folder, 'text'), 'a file that is no database');
  writeFileSync(join(folder, 'cert.pem'), PAIR.cert);
  writeFileSync(join(folder, 'key.pem'), PAIR.key);
}
beforeEach(newFolder);

/** The smallest configuration with both kinds of upstream. */
const base = (): Tree => ({
  listen: { port: 0 },
  admin: { port: 0 },
  store: 'sqlite:$' + '{DIR}/store.db',
  upstreams: { a: { builtin: 'echo' }, b: { base_url: `http://${nowhere}/v1` } },
  models: { m: { targets: [{ upstream: 'a', model: 'x' }] } },
});

/** Names, sizes and times of all files. */
const filesOf = (path: string): readonly string[] =>
  readdirSync(path, { recursive: true, encoding: 'utf8' }).map((name) => {
    const { size, mtimeMs, isDirectory } = statSync(join(path, name));
    return `${name} ${isDirectory.call(statSync(join(path, name))) ? '' : `${size} ${mtimeMs}`}`;
  });

/** @returns the reason why `serve` would not start; undefined where it does */
async function serveFault(file: string, env: Record<string, string>): Promise<string | undefined> {
  try {
    readLogLevel(env);
    const logger = createLogger(undefined, 'silent');
    const app = await startApp({ configFile: file, env, logger, watch: false });
    await Promise.all([app.close(), app.close()]);
    return undefined;
  } catch (error) {
    return startFault(error);
  }
}

/** Asserts that `check` and `serve` agree. @returns the reason why neither takes it */
async function agreed(config: Tree, more: Record<string, string> = {}): Promise<string | undefined> {
  const file = join(folder, 'config.yaml');
  writeFileSync(file, stringify(config));
  const env = { DIR: folder, SET: 'a-value-of-the-environment-of-40-characters', ...more };
  const before = filesOf(folder);
  const { code, stderr } = await runCommand(['check', '--config', file], env);
  expect(filesOf(folder)).toEqual(before);
  const fault = await serveFault(file, env);
  expect([code, stderr], `serve: ${fault}`).toEqual([fault === undefined ? 0 : 1, expect.anything()]);
  // A fault of the gateway itself has a stack.
  expect(`${stderr} ${fault}`).not.toMatch(/\n {4}at /);
  const said = (fault ?? '').replace(/: E[A-Z]+: .*/, '');
  expect(stderr).toContain(said);
  return fault;
}

function alter(...statements: string[]): void {
  const database = new DatabaseSync(join(folder, 'store.db'));
  for (const statement of statements) database.exec(statement);
  database.close();
}

describe('the store', () => {
  const served = async (config = base()) => expect(await agreed(config)).toBeUndefined();
  const file = (name: string) => join(folder, name);

  test('a new one, and one that was served', async () => {
    await served();
    await served();
    await served({ ...base(), store: 'sqlite:$' + '{DIR}/new/folders/store.db' });
  });

  test.each<[string, string | RegExp, () => void, Tree?]>([
    ['gone', 'the file is missing, but a store existed', () => rmSync(file('store.db'))],
    ['emptied', 'the file is empty, but a store existed', () => writeFileSync(file('store.db'), '')],
    ['overwritten', 'not a database', () => writeFileSync(file('store.db'), 'x'.repeat(5000))],
    [
      'of a newer version',
      'a newer version of Tollgate',
      () => alter("insert into schema_migrations values (999, 'next', '')"),
    ],
    [
      'without its secret',
      'is missing, and the keys in this store need',
      () => rmSync(file('store.db.secret')),
    ],
    [
      'with an empty secret',
      'is empty; restore the secret',
      () => writeFileSync(file('store.db.secret'), '\n'),
    ],
    ['with another secret', 'differs from the one', () => writeFileSync(file('store.db.secret'), 'other')],
    [
      'with a secret of the configuration that differs',
      '`secret` differs',
      () => {},
      { secret: 'y'.repeat(40) },
    ],
  ])('%s', async (_name, reason, change, config = {}) => {
    await served();
    change();
    expect(await agreed({ ...base(), ...config })).toMatch(reason);
  });

  test('with costs in another currency', async () => {
    await served({ ...base(), currency: 'EUR' });
    expect(await agreed({ ...base(), currency: 'USD' })).toContain(
      '`currency` is USD, but the costs and budgets in this store are in EUR',
    );
    await served();
  });

  test('of another program', async () => {
    alter('create table theirs (a text)');
    expect(await agreed(base())).toContain('tables of another program');
  });

  test.each([
    'sqlite:$' + '{DIR}',
    // Where Node's own `mkdir -p` never returns.
    'sqlite:/proc/none/deep/store.db',
    'sqlite:$' + '{DIR}/text',
    'sqlite:$' + '{DIR}/text/store.db',
    'sqlite::memory:',
  ])('where there can be none: %s', async (store) =>
    expect(await agreed({ ...base(), store })).toMatch(/store/),
  );

  test('a server that does not answer', async () => {
    const config = { ...base(), store: `postgres://u:hidden-word@${nowhere}/d`, secret: 'x'.repeat(40) };
    expect(await agreed(config)).toMatch(/ECONNREFUSED; nothing listens there/);
  });

  test.each([
    ['usage: a file', { usage: { spool: '$' + '{DIR}/text' } }, 'is not a directory'],
    ['usage: below a file', { usage: { spool: '$' + '{DIR}/text/deep/usage' } }, 'is not a directory'],
    ['usage: new folders', { usage: { spool: '$' + '{DIR}/new/usage' } }, undefined],
  ])('a spool of %s', async (_where, config, why) => {
    await served({ ...base(), ...config });
    const checked = await runCommand(['check', '--config', file('config.yaml')], { DIR: folder });
    expect([checked.code, checked.stderr]).toEqual([
      0,
      why === undefined
        ? ''
        : expect.stringMatching(new RegExp(`^warning: usage.spool: .*/text ${why}; usage`)),
    ]);
  });

  test('--offline looks at the file alone', async () => {
    writeFileSync(
      file('config.yaml'),
      stringify({ ...base(), listen: { host: '203.0.113.9' }, store: 'sqlite:$' + '{DIR}/text' }),
    );
    const check = (...words: string[]) =>
      runCommand(['check', '--config', file('config.yaml'), ...words], { DIR: folder });
    expect(await check()).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/203\.0\.113\.9/),
    });
    expect(await check('--offline')).toMatchObject({ code: 0, stderr: '' });
    expect(await check('--offline', '--credentials')).toMatchObject({ code: 2 });
  });
});

test('an empty limit is the same fault in check, at the start and at a reload, which keeps the limit', async () => {
  const fault = 'tiers.Pro.tokens_per_day: is empty: write a value, or leave it out';
  expect(await agreed({ ...base(), tiers: { Pro: { tokens_per_day: null } } })).toContain(fault);
  newFolder();
  const file = join(folder, 'config.yaml');
  const write = (max: number | null) =>
    writeFileSync(file, stringify({ ...base(), tiers: { Pro: { tokens_per_day: max } } }));
  write(5);
  const output = new PassThrough();
  const logger = createLogger(output, 'warn');
  const lines = output.setEncoding('utf8').toArray();
  const app = await startApp({ configFile: file, env: { DIR: folder }, logger, watch: false });
  write(null);
  await app.reload();
  expect(app.config.dynamic.tiers.Pro).toEqual({ tokens_per_day: 5 });
  await Promise.all([app.close(), app.close()]);
  output.end();
  expect((await lines).join('')).toContain(fault);
});

test('an unknown log level ends the start with a sentence', async () => {
  writeFileSync(join(folder, 'config.yaml'), stringify(base()));
  const words = ['--config', join(folder, 'config.yaml')];
  const env = { DIR: folder, LOG_LEVEL: 'loud' };
  const stderr =
    'tollgate: the environment variable LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, silent\n';
  expect(await runProgram(['serve', ...words], env)).toEqual({ code: 1, stdout: '', stderr });
  expect(await runCommand(['check', ...words], env)).toMatchObject({
    code: 1,
    stderr: `serve would not start:\n${stderr}`,
  });
  expect((await runCommand(['check', ...words], { ...env, LOG_LEVEL: 'WARN' })).code).toBe(0);
});

// --- random configurations -------------------------------------------------------------------------------------------

/** Values of fields whose kind says too little, by the end of their path; some good, some bad. */
const OWN: readonly (readonly [path: RegExp, values: readonly unknown[]])[] = [
  [/^(listen|admin)\.port$/, [0, 'x', 70_000]],
  [/^(listen|admin)\.host$/, ['127.0.0.1', 'localhost', '0.0.0.0', '::1', '203.0.113.9', 'a b']],
  [/trusted_proxies$/, [['127.0.0.1'], ['10.0.0.0/8', '::/0'], ['10.0.0.0/99']]],
  [
    /^store$/,
    [
      'sqlite:$' + '{DIR}/other.db',
      'sqlite:$' + '{DIR}/new/other.db',
      'sqlite:$' + '{DIR}/text',
      'sqlite:',
      'mysql://h/d',
      'postgres://u@NOWHERE/d',
    ],
  ],
  [
    /^redis$/,
    ['redis://NOWHERE', 'redis-sentinel://NOWHERE/main', 'redis-cluster://NOWHERE', 'http://NOWHERE'],
  ],
  [/spool$/, ['$' + '{DIR}/spool', '$' + '{DIR}/text', '$' + '{DIR}/text/below']],
  [/proxy$/, ['none', 'http://NOWHERE', 'socks5://NOWHERE', 'NOWHERE']],
  [/^workers$/, [1, 0]],
  [/tls\.(cert|ca)$/, ['$' + '{file:cert.pem}', '$' + '{file:key.pem}', '$' + '{file:none.pem}', 'no PEM']],
  [/tls\.key$/, ['$' + '{file:key.pem}', '$' + '{file:cert.pem}']],
  [/prices$/, ['none.yaml', 'text']],
  [/command\.run$/, [['true'], []]],
  [/upstream$/, ['a', 'b', 'none']],
  [/target.*model$/, ['x', '*', 'a*b*c']],
  [/header$/, ['x-session', 'a b']],
  [/forward_headers$/, [['openai-organization'], ['authorization']]],
  [/headers$/, [{ 'x-team': 'SET' }, { authorization: 'x' }, { 'a b': 'c' }]],
  [/path$/, ['/health', 'health']],
  [/paths$/, [['/v1/files'], ['/v1/none']]],
  [/(refuse|remove)$/, [['user'], ['metadata.a'], ['model']]],
  [/rename$/, [{ max_tokens: 'max_completion_tokens' }, { a: 'a' }]],
  [/(origins)$/, [['https://a.example'], ['*'], ['a']]],
  [/color$/, ['#1a4fa0', 'red']],
];

const PLAIN: Readonly<Record<string, readonly unknown[]>> = {
  text: ['some-text', ''],
  'any value': [1, null, { a: [true] }],
  credential: ['$' + '{SET}', '$' + '{MISSING}', ''],
  URL: ['http://NOWHERE/v1', 'https://NOWHERE', 'NOWHERE'],
  'code of ISO 4217': ['USD', 'eur', 'US dollars'],
  'true` or `false': [true, false, 'yes'],
};

/** Values of a kind as the reference has it: its bounds and one beyond. */
function valuesOf(path: string, kind: string): readonly unknown[] {
  const own = OWN.find(([field]) => field.test(path));
  if (own !== undefined) return own[1];
  const [, of] = /^(?:list|mapping) of (.*)$/.exec(kind) ?? [];
  if (of !== undefined)
    return valuesOf(`${path}[]`, of).map((value) => (kind.startsWith('list') ? [value] : { name: value }));
  if (kind === 'mapping') return [{}, 'text'];
  const choices = Array.from(kind.matchAll(/`([^`]+)`/g), ([, choice]) => choice);
  const [, low, high] = /, ([\d.]+\w*) to ([\d.]+\w*)/.exec(kind) ?? [];
  const [, from] = /from (\d+)/.exec(kind) ?? [];
  const number = (text = '') => (/^[\d.]+$/.test(text) ? Number(text) : text);
  const bounds = [low, high, from].filter((each) => each !== undefined).map(number);
  return [...choices, ...bounds, ...(PLAIN[kind] ?? []), ...(bounds.length > 0 ? [-1, '5parsecs'] : [])];
}

/** Fetches from places that are not here. */
const FOREIGN = /\.auth\.(azure|google)\b|^workers|authority_host/;
const ROWS = [...fieldRows(staticShape), ...fieldRows(dynamicShape)].filter(
  ({ path }) => !FOREIGN.test(path),
);

/** Sets the field of a row, also of the reference's names: `upstreams.NAME` is `b`. */
function put(config: Tree, path: string, value: unknown): Tree {
  const steps = path
    .replace('upstreams.NAME', 'upstreams.b')
    .replace(/NAME/, 'm')
    .replace(/TIER/, 'Free')
    .replaceAll('[]', '.0')
    .split('.');
  let at: Tree = config;
  for (const step of steps.slice(0, -1)) {
    const next = at[step];
    const below: Tree = typeof next === 'object' && next !== null ? Object.assign(next) : {};
    at[step] = below;
    at = below;
  }
  at[steps.at(-1) ?? ''] = value;
  return config;
}

/** Sections whose fields need each other. */
const SECTIONS: readonly (readonly [path: string, value: unknown])[] = [
  ['listen.tls', { cert: '$' + '{file:cert.pem}', key: '$' + '{file:key.pem}' }],
  ['tls', { ca: '$' + '{file:cert.pem}', cert: '$' + '{file:cert.pem}', key: '$' + '{file:key.pem}' }],
  ['upstreams.NAME.tls', { ca: '$' + '{file:cert.pem}', server_name: 'localhost' }],
  [
    'upstreams.NAME.auth',
    { oauth2: { token_url: 'http://NOWHERE/t', client_id: 'c', client_secret: 'SET' } },
  ],
  ['upstreams.NAME.auth', { command: { run: ['true'] } }],
  ['upstreams.NAME.health', { path: '/up', interval: '1h' }],
  ['billing', { provider: 'test' }],
  ['billing', { provider: 'invoice' }],
  [
    'billing',
    { provider: 'stripe', secret_key: 'sk_test_x', webhook_secret: 'whsec_x', api_base: 'http://NOWHERE' },
  ],
  ['budgets', { webhook: { url: 'http://NOWHERE/hook', secret: '$' + '{SET}' } }],
  [
    'models.NAME.targets',
    [
      { upstream: 'b', model: 'x' },
      { upstream: 'a', model: 'y', priority: 2 },
    ],
  ],
  ['passthrough', { upstream: 'b', paths: ['/v1/files'] }],
  ['secret', 'x'.repeat(40)],
  ['tiers', { Free: { concurrency: 1 }, Pro: { price: { amount: 1, currency: 'usd', interval: 'month' } } }],
];

/** What only a start finds out. */
const BESIDE: readonly (readonly [path: string, value: unknown])[] = [
  ['listen.host', '203.0.113.9'],
  ['admin.host', '203.0.113.9'],
  ['store', 'sqlite:$' + '{DIR}/text'],
  ['store', 'sqlite:$' + '{DIR}/new/folder/store.db'],
  ['store', 'postgres://u@NOWHERE/d'],
];

const change: fc.Arbitrary<readonly [string, unknown]> = fc.oneof(
  { arbitrary: fc.constantFrom(...SECTIONS), weight: 2 },
  {
    arbitrary: fc.constantFrom(...ROWS).chain(({ path, kind }) => {
      const values = valuesOf(path, kind);
      return fc.tuple(fc.constant(path), values.length === 0 ? fc.constant('x') : fc.constantFrom(...values));
    }),
    weight: 3,
  },
);

test(
  'random configurations: check passes exactly those that serve starts with',
  async () => {
    let starts = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(change, { maxLength: 3 }),
        fc.option(fc.constantFrom(...BESIDE), { freq: 2 }),
        async (changes, beside) => {
          newFolder();
          const config = [...changes, ...(beside === null ? [] : [beside])].reduce(
            (tree, [path, value]) => put(tree, path, value),
            base(),
          );
          const text = JSON.stringify(config).replaceAll('NOWHERE', nowhere);
          if ((await agreed(JSON.parse(text))) === undefined) starts += 1;
          rmSync(folder, { recursive: true, force: true });
        },
      ),
      { numRuns: RUNS },
    );
    // Neither all nor none: both sides of the property are tried.
    expect(starts).toBeGreaterThan(RUNS / 20);
    expect(starts).toBeLessThan(RUNS);
  },
  RUNS * 5_000,
);
