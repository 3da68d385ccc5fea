// `tollgate keys tier`, `suspend` and `resume`: their effects, output, notifications and exit codes.
import { rmSync, writeFileSync } from 'node:fs';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { main } from '../../src/main.ts';
import { RedisClient } from '../../src/redis/redis-client.ts';
import { Replicas } from '../../src/redis/replicas.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { collector } from './collector.ts';

let dir: TempDir;
let configFile: string;

beforeEach(async () => {
  dir = await tempDir();
  configFile = configure('');
});

afterEach(() => dir.remove());

function configure(more: string): string {
  const file = dir.file('config.yaml');
  writeFileSync(
    file,
    `store: sqlite:${dir.file('keys.db')}
${more}
upstreams: { demo: { builtin: echo } }
models: { echo: { targets: [{ upstream: demo, model: echo }] } }
`,
  );
  return file;
}

const keys = (...argv: string[]) => tollgate('keys', ...argv);

async function tollgate(...argv: string[]) {
  const [out, err] = [collector(), collector()];
  const io = { stdout: out.stream, stderr: err.stream, env: {} };
  const code = await main([...argv, '--config', configFile], io);
  return { code, out: out.text(), err: err.text() };
}

/** The prefix of a new key. */
async function issue(...argv: string[]): Promise<string> {
  const { code, out } = await keys('issue', ...argv);
  expect(code).toBe(0);
  return out.slice(0, 8);
}

describe('without replicas that share a Redis', () => {
  test('tier changes all keys of the holder, named by any of them', async () => {
    const first = await issue('--tier', 'Free', '--holder', 'team');
    const [second, third] = [await issue('--for', first), await issue('--for', first)];
    await keys('revoke', first);
    expect(await keys('tier', first, '--tier', 'Pro', '--reason', 'by invoice')).toEqual({
      code: 0,
      out: `The holder of ${first} has the tier Pro. Active keys: ${second}, ${third}. Running gateways apply it within 1 s, 5 s at most.\n`,
      err: '',
    });
    expect(JSON.parse((await keys('list', '--json', '--tier', 'Pro')).out)).toHaveLength(3);
    expect((await keys('show', second)).out).toMatch(
      /^prefix .+\nstate +active\ntier +Pro\nstanding +good\n(.*\n)*events\n.+ issued, version 1.*\n.+ changed, version 2 by \S+: tier Free to Pro: by invoice\n$/,
    );
    expect(JSON.parse((await keys('show', first, '--json')).out)).toMatchObject({
      tier: 'Pro',
      state: 'revoked',
    });
    expect((await keys('tier', second, '--tier', 'Pro')).out).toMatch(/has the tier Pro as before\. Active/);
    expect((await keys('show', second)).out).toContain('version     2\n');
  });

  test('suspend and resume appear in list and show with the reason, and end no key', async () => {
    const [bad, other] = [await issue('--tier', 'Lite'), await issue('--tier', 'Lite')];
    expect((await keys('suspend', bad, '--reason', 'chargeback')).out).toMatch(
      new RegExp(`^The holder of ${bad} is suspended\\. Active keys: ${bad}\\. `),
    );
    const { out } = await keys('list');
    expect(out).toMatch(new RegExp(`^${bad}  suspended +Lite .+ - `, 'm'));
    expect(out).toMatch(new RegExp(`^${other}  active +Lite `, 'm'));
    expect(JSON.parse((await keys('list', '--json')).out)).toMatchObject([
      { prefix: bad, state: 'active', standing: 'suspended' },
      { prefix: other, state: 'active', standing: 'good' },
    ]);
    expect((await keys('show', bad)).out).toMatch(/\nstanding +suspended\n/);
    expect((await keys('show', bad)).out).toMatch(
      /version 2 by \S+: standing good to suspended: chargeback\n/,
    );
    const resumed = await keys('resume', bad, '--json');
    expect([resumed.code, JSON.parse(resumed.out)]).toEqual([
      0,
      {
        outcome: 'changed',
        holder: expect.any(String),
        keys: [expect.objectContaining({ prefix: bad, standing: 'good', version: 3 })],
      },
    ]);
    expect(await keys('list')).toMatchObject({ out: expect.not.stringContaining('suspended') });
  });

  test('a holder without an active key changes, without notifications', async () => {
    const prefix = await issue('--tier', 'Free');
    await keys('revoke', prefix);
    expect((await keys('suspend', prefix)).out).toBe(
      `The holder of ${prefix} is suspended. It has no active keys.\n`,
    );
    const second = await issue('--for', prefix, '--reason', 'asked by mail');
    expect((await keys('list')).out).toMatch(/ suspended /);
    const by = 'by \\S+';
    expect((await tollgate('holders', 'show', prefix)).out.split('events\n')[1]).toMatch(
      new RegExp(
        [
          `^  \\S+  issued ${prefix} ${by}\n`,
          `  \\S+  revoked ${prefix} ${by}\n`,
          `  \\S+  changed ${prefix} ${by}: standing good to suspended\n`,
          `  \\S+  issued ${second} ${by}: for the holder of ${prefix}: asked by mail\n$`,
        ].join(''),
      ),
    );
  });

  test('the secret is not needed', async () => {
    const prefix = await issue('--tier', 'Free');
    rmSync(`${dir.file('keys.db')}.secret`);
    expect((await keys('suspend', prefix)).code).toBe(0);
  });

  test.each([
    [2, ['tier', '01234567'], /--tier is missing/],
    [2, ['tier', '01234567', '--tier', 'Gold'], /unknown tier: it is one of Free, Lite, Pro/],
    [2, ['tier', '--tier', 'Pro'], /PREFIX is missing/],
    [2, ['suspend'], /PREFIX is missing/],
    [2, ['suspend', '01234567', '--tier', 'Pro'], /unknown option --tier/],
    [2, ['suspned', '01234567'], /unknown command \(did you mean suspend\?\)/],
    [1, ['suspend', '00000000'], /no key with this prefix/],
    [1, ['resume', '00000000'], /no key with this prefix/],
    [1, ['tier', '00000000', '--tier', 'Pro'], /no key with this prefix/],
  ])('exits with %i for %j and changes nothing', async (code, argv, message) => {
    await issue('--tier', 'Free');
    const before = (await keys('list')).out;
    expect(await keys(...argv)).toMatchObject({ code, out: '', err: expect.stringMatching(message) });
    expect((await keys('list')).out).toBe(before);
  });

  test('a reason that contains a key is rejected and not printed', async () => {
    const prefix = await issue('--tier', 'Free');
    const secret = '0123456789abcdef'.repeat(2);
    const { code, out, err } = await keys('suspend', prefix, '--reason', `of ${secret}`);
    expect([code, out, err.includes(secret)]).toEqual([1, '', false]);
    expect(err).toContain('looks like a key');
  });
});

describe('with replicas on a Redis', () => {
  let server: RedisServer;
  const logger = createLogger(undefined, 'silent');

  beforeAll(async () => {
    server = await startRedis();
  }, REDIS_TIMEOUT);
  beforeEach(async () => {
    await server.flush();
    configFile = configure(`redis: ${server.url}`);
  });
  afterEach(() => server.resume());
  afterAll(() => server?.stop());

  /** A replica of this version. @returns what it hears */
  async function joinNew(stack: AsyncDisposableStack): Promise<readonly string[]> {
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
    return heard;
  }

  /** A replica of an older version: it is in the registry and confirms every message, whether it knows its meaning or not. */
  async function joinOld(stack: AsyncDisposableStack, id: string, about: unknown): Promise<void> {
    const [listening, answering] = [new Redis(server.url), new Redis(server.url)];
    stack.defer(() => void listening.disconnect());
    stack.defer(() => void answering.disconnect());
    listening.on('message', (_channel, text) => {
      const { ack } = JSON.parse(text);
      if (ack !== undefined) void answering.publish(ack, id);
    });
    await listening.subscribe('tollgate:changes');
    const seconds = Number(String(await server.command('TIME')).split(',')[0]);
    await server.command('ZADD', 'tollgate:replicas', seconds * 1000, id);
    if (about !== undefined) await server.command('SET', `tollgate:replica:${id}`, JSON.stringify(about));
  }

  test('completes when each has confirmed one message for all keys, and exits with 3 when one has not', async () => {
    await using stack = new AsyncDisposableStack();
    const heard = await joinNew(stack);
    const first = await issue('--tier', 'Free');
    const second = await issue('--for', first);
    await until(() => heard.length === 2);
    const { code, out, err } = await keys('tier', first, '--tier', 'Pro');
    expect({ code, out, err }).toEqual({
      code: 0,
      out: expect.stringMatching(
        / Active keys: .+\. 1 of 1 replicas apply it in \d+ ms; hard bound 5 s\.\n$/,
      ),
      err: '',
    });
    const notice = { kind: 'changed', version: 2, at: expect.any(String) };
    expect(heard.slice(2).map((body) => JSON.parse(body))).toEqual([
      [
        { prefix: first, ...notice },
        { prefix: second, ...notice },
      ],
    ]);
    for (const prefix of [first, second]) {
      expect(await server.command('GET', `tollgate:key:{${prefix}}`)).toBe('2 changed');
    }

    const seconds = Number(String(await server.command('TIME')).split(',')[0]);
    await server.command('ZADD', 'tollgate:replicas', (seconds - 20) * 1000, 'host:1:dead');
    const about = JSON.stringify({ version: '9.8.7', understands: ['tier', 'suspension'] });
    await server.command('SET', 'tollgate:replica:host:1:dead', about);
    const missed = await keys('suspend', first, '--json');
    expect(missed.code).toBe(3);
    expect(JSON.parse(missed.out)).toMatchObject({
      outcome: 'changed',
      replicas: { confirmed: 1, total: 2, missing: [{ id: 'host:1:dead' }] },
    });
    expect(missed.err).toMatch(/^Warning: not confirmed by host:1:dead.*\n.*store applies it within 1 s/);
    // Once more, it is told again.
    await server.command('ZREM', 'tollgate:replicas', 'host:1:dead');
    expect(await keys('suspend', first)).toMatchObject({
      code: 0,
      out: expect.stringMatching(/is suspended as before\. .* 1 of 1 replicas apply it/),
    });
  });

  test.each([
    ['announces nothing', undefined, 'an older version'],
    ['knows tiers alone', { version: '0.1.0', understands: ['tier'] }, '0.1.0'],
    ['knows what no one here does', { version: '7.0.0', understands: ['magic'] }, '7.0.0'],
  ])('a replica that %s is named as incapable although it confirms', async (_, about, version) => {
    await using stack = new AsyncDisposableStack();
    const old = 'host:1:old';
    await joinNew(stack);
    await joinOld(stack, old, about);
    const prefix = await issue('--tier', 'Free');
    const [tier, suspended, resumed] = [
      await keys('tier', prefix, '--tier', 'Pro'),
      await keys('suspend', prefix),
      await keys('resume', prefix),
    ];
    const understood = (about?.understands ?? []).includes('tier');
    expect(tier.code).toBe(understood ? 0 : 3);
    expect(tier.out).toMatch(
      understood ? / 2 of 2 replicas apply it / : / 1 of 2 replicas apply it in \d+ ms\.\n$/,
    );
    for (const { code, out, err } of [suspended, resumed]) {
      expect([code, out]).toEqual([3, expect.stringMatching(/ 1 of 2 replicas apply it in \d+ ms\.\n$/)]);
      expect(err).toBe(
        `Warning: replica ${old} (${version}) does not support suspension; it ignores this change until it is upgraded or stopped.\n`,
      );
    }
    const { replicas } = JSON.parse((await keys('suspend', prefix, '--json')).out);
    expect(replicas).toMatchObject({
      confirmed: 1,
      total: 2,
      missing: [],
      incapable: [{ id: old, version: about?.version ?? null }],
    });
    // Every version knows that a key has ended.
    expect(await keys('revoke', prefix)).toMatchObject({
      code: 0,
      out: expect.stringMatching(/ 2 of 2 replicas reject it in \d+ ms; hard bound 5 s/),
    });
  });

  test('exits with 3 when Redis is unavailable, with the holder changed in the store', async () => {
    const prefix = await issue('--tier', 'Free');
    server.pause();
    const { code, out, err } = await keys('suspend', prefix);
    expect([code, out]).toEqual([
      3,
      expect.stringMatching(/is suspended\. .* No replica has confirmed it\.\n$/),
    ]);
    expect(err).toMatch(/failed to notify/);
    server.resume();
    expect((await keys('list')).out).toContain('suspended');
  });
});
