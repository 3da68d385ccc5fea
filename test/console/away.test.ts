// The console while the store or Redis is away: it says so, changes nothing, and works again without a restart.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadConfig } from '../../src/config/load-config.ts';
import { AdminConsole } from '../../src/console/admin-console.ts';
import { AdminServer } from '../../src/http/admin/admin-listener.ts';
import { Health } from '../../src/http/admin/health.ts';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { type ConsoleSetting, callAdmin, startConsole } from './setting.ts';

test('a store that cannot be opened is a 503 of the console alone, until it can', async () => {
  await using setting = await startConsole();
  const token = await setting.operator('ann', 'admin');
  const config = loadConfig(setting.gateway.configFile, { TEST_DIR: setting.gateway.directory.path });
  const url = `postgres://u:p@127.0.0.1:${await closedPort()}/d`;
  const stores: Store[] = [];
  let isAway = true;
  const console = new AdminConsole({
    config: () => config,
    openStore: async () => {
      const store = await openStore(isAway ? { kind: 'postgres', url } : config.static.store);
      stores.push(store);
      return store;
    },
    metrics: createMetrics(),
    upstreams: () => [],
    commands: undefined,
    env: {},
    logger: createLogger(undefined, 'silent'),
  });
  const health = new Health({ version: '1', configHash: () => 'h', draining: () => false, checks: {} });
  const page = { registry: { contentType: 'text/plain', metrics: async () => '' } };
  const admin = new AdminServer(page, health, { operators: console });
  const { port } = await admin.listen('127.0.0.1', 0);
  try {
    const get = (path: string) => callAdmin(`http://127.0.0.1:${port}`, 'GET', path, { token });
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
    // Away while it is open: every call fails by itself.
    for (const store of stores) await store.close();
    expect((await get('/api/v1/me')).status).toBe(503);
  } finally {
    await admin.close();
  }
});

describe('with Redis', () => {
  let redis: RedisServer;
  let setting: ConsoleSetting;

  beforeAll(async () => {
    redis = await startRedis();
    setting = await startConsole({ config: { redis: redis.url } });
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
    const { cookie } = await setting.signIn(token);
    await redis.stop();
    const answer = await call(`/keys/${second}/revoke`, { reason: 'lost' });
    expect([answer.status, answer.json]).toMatchObject([
      200,
      { record: { state: 'revoked' }, replicas: { confirmed: 0, error: expect.any(String) } },
    ]);
    // Sessions and states of this process need no Redis.
    expect((await setting.call('GET', '/console', { cookie })).text).toContain('>ann (');
    expect((await setting.call('GET', '/api/v1/upstreams', { token })).json).toMatchObject({
      items: [{ upstream: 'echo' }],
    });
  });
});
