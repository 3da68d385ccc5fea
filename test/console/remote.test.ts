// `tollgate --url`: commands at a gateway have the output and the exit code of the same commands at its store, and the rules of the API.
import { writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { main } from '../../src/main.ts';
import { collector } from '../cli/collector.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { type ConsoleSetting, startConsole } from './setting.ts';

let setting: ConsoleSetting;
const tokens = new Map<string, string>();

beforeAll(async () => {
  setting = await startConsole({
    config: { tiers: { Free: {}, Lite: {}, Pro: { requests_per_minute: 100 } } },
  });
  for (const role of ['viewer', 'support', 'admin'] as const)
    tokens.set(role, await setting.operator(`the-${role}`, role));
  await local('teams', 'add', 'search', '--label', 'env=prod');
  await local('keys', 'issue', '--tier', 'Pro', '--holder', 'Acme', '--team', 'search', '--name', 'first');
});
afterAll(() => setting[Symbol.asyncDispose]());

const local = (...argv: string[]) => setting.commands.tollgate(...argv);

async function run(argv: readonly string[], env: Record<string, string>, stdin = '') {
  const [out, err] = [collector(), collector()];
  const input = (async function* () {
    yield stdin;
  })();
  const code = await main([...argv], {
    stdout: out.stream,
    stderr: err.stream,
    stdin: input,
    env: { USER: 'alice', ...env },
  });
  return { code, out: out.text(), err: err.text() };
}
const as = (role: string, ...argv: string[]) =>
  run(argv, { TOLLGATE_URL: setting.gateway.adminUrl, TOLLGATE_TOKEN: tokens.get(role) ?? '' });

/** Without what differs from key to key, and from moment to moment. */
const shape = (text: string) =>
  text
    .replaceAll(/\b[0-9a-f]{8}-[0-9a-f-]{27}\b/g, 'HOLDER')
    .replaceAll(/\b[0-9a-f]{32}\b/g, 'KEY')
    .replaceAll(/\b[0-9a-f]{8}\b/g, 'PREFIX')
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME')
    .replaceAll(/cli:alice|operator:the-admin/g, 'ACTOR');

const prefix = async () => (await local('keys', 'issue', '--tier', 'Pro')).out.slice(0, 8);
const onKey =
  (...argv: string[]) =>
  async () => [...argv, await prefix()];

describe('the same output and exit code', () => {
  test.each([
    ['keys', 'list'],
    ['keys', 'list', '--json', '--tier', 'Pro'],
    ['keys', 'list', '--holder=Ac', '--team', 'search'],
    ['keys', 'list', '--tier', 'Gold'],
    ['keys', 'lst'],
    ['keys', 'show', '00000000'],
    ['keys', 'show'],
    ['holders', 'list', '--json'],
    ['holders', 'show', 'x'],
    ['teams', 'show', 'search'],
    ['teams', 'show', 'serch'],
    ['teams', 'list', '--wrong'],
    ['orders', 'list'],
    ['usage'],
    ['usage', '--json', '--by', 'day,model'],
    ['usage', 'months'],
    ['usage', '--since', 'x'],
    ['upstreams', 'events', '--json'],
    ['keys', '--help'],
  ])('of %j %j %j %j %j', async (...argv) => {
    const words = argv.filter((word) => word !== undefined);
    expect(await as('viewer', ...words)).toEqual(await local(...words));
  });

  test.each([
    ['keys issue', async () => ['keys', 'issue', '--tier', 'Pro', '--name', 'x', '--expires', '90d']],
    ['keys show', onKey('keys', 'show')],
    ['keys set', onKey('keys', 'set', '--name', 'new', '--json')],
    ['keys rotate', onKey('keys', 'rotate', '--json')],
    ['keys revoke', onKey('keys', 'revoke', '--reason', 'left')],
    ['keys tier', onKey('keys', 'tier', '--tier', 'Lite')],
    ['holders suspend', onKey('holders', 'suspend', '--json')],
    ['holders set', onKey('holders', 'set', '--limit', 'requests_per_minute=5', '--label', 'a=b')],
    ['holders set with too much', onKey('holders', 'set', '--limit', 'requests_per_minute=500')],
    ['a name with a control character', onKey('holders', 'set', '--name', 'a\u0001b')],
    ['explain', async () => ['explain', 'nothing-like-it']],
  ])('of %s', async (_name, words) => {
    const [here, there] = [await local(...(await words())), await as('admin', ...(await words()))];
    expect({ ...there, out: shape(there.out), err: shape(there.err) }).toEqual({
      ...here,
      out: shape(here.out),
      err: shape(here.err),
    });
  });

  test('of an explanation with a body, from a file and from the standard input', async () => {
    const file = setting.gateway.directory.file('body.json');
    const body = JSON.stringify({ model: 'test-model', messages: [] });
    await writeFile(file, body);
    const env = { TOLLGATE_URL: setting.gateway.adminUrl, TOLLGATE_TOKEN: tokens.get('viewer') ?? '' };
    const [named, piped] = [
      await run(['explain', '--body', file], env),
      await run(['explain', '--body', '-'], env, body),
    ];
    expect([named.code, named.out]).toEqual([0, expect.stringContaining('"messages"')]);
    expect(piped).toEqual(named);
  });
});

test('an admin makes and removes operators, under the name of the admin', async () => {
  const { code, out } = await as('admin', 'operators', 'add', 'bea', '--role', 'viewer');
  expect([code, out]).toEqual([0, expect.stringMatching(/^tgo_[0-9a-f]{32}\n$/)]);
  expect((await as('admin', 'operators', 'list')).out).toMatch(/^bea +viewer/m);
  expect((await as('admin', 'operators', 'remove', 'bea')).code).toBe(0);
  const events = await setting.call('GET', '/api/v1/events?target=bea', { token: tokens.get('admin') ?? '' });
  expect(events.json).toMatchObject({
    items: [
      { what: 'operators.remove', actor: 'operator:the-admin' },
      { what: 'operators.add', actor: 'operator:the-admin' },
    ],
  });
  expect(events.text).not.toContain(out.trim().slice(12));
});

test('a change is an event of the operator, with what it changed', async () => {
  const revoked = await prefix();
  await as('support', 'keys', 'revoke', '--reason', 'lost', '--json', revoked);
  const { out } = await local('keys', 'events', revoked, '--json');
  expect(JSON.parse(out)[1]).toMatchObject({
    kind: 'revoked',
    actor: 'operator:the-support',
    reason: 'lost',
  });
  const events = await setting.call('GET', `/api/v1/events?target=${revoked}`, {
    token: tokens.get('admin') ?? '',
  });
  const what = {
    what: 'keys.revoke',
    actor: 'operator:the-support',
    address: '127.0.0.1',
    reason: 'lost',
    status: 200,
  };
  expect(events.json).toMatchObject({
    items: [{ ...what, before: { state: 'active' }, after: { record: { state: 'revoked' } } }],
  });
});

test('the key of an order is in no event', async () => {
  const { out } = await as('support', 'keys', 'issue', '--tier', 'Pro');
  const events = await setting.call('GET', '/api/v1/events?what=keys.issue', {
    token: tokens.get('admin') ?? '',
  });
  expect(events.text).toContain(out.slice(0, 8));
  expect(events.text).not.toContain(out.trim());
});

describe('roles', () => {
  test.each([
    ['viewer', 'keys', 'issue', '--tier', 'Pro'],
    ['viewer', 'keys', 'revoke', '00000000'],
    ['viewer', 'holders', 'suspend', '00000000'],
    ['support', 'teams', 'add', 'x'],
    ['support', 'upstreams', 'drain', 'echo'],
    ['support', 'usage', 'close', '2020-01'],
  ])('%s may not: %s %s %s', async (role, ...argv) => {
    const { code, out, err } = await as(role, ...argv);
    expect([code, out, err]).toEqual([
      1,
      '',
      expect.stringMatching(/403: This needs the role (support|admin), and yours is/),
    ]);
  });

  /** As somebody would send it who tries more than the command line does. */
  const send = (argv: readonly unknown[], role = 'viewer') =>
    setting.call('POST', '/api/v1/commands', { token: tokens.get(role) ?? '', body: { argv } });

  test.each([
    [['keys', '--', 'revoke', '00000000']],
    [['keys', '--json', 'revoke', '00000000']],
    [['usage', '--', 'close', '2020-01']],
    [['usage', '--json', 'close', '2020-01']],
    [['usage', 'close', '--help']],
    [['serve']],
    [['check', '--config', '/etc/passwd']],
    [['init']],
    [['operators', 'add', 'x', '--role', 'admin']],
    [['operators', 'list']],
    [['operators', 'remove', 'the-admin']],
    [['--version', 'keys', 'revoke']],
    [['constructor']],
    [['keys', 'constructor']],
    [['keys', '__proto__']],
    [['', '']],
  ])('a viewer gets nothing more by %j', async (argv) => {
    const { status, json } = await send(argv);
    expect([400, 403]).toContain(status);
    expect(json).toHaveProperty('code');
  });

  test.each([
    [['keys', 'list', '--config', '/etc/passwd']],
    [['keys', 'list', '--config=/etc/passwd']],
    [['keys', 'issue', '--tier', 'Pro', '--actor', 'root']],
    [['explain', '--body', '/etc/passwd']],
    [['explain', '--body=/etc/passwd']],
    [[]],
    [[1]],
    [['keys', 'x'.repeat(20_000)]],
  ])('no file of the gateway is read, and no other actor named, by %j', async (argv) => {
    const { status, text } = await send(argv, 'admin');
    expect([status, text.includes('root:')]).toEqual([400, false]);
  });
});

describe('a gateway', () => {
  const list = (env: Record<string, string>, ...options: string[]) => run(['keys', 'list', ...options], env);

  test('that does not answer, or is none, or refuses the token, is one line', async () => {
    const url = setting.gateway.adminUrl;
    const token = tokens.get('viewer') ?? '';
    const [away, other] = [`http://127.0.0.1:${await closedPort()}`, setting.gateway.url];
    const results = [
      await list({ TOLLGATE_URL: away, TOLLGATE_TOKEN: token }),
      await list({ TOLLGATE_URL: other, TOLLGATE_TOKEN: token }),
      await list({ TOLLGATE_URL: url, TOLLGATE_TOKEN: `tgo_${'0'.repeat(32)}` }),
      await list({ TOLLGATE_URL: url }),
      await list({ TOLLGATE_URL: 'ftp://x', TOLLGATE_TOKEN: token }),
      await list({ TOLLGATE_TOKEN: token }, '--url', url, '--config', 'x.yaml'),
      await run(['check', '--url', url], { TOLLGATE_TOKEN: token }),
    ];
    expect(results.map(({ code, out }) => [code, out])).toEqual(
      [1, 1, 1, 2, 2, 2, 2].map((code) => [code, '']),
    );
    for (const { err } of results) expect(err).toMatch(/^tollgate[a-z ]*: [^\n]*\n$/);
    expect(results.map(({ err }) => err).join('')).not.toContain(token.slice(12));
  });

  test.each([
    [
      ['keys', 'lst'],
      'tollgate: a gateway does not run this command (did you mean keys list?); see tollgate --help',
    ],
    [['usge'], 'tollgate: a gateway does not run this command (did you mean usage?); see tollgate --help'],
    [[], 'tollgate: a gateway does not run this command; see tollgate --help'],
    [
      ['explain', '--body', '/nowhere/body.json'],
      'tollgate explain: the file /nowhere/body.json cannot be read: ENOENT: no such file or directory; see tollgate explain --help',
    ],
  ])('that is asked for %j says what is wrong, under the name of the command', async (argv, message) => {
    const env = { TOLLGATE_TOKEN: tokens.get('viewer') ?? '' };
    const { code, out, err } = await run(['--url', setting.gateway.adminUrl, ...argv], env);
    expect([code, out, err]).toEqual([2, '', `${message}\n`]);
  });

  test('that is none is named as it was given, with its path', async () => {
    const url = `${setting.gateway.adminUrl}/console`;
    const { code, err } = await list({ TOLLGATE_URL: url, TOLLGATE_TOKEN: tokens.get('viewer') ?? '' });
    expect([code, err]).toEqual([
      1,
      `tollgate keys list: ${url} is not the admin listener of a gateway with this API\n`,
    ]);
  });

  test('is the one of --url, and the store of --config goes before TOLLGATE_URL', async () => {
    const token = tokens.get('viewer') ?? '';
    const named = await list(
      { TOLLGATE_URL: 'http://127.0.0.1:1', TOLLGATE_TOKEN: token },
      '--url',
      `${setting.gateway.adminUrl}/`,
    );
    expect(named).toEqual(await local('keys', 'list'));
    const env = { TOLLGATE_URL: 'http://127.0.0.1:1', TEST_DIR: setting.gateway.directory.path };
    expect(await list(env, '--config', setting.gateway.configFile)).toEqual(named);
  });
});
