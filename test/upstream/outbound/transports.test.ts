// All that the gateway asks of others, behind one proxy and servers that demand its client certificate: models, forms, sessions,
// calls without a model, health checks, token endpoints, Stripe and the collector of traces. No name of theirs can be resolved but
// by the proxy.
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { PRICES, shopConfig } from '../../billing/shop.ts';
import { StripeStandIn } from '../../billing/stripe-stand-in.ts';
import { order } from '../../e2e/holder.ts';
import { makeCertificate } from '../../helpers/certificate.ts';
import { ConnectProxy } from '../../helpers/connect-proxy.ts';
import { noise } from '../../helpers/forms.ts';
import { type Gateway, runCommand, startGateway } from '../../helpers/gateway.ts';
import { chatRequest, HostileUpstream, json, standardAnswer } from '../../helpers/hostile-upstream.ts';
import { ObjectsUpstream } from '../../helpers/objects-upstream.ts';
import { OtlpReceiver } from '../../helpers/otlp-receiver.ts';
import { RealtimeUpstream } from '../../helpers/realtime-upstream.ts';
import { startTlsFront, type TlsFront } from '../../helpers/tls-front.ts';
import { until, within } from '../../helpers/wait.ts';
import { TokenServer } from '../tokens/token-server.ts';

const NAMES = ['models', 'realtime', 'objects', 'issuer', 'stripe', 'otel'] as const;
const server = makeCertificate({ names: NAMES.map((name) => `${name}.test`) });
const client = makeCertificate();

/** Last opened, first closed. */
const open = new AsyncDisposableStack();
const fronts = new Map<string, TlsFront>();
let proxy: ConnectProxy;
let models: HostileUpstream;
let realtime: RealtimeUpstream;
let objects: ObjectsUpstream;
let issuer: TokenServer;
let stripe: StripeStandIn;
let otel: OtlpReceiver;
let gateway: Gateway;
const env: Record<string, string> = { OTEL_BSP_SCHEDULE_DELAY: '10' };

async function front(name: (typeof NAMES)[number], url: string, path = ''): Promise<string> {
  const options = { ...server, ca: client.cert, requestCert: true, rejectUnauthorized: true };
  const started = open.use(await startTlsFront(Number(new URL(url).port), options));
  fronts.set(name, started);
  return `https://${name}.test:${started.port}${path}`;
}

beforeAll(async () => {
  proxy = open.use(await ConnectProxy.start({ login: 'user:pass' }));
  // Health checks come at any time.
  models = open.use(
    await HostileUpstream.start(async (conversation) => {
      const { target } = conversation.request;
      if (target === '/v1/chat/completions') return await standardAnswer(conversation);
      return await json(200, { text: 'heard', usage: { type: 'duration', seconds: 1 } })(conversation);
    }),
  );
  realtime = open.use(await RealtimeUpstream.start());
  objects = open.use(await ObjectsUpstream.start());
  issuer = open.use(await TokenServer.start());
  stripe = open.use(await StripeStandIn.start(PRICES));
  otel = open.use(await OtlpReceiver.start());
  env['OTEL_EXPORTER_OTLP_ENDPOINT'] = await front('otel', otel.url);
  const auth = {
    oauth2: {
      token_url: await front('issuer', issuer.url, '/token'),
      client_id: 'c',
      client_secret: 'client-secret',
    },
  };
  const api_base = await front('stripe', stripe.url);
  const target = (upstream: string) => ({ targets: [{ upstream, model: 'upstream-model' }] });
  gateway = open.use(
    await startGateway({
      env,
      config: shopConfig(stripe, {
        proxy: proxy.url('user:pass'),
        tls: { ca: server.cert, cert: client.cert, key: client.key },
        billing: { api_base },
        upstreams: {
          echo: null,
          models: {
            base_url: await front('models', models.url, '/v1'),
            auth,
            health: { path: '/healthz', interval: '100ms' },
          },
          realtime: { base_url: await front('realtime', realtime.baseUrl, '/v1'), api_key: 'key' },
          objects: { base_url: await front('objects', objects.baseUrl, '/v1'), api_key: 'key' },
        },
        models: { 'test-model': target('models'), live: target('realtime') },
        passthrough: { upstream: 'objects', paths: ['/v1/files'] },
      }),
    }),
  );
});
afterAll(() => open.disposeAsync());

const sdk = async () =>
  new OpenAI({ apiKey: await gateway.key(), baseURL: `${gateway.url}/v1`, maxRetries: 0 });

/** Every connection to this server came through the proxy, asked for its name and showed the certificate. */
function expectWay(name: (typeof NAMES)[number]): void {
  const { port = 0, handshakes = [], failures } = fronts.get(name) ?? {};
  expect(failures).toBe(0);
  expect(handshakes.length).toBeGreaterThan(0);
  for (const each of handshakes)
    expect(each).toEqual({ name: `${name}.test`, client: expect.stringMatching(/^\w\w:/) });
  const tunnels = proxy.authorities.filter((authority) => authority === `${name}.test:${port}`);
  expect(tunnels.length).toBeGreaterThanOrEqual(handshakes.length);
}

describe('through the proxy, with the client certificate, go', () => {
  test('chat, whole and streamed, with a token of the issuer', async () => {
    for (const stream of [false, true]) {
      const response = await gateway.chat(chatRequest({ stream }));
      expect(response.status).toBe(200);
    }
    const asked = models.requests.filter(({ method }) => method === 'POST');
    expect(asked.map((each) => each.header('authorization'))).toEqual([
      'Bearer issued-token-1',
      'Bearer issued-token-1',
    ]);
    expectWay('models');
    expectWay('issuer');
  });

  test('forms', async () => {
    const client = await sdk();
    const file = await toFile(noise(300_000), 'sound.mp3');
    const heard = await client.audio.transcriptions.create({ file, model: 'test-model' });
    expect(heard.text).toBe('heard');
    expectWay('models');
  });

  test('health checks', async () => {
    const checks = () => models.requests.filter(({ target }) => target === '/healthz');
    await until(() => checks().length >= 2, 'two health checks');
    expect(await gateway.metric('tollgate_upstream_healthy{upstream="models"}')).toBe(1);
  });

  test('realtime sessions', async () => {
    const next = realtime.next();
    const socket = new WebSocket(
      `${gateway.url.replace('http', 'ws')}/v1/realtime?model=live`,
      ['realtime'],
      {
        headers: { authorization: `Bearer ${await gateway.key()}` },
      },
    );
    await within(once(socket, 'open'), 'the session');
    const session = await next;
    const sent = JSON.stringify({ type: 'session.update', session: { instructions: 'x'.repeat(100_000) } });
    socket.send(sent);
    await until(() => session.messages.length === 1, 'the message');
    expect(session.messages[0]?.text).toBe(sent);
    const answer = once(socket, 'message');
    session.socket.send('{"type":"session.updated"}');
    expect(String((await within(answer, 'the answer'))[0])).toBe('{"type":"session.updated"}');
    socket.close();
    await session.closed;
    expectWay('realtime');
  });

  test('calls without a model, with files in both directions', async () => {
    const client = await sdk();
    const bytes = Buffer.from('0123456789abcdef'.repeat(3_000));
    const { id } = await client.files.create({ file: await toFile(bytes, 'a.bin'), purpose: 'assistants' });
    const content = await client.files.content(id);
    expect(Buffer.from(await content.arrayBuffer()).equals(bytes)).toBe(true);
    expectWay('objects');
  });

  test('Stripe', async () => {
    const response = await order(gateway.url, 'Lite');
    expect(response.status).toBe(201);
    expect(stripe.requests).toContain('POST /v1/checkout/sessions');
    expectWay('stripe');
  });

  test('traces', async () => {
    await gateway.chat(chatRequest());
    await until(() => otel.spans.length > 0, 'a span');
    expectWay('otel');
  });

  test('the fetch of a token by `tollgate check --credentials`', async () => {
    const fetched = issuer.requests.length;
    const words = ['check', '--credentials', '--config', gateway.configFile];
    const { code, stdout } = await runCommand(words, { ...env, TEST_DIR: gateway.directory.path });
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining('got a token by oauth2') });
    expect(issuer.requests.length).toBe(fetched + 1);
    expect(stdout).toContain(
      `through the proxy http://127.0.0.1:${proxy.port}; authorities of its own; client certificate until`,
    );
  });

  test('nothing beside it', () => {
    for (const name of NAMES) expectWay(name);
    expect(gateway.output).not.toMatch(/user:pass|client-secret/);
  });
});

test('a proxy that fails is named for sessions and calls without a model, too', async () => {
  proxy.script = (socket) => socket.end('HTTP/1.1 403 Forbidden\r\n\r\n');
  try {
    const socket = new WebSocket(`${gateway.url.replace('http', 'ws')}/v1/realtime?model=live`, {
      headers: { authorization: `Bearer ${await gateway.key()}` },
    });
    socket.on('error', () => undefined);
    const [, answer] = await within(once(socket, 'unexpected-response'), 'an answer');
    expect(answer.statusCode).toBe(406);
    const client = await sdk();
    const listed = client.files.create({ file: await toFile(Buffer.from('x'), 'a'), purpose: 'assistants' });
    await expect(listed).rejects.toMatchObject({ status: 406, code: 'upstream_proxy_denied' });
    const causes = () => gateway.logs.filter(({ cause }) => /answered CONNECT with 403/.test(String(cause)));
    await until(() => causes().length >= 2, 'both lines of the log');
  } finally {
    proxy.script = undefined;
  }
});

test('a reload changes the proxy of what runs', async () => {
  await using other = await ConnectProxy.start();
  expect(gateway.app.config.dynamic.outbound?.https).toContain(String(proxy.port));
  const text = await readFile(gateway.configFile, 'utf8');
  await writeFile(gateway.configFile, text.replace(proxy.url('user:pass'), other.url()));
  await gateway.app.reload();
  await gateway.chat(chatRequest());
  expect((await order(gateway.url, 'Pro')).status).toBe(201);
  const client = await sdk();
  await client.files.create({ file: await toFile(Buffer.from('x'), 'a'), purpose: 'assistants' });
  const names = new Set(other.authorities.map((authority) => authority.split(':')[0]));
  expect([...names]).toEqual(expect.arrayContaining(['models.test', 'objects.test']));
});
