// Sentinels with a password and TLS of their own, apart from those of the master.
import { writeFile } from 'node:fs/promises';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makeCertificate } from '../helpers/certificate.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { REDIS_TIMEOUT, startRedis, startSentinels } from '../helpers/redis.ts';
import { type TempDir, tempDir, until } from '../helpers/wait.ts';
import { PATIENT, startClient, startSubscription } from './recorder.ts';

const authorities = getCACertificates('default');
let folder: TempDir;
/** Arguments for a server that speaks TLS, and trusts its own certificate. */
let files: readonly string[];

beforeAll(async () => {
  folder = await tempDir();
  const { key, cert } = makeCertificate();
  await writeFile(folder.file('key.pem'), key);
  await writeFile(folder.file('cert.pem'), cert);
  const [keyFile, certFile] = [folder.file('key.pem'), folder.file('cert.pem')];
  files = ['--tls-key-file', keyFile, '--tls-cert-file', certFile, '--tls-ca-cert-file', certFile];
  setDefaultCACertificates([...authorities, cert]);
});
afterAll(async () => {
  setDefaultCACertificates(authorities);
  await folder?.[Symbol.asyncDispose]();
});

/** Whether commands and messages pass. */
async function works(url: string): Promise<void> {
  await using recorded = await startClient(url, { startMs: PATIENT });
  await using subscribed = await startSubscription(url, { startMs: PATIENT });
  expect(await recorded.client.run((redis) => redis.publish('news', 'a'))).toBe(1);
  await until(() => subscribed.events.includes('news: a'), 'the message');
}

describe('Sentinels', { timeout: REDIS_TIMEOUT }, () => {
  test('with a password of their own are asked with it, and the master with its own, after a failover too', async () => {
    const passwords = { password: 'of-the-master', sentinelPassword: 'of-the-sentinels' };
    await using redis = await startSentinels(1, passwords);
    const hosts = new URL(redis.url).host;
    const url = `redis-sentinel://:of-the-master@${hosts}/mymaster?sentinel_password=of-the-sentinels`;
    await works(url);
    await using recorded = await startClient(url, { startMs: PATIENT, heartbeatMs: 50 });
    await redis.failover();
    await until(async () => {
      await recorded.client.run((commands) => commands.set('k', 'after'));
      return (await redis.replica.command('GET', 'k')) === 'after';
    }, 'a write on the new master');
    expect(recorded.log()).not.toMatch(/of-the-/);
  });

  test.each([
    ['none', ''],
    ['that of the master', '?sentinel_password=of-the-master'],
  ])('with a password are not asked with %s, and the log says why, without passwords', async (_, query) => {
    const passwords = { password: 'of-the-master', sentinelPassword: 'of-the-sentinels' };
    await using redis = await startSentinels(1, passwords);
    const url = `redis-sentinel://:of-the-master@${new URL(redis.url).host}/mymaster${query}`;
    await using recorded = await startClient(url, { startMs: 300 });
    expect(recorded.client.isUp).toBe(false);
    await until(() => /NOAUTH|WRONGPASS/.test(recorded.log()), 'the reason');
    expect(recorded.log()).not.toMatch(/of-the-/);
  });

  test('with a user of their own are asked as it', async () => {
    await using redis = await startSentinels(1, { password: 'of-the-master' });
    const [sentinel] = redis.sentinels;
    await sentinel?.command('ACL', 'SETUSER', 'gateway', 'on', '>of-the-user', '+@all', '~*', '&*');
    await sentinel?.command('ACL', 'SETUSER', 'default', 'off');
    const url = `redis-sentinel://:of-the-master@${new URL(redis.url).host}/mymaster`;
    await works(`${url}?sentinel_username=gateway&sentinel_password=of-the-user`);
  });

  test('with TLS are asked over it, and a master without it is not', async () => {
    const port = await closedPort();
    await using redis = await startSentinels(1, {
      password: 'of-the-master',
      sentinelPassword: 'of-the-sentinels',
      sentinelArgs: ['--tls-port', `${port}`, '--tls-auth-clients', 'no', ...files],
    });
    expect(await redis.masterPort()).toBe(redis.master.port);
    const url = `redis-sentinel://:of-the-master@localhost:${port}/mymaster`;
    await works(`${url}?sentinel_tls=true&sentinel_password=of-the-sentinels`);
  });

  test.each([
    ['without TLS are asked without it, and a master with it is not', false],
    ['and a master with TLS are asked over it', true],
  ])('%s', async (_, isSentinelTls) => {
    const [masterPort, sentinelPort] = [await closedPort(), await closedPort()];
    const tls = (port: number) => ['--tls-port', `${port}`, '--tls-auth-clients', 'no', ...files];
    await using master = await startRedis({
      args: [...tls(masterPort), '--requirepass', 'of-the-master'],
      password: 'of-the-master',
    });
    const file = folder.file(`sentinel-${sentinelPort}.conf`);
    const lines = [
      `sentinel monitor mymaster 127.0.0.1 ${masterPort} 1`,
      'sentinel auth-pass mymaster of-the-master',
      // So that the Sentinel reaches the master over TLS.
      'tls-replication yes',
    ];
    await writeFile(file, `${lines.join('\n')}\n`);
    await using sentinel = await startRedis({
      args: [file, '--sentinel', ...(isSentinelTls ? tls(sentinelPort) : files)],
    });
    const [port, query] = isSentinelTls ? [sentinelPort, ''] : [sentinel.port, '?sentinel_tls=false'];
    await works(`rediss-sentinel://:of-the-master@localhost:${port}/mymaster${query}`);
    expect(await master.calls('publish')).toBeGreaterThan(0);
  });
});
