// Upstreams that do not prove who they are: none of them is told anything, and another target answers.
import { createServer } from 'node:net';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeCertificate } from '../helpers/certificate.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { chatRequest, completion, HostileUpstream, json } from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

const CREDENTIAL = 'credential-of-faked';
const PROMPT = 'words-for-nobody-else';
const request = (model = 'test-model') =>
  chatRequest({ model, messages: [{ role: 'user', content: PROMPT }] });

const system = getCACertificates('default');
let living: HostileUpstream;

beforeEach(async () => {
  living = await HostileUpstream.start({ script: json(200, completion()) });
});
afterEach(async () => {
  setDefaultCACertificates(system);
  await living.close();
});

/** From now on connections of this process trust the certificate, also as an authority. */
function trust({ cert }: { readonly cert: string }): void {
  setDefaultCACertificates([...system, cert]);
}

/** `faked` first, then `living`; the model `alone` is at `faked` and nowhere else. */
function start(baseUrl: string): Promise<Gateway> {
  return startGateway({
    upstreams: { faked: baseUrl, living: living.baseUrl },
    config: {
      upstreams: { faked: { headers: { 'api-key': `${CREDENTIAL}-in-a-header` } } },
      retry: { budget: 0 },
      models: {
        'test-model': {
          targets: [
            { upstream: 'faked', model: 'upstream-model' },
            { upstream: 'living', model: 'upstream-model', priority: 2 },
          ],
        },
        alone: { targets: [{ upstream: 'faked', model: 'alone' }] },
      },
    },
  });
}

/** What a gateway does with an upstream that it cannot believe. */
async function expectDistrust(gateway: Gateway): Promise<void> {
  for (let i = 0; i < 5; i += 1) expect((await gateway.chat(request())).status).toBe(200);
  const breaker = 'tollgate_upstream_breaker_state{upstream="faked",model="upstream-model"}';
  expect(await gateway.metric(breaker)).toBe(2);
  const response = await gateway.chat(request('alone'));
  expect([response.status, response.json()]).toMatchObject([406, { error: { code: 'upstream_tls' } }]);
  expect(response.text()).not.toMatch(/localhost|127\.0\.0\.1|certificate|CERT|SSL/i);
  await gateway.accessLine(response);
  for (const text of [gateway.output, await gateway.metrics()]) {
    expect(text).not.toContain(CREDENTIAL);
    expect(text).not.toContain(PROMPT);
  }
}

const DAY = 86_400_000;

describe('a certificate', () => {
  test('that is trusted and of this host is believed: the credential is sent', async () => {
    const certificate = makeCertificate();
    trust(certificate);
    await using faked = await HostileUpstream.start({ tls: certificate, script: json(200, completion()) });
    await using gateway = await start(faked.baseUrl);
    expect((await gateway.chat(request())).status).toBe(200);
    expect((await faked.request(0)).header('authorization')).toBe(`Bearer ${CREDENTIAL}`);
  });

  test.each([
    ['that nobody vouches for', {}, false],
    [
      'that has expired',
      { notBefore: new Date(Date.now() - 2 * DAY), notAfter: new Date(Date.now() - DAY) },
      true,
    ],
    [
      'that is not valid yet',
      { notBefore: new Date(Date.now() + DAY), notAfter: new Date(Date.now() + 2 * DAY) },
      true,
    ],
    ['of another host', { names: ['other.example'] }, true],
    ['of another host whose name begins alike', { names: ['127.0.0.1.other.example', '127.0.0.11'] }, true],
  ])('%s gets not one byte', async (_, input, isTrusted) => {
    const certificate = makeCertificate(input);
    if (isTrusted) trust(certificate);
    await using faked = await HostileUpstream.start({ tls: certificate });
    await using gateway = await start(faked.baseUrl);
    await expectDistrust(gateway);
    expect(faked.connections).toBeGreaterThanOrEqual(6);
    expect(faked.sockets.map((socket) => socket.received.length)).toEqual(faked.sockets.map(() => 0));
  });
});

test('a server that speaks no TLS gets nothing but the greeting of TLS', async () => {
  const received: Buffer[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (bytes: Buffer) => {
      received.push(bytes);
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
    });
  }).listen(0, '127.0.0.1');
  await until(() => server.listening);
  const address = server.address();
  const port = address !== null && typeof address === 'object' ? address.port : 0;
  try {
    await using gateway = await start(`https://127.0.0.1:${port}/v1`);
    await expectDistrust(gateway);
  } finally {
    server.close();
  }
  const all = Buffer.concat(received);
  // A TLS record of a handshake (RFC 8446, 5.1).
  expect(received.map((bytes) => bytes[0])).toEqual(received.map(() => 0x16));
  expect(received.length).toBeGreaterThanOrEqual(6);
  for (const secret of [CREDENTIAL, PROMPT, 'chat/completions', 'uthorization'])
    expect(all.includes(secret)).toBe(false);
});
