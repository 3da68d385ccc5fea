// `tollgate keys revoke` with replicas on a real Redis: its output and its exit codes.
import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { broadcastText } from '../../src/cli/fleet-action.ts';
import { main } from '../../src/main.ts';
import { RedisClient } from '../../src/redis/redis-client.ts';
import { Replicas } from '../../src/redis/replicas.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { collector } from './collector.ts';

const PASSWORD = 'not-to-be-shown';
const logger = createLogger(undefined, 'silent');

let server: RedisServer;
let dir: TempDir;
let configFile: string;
let stack: AsyncDisposableStack;

beforeAll(async () => {
  server = await startRedis({ args: ['--requirepass', PASSWORD], password: PASSWORD });
}, REDIS_TIMEOUT);
beforeEach(async () => {
  await server.flush();
  stack = new AsyncDisposableStack();
  dir = stack.use(await tempDir());
  configFile = configure(server.url);
});
afterEach(async () => {
  server.resume();
  await stack.disposeAsync();
});
afterAll(() => server?.stop());

function configure(redis: string): string {
  const file = dir.file('config.yaml');
  writeFileSync(
    file,
    `store: sqlite:${dir.file('keys.db')}
redis: ${redis}
upstreams: { demo: { builtin: echo } }
models: { echo: { targets: [{ upstream: demo, model: echo }] } }
`,
  );
  return file;
}

/** A replica that confirms what it hears. */
async function join(): Promise<{ readonly replicas: Replicas; readonly heard: string[] }> {
  const { url } = server;
  const redis = new RedisClient({ url, logger, commandMs: 10_000, startMs: 10_000 });
  stack.defer(() => redis.close());
  const heard: string[] = [];
  const replicas = new Replicas({
    redis,
    url,
    logger,
    version: '9.8.7',
    onMessage: (body) => void heard.push(body),
    onLost: () => {},
    onRestored: () => {},
  });
  await redis.start();
  stack.defer(() => replicas.stop());
  await replicas.start();
  await until(async () => (await server.command('ZSCORE', 'tollgate:replicas', replicas.id)) !== null);
  return { replicas, heard };
}

async function keys(...argv: string[]) {
  const [out, err] = [collector(), collector()];
  const io = { stdout: out.stream, stderr: err.stream, env: {} };
  const code = await main(['keys', ...argv, '--config', configFile], io);
  const result = { code, out: out.text(), err: err.text() };
  expect(result.out + result.err).not.toContain(PASSWORD);
  return result;
}

async function issue(): Promise<string> {
  const { code, out } = await keys('issue', '--tier', 'Lite');
  expect(code).toBe(0);
  return out.trim();
}

describe('tollgate keys revoke', () => {
  test.each([
    [0, /^\w{8} is revoked\. No replica is running\.\n$/],
    [1, /^\w{8} is revoked\. 1 of 1 replicas reject it in \d+ ms; hard bound 5 s\.\n$/],
    [2, /^\w{8} is revoked\. 2 of 2 replicas reject it in \d+ ms; hard bound 5 s\.\n$/],
  ])('with %i replicas completes when all have confirmed', async (count, text) => {
    const key = await issue();
    const members = [];
    for (let index = 0; index < count; index += 1) members.push(await join());
    const { code, out, err } = await keys('revoke', key.slice(0, 8), '--reason', 'lost laptop');
    expect({ code, out, err }).toEqual({ code: 0, out: expect.stringMatching(text), err: '' });
    const notice = { prefix: key.slice(0, 8), kind: 'revoked', version: 2, at: expect.any(String) };
    for (const { heard } of members) expect(heard.map((body) => JSON.parse(body))).toEqual([notice]);
    expect(await server.command('GET', `tollgate:key:{${key.slice(0, 8)}}`)).toBe('2 ended');
  });

  test('prints the same as JSON', async () => {
    const key = await issue();
    await join();
    const first = await keys('revoke', key.slice(0, 8), '--json');
    expect([first.code, first.err]).toEqual([0, '']);
    expect(JSON.parse(first.out)).toMatchObject({
      outcome: 'revoked',
      prefix: key.slice(0, 8),
      state: 'revoked',
      replicas: { confirmed: 1, total: 1, ms: expect.any(Number), missing: [] },
    });
  });

  test('exits with 3 and names the replicas that have not confirmed', async () => {
    const key = await issue();
    const { replicas } = await join();
    const seconds = Number(String(await server.command('TIME')).split(',')[0]);
    await server.command('ZADD', 'tollgate:replicas', (seconds - 20) * 1000, 'host:1:dead');
    const { code, out, err } = await keys('revoke', key.slice(0, 8));
    expect(code).toBe(3);
    expect(out).toMatch(/is revoked\. 1 of 2 replicas reject it in \d+ ms; hard bound 5 s\.\n$/);
    expect(err).toMatch(/^Warning: not confirmed by host:1:dead, last seen 2\d s ago\.\n/);
    expect(err).toMatch(/within 1 s, .* within 60 s/);
    // It is told again; who has gone meanwhile is not waited for.
    await server.command('ZREM', 'tollgate:replicas', 'host:1:dead');
    const again = await keys('revoke', key.slice(0, 8), '--json');
    expect([again.code, again.err]).toEqual([0, '']);
    expect(JSON.parse(again.out)).toMatchObject({
      outcome: 'already',
      replicas: { confirmed: 1, missing: [] },
    });
    await replicas.stop();
    expect((await keys('revoke', key.slice(0, 8))).out).toMatch(
      /was revoked before, at \S+\. No replica is running\./,
    );
  });

  test('exits with 3 when Redis is unavailable, with the key revoked in the store, and prints no password', async () => {
    const key = await issue();
    server.pause();
    const { code, out, err } = await keys('revoke', key.slice(0, 8), '--json');
    expect(code).toBe(3);
    expect(JSON.parse(out)).toMatchObject({
      outcome: 'revoked',
      replicas: { confirmed: 0, error: expect.any(String) },
    });
    expect(err).toMatch(/^Warning: failed to notify the replicas: /);
    server.resume();
    expect((await keys('revoke', key.slice(0, 8))).code).toBe(0);
    expect(await server.command('GET', `tollgate:key:{${key.slice(0, 8)}}`)).toBe('2 ended');
  });

  test('exits with 3 when Redis rejects the password, and does not print it', async () => {
    const key = await issue();
    configFile = configure(server.url.replace(PASSWORD, `${PASSWORD}-any-more`));
    const { code, err } = await keys('revoke', key.slice(0, 8));
    expect(code).toBe(3);
    expect(err).toMatch(/failed to notify/);
  });

  test('of an unknown key notifies no replica and exits with 1', async () => {
    await issue();
    const { heard } = await join();
    expect(await keys('revoke', '00000000')).toMatchObject({ code: 1, out: '' });
    expect(heard).toEqual([]);
  });
});

test.each([
  [[], 'rotated', '2 ended', /; the old key has ended\. 1 of 1 replicas reject it in \d+ ms/],
  [['--overlap', '1h'], 'changed', '2 changed', /; the old key is valid until \S+ 1 of 1 replicas apply it/],
])('tollgate keys rotate %j is confirmed by the replicas', async (options, kind, tombstone, text) => {
  const key = await issue();
  writeFileSync(configFile, `${readFileSync(configFile, 'utf8')}auth: { max_rotation_overlap: 1h }\n`);
  const { heard } = await join();
  const { code, out, err } = await keys('rotate', key.slice(0, 8), ...options);
  expect({ code, out, err }).toEqual({
    code: 0,
    out: expect.stringMatching(/^\w{32}\n$/),
    err: expect.stringMatching(text),
  });
  await until(() => heard.length === 2);
  expect(heard.flatMap((body) => JSON.parse(body))).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ prefix: key.slice(0, 8), kind, version: 2 }),
      expect.objectContaining({ prefix: out.slice(0, 8), kind: 'issued' }),
    ]),
  );
  expect(await server.command('GET', `tollgate:key:{${key.slice(0, 8)}}`)).toBe(tombstone);
});

test('tollgate keys rotate exits with 3 where a replica does not follow, and shows the key nevertheless', async () => {
  const key = await issue();
  writeFileSync(configFile, `${readFileSync(configFile, 'utf8')}auth: { max_rotation_overlap: 1h }\n`);
  await server.command('ZADD', 'tollgate:replicas', Date.now(), 'host:1:old');
  const { code, out, err } = await keys('rotate', key.slice(0, 8), '--overlap', '1h', '--json');
  expect([code, err]).toEqual([3, expect.stringContaining('replica host:1:old')]);
  expect(JSON.parse(out)).toMatchObject({
    key: expect.stringMatching(/^\w{32}$/),
    replaces: key.slice(0, 8),
    replicas: { confirmed: 0, total: 1, incapable: [{ id: 'host:1:old' }] },
  });
});

test('tollgate keys issue writes the signed, proven record to Redis and notifies the replicas', async () => {
  const { heard } = await join();
  const key = await issue();
  const value = String(await server.command('GET', `tollgate:key:{${key.slice(0, 8)}}`));
  expect(value).toMatch(/^1 [A-Za-z0-9+/]{43}= \{/);
  expect(JSON.parse(value.split(' ').slice(2).join(' '))).toMatchObject({
    prefix: key.slice(0, 8),
    tier: 'Lite',
    version: 1,
  });
  expect(value).not.toContain(key.slice(8));
  await until(() => heard.length > 0);
  expect(heard.map((body) => JSON.parse(body))).toMatchObject([{ prefix: key.slice(0, 8), kind: 'issued' }]);
});

test('where no replica has confirmed, the text has no time', () => {
  const missing = [{ id: 'host:1:dead', seenMs: 0 }];
  const confirmation = { confirmed: [], missing, incapable: [] };
  expect(broadcastText({ kind: 'sent', confirmation }, 'reject it')).toBe(
    '0 of 1 replicas reject it; hard bound 5 s.',
  );
});
