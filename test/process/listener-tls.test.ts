// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the configuration look like placeholders
// A whole gateway that serves HTTPS: the official SDK, streams, uploads and sessions, and certificates that are replaced while it runs.
import { once } from 'node:events';
import { mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { connect, getCACertificates, setDefaultCACertificates, type TLSSocket } from 'node:tls';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { makeCertificate } from '../helpers/certificate.ts';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  contentChunk,
  frame,
  HostileUpstream,
  head,
  reset,
  SSE_HEADERS,
} from '../helpers/hostile-upstream.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { REDIS_TIMEOUT, startRedis } from '../helpers/redis.ts';
import { type TempDir, tempDir, until, within } from '../helpers/wait.ts';
import { connectTo, startWorkers } from './worker-setting.ts';

type Pair = ReturnType<typeof makeCertificate>;

const authorities = getCACertificates('default');
const first = makeCertificate();
let folder: TempDir;
let count = 0;

beforeAll(async () => {
  folder = await tempDir();
});
afterAll(() => folder?.[Symbol.asyncDispose]());
afterEach(() => setDefaultCACertificates(authorities));

/** A folder as Kubernetes mounts a secret: names that are links through `..data`, which is replaced as a whole. */
class Mount {
  readonly path = folder.file(`mount-${++count}`);
  #version = 0;

  static async start(pair: Pair): Promise<Mount> {
    const mount = new Mount();
    await mount.put(pair);
    for (const name of ['tls.crt', 'tls.key']) await symlink(join('..data', name), join(mount.path, name));
    return mount;
  }

  async put({ cert, key }: Pair): Promise<void> {
    this.#version += 1;
    const version = `..v${this.#version}`;
    await mkdir(join(this.path, version), { recursive: true });
    await writeFile(join(this.path, version, 'tls.crt'), cert);
    await writeFile(join(this.path, version, 'tls.key'), key);
    await symlink(version, join(this.path, '..data_tmp'));
    await rename(join(this.path, '..data_tmp'), join(this.path, '..data'));
    if (this.#version > 1) await rm(join(this.path, `..v${this.#version - 1}`), { recursive: true });
  }

  get tls() {
    return { cert: `\${file:${join(this.path, 'tls.crt')}}`, key: `\${file:${join(this.path, 'tls.key')}}` };
  }
}

async function files(pair: Pair): Promise<{ tls: { cert: string; key: string }; cert: string; key: string }> {
  count += 1;
  const [cert, key] = [folder.file(`${count}.crt`), folder.file(`${count}.key`)];
  await writeFile(cert, pair.cert);
  await writeFile(key, pair.key);
  return { cert, key, tls: { cert: `\${file:${cert}}`, key: `\${file:${key}}` } };
}

const inline = (pair: Pair): GatewayOptions => ({ config: { listen: { tls: { ...pair } } } });
const withTls = (tls: { cert: string; key: string }, more: GatewayOptions = {}): GatewayOptions => ({
  ...more,
  config: { ...more.config, listen: { tls } },
});

/** The certificate that a new handshake gets. */
async function certificateNow(gateway: Gateway): Promise<string> {
  const socket = await secured(gateway);
  const { raw } = socket.getPeerX509Certificate() ?? { raw: Buffer.alloc(0) };
  socket.destroy();
  return `-----BEGIN CERTIFICATE-----\n${(raw.toString('base64').match(/.{1,64}/g) ?? []).join('\n')}\n-----END CERTIFICATE-----\n`;
}

async function secured({ url }: Gateway): Promise<TLSSocket> {
  const { port } = new URL(url);
  const socket = connect({ host: '127.0.0.1', port: Number(port), rejectUnauthorized: false });
  await within(once(socket, 'secureConnect'), 'the handshake');
  return socket;
}

const fileValues = (gateway: Gateway, result: string) =>
  gateway.metric(`tollgate_config_file_values_total{result="${result}"}`);

describe('over HTTPS', () => {
  test('the official SDK gets answers, streams, and lists, and uploads files', async () => {
    setDefaultCACertificates([...authorities, first.cert]);
    await using gateway = await startGateway(inline(first));
    expect(gateway.url).toMatch(/^https:\/\/127\.0\.0\.1:/);
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key(), maxRetries: 0 });
    const messages = [{ role: 'user' as const, content: 'Say hello over TLS' }];
    const whole = await client.chat.completions.create({ model: 'test-model', messages });
    expect(whole.choices[0]?.message.content).toContain('hello');
    const pieces: string[] = [];
    for await (const chunk of await client.chat.completions.create({
      model: 'test-model',
      messages,
      stream: true,
    }))
      pieces.push(chunk.choices[0]?.delta.content ?? '');
    expect(pieces.length).toBeGreaterThan(2);
    expect(pieces.join('')).toBe(whole.choices[0]?.message.content);
    expect((await client.models.list()).data.map(({ id }) => id)).toEqual(['test-model']);
    const file = await OpenAI.toFile(Buffer.alloc(3_000_000, 'a'), 'sound.wav');
    const { text } = await client.audio.transcriptions.create({ model: 'test-model', file });
    expect(text).not.toBe('');
    await until(() => gateway.app.inFlight === 0, 'the end of all requests');
  });

  test('a large body and its answer pass, and the address of the client is known', async () => {
    await using gateway = await startGateway({ ...inline(first) });
    const content = 'x'.repeat(5_000_000);
    const response = await gateway.chat(chatRequest({ messages: [{ role: 'user', content }] }));
    expect([response.status, response.complete]).toEqual([200, true]);
    const line = await gateway.accessLine(response);
    expect(line['status']).toBe(200);
  });

  test('a realtime session is held', async () => {
    setDefaultCACertificates([...authorities, first.cert]);
    await using gateway = await startGateway(inline(first));
    const client = new WebSocket(`${gateway.url.replace('http', 'ws')}/v1/realtime?model=test-model`, {
      headers: { authorization: `Bearer ${await gateway.key()}` },
    });
    const [created] = await within(once(client, 'message'), 'the first event');
    expect(JSON.parse(String(created))).toMatchObject({ type: 'session.created' });
    client.close();
    const [code] = await within(once(client, 'close'), 'the end');
    expect(code).toBe(1000);
  });

  test('a stream that the client leaves ends at once', async () => {
    await using gateway = await startGateway(inline(first));
    const client = await gateway.open(
      chatRequest({ stream: true, messages: [{ role: 'user', content: 'x '.repeat(20_000) }] }),
    );
    await client.responseHead();
    client.destroy();
    await until(() => gateway.app.inFlight === 0, 'the end of the request');
  });

  test('pages name URLs with https, plain HTTP is told so, and the admin listener stays as it is', async () => {
    setDefaultCACertificates([...authorities, first.cert]);
    await using gateway = await startGateway(inline(first));
    const page = await fetch(`${gateway.url}/pricing`);
    expect(page.status).toBe(200);
    const text = await page.text();
    expect(text).toContain(`${gateway.url}/v1`);
    expect(text).not.toContain('http://127');
    const plain = await fetch(`${gateway.url.replace('https', 'http')}/v1/models`);
    expect([plain.status, await plain.text()]).toEqual([400, expect.stringContaining('https://')]);
    const metrics = await gateway.metrics();
    expect(metrics).toContain('tollgate_tls_handshake_failures_total{cause="plain_http"} 1');
    expect(metrics).toMatch(/^tollgate_tls_certificate_expiry_timestamp_seconds \d{10}$/m);
    expect(gateway.output + metrics + text).not.toContain('PRIVATE KEY');
  });

  test.each(['1.0', '1.1'])(
    'a stream that breaks does not look finished in HTTP/%s, and ends one connection only',
    async (version) => {
      await using upstream = await HostileUpstream.start([
        head(200, SSE_HEADERS),
        chunk(frame(contentChunk('some text'))),
        reset(),
      ]);
      const { config } = inline(first);
      await using gateway = await startGateway({
        upstreams: { up: upstream.baseUrl },
        ...(config === undefined ? {} : { config }),
      });
      using client = RawClient.over(await secured(gateway));
      const body = JSON.stringify(chatRequest({ stream: true }));
      const fields = `authorization: Bearer ${await gateway.key()}\r\ncontent-type: application/json`;
      const framing = `host: a\r\ncontent-length: ${body.length}`;
      await client.write(
        `POST /v1/chat/completions HTTP/${version}\r\n${fields}\r\n${framing}\r\n\r\n${body}`,
      );
      const response = await client.responseHead();
      await within(client.closed, 'the end of the connection');
      expect(response.text()).toContain('some text');
      expect(response.text()).not.toContain('[DONE]');
      if (version === '1.1') expect(response.complete).toBe(false);
      expect(gateway.output).not.toContain('uncaught');
      expect((await gateway.chat(chatRequest({ model: 'none' }))).status).toBe(404);
    },
  );
});

describe('a certificate that is replaced', () => {
  test('as Kubernetes does, is in force soon, and connections with the one before live on', async () => {
    const mount = await Mount.start(first);
    await using gateway = await startGateway(withTls(mount.tls));
    using kept = RawClient.over(await secured(gateway));
    expect((await kept.ask({ method: 'GET', target: '/health' })).status).toBe(200);
    const pairs = [makeCertificate({ notAfter: new Date(Date.now() + 40 * 86_400_000) }), makeCertificate()];
    for (const pair of pairs) {
      await mount.put(pair);
      await until(async () => (await certificateNow(gateway)) === pair.cert, 'the new certificate');
      expect((await kept.ask({ method: 'GET', target: '/health' })).status).toBe(200);
    }
    expect(await fileValues(gateway, 'changed')).toBe(4);
    const { validTo } = (await secured(gateway)).getPeerX509Certificate() ?? { validTo: '' };
    expect(await gateway.metric('tollgate_tls_certificate_expiry_timestamp_seconds')).toBe(
      Date.parse(validTo) / 1000,
    );
    expect(await gateway.metric('tollgate_config_restart_pending')).toBe(0);
  });

  test('file by file is in force when both are there, and the pair before it until then', async () => {
    const written = await files(first);
    await using gateway = await startGateway(withTls(written.tls));
    const next = makeCertificate();
    await writeFile(written.cert, next.cert);
    await until(async () => (await fileValues(gateway, 'rejected')) === 1, 'the rejection');
    expect(await certificateNow(gateway)).toBe(first.cert);
    const line = await gateway.logLine(({ msg }) => /keeping its last value/.test(String(msg)));
    expect(line).toMatchObject({
      file: written.cert,
      faults: [expect.stringMatching(/listen\.tls: has a `key` that does not belong/)],
    });
    await writeFile(written.key, next.key);
    await until(async () => (await certificateNow(gateway)) === next.cert, 'the new certificate');
    expect(await fileValues(gateway, 'rejected')).toBe(1);
  });

  test.each<[string, (next: Pair) => Partial<Pair>]>([
    ['is cut short', ({ cert, key }) => ({ cert: cert.slice(0, -40), key })],
    ['has a key cut short', ({ cert, key }) => ({ cert, key: key.slice(0, 100) })],
    ['has the key of another', ({ cert }) => ({ cert, key: makeCertificate().key })],
    ['is empty', () => ({ cert: '', key: '' })],
    ['is none', () => ({ cert: 'no certificate', key: 'no key' })],
  ])('by one that %s changes nothing, and a good one after it is in force', async (_, broken) => {
    const written = await files(first);
    await using gateway = await startGateway(withTls(written.tls));
    for (const [name, text] of Object.entries(broken(makeCertificate()))) {
      await writeFile(name === 'cert' ? written.cert : written.key, text ?? '');
    }
    await until(async () => (await fileValues(gateway, 'rejected')) >= 1, 'the rejection');
    expect(await certificateNow(gateway)).toBe(first.cert);
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    const next = makeCertificate();
    await writeFile(written.cert, next.cert);
    await writeFile(written.key, next.key);
    await until(async () => (await certificateNow(gateway)) === next.cert, 'the good certificate');
    expect(gateway.output).not.toContain('PRIVATE KEY');
  });

  test('in the configuration itself is in force after a reload; TLS itself stays until a restart', async () => {
    await using gateway = await startGateway(inline(first));
    const next = makeCertificate();
    await gateway.writeConfig(inline(next));
    await gateway.app.reload();
    expect(await certificateNow(gateway)).toBe(next.cert);
    await gateway.writeConfig({});
    await gateway.app.reload();
    expect(await certificateNow(gateway)).toBe(next.cert);
    expect(await gateway.metric('tollgate_config_restart_pending')).toBe(1);
  });

  test(
    'is in force in all workers, and in one that starts later',
    async () => {
      await using redis = await startRedis();
      const mount = await Mount.start(first);
      await using gateway = await startWorkers(redis, {
        config: { redis: redis.url, workers: 2, listen: { tls: mount.tls } },
      });
      expect(gateway.url).toMatch(/^https:/);
      const next = makeCertificate();
      await mount.put(next);
      const seen = new Map<number, string>();
      await until(async () => {
        const socket = await secured(gateway);
        const { fingerprint256 } = socket.getPeerX509Certificate() ?? { fingerprint256: '' };
        socket.destroy();
        const { client, worker } = await connectTo(gateway);
        client.destroy();
        seen.set(worker, fingerprint256);
        return seen.size === 2 && (await certificateNow(gateway)) === next.cert;
      }, 'both workers, and the new certificate');
      const certificates = new Set<string>();
      for (let connection = 0; connection < 20; connection += 1)
        certificates.add(await certificateNow(gateway));
      expect(certificates).toEqual(new Set([next.cert]));
      expect(await gateway.metric('tollgate_tls_certificate_expiry_timestamp_seconds')).toBeGreaterThan(
        Date.now() / 1000,
      );
    },
    REDIS_TIMEOUT,
  );
});

test('a pair that cannot be used keeps the gateway from starting, with a clear error', async () => {
  const other = makeCertificate();
  await expect(startGateway(inline({ cert: first.cert, key: other.key }))).rejects.toThrow();
});
