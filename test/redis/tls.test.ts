// `rediss://`: nothing is sent to a server without a trusted certificate, and everything works over TLS.
import { writeFile } from 'node:fs/promises';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { expect, test } from 'vitest';
import { makeCertificate } from '../helpers/certificate.ts';
import { closedPort } from '../helpers/closed-port.ts';
import { REDIS_TIMEOUT, startRedis } from '../helpers/redis.ts';
import { tempDir, until } from '../helpers/wait.ts';
import { PATIENT, startClient, startSubscription } from './recorder.ts';

test('a server is accepted by its certificate only', { timeout: REDIS_TIMEOUT }, async () => {
  const { key, cert } = makeCertificate();
  await using directory = await tempDir();
  await writeFile(directory.file('key.pem'), key);
  await writeFile(directory.file('cert.pem'), cert);
  const port = await closedPort();
  const files = ['--tls-key-file', directory.file('key.pem'), '--tls-cert-file', directory.file('cert.pem')];
  await using server = await startRedis({
    args: ['--tls-port', `${port}`, ...files, '--tls-auth-clients', 'no', '--requirepass', 'sesame'],
    password: 'sesame',
  });
  const url = `rediss://:sesame@localhost:${port}`;
  {
    await using recorded = await startClient(url, { startMs: 300 });
    await using subscribed = await startSubscription(url, { startMs: 300 });
    expect(recorded.client.isUp).toBe(false);
    expect(subscribed.subscription.isLinked).toBe(false);
    expect(recorded.log()).toContain('certificate');
    expect(await server.calls('auth')).toBe(1);
  }
  const before = getCACertificates('default');
  try {
    setDefaultCACertificates([...before, cert]);
    await using recorded = await startClient(url, { startMs: PATIENT });
    await using subscribed = await startSubscription(url, { startMs: PATIENT });
    expect(await recorded.client.run((redis) => redis.publish('news', 'a'))).toBe(1);
    await until(() => subscribed.events.includes('news: a'), 'the message');
  } finally {
    setDefaultCACertificates(before);
  }
});
