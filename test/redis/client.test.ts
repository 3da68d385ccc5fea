// The client against real servers that are refused, silent, slow, read-only, flushed, full, busy or killed: how calls end, that
// nothing is sent while Redis is unavailable, and that it recovers by itself. Time is counted in calls, not in clocks.
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { RedisClient, RedisCommandError, RedisUnavailable } from '../../src/redis/redis-client.ts';
import { startCable } from '../helpers/cable.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { REDIS_TIMEOUT, startRedis } from '../helpers/redis.ts';
import { pause, until, within } from '../helpers/wait.ts';
import { failure, PATIENT, startClient } from './recorder.ts';

const get = (client: RedisClient) => client.run((redis) => redis.get('k'));
const set = (client: RedisClient) => client.run((redis) => redis.set('k', 'v'));

/** 200 calls are refused without a word to Redis. */
async function expectRefused(client: RedisClient): Promise<void> {
  for (let number = 0; number < 200; number += 1) {
    expect(await failure(get(client))).toMatchObject({ name: 'RedisUnavailable', reason: 'away' });
  }
}

async function expectUp(client: RedisClient): Promise<void> {
  await until(() => client.isUp, 'Redis to be up');
  expect(await set(client)).toBe('OK');
  expect(await get(client)).toBe('v');
}

describe('during start', { timeout: REDIS_TIMEOUT }, () => {
  test('an available Redis is up when `start` resolves', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT });
    expect(recorded.client.isUp).toBe(true);
    await expectUp(recorded.client);
    expect(recorded.states).toEqual([false, true]);
    expect(recorded.outcomes).toMatchObject({ ok: 2, away: 0 });
    expect(await server.command('CLIENT', 'LIST')).toContain('name=tollgate ');
  });

  test('a refused connection does not block `start`, and Redis is found later', async () => {
    await using server = await startRedis();
    await server.kill();
    await using recorded = await startClient(server.url, { startMs: 30 });
    const { client } = recorded;
    let ups = 0;
    client.onUp(() => {
      ups += 1;
    });
    expect(client.isUp).toBe(false);
    await expectRefused(client);
    expect(recorded.log()).toContain('ECONNREFUSED');
    await server.start();
    await expectUp(client);
    expect(recorded.states).toEqual([false, true]);
    expect(ups).toBe(1);
    // One line for the whole outage, and one for its end.
    expect(recorded.log().trim().split('\n')).toHaveLength(2);
    await server.kill();
    await until(() => !client.isUp, 'Redis to be lost');
    // What it means is said both times, and the stack of a connection that ended says nothing.
    expect(recorded.log().match(/limits are counted per process/g)).toHaveLength(2);
    expect(recorded.log()).not.toContain('"stack"');
  });

  test('a silent Redis does not block `start` either', async () => {
    await using server = await startRedis();
    await using cable = await startCable(server.port);
    cable.blackHole();
    const url = `redis://127.0.0.1:${cable.port}`;
    await using recorded = await startClient(url, { startMs: 30, connectMs: 50 });
    expect(recorded.client.isUp).toBe(false);
    await until(() => cable.accepted > 2, 'several tries');
    cable.pass();
    // A slow machine may need longer than the short deadline now and then; the tries go on.
    await until(() => recorded.client.isUp, 'Redis to be up');
    await until(() => cable.open === 1, 'the connections of failed tries to be given up');
  });

  test('an invalid URL is rejected without being quoted', () => {
    const make = () => Reflect.construct(RedisClient, [{ url: 'redis://sesame@h' }]);
    expect(make).toThrow('login');
    expect(make).not.toThrow('sesame');
  });
});

describe('an outage at runtime', { timeout: REDIS_TIMEOUT }, () => {
  test('connection refused: calls in flight end, later ones are not sent, and it recovers', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT });
    const { client } = recorded;
    const changes: string[] = [];
    client.onUp(() => changes.push('up'));
    client.onDown(() => changes.push('down'));
    const stop = client.onDown(() => changes.push('not heard'));
    stop();
    server.pause();
    const calls = Array.from({ length: 20 }, () => failure(get(client)));
    await server.kill();
    for (const error of await Promise.all(calls)) {
      expect(error).toBeInstanceOf(RedisUnavailable);
      expect(error).toMatchObject({ reason: 'lost', cause: expect.any(Error) });
    }
    expect(client.isUp).toBe(false);
    await expectRefused(client);
    expect(recorded.outcomes).toMatchObject({ lost: 20, deadline: 0, away: 200 });
    await server.start();
    await expectUp(client);
    expect(changes).toEqual(['down', 'up']);
    expect(recorded.states).toEqual([false, true, false, true]);
  });

  test('silent: calls in flight end at their deadline, later ones at once, until it answers', async () => {
    await using server = await startRedis();
    await using cable = await startCable(server.port);
    const url = `redis://127.0.0.1:${cable.port}`;
    await using recorded = await startClient(url, { startMs: PATIENT, commandMs: 100, connectMs: 200 });
    const { client, outcomes } = recorded;
    await until(() => client.isUp, 'Redis to be up');
    await server.command('CONFIG', 'RESETSTAT');
    cable.blackHole();
    const before = performance.now();
    const calls = Array.from({ length: 20 }, () => failure(get(client)));
    for (const error of await Promise.all(calls)) expect(error).toMatchObject({ reason: 'deadline' });
    // Timers may come a little early.
    expect(performance.now() - before).toBeGreaterThan(90);
    await expectRefused(client);
    expect(outcomes).toMatchObject({ ok: 0, deadline: 20, away: 200 });
    // No call is the one that finds out.
    const tries = cable.accepted;
    await until(() => cable.accepted > tries + 2, 'several tries');
    expect(client.isUp).toBe(false);
    expect(await server.calls('get')).toBe(0);
    cable.pass();
    await until(() => client.isUp, 'Redis to be up');
    expect(await server.calls('get')).toBe(0);
  });

  test('silent, with sequential calls: only the first one waits for the deadline', async () => {
    await using server = await startRedis();
    await using cable = await startCable(server.port);
    const url = `redis://127.0.0.1:${cable.port}`;
    await using recorded = await startClient(url, { startMs: PATIENT, commandMs: 100 });
    await until(() => recorded.client.isUp, 'Redis to be up');
    cable.blackHole();
    expect(await failure(get(recorded.client))).toMatchObject({ reason: 'deadline' });
    await expectRefused(recorded.client);
    expect(recorded.outcomes).toMatchObject({ deadline: 1, away: 200 });
  });

  test.each([
    ['half a second', 250, 1000],
    ['five seconds', 2500, 200],
  ])('%s late: it counts as unavailable while it is late', async (_name, delayMs, connectMs) => {
    await using server = await startRedis();
    await using cable = await startCable(server.port);
    const url = `redis://127.0.0.1:${cable.port}`;
    await using recorded = await startClient(url, { startMs: PATIENT, commandMs: 100, connectMs });
    const { client } = recorded;
    await until(() => client.isUp, 'Redis to be up');
    const tries = cable.accepted;
    const states = recorded.states.length;
    // In both directions, so that an answer takes twice as long.
    await cable.delay(delayMs);
    expect(await failure(get(client))).toMatchObject({ reason: 'deadline' });
    await until(() => cable.accepted > tries + 2, 'several tries');
    expect(recorded.states.slice(states)).toEqual([false]);
    await expectRefused(client);
    cable.pass();
    await until(() => client.isUp, 'Redis to be up');
  });

  test('stopped and continued: it is unavailable, then available again', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT, commandMs: 100 });
    const { client } = recorded;
    await until(() => client.isUp, 'Redis to be up');
    server.pause();
    expect(await failure(get(client))).toMatchObject({ reason: 'deadline' });
    await expectRefused(client);
    server.resume();
    await until(() => client.isUp, 'Redis to be up');
  });

  test('the heartbeat finds it before a call does', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT, heartbeatMs: 20 });
    const { client } = recorded;
    expect(client.isUp).toBe(true);
    await server.replicaOf();
    await until(() => !client.isUp, 'the loss to be noticed');
    expect(recorded.outcomes).toMatchObject({ ok: 0, lost: 0 });
    await server.promote();
    await expectUp(client);
  });

  test('a busy event loop beyond the deadline is not an outage', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT, commandMs: 200 });
    const { client } = recorded;
    await until(() => client.isUp, 'Redis to be up');
    const calls = Array.from({ length: 50 }, () => get(client));
    const end = performance.now() + 2000;
    while (performance.now() < end);
    expect(await Promise.all(calls)).toEqual(Array(50).fill(null));
    expect(recorded.outcomes).toMatchObject({ ok: 50, deadline: 0, lost: 0 });
  });
});

describe('a read-only server', { timeout: REDIS_TIMEOUT }, () => {
  test.each([
    ['a command', (client: RedisClient) => set(client)],
    [
      'a script',
      (client: RedisClient) =>
        client.script({ name: 'write', lua: "return redis.call('SET', KEYS[1], 'v')", keys: 1 })(['k']),
    ],
  ])('READONLY for %s: unavailable until a write succeeds', async (_name, write) => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT });
    const { client } = recorded;
    await expectUp(client);
    await server.replicaOf();
    expect(await failure(write(client))).toMatchObject({
      reason: 'lost',
      cause: { message: expect.stringContaining('READONLY') },
    });
    await expectRefused(client);
    const tries = await server.calls('set');
    await until(async () => (await server.calls('set')) > tries + 2, 'several tries');
    expect(recorded.states).toEqual([false, true, false]);
    await server.promote();
    await expectUp(client);
  });

  test('OOM: only the write fails', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT });
    const { client } = recorded;
    await expectUp(client);
    await server.config('maxmemory', 1);
    expect(await failure(set(client))).toMatchObject({ name: 'RedisCommandError', code: 'OOM' });
    expect(await get(client)).toBe('v');
    expect(recorded.states).toEqual([false, true]);
    expect(recorded.outcomes).toMatchObject({ error: 1, lost: 0 });
    // Nor does it keep a new connection from being made.
    await using other = await startClient(server.url, { startMs: PATIENT });
    expect(await get(other.client)).toBe('v');
    await server.config('maxmemory', 0);
    await expectUp(client);
  });

  test('a script that does not end: unavailable until it is killed', async () => {
    await using server = await startRedis();
    await server.config('busy-reply-threshold', 20);
    await using recorded = await startClient(server.url, { startMs: PATIENT });
    await using looping = await startClient(server.url, { startMs: PATIENT });
    const { client } = recorded;
    expect(client.isUp).toBe(true);
    const loop = looping.client.script({ name: 'loop', lua: 'while true do end', keys: 0 });
    const killed = failure(loop([]));
    expect(await until(() => failure(get(client)), 'the script to be noticed')).toMatchObject({
      reason: 'lost',
      cause: { message: expect.stringContaining('BUSY') },
    });
    await expectRefused(client);
    await server.command('SCRIPT', 'KILL');
    await expectUp(client);
    // To the one that ran it, it is a fault of its own.
    expect(await killed).toMatchObject({ name: 'RedisCommandError' });
    expect(looping.client.isUp).toBe(true);
  });
});

describe('a failing command', { timeout: REDIS_TIMEOUT }, () => {
  test.each([
    ['a value of another kind', 'WRONGTYPE', "return redis.call('LPUSH', KEYS[1], 'x')"],
    ['an error of a script', 'ERR', "error('oh')"],
    ['an answer of a script of its own', 'STALE', "return redis.error_reply('STALE version 3')"],
    ['a script that does not compile', 'ERR', 'this is no Lua'],
  ])('%s fails alone, with its code', async (_name, code, lua) => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT });
    const { client } = recorded;
    await set(client);
    const error = await failure(client.script({ name: 'x', lua, keys: 1 })(['k']));
    expect(error).toBeInstanceOf(RedisCommandError);
    expect(error).toMatchObject({ code });
    expect(await get(client)).toBe('v');
    expect(recorded.states).toEqual([false, true]);
  });

  test('an error thrown by the work passes through unchanged', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT });
    const { client } = recorded;
    const own = new SyntaxError('not JSON');
    expect(await failure(client.run(() => Promise.reject(own)))).toBe(own);
    const throwAtOnce = () => {
      throw own;
    };
    expect(await failure(client.run(throwAtOnce))).toBe(own);
    await expectUp(client);
    expect(recorded.states).toEqual([false, true]);
  });

  test('calls beyond the maximum are rejected and affect no other', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT, maxCalls: 3 });
    const calls = await Promise.allSettled(Array.from({ length: 5 }, () => set(recorded.client)));
    expect(calls.map(({ status }) => status)).toEqual([
      ...Array(3).fill('fulfilled'),
      ...Array(2).fill('rejected'),
    ]);
    expect(recorded.outcomes).toMatchObject({ ok: 3, overload: 2 });
    await expectUp(recorded.client);
  });
});

describe('scripts', { timeout: REDIS_TIMEOUT }, () => {
  const definition = {
    name: 'add',
    lua: "return {redis.call('INCRBY', KEYS[1], ARGV[1]), ARGV[2]}",
    keys: 1,
  };

  test('are sent in full once, then by digest, also after a flush', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT });
    const add = recorded.client.script(definition);
    expect(await add(['n'], [2, 'x'])).toEqual([2, 'x']);
    expect(await add(['n'], [3, 'y'])).toEqual([5, 'y']);
    expect(await server.calls('eval')).toBe(1);
    await server.flush();
    const results = await Promise.all(Array.from({ length: 50 }, () => add(['n'], [1, ''])));
    // Each has run once, whichever way it took.
    expect(results).toEqual(Array.from({ length: 50 }, (_, index) => [index + 1, '']));
    expect(recorded.states).toEqual([false, true]);
    expect(recorded.outcomes).toMatchObject({ ok: 52, error: 0 });
  });

  test('are loaded again after a restart', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT });
    const add = recorded.client.script(definition);
    await add(['n'], [2, '']);
    await server.kill();
    await until(() => !recorded.client.isUp, 'the loss to be noticed');
    expect(await failure(add(['n'], [2, '']))).toMatchObject({ reason: 'away' });
    await server.start();
    await until(() => recorded.client.isUp, 'Redis to be up');
    expect(await add(['n'], [2, ''])).toEqual([2, '']);
  });

  test('reject a wrong number of keys', async () => {
    await using recorded = await startClient(`redis://127.0.0.1:${await closedPort()}`, { startMs: 1 });
    await expect(recorded.client.script(definition)([])).rejects.toThrow('takes 1 keys');
  });
});

describe('closing', { timeout: REDIS_TIMEOUT }, () => {
  test('lets calls in flight end and rejects others', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT });
    const { client } = recorded;
    const calls = Array.from({ length: 20 }, () => set(client));
    const closed = client.close();
    expect(await failure(set(client))).toMatchObject({ reason: 'closed' });
    expect(await Promise.all(calls)).toEqual(Array(20).fill('OK'));
    await closed;
    await until(async () => !String(await server.command('CLIENT', 'LIST')).includes('name=tollgate'));
    await client.close();
    await client.start();
    expect(client.isUp).toBe(false);
  });

  test('ends while Redis is stopped, with calls in flight', async () => {
    await using server = await startRedis();
    await using recorded = await startClient(server.url, { startMs: PATIENT, commandMs: 100 });
    const { client } = recorded;
    await until(() => client.isUp, 'Redis to be up');
    server.pause();
    const call = failure(get(client));
    await within(client.close(), 'the end');
    expect(await call).toMatchObject({ reason: 'closed' });
    expect(client.isUp).toBe(false);
  });

  test('ends during a connection attempt', async () => {
    await using server = await startRedis();
    await using cable = await startCable(server.port);
    cable.blackHole();
    const url = `redis://127.0.0.1:${cable.port}`;
    await using recorded = await startClient(url, { startMs: 1, connectMs: 2 ** 30 });
    await until(() => cable.accepted === 1, 'a try');
    await within(recorded.client.close(), 'the end');
    await until(() => cable.open === 0, 'the connection to be given up');
    await pause(100);
    expect(cable.accepted).toBe(1);
  });
});

test('no log line and no error contains the password', { timeout: REDIS_TIMEOUT }, async () => {
  const password = 'open:sesame@/%';
  await using server = await startRedis({ args: ['--requirepass', password], password });
  await using good = await startClient(server.url, { startMs: PATIENT });
  await expectUp(good.client);
  const wrong = `${server.url.replace('redis://:', 'redis://default:')}`.replace('sesame', 'sesame2');
  await using bad = await startClient(wrong, { startMs: 200 });
  const error = await failure(get(bad.client));
  expect(error).toMatchObject({ cause: { message: expect.stringContaining('WRONGPASS') } });
  await server.kill();
  const lost = await until(() => failure(get(good.client)));
  for (const text of [good.log(), bad.log(), inspect(error, { depth: 9 }), inspect(lost, { depth: 9 })]) {
    expect(text).not.toContain('sesame');
  }
});
