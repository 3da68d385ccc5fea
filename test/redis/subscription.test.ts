// Messages from real servers over connections that close, fall silent and recover: what is sent between `restored` and `lost`
// arrives, and each outage is reported once.
import { inspect } from 'node:util';
import { expect, test, vi } from 'vitest';
import { startCable } from '../helpers/cable.ts';
import { REDIS_TIMEOUT, startRedis } from '../helpers/redis.ts';
import { until, within } from '../helpers/wait.ts';
import { PATIENT, startSubscription } from './recorder.ts';

vi.setConfig({ testTimeout: REDIS_TIMEOUT });

test('it is linked when `start` resolves, and messages arrive in order', async () => {
  await using server = await startRedis();
  await using recorded = await startSubscription(server.url, { startMs: PATIENT });
  expect(recorded.subscription.isLinked).toBe(true);
  await server.command('PUBLISH', 'news', 'a');
  await server.command('PUBLISH', 'news', 'ü\n');
  await server.command('PUBLISH', 'other', 'c');
  await server.command('PUBLISH', 'news', '');
  await until(() => recorded.events.length === 4, 'the messages');
  expect(recorded.events).toEqual(['restored', 'news: a', 'news: ü\n', 'news: ']);
});

test('a refused connection does not block `start`, and Redis is found later', async () => {
  await using server = await startRedis();
  await server.kill();
  await using recorded = await startSubscription(server.url, { startMs: 30 });
  expect(recorded.subscription.isLinked).toBe(false);
  expect(recorded.events).toEqual([]);
  await server.start();
  await until(() => recorded.subscription.isLinked, 'the link');
  await server.command('PUBLISH', 'news', 'a');
  await until(() => recorded.events.length === 2, 'the message');
  expect(recorded.events).toEqual(['restored', 'news: a']);
  // One line for all failed tries, and one for the end of it.
  expect(recorded.log().trim().split('\n')).toHaveLength(2);
});

test('a connection that silently drops everything is lost once and restored over a new one', async () => {
  await using server = await startRedis();
  await using cable = await startCable(server.port);
  const options = { startMs: PATIENT, pingMs: 20, silenceMs: 500, connectMs: 200 };
  await using recorded = await startSubscription(`redis://127.0.0.1:${cable.port}`, options);
  await until(() => recorded.subscription.isLinked, 'the link');
  // A slow machine may lose and restore it on the way here.
  const from = recorded.events.length;
  const accepted = cable.accepted;
  cable.blackHole();
  await server.command('PUBLISH', 'news', 'missed');
  await until(() => !recorded.subscription.isLinked, 'the loss');
  await until(() => cable.accepted > accepted + 2, 'several tries');
  expect(recorded.events.slice(from)).toEqual(['lost']);
  expect(recorded.log()).toContain('nothing was received for');
  cable.pass();
  await until(() => recorded.subscription.isLinked, 'the link');
  expect(recorded.events.slice(from, from + 2)).toEqual(['lost', 'restored']);
  await until(async () => {
    await server.command('PUBLISH', 'news', 'b');
    return recorded.events.includes('news: b');
  }, 'a message');
  expect(recorded.events).not.toContain('news: missed');
});

test('without messages it stays linked by the answers to pings', async () => {
  await using server = await startRedis();
  await using recorded = await startSubscription(server.url, {
    startMs: PATIENT,
    pingMs: 50,
    silenceMs: 1000,
  });
  await until(async () => (await server.calls('ping')) > 45, 'pings for more than two seconds');
  expect(recorded.events).toEqual(['restored']);
});

test('a closed connection is lost at once, without the silence timeout', async () => {
  await using server = await startRedis();
  await using cable = await startCable(server.port);
  await using recorded = await startSubscription(`redis://127.0.0.1:${cable.port}`, { startMs: PATIENT });
  expect(recorded.events).toEqual(['restored']);
  await cable.cut();
  await until(() => recorded.events.includes('lost'), 'the loss');
  expect(recorded.subscription.isLinked).toBe(false);
  cable.pass();
  await until(() => recorded.subscription.isLinked, 'the link');
  expect(recorded.events).toEqual(['restored', 'lost', 'restored']);
});

test('it recovers from a restarted server and from a paused one', async () => {
  await using server = await startRedis();
  const options = { startMs: PATIENT, silenceMs: 500, connectMs: 300 };
  await using recorded = await startSubscription(server.url, options);
  await until(() => recorded.subscription.isLinked, 'the link');
  const from = recorded.events.length;
  await server.kill();
  await until(() => recorded.events.length > from, 'the loss');
  await server.start();
  await until(() => recorded.subscription.isLinked, 'the link');
  expect(recorded.events.slice(from, from + 2)).toEqual(['lost', 'restored']);
  server.pause();
  await until(() => !recorded.subscription.isLinked, 'the loss');
  server.resume();
  await until(() => recorded.subscription.isLinked, 'the link');
  await server.command('PUBLISH', 'news', 'after');
  await until(() => recorded.events.includes('news: after'), 'the message');
});

test('a busy event loop beyond the silence timeout loses nothing', async () => {
  await using server = await startRedis();
  await using recorded = await startSubscription(server.url, { startMs: PATIENT, silenceMs: 1000 });
  await until(() => recorded.subscription.isLinked, 'the link');
  const published = server.command('PUBLISH', 'news', 'a');
  const end = performance.now() + 2500;
  while (performance.now() < end);
  await published;
  await until(() => recorded.events.includes('news: a'), 'the message');
  expect(recorded.events).toEqual(['restored', 'news: a']);
});

test('an oversized message is dropped, and the next one arrives', async () => {
  await using server = await startRedis();
  await using recorded = await startSubscription(server.url, { startMs: PATIENT });
  const longest = 'x'.repeat(65_536);
  for (const text of [longest, `${longest}x`, 'ü'.repeat(32_769), 'after']) {
    await server.command('PUBLISH', 'news', text);
  }
  await until(() => recorded.events.includes('news: after'), 'the last message');
  expect(recorded.events).toEqual(['restored', `news: ${longest}`, 'news: after']);
});

test('a listener that throws has no effect', async () => {
  await using server = await startRedis();
  const heard: string[] = [];
  await using recorded = await startSubscription(server.url, {
    startMs: PATIENT,
    onRestored: () => {
      throw new Error('at the link');
    },
    onMessage: (text) => {
      heard.push(text);
      throw new Error('at a message');
    },
  });
  await server.command('PUBLISH', 'news', 'a');
  await server.command('PUBLISH', 'news', 'b');
  await until(() => heard.length === 2, 'both messages');
  expect(recorded.subscription.isLinked).toBe(true);
  expect(recorded.log()).toContain('at the link');
  expect(recorded.log()).toContain('at a message');
});

test('close ends it, even while nothing answers, and no listener is called afterwards', async () => {
  await using server = await startRedis();
  await using cable = await startCable(server.port);
  await using recorded = await startSubscription(`redis://127.0.0.1:${cable.port}`, { startMs: PATIENT });
  expect(recorded.subscription.isLinked).toBe(true);
  cable.blackHole();
  await within(recorded.subscription.close(), 'the end');
  await within(recorded.subscription.close(), 'the end, again');
  await recorded.subscription.start();
  expect(recorded.subscription.isLinked).toBe(false);
  await until(() => cable.open === 0, 'the connection to be given up');
  expect(recorded.events).toEqual(['restored']);
});

test('close ends it during a connection attempt', async () => {
  await using server = await startRedis();
  await using cable = await startCable(server.port);
  cable.blackHole();
  const options = { startMs: 1, connectMs: 2 ** 30 };
  await using recorded = await startSubscription(`redis://127.0.0.1:${cable.port}`, options);
  await until(() => cable.accepted === 1, 'a try');
  await within(recorded.subscription.close(), 'the end');
  await until(() => cable.open === 0, 'the connection to be given up');
});

test('no log line contains the password', async () => {
  const password = 'open:sesame@/%';
  await using server = await startRedis({ args: ['--requirepass', password], password });
  await using good = await startSubscription(server.url, { startMs: PATIENT });
  expect(good.subscription.isLinked).toBe(true);
  await using bad = await startSubscription(server.url.replace('sesame', 'sesame2'), { startMs: 200 });
  expect(bad.log()).toContain('WRONGPASS');
  await server.kill();
  await until(() => !good.subscription.isLinked, 'the loss');
  expect(good.log() + bad.log() + inspect(bad.events)).not.toContain('sesame');
});
