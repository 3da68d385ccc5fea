// The registry of replicas and acknowledged broadcasts on a real Redis, each replica over its own proxy.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { publish, sendAndConfirm } from '../../src/redis/broadcast.ts';
import { RedisClient, RedisUnavailable } from '../../src/redis/redis-client.ts';
import { Replicas } from '../../src/redis/replicas.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { type Cable, startCable } from '../helpers/cable.ts';
import { REDIS_TIMEOUT, type RedisServer, startRedis } from '../helpers/redis.ts';
import { pause, until } from '../helpers/wait.ts';
import { PATIENT } from './recorder.ts';

const REGISTRY = 'tollgate:replicas';
const logger = createLogger(undefined, 'silent');

let server: RedisServer;
let stack: AsyncDisposableStack;

beforeAll(async () => {
  server = await startRedis();
}, REDIS_TIMEOUT);
beforeEach(async () => {
  await server.flush();
  stack = new AsyncDisposableStack();
});
afterEach(async () => {
  server.resume();
  await stack.disposeAsync();
});
afterAll(() => server?.stop());

async function connect(url: string, commandMs = PATIENT): Promise<RedisClient> {
  const redis = new RedisClient({ url, logger, commandMs, startMs: PATIENT });
  stack.defer(() => redis.close());
  await redis.start();
  return redis;
}

interface Member {
  readonly replicas: Replicas;
  readonly redis: RedisClient;
  readonly cable: Cable;
  readonly heard: string[];
  readonly events: string[];
}

/** A replica in the fleet, which the others can count. */
async function join(
  commandMs = PATIENT,
  answer: (body: string) => Promise<string | undefined> = async () => undefined,
): Promise<Member> {
  const cable = stack.use(await startCable(server.port));
  const url = `redis://127.0.0.1:${cable.port}`;
  const [heard, events]: [string[], string[]] = [[], []];
  const redis = await connect(url, commandMs);
  const replicas = new Replicas({
    redis,
    url,
    logger,
    version: '9.8.7',
    onMessage(body) {
      heard.push(body);
      return answer(body);
    },
    onLost: () => void events.push('lost'),
    onRestored: () => void events.push('restored'),
  });
  stack.defer(() => replicas.stop());
  await replicas.start();
  await until(() => registered(replicas), 'the replica to be counted');
  return { replicas, redis, cable, heard, events };
}

async function registered({ id }: Replicas): Promise<boolean> {
  return (await server.command('ZSCORE', REGISTRY, id)) !== null;
}

async function send(body: string, deadlineMs = PATIENT, url = server.url) {
  const redis = await connect(url, 500);
  return await sendAndConfirm({ redis, url, logger }, body, deadlineMs);
}

const ids = (...members: readonly Member[]) => members.map(({ replicas }) => replicas.id).sort();
const idsOf = (seen: readonly { readonly id: string }[]) => seen.map(({ id }) => id).sort();

describe('a broadcast with acknowledgements', () => {
  test('is acknowledged by every replica after it has applied it', async () => {
    const members = [await join(), await join(), await join()];
    const { confirmed, missing } = await send('the key has ended');
    expect(idsOf(confirmed)).toEqual(ids(...members));
    expect(missing).toEqual([]);
    for (const { ms } of confirmed) expect(ms).toBeGreaterThan(0);
    for (const { heard } of members) expect(heard).toEqual(['the key has ended']);
  });

  test('is not acknowledged by a disconnected replica, which is named with its age', async () => {
    const [one, two] = [await join(), await join()];
    await one.cable.cut();
    await until(() => one.events.at(-1) === 'lost');
    await server.command('ZADD', REGISTRY, Date.now() - 30_000, one.replicas.id);
    const { confirmed, missing } = await send('x', 500);
    expect(idsOf(confirmed)).toEqual(ids(two));
    expect(idsOf(missing)).toEqual(ids(one));
    expect(missing[0]?.seenMs).toBeGreaterThanOrEqual(30_000);
    expect(missing[0]?.seenMs).toBeLessThan(65_000);
    expect(one.heard).toEqual([]);
  });

  test('is not acknowledged by a replica with silent connections', async () => {
    const [one, two] = [await join(500), await join()];
    one.cable.blackHole();
    const { confirmed, missing } = await send('x', 500);
    expect([idsOf(confirmed), idsOf(missing)]).toEqual([ids(two), ids(one)]);
  });

  test('carries the answer of each replica, and is not acknowledged by one that fails to apply it', async () => {
    const text = 'several\nlines';
    const [one, two] = [await join(PATIENT, async () => text), await join()];
    const failing = await join(PATIENT, async () => {
      throw new Error('no');
    });
    const { confirmed, missing } = await send('x', 500);
    const replies = Object.fromEntries(confirmed.map(({ id, reply }) => [id, reply]));
    expect(replies).toEqual({ [one.replicas.id]: text, [two.replicas.id]: undefined });
    expect(idsOf(missing)).toEqual(ids(failing));
  });

  test('does not wait for a replica that has left', async () => {
    const [one, two] = [await join(), await join()];
    await one.replicas.stop();
    expect(await registered(one.replicas)).toBe(false);
    // The deadline is longer than the test may take.
    const { confirmed, missing } = await send('x', 10 * PATIENT);
    expect([idsOf(confirmed), missing]).toEqual([ids(two), []]);
    expect(one.heard).toEqual([]);
  });

  test('does not wait without replicas', async () => {
    expect(await send('x', 10 * PATIENT)).toEqual({ confirmed: [], missing: [], incapable: [] });
  });

  test('waits for a replica with a heartbeat 60 s ago, and not 65 s ago', async () => {
    const now = Number((await server.command('TIME'))?.toString().split(',')[0]) * 1000;
    await server.command('ZADD', REGISTRY, now - 70_000, 'long gone');
    await server.command('ZADD', REGISTRY, now - 60_000, 'just gone');
    const { confirmed, missing } = await send('x', 200);
    expect([confirmed, idsOf(missing)]).toEqual([[], ['just gone']]);
    // The next one that says that it is there removes the other for good.
    await join();
    expect(await server.command('ZSCORE', REGISTRY, 'long gone')).toBeNull();
    expect(await server.command('ZSCORE', REGISTRY, 'just gone')).not.toBeNull();
  });

  test('rejects when Redis is unavailable or silent', async () => {
    const redis = await connect(server.url, 200);
    server.pause();
    await expect(sendAndConfirm({ redis, url: server.url, logger }, 'x', PATIENT)).rejects.toBeInstanceOf(
      RedisUnavailable,
    );
    server.resume();
    await using gone = await startRedis();
    const other = await connect(gone.url, 200);
    await gone.kill();
    await expect(
      sendAndConfirm({ redis: other, url: gone.url, logger }, 'x', PATIENT),
    ).rejects.toBeInstanceOf(RedisUnavailable);
  });
});

describe('a replica', () => {
  test('has its own position among serving replicas, also while Redis is unavailable', async () => {
    const members = [await join(), await join(), await join()];
    const places = () => members.map(({ replicas }) => replicas.position);
    const isKnown = () =>
      new Set(places().map(({ index }) => index)).size === 3 && places().every(({ count }) => count === 3);
    await until(isKnown, 'three places');
    for (const { cable } of members) cable.blackHole();
    await pause(1500);
    expect(isKnown()).toBe(true);
    // What was sent into the silence fails now, and not at the deadline of a command.
    for (const { cable } of members) await cable.cut();
  });

  test('receives all broadcasts, including its own', async () => {
    const [one, two] = [await join(), await join()];
    await publish(one.redis, { body: '1' });
    await publish(two.redis, { body: '2' });
    await until(() => one.heard.length === 2 && two.heard.length === 2);
    expect([one.heard, two.heard]).toEqual([
      ['1', '2'],
      ['1', '2'],
    ]);
  });

  test('ignores malformed messages', async () => {
    const one = await join();
    const acks = '{"body":"no","ack":"tollgate:changes"}';
    for (const text of ['', '{', 'null', '[]', '"x"', '{"body":1}', '{"ack":"x"}', acks]) {
      await server.command('PUBLISH', 'tollgate:changes', text);
    }
    await publish(one.redis, { body: 'yes' });
    await until(() => one.heard.length > 0);
    expect(one.heard).toEqual(['yes']);
  });

  test('that was disconnected is counted again, and reports the loss and the restoration', async () => {
    const one = await join(500);
    expect(one.events).toEqual(['restored']);
    await one.cable.cut();
    await until(() => one.events.at(-1) === 'lost');
    expect(one.replicas.isLinked).toBe(false);
    await server.command('ZREM', REGISTRY, one.replicas.id);
    one.cable.pass();
    await until(() => one.events.at(-1) === 'restored');
    await until(() => registered(one.replicas), 'the replica to be counted');
    expect(one.events).toEqual(['restored', 'lost', 'restored']);
    expect(idsOf((await send('x')).confirmed)).toEqual(ids(one));
  });

  test('with a silent subscription sends no heartbeat', async () => {
    const one = await join(500);
    const score = async () => Number(await server.command('ZSCORE', REGISTRY, one.replicas.id));
    one.cable.blackHole();
    await until(() => one.events.at(-1) === 'lost');
    const before = await score();
    await pause(1500);
    expect(await score()).toBe(before);
  });

  test('leaves only keys that expire', async () => {
    const { replicas } = await join();
    await send('x');
    const names = String(await server.command('KEYS', '*')).split(',');
    expect(names).toEqual(expect.arrayContaining([REGISTRY, `tollgate:replica:${replicas.id}`]));
    for (const name of names) {
      const ttl = Number(await server.command('PTTL', name));
      expect(ttl).toBeGreaterThan(0);
      expect(ttl).toBeLessThanOrEqual(130_000);
    }
  });

  test('starts without Redis, and registers as soon as Redis is up', async () => {
    await using late = await startRedis();
    await late.kill();
    const redis = new RedisClient({ url: late.url, logger, startMs: 50 });
    stack.defer(() => redis.close());
    const events: string[] = [];
    const replicas = new Replicas({
      redis,
      url: late.url,
      logger,
      version: '9.8.7',
      onMessage: () => undefined,
      onLost: () => void events.push('lost'),
      onRestored: () => void events.push('restored'),
    });
    stack.defer(() => replicas.stop());
    await redis.start();
    await replicas.start();
    expect([replicas.isLinked, events]).toEqual([false, []]);
    await expect(publish(redis, { body: 'x' })).rejects.toBeInstanceOf(RedisUnavailable);
    await late.start();
    await until(() => replicas.isLinked);
    await until(async () => (await late.command('ZSCORE', REGISTRY, replicas.id)) !== null);
    expect(events).toEqual(['restored']);
    await replicas.stop();
    expect(await late.command('ZSCORE', REGISTRY, replicas.id)).toBeNull();
  });
});
