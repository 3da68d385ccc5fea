// TLS settings of upstreams: private authorities, client certificates, another name. Files are swapped as Kubernetes does it, while
// requests run.
import { execFileSync, spawn } from 'node:child_process';
import { mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { TlsOptions } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeCertificate } from '../../helpers/certificate.ts';
import { closedPort } from '../../helpers/closed-port.ts';
import { type Gateway, type GatewayOptions, startGateway } from '../../helpers/gateway.ts';
import { chatRequest, completion, HostileUpstream, json } from '../../helpers/hostile-upstream.ts';
import { OtlpReceiver } from '../../helpers/otlp-receiver.ts';
import { startTlsFront, type TlsFront } from '../../helpers/tls-front.ts';
import { type TempDir, tempDir, until } from '../../helpers/wait.ts';

type Fields = NonNullable<GatewayOptions['config']>;
type Pair = ReturnType<typeof makeCertificate>;

const DAY = 86_400_000;
const server = makeCertificate();
const client = makeCertificate();
let upstream: HostileUpstream;
let living: HostileUpstream;
let folder: TempDir;

beforeEach(async () => {
  upstream = await HostileUpstream.start({ script: json(200, completion()) });
  living = await HostileUpstream.start({ script: json(200, completion()) });
  folder = await tempDir();
});
afterEach(async () => {
  await Promise.all([upstream.close(), living.close(), folder.remove()]);
});

const startFront = (options: TlsOptions = {}): Promise<TlsFront> =>
  startTlsFront(upstream.port, { ...server, ...options });
/** A server that demands a client certificate of these authorities. */
const demanding = (...authorities: readonly Pair[]) =>
  startFront({ ca: authorities.map(({ cert }) => cert), requestCert: true, rejectUnauthorized: true });

/** `up`, then `living`; the model `alone` is at `up` and nowhere else. */
function start(port: number, tls: Fields, config: Fields = {}): Promise<Gateway> {
  const [one, two] = ['up', 'living'].map((name, at) => ({ upstream: name, model: 'm', priority: at + 1 }));
  return startGateway({
    upstreams: { up: `https://127.0.0.1:${port}/v1`, living: living.baseUrl },
    config: {
      retry: { budget: 0 },
      ...config,
      upstreams: { up: { tls } },
      models: { 'test-model': { targets: [one ?? {}, two ?? {}] }, alone: { targets: [one ?? {}] } },
    },
  });
}

const alone = chatRequest({ model: 'alone' });

/** `up` cannot be used, the operator has to act, and the next target answers. */
async function expectDenied(gateway: Gateway, message: RegExp): Promise<void> {
  expect((await gateway.chat(chatRequest())).status).toBe(200);
  expect(living.requests).toHaveLength(1);
  const response = await gateway.chat(alone);
  expect([response.status, response.json()]).toMatchObject([406, { error: { code: 'upstream_tls' } }]);
  expect(response.text()).toMatch(message);
  expect(response.text()).not.toMatch(/127\.0\.0\.1|CERT|ALERT/);
  expect(upstream.requests).toEqual([]);
  // Not sent, so neither its duration nor its usage counts.
  expect(await gateway.metrics()).not.toMatch(
    /tollgate_upstream_duration_seconds_count\{[^}]*"up"[^}]*\} [1-9]/,
  );
}

describe('a private authority', () => {
  test('of an upstream is trusted for it', async () => {
    await using front = await startFront();
    await using gateway = await start(front.port, { ca: server.cert });
    expect((await gateway.chat(alone)).status).toBe(200);
  });

  test('at the top level is trusted for all, and replaced by an upstream’s own', async () => {
    await using front = await startFront();
    await using trusting = await start(front.port, {}, { tls: { ca: server.cert } });
    expect((await trusting.chat(alone)).status).toBe(200);
    upstream.requests.length = 0;
    await using other = await start(front.port, { ca: client.cert }, { tls: { ca: server.cert } });
    await expectDenied(other, /identity of the upstream could not be verified/);
  });

  test('in a bundle is found', async () => {
    await using front = await startFront();
    await using gateway = await start(front.port, { ca: `# one\n${client.cert}\n# two\n${server.cert}` });
    expect((await gateway.chat(alone)).status).toBe(200);
  });

  test('that is another one is not believed', async () => {
    await using front = await startFront();
    await using gateway = await start(front.port, { ca: client.cert });
    await expectDenied(gateway, /identity of the upstream could not be verified/);
    expect(front.handshakes).toEqual([]);
  });
});

describe('`server_name`', () => {
  test('is asked for and has to be in the certificate', async () => {
    const named = makeCertificate({ names: ['llm.internal'] });
    await using front = await startFront(named);
    await using gateway = await start(front.port, { ca: named.cert, server_name: 'llm.internal' });
    expect((await gateway.chat(alone)).status).toBe(200);
    expect(front.handshakes.map(({ name }) => name)).toEqual(['llm.internal']);
    expect((await upstream.request(0)).header('host')).toBe(`127.0.0.1:${front.port}`);
    await using without = await start(front.port, { ca: named.cert });
    upstream.requests.length = 0;
    await expectDenied(without, /identity of the upstream could not be verified/);
  });

  test('that the certificate does not hold is not believed, though it holds the host', async () => {
    await using front = await startFront();
    await using gateway = await start(front.port, { ca: server.cert, server_name: 'llm.internal' });
    await expectDenied(gateway, /identity of the upstream could not be verified/);
  });
});

describe('a client certificate', () => {
  const own = (pair: Pair) => ({ ca: server.cert, cert: pair.cert, key: pair.key });

  test('is shown to an upstream that asks for it', async () => {
    await using front = await demanding(client);
    await using gateway = await start(front.port, own(client));
    for (const stream of [false, true]) expect((await gateway.chat({ ...alone, stream })).status).toBe(200);
    expect(front.handshakes[0]?.client).toMatch(/^\w\w(:\w\w){31}$/);
  });

  test.each([
    ['TLS 1.3', {}],
    ['TLS 1.2', { maxVersion: 'TLSv1.2' }],
  ] as const)(
    'that is missing is the operator’s to mend, and counts as not sent (%s)',
    async (_, options) => {
      await using front = await startFront({
        ...options,
        ca: client.cert,
        requestCert: true,
        rejectUnauthorized: true,
      });
      await using gateway = await start(front.port, { ca: server.cert });
      await expectDenied(gateway, /rejected the TLS handshake; it may want another client certificate/);
      expect(front.failures).toBeGreaterThanOrEqual(2);
      await gateway.logLine(({ cause }) => /ERR_SSL_\S*ALERT/.test(String(cause)));
    },
  );

  const hasOpenssl = (() => {
    try {
      execFileSync('openssl', ['version']);
      return true;
    } catch {
      return false;
    }
  })();

  // Node's own server tells no client why it rejects a certificate.
  test.skipIf(!hasOpenssl).each([
    ['of an unknown authority', makeCertificate()],
    [
      'that has expired',
      makeCertificate({ notBefore: new Date(Date.now() - 2 * DAY), notAfter: new Date(Date.now() - DAY) }),
    ],
  ])('%s is rejected by an OpenSSL server: not sent, and the next target answers', async (what, shown) => {
    const [port, trusted] = [await closedPort(), what.startsWith('that') ? shown : client];
    const files = { key: server.key, cert: server.cert, ca: trusted.cert };
    for (const [name, text] of Object.entries(files)) await writeFile(folder.file(name), text);
    const words = [
      's_server',
      '-accept',
      `127.0.0.1:${port}`,
      '-quiet',
      '-Verify',
      '1',
      '-verify_return_error',
    ];
    const paths = ['-key', folder.file('key'), '-cert', folder.file('cert'), '-CAfile', folder.file('ca')];
    const child = spawn('openssl', [...words, ...paths], { stdio: 'ignore' });
    try {
      await using gateway = await start(port, own(shown));
      await until(async () => {
        return await new Promise((resolve) => {
          const probe = connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false));
          probe.once('connect', () => probe.destroy());
        });
      }, 'the server');
      await expectDenied(gateway, /rejected the TLS handshake; it may want another client certificate/);
    } finally {
      child.kill();
    }
  });

  test('that Node’s server rejects without a word fails the request', async () => {
    await using front = await demanding(client);
    await using gateway = await start(front.port, own(makeCertificate()));
    const response = await gateway.chat(alone);
    expect(response.status).toBe(502);
    expect(upstream.requests).toEqual([]);
  });

  test('has its expiry in the metrics, and one that ends soon is logged once it is used', async () => {
    const end = new Date(Math.ceil(Date.now() / 1000) * 1000 + 3_600_000);
    const short = makeCertificate({ notAfter: end });
    await using front = await demanding(short);
    await using gateway = await start(front.port, own(short));
    const gauge = 'tollgate_upstream_client_certificate_expiry_timestamp_seconds{upstream="up"}';
    expect(await gateway.metric(gauge)).toBe(end.getTime() / 1000);
    for (let index = 0; index < 3; index += 1) expect((await gateway.chat(alone)).status).toBe(200);
    const warnings = () =>
      gateway.logs.filter(({ msg }) =>
        /client certificate for an upstream has expired or will/.test(String(msg)),
      );
    expect(warnings().map(({ upstream, expires_at }) => [upstream, expires_at])).toEqual([
      ['up', end.toISOString()],
    ]);
    expect(gateway.output).not.toMatch(/BEGIN|MII/);
    await gateway.writeConfig({ upstreams: { living: living.baseUrl } });
    await gateway.app.reload();
    expect(await gateway.metrics()).not.toContain(
      'tollgate_upstream_client_certificate_expiry_timestamp_seconds{',
    );
  });
});

test('the variables of OpenTelemetry name the certificates for the collector, in place of `tls`', async () => {
  await using otel = await OtlpReceiver.start();
  const port = Number(new URL(otel.url).port);
  const demands = { ca: client.cert, requestCert: true, rejectUnauthorized: true };
  await using front = await startTlsFront(port, { ...server, ...demands });
  const files = { CERTIFICATE: server.cert, CLIENT_CERTIFICATE: client.cert, CLIENT_KEY: client.key };
  const env: Record<string, string> = {
    OTEL_EXPORTER_OTLP_ENDPOINT: `https://127.0.0.1:${front.port}`,
    OTEL_BSP_SCHEDULE_DELAY: '10',
  };
  for (const [name, text] of Object.entries(files)) {
    await writeFile(folder.file(name), text);
    env[`OTEL_EXPORTER_OTLP_${name}`] = folder.file(name);
  }
  const tls = { ca: makeCertificate().cert };
  await using gateway = await startGateway({ env, config: { tls } });
  await gateway.chat(chatRequest());
  await until(() => otel.spans.length > 0, 'a span');
  expect(front.handshakes[0]?.client).toMatch(/^\w\w:/);
  await writeFile(folder.file('CLIENT_KEY'), 'no key');
  await using other = await startGateway({ env, config: { tls } });
  await other.logLine(({ msg }) => /OTEL_EXPORTER_OTLP_CERTIFICATE.* cannot be used/.test(String(msg)));
  expect((await other.chat(chatRequest())).status).toBe(200);
});

describe('files of certificates', () => {
  let version = 0;
  const mounted = (name: string) => join(folder.path, name);

  /** A new version of all files at once, as the kubelet does. */
  async function mount(pair: Pair, ca: string): Promise<void> {
    version += 1;
    const name = `..${version}`;
    await mkdir(mounted(name));
    const files = { 'tls.crt': pair.cert, 'tls.key': pair.key, 'ca.crt': ca };
    for (const [file, text] of Object.entries(files)) {
      await writeFile(join(mounted(name), file), text);
      if (version === 1) await symlink(join('..data', file), mounted(file));
    }
    await symlink(name, mounted('..data_tmp'));
    await rename(mounted('..data_tmp'), mounted('..data'));
    if (version > 1) await rm(mounted(`..${version - 1}`), { recursive: true });
  }

  const references = () => ({
    ca: `\${file:${mounted('ca.crt')}}`,
    cert: `\${file:${mounted('tls.crt')}}`,
    key: `\${file:${mounted('tls.key')}}`,
  });

  beforeEach(() => {
    version = 0;
  });

  test('are swapped while requests run: none fails, running streams go on, and nothing is reset', async () => {
    const next = makeCertificate();
    const nextServer = makeCertificate();
    await using front = await demanding(client, next);
    await mount(client, server.cert);
    await using gateway = await start(front.port, references());
    expect((await gateway.chat(alone)).status).toBe(200);
    const [first] = front.handshakes;
    const breaker = gateway.app.breaker('up', 'm');
    const held = Promise.withResolvers<void>();
    upstream.next(async (conversation) => {
      await held.promise;
      await json(200, completion({ content: 'late' }))(conversation);
    });
    const running = gateway.chat(alone);
    await until(() => upstream.answering === 1, 'the running request');
    await mount(next, `${server.cert}${nextServer.cert}`);
    let sent = 0;
    await until(async () => {
      upstream.closeIdle();
      expect((await gateway.chat(alone)).status).toBe(200);
      sent += 1;
      return front.handshakes.at(-1)?.client !== first?.client;
    }, 'a connection with the new certificate');
    held.resolve();
    expect((await running).text()).toContain('late');
    expect(sent).toBeGreaterThan(0);
    expect(front.failures).toBe(0);
    expect(gateway.app.retiring).toBe(0);
    expect(breaker).toBeDefined();
    expect(await gateway.metric('tollgate_config_file_values_total{result="rejected"}')).toBe(0);
    expect(gateway.output).not.toMatch(/keeping its last value|BEGIN|MII/);
  });

  test('that do not fit each other change nothing, warn and count, until they do', async () => {
    const next = makeCertificate();
    await using front = await demanding(client, next);
    const files = { 'tls.crt': client.cert, 'tls.key': client.key, 'ca.crt': server.cert };
    for (const [file, text] of Object.entries(files)) await writeFile(mounted(file), text);
    await using gateway = await start(front.port, references());
    expect((await gateway.chat(alone)).status).toBe(200);
    const rejected = () => gateway.metric('tollgate_config_file_values_total{result="rejected"}');
    await writeFile(mounted('tls.crt'), next.cert.slice(0, 150));
    await until(async () => (await rejected()) > 0, 'the half certificate');
    await gateway.logLine(({ msg }) => /keeping its last value/.test(String(msg)));
    upstream.closeIdle();
    expect((await gateway.chat(alone)).status).toBe(200);
    await writeFile(mounted('tls.crt'), next.cert);
    const before = await rejected();
    await until(async () => (await rejected()) > before, 'the certificate without its key');
    upstream.closeIdle();
    expect((await gateway.chat(alone)).status).toBe(200);
    expect(new Set(front.handshakes.map(({ client: each }) => each)).size).toBe(1);
    await writeFile(mounted('tls.key'), next.key);
    await until(async () => {
      upstream.closeIdle();
      expect((await gateway.chat(alone)).status).toBe(200);
      return new Set(front.handshakes.map(({ client: each }) => each)).size === 2;
    }, 'the new pair');
    expect(front.failures).toBe(0);
  });

  test('bring back an upstream whose client certificate had expired', async () => {
    const expired = makeCertificate({
      notBefore: new Date(Date.now() - 2 * DAY),
      notAfter: new Date(Date.now() - DAY),
    });
    await using front = await demanding(client);
    await mount(expired, server.cert);
    await using gateway = await start(front.port, references(), { retry: { attempts: 1 } });
    expect((await gateway.chat(alone)).status).toBe(502);
    await mount(client, server.cert);
    await until(async () => (await gateway.chat(alone)).status === 200, 'an answer');
    expect(
      await gateway.metric('tollgate_upstream_client_certificate_expiry_timestamp_seconds{upstream="up"}'),
    ).toBeGreaterThan(Date.now() / 1000);
  });
});
