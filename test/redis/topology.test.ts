// The same client and subscription behind Sentinels and on a Cluster: failover, silent nodes, keys in every slot.
import { describe, expect, test } from 'vitest';
import { startCable } from '../helpers/cable.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { REDIS_TIMEOUT, startCluster, startSentinels } from '../helpers/redis.ts';
import { until } from '../helpers/wait.ts';
import { failure, PATIENT, startClient, startSubscription } from './recorder.ts';

describe('behind Sentinels', { timeout: REDIS_TIMEOUT }, () => {
  test('a failover: both find the new master', async () => {
    await using redis = await startSentinels(1);
    await using recorded = await startClient(redis.url, { startMs: PATIENT, heartbeatMs: 50 });
    await using subscribed = await startSubscription(redis.url, { startMs: PATIENT });
    const { client } = recorded;
    expect(await client.run((commands) => commands.set('k', 'v'))).toBe('OK');
    expect(subscribed.subscription.isLinked).toBe(true);
    await redis.failover();
    // The old master becomes a replica, on which nothing is left of a write.
    await until(async () => {
      await client.run((commands) => commands.set('k', 'after'));
      return (await redis.replica.command('GET', 'k')) === 'after';
    }, 'a write on the new master');
    await until(async () => {
      await client.run((commands) => commands.publish('news', 'after'));
      return subscribed.events.includes('news: after');
    }, 'a message over the new master');
    expect(recorded.states.slice(0, 4)).toEqual([false, true, false, true]);
  });

  test('a killed master, with one Sentinel of the URL silent and one missing', async () => {
    await using redis = await startSentinels(1);
    const [sentinel] = redis.sentinels;
    await using silent = await startCable(sentinel?.port ?? 0);
    silent.blackHole();
    const url = `redis-sentinel://127.0.0.1:${silent.port},127.0.0.1:${await closedPort()},127.0.0.1:${sentinel?.port}/mymaster`;
    await using recorded = await startClient(url, { startMs: PATIENT, connectMs: 300 });
    await using subscribed = await startSubscription(url, { startMs: PATIENT, connectMs: 300 });
    expect(recorded.client.isUp).toBe(true);
    expect(subscribed.subscription.isLinked).toBe(true);
    await redis.master.kill();
    await until(() => !recorded.client.isUp, 'the loss to be noticed');
    await until(() => recorded.client.isUp && subscribed.subscription.isLinked, 'the new master');
    expect(await recorded.client.run((commands) => commands.set('k', 'v'))).toBe('OK');
    expect(await redis.replica.command('GET', 'k')).toBe('v');
    expect(await redis.masterPort()).toBe(redis.replica.port);
  });
});

describe('on a Cluster', { timeout: REDIS_TIMEOUT }, () => {
  test('commands, scripts and messages reach every node', async () => {
    await using redis = await startCluster();
    await using recorded = await startClient(redis.url, { startMs: PATIENT });
    const { client } = recorded;
    expect(client.isUp).toBe(true);
    const keys = Array.from({ length: 60 }, (_, number) => `{holder-${number}}:n`);
    await Promise.all(keys.map((key) => client.run((commands) => commands.set(key, '1'))));
    const sizes = await Promise.all(redis.nodes.map((node) => node.command('DBSIZE')));
    // With the key of the probe on one of them.
    expect(sizes.reduce<number>((sum, size) => sum + Number(size), 0)).toBe(61);
    expect(sizes).not.toContain(0);

    const lua = "return redis.call('INCR', KEYS[1]) + redis.call('STRLEN', KEYS[2])";
    const script = client.script({ name: 'both', lua, keys: 2 });
    const run = () => Promise.all(keys.map((key) => script([key, `${key}:other`])));
    expect(await run()).toEqual(keys.map(() => 2));
    for (const node of redis.nodes) await node.command('SCRIPT', 'FLUSH');
    expect(await run()).toEqual(keys.map(() => 3));
    expect(await failure(script(['{a}', '{b}']))).toMatchObject({ name: 'RedisCommandError' });
    expect(recorded.states).toEqual([false, true]);

    await using subscribed = await startSubscription(redis.url, { startMs: PATIENT });
    for (const node of redis.nodes) await node.command('PUBLISH', 'news', `${node.port}`);
    await client.run((commands) => commands.publish('news', 'client'));
    await until(() => subscribed.events.length === 5, 'the messages');
    expect(new Set(subscribed.events)).toEqual(
      new Set(['restored', 'news: client', ...redis.nodes.map(({ port }) => `news: ${port}`)]),
    );
  });

  test('one silent node makes all unavailable until it answers; a missing node of the URL is skipped', async () => {
    await using redis = await startCluster();
    const url = redis.url.replace('redis-cluster://', `redis-cluster://127.0.0.1:${await closedPort()},`);
    await using recorded = await startClient(url, { startMs: PATIENT, commandMs: 200, connectMs: 300 });
    await using subscribed = await startSubscription(url, { startMs: PATIENT });
    const { client } = recorded;
    await until(() => client.isUp && subscribed.subscription.isLinked, 'the Cluster');
    const [node] = redis.nodes;
    node?.pause();
    const keys = Array.from({ length: 30 }, (_, number) => `${number}`);
    const results = await Promise.allSettled(keys.map((key) => client.run((commands) => commands.get(key))));
    expect(results.some(({ status }) => status === 'rejected')).toBe(true);
    expect(client.isUp).toBe(false);
    expect(await failure(client.run((commands) => commands.get('k')))).toMatchObject({ reason: 'away' });
    node?.resume();
    await until(() => client.isUp, 'the Cluster');
    await until(() => Promise.all(keys.map((key) => client.run((commands) => commands.set(key, '1')))));
  });

  test('it recovers from one restarted node', async () => {
    await using redis = await startCluster();
    await using recorded = await startClient(redis.url, {
      startMs: PATIENT,
      commandMs: 1000,
      heartbeatMs: 50,
    });
    const { client } = recorded;
    await until(() => client.isUp, 'the Cluster');
    const [node] = redis.nodes;
    await node?.kill();
    await until(() => !client.isUp, 'the loss to be noticed');
    await node?.start();
    await until(() => client.isUp, 'the Cluster');
    await until(() =>
      Promise.all(['a', 'b', 'c', 'd'].map((key) => client.run((commands) => commands.set(key, '1')))),
    );
  });
});
