// The console while the store or Redis is away: it says so, changes nothing, and works again without a restart.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openStore } from '../../src/store/open.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { addOrder, type ConsoleSetting, openConsole, SALES, startConsole } from './setting.ts';

/** All pages, those of records included, and what is beside them. */
async function pathsOf({ commands, gateway }: ConsoleSetting): Promise<readonly string[]> {
  await commands.tollgate('teams', 'add', 'search');
  const issue = ['keys', 'issue', '--tier', 'Pro', '--team', 'search'];
  const prefix = (await commands.tollgate(...issue)).out.slice(0, 8);
  const store = await openStore({ kind: 'sqlite', path: gateway.directory.file('tollgate.db') });
  const order = await addOrder(store);
  await store.close();
  return [
    '/console',
    '/console/upstreams',
    '/console/upstreams/echo',
    '/console/models?model=test-model',
    '/console/keys',
    '/console/holders',
    '/console/teams',
    '/console/usage',
    '/console/usage.csv',
    '/console/orders',
    '/console/events',
    '/console/operators',
    '/console/operators/ann',
    `/console/keys/${prefix}`,
    `/console/holders/${prefix}`,
    '/console/teams/search',
    `/console/orders/${order}`,
    '/console/budgets',
  ];
}

test('a store that cannot be opened is a 503 of the console alone, until it can', async () => {
  await using setting = await startConsole();
  const token = await setting.operator('ann', 'admin');
  const url = `postgres://u:p@127.0.0.1:${await closedPort()}/d`;
  let isAway = true;
  await using console = await openConsole(setting, {
    openStore: () => openStore(isAway ? { kind: 'postgres', url } : console.config.static.store),
  });
  const get = (path: string) => console.call('GET', path, { token });
  expect(await get('/api/v1/me')).toMatchObject({
    status: 503,
    json: { code: 'store_unavailable' },
    headers: { 'retry-after': '1' },
  });
  const shown = await get('/console');
  expect([shown.status, shown.text.includes('u:p@')]).toEqual([503, false]);
  expect((await get('/livez')).status).toBe(200);
  isAway = false;
  expect((await get('/api/v1/me')).json).toMatchObject({ name: 'ann' });
});

test('a store that goes away is a 503 of every page and form, with a page that says so', async () => {
  await using setting = await startConsole({ config: SALES });
  const token = await setting.operator('ann', 'admin');
  await using console = await openConsole(setting, {});
  const { cookie, csrf } = await setting.signIn(token);
  const paths = await pathsOf(setting);
  for (const path of paths)
    expect([path, (await console.call('GET', path, { cookie })).status]).toEqual([path, 200]);
  await console.closeStores();
  expect((await console.call('GET', '/api/v1/me', { token })).status).toBe(503);
  const answers = [
    ...paths.map(async (path) => [path, await console.call('GET', path, { cookie })] as const),
    ...['/console/do/keys.issue', '/console/sign-in', '/console/sign-out'].map(async (path) => {
      const body = `csrf=${csrf}&text.tier=Pro&token=${token}`;
      return [path, await console.call('POST', path, { cookie, body })] as const;
    }),
    (async () => ['/console/live', await console.call('GET', '/console/live', { cookie })] as const)(),
  ];
  for (const [path, { status, headers, text }] of await Promise.all(answers)) {
    expect([path, status, headers['retry-after']]).toEqual([path, 503, '1']);
    expect(text).toMatch(/<h1 id="outcome">.*store/);
    expect(text).not.toMatch(/sqlite|\.db|at .*\.ts:|tgo_/i);
  }
  expect(await setting.commands.json('keys', 'list')).toHaveLength(1);
});

describe('with Redis', () => {
  let redis: RedisServer;
  let setting: ConsoleSetting;

  beforeAll(async () => {
    redis = await startRedis();
    setting = await startConsole({ config: { ...SALES, redis: redis.url } });
  }, REDIS_TIMEOUT);
  afterAll(async () => {
    await setting?.[Symbol.asyncDispose]();
    await redis?.[Symbol.asyncDispose]();
  });

  test('a change says which replicas have confirmed it; without Redis it is done, and says that none could be told', async () => {
    const token = await setting.operator('ann', 'admin');
    const call = (path: string, body?: unknown) => setting.call('POST', `/api/v1${path}`, { token, body });
    const newKey = async () =>
      String(Reflect.get(Object((await call('/keys', { tier: 'Pro' })).json), 'key')).slice(0, 8);
    const [first, second] = [await newKey(), await newKey()];
    expect((await call(`/keys/${first}/revoke`, {})).json).toMatchObject({
      replicas: { confirmed: 1, total: 1 },
    });
    const { cookie, csrf } = await setting.signIn(token);
    const paths = await pathsOf(setting);
    await redis.stop();
    const answer = await call(`/keys/${second}/revoke`, { reason: 'lost' });
    expect([answer.status, answer.json]).toMatchObject([
      200,
      { record: { state: 'revoked' }, replicas: { confirmed: 0, error: expect.any(String) } },
    ]);
    // Sessions and states of this process need no Redis.
    for (const path of paths) {
      const { status, text } = await setting.call('GET', path, { cookie });
      expect([path, status]).toEqual([path, 200]);
      if (path === '/console') expect(text).toContain('>ann (');
    }
    // Forms of records: what replicas hold is changed, and they could not be told; other records they do not hold.
    const prefix = paths.find((path) => path.startsWith('/console/keys/'))?.split('/')[3] ?? '';
    const forms: readonly (readonly [string, string, boolean])[] = [
      ['keys.set', `param.prefix=${prefix}&null.name=ci`, false],
      ['holders.set', `param.holder=${prefix}&null.name=Maps`, false],
      ['holders.suspend', `param.holder=${prefix}`, false],
      ['teams.set', 'param.name=search&map.labels=a%3Db', true],
      ['operators.rotate', 'param.name=bea', true],
    ];
    await setting.operator('bea', 'viewer');
    for (const [route, fields, isDone] of forms) {
      const body = `csrf=${csrf}&${fields}`;
      const { status, text } = await setting.call('POST', `/console/do/${route}`, { cookie, body });
      expect([route, status, text.includes('role="alert"')]).toEqual([route, 200, !isDone]);
      if (!isDone) expect(text).toMatch(/Tell the replicas again/);
    }
    expect((await setting.call('GET', '/api/v1/upstreams', { token })).json).toMatchObject({
      items: [{ upstream: 'echo' }],
    });
  });
});
