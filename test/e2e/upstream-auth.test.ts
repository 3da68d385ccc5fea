// Upstreams whose token is fetched: requests have a valid one, renewals fail nobody, and what is wrong is said without the token.
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import { Pool } from 'undici';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { commandsWith } from '../cli/commands.ts';
import { configText, type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import { chatRequest, HostileUpstream, json, upstreamError } from '../helpers/hostile-upstream.ts';
import { RealtimeUpstream } from '../helpers/realtime-upstream.ts';
import { until, within } from '../helpers/wait.ts';
import { TokenServer } from '../upstream/tokens/token-server.ts';

/** Clients that send one request after the other. */
const CLIENTS = 16;

let issuer: TokenServer;
let upstream: HostileUpstream;
beforeEach(async () => {
  issuer = await TokenServer.start();
  upstream = await HostileUpstream.start();
});
afterEach(async () => {
  await upstream[Symbol.asyncDispose]();
  await issuer[Symbol.asyncDispose]();
});

const auth = (client_secret = 'secret-of-client') => ({
  oauth2: { token_url: `${issuer.url}/token`, client_id: 'client', client_secret },
});

function options(more: GatewayOptions['config'] = {}, fields = {}): GatewayOptions {
  return {
    upstreams: { up: upstream.baseUrl },
    config: { ...more, upstreams: { up: { api_key: null, auth: auth(), ...fields } } },
  };
}

const authorizations = () => upstream.requests.map((request) => request.header('authorization'));
const unauthorized = json(401, upstreamError('invalid token', { type: 'invalid_request_error' }));

describe('a fetched token', () => {
  test('is there before the first request, and is sent with each', async () => {
    await using gateway = await startGateway(options());
    await until(() => issuer.requests.length === 1, 'the first token');
    for (const body of [chatRequest(), chatRequest({ stream: true })])
      expect((await gateway.chat(body)).status).toBe(200);
    expect(authorizations()).toEqual(['Bearer issued-token-1', 'Bearer issued-token-1']);
    expect(issuer.requests).toHaveLength(1);
    const metrics = await gateway.metrics();
    expect(metrics).toContain('tollgate_upstream_token_fetches_total{upstream="up",result="ok"} 1');
    const expiry = await gateway.metric('tollgate_upstream_token_expiry_timestamp_seconds{upstream="up"}');
    expect(Math.abs(expiry - Date.now() / 1000 - 3600)).toBeLessThan(60);
    expect(gateway.output + metrics).not.toMatch(/issued-token-1|secret-of-client/);
  });

  test('is renewed twenty times below as many requests as the machine can do, and none of them fails', async () => {
    const issued = new Set<string>();
    issuer.answer = () => {
      const access_token = `issued-token-${issuer.requests.length}`;
      issued.add(`Bearer ${access_token}`);
      return { body: { access_token, expires_in: 0.5 } };
    };
    await using gateway = await startGateway(options());
    const headers = { authorization: `Bearer ${await gateway.key()}`, 'content-type': 'application/json' };
    const body = JSON.stringify(chatRequest());
    const statuses = new Map<number, number>();
    const pool = new Pool(gateway.url, { connections: CLIENTS });
    const begin = performance.now();
    const client = async () => {
      while (issuer.requests.length < 21) {
        const response = await pool.request({ method: 'POST', path: '/v1/chat/completions', headers, body });
        await response.body.dump();
        statuses.set(response.statusCode, (statuses.get(response.statusCode) ?? 0) + 1);
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    const seconds = (performance.now() - begin) / 1000;
    await pool.close();
    const sent = statuses.get(200) ?? 0;
    const renewals = new Set(authorizations()).size;
    console.info(`${renewals} tokens, ${sent} requests, ${Math.round(sent / seconds)} a second`);
    expect([...statuses.keys()]).toEqual([200]);
    expect(upstream.requests).toHaveLength(sent);
    for (const each of authorizations()) expect(issued.has(each ?? '')).toBe(true);
    expect(renewals).toBeGreaterThanOrEqual(20);
  });

  test('that the upstream rejects is replaced, and the request is sent once more', async () => {
    await using gateway = await startGateway(options({ retry: { attempts: 1 } }));
    upstream.next([unauthorized]);
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    expect(authorizations()).toEqual(['Bearer issued-token-1', 'Bearer issued-token-2']);
    expect(issuer.requests).toHaveLength(2);
    const extra = 'tollgate_upstream_extra_attempts_total{upstream="up",reason="token"}';
    expect(await gateway.metric(extra)).toBe(1);
  });

  test('that the upstream goes on to reject costs one renewal, and the client is told whose fault it is', async () => {
    await using gateway = await startGateway(options({ retry: { attempts: 1 } }));
    upstream.always([unauthorized]);
    const statuses: number[] = [];
    for (let request = 0; request < 5; request += 1) {
      const response = await gateway.chat(chatRequest());
      statuses.push(response.status);
      expect(response.json()).toMatchObject({
        error: { code: expect.stringMatching(/upstream_(auth_error|busy)/) },
      });
    }
    expect(statuses[0]).toBe(406);
    expect(issuer.requests).toHaveLength(2);
    expect(gateway.output).not.toMatch(/issued-token-[12]/);
  });

  test('quoted by the upstream is not shown', async () => {
    await using gateway = await startGateway(options());
    await gateway.chat(chatRequest());
    upstream.next([json(400, upstreamError('rejected issued-token-1 for no reason'))]);
    expect((await gateway.chat(chatRequest())).text()).not.toContain('issued-token-1');
  });

  test('of a new secret replaces the present one, and the upstream keeps its connections', async () => {
    await using gateway = await startGateway(options());
    await gateway.chat(chatRequest());
    const closed = upstream.connections - upstream.openSockets;
    await gateway.writeConfig(options({}, { auth: auth('another-secret') }));
    await gateway.app.reload();
    // The present token is used until there is another one.
    await until(async () => {
      expect((await gateway.chat(chatRequest())).status).toBe(200);
      return authorizations().at(-1) === 'Bearer issued-token-2';
    }, 'the new token');
    expect(new Set(authorizations())).toEqual(new Set(['Bearer issued-token-1', 'Bearer issued-token-2']));
    expect(upstream.connections - upstream.openSockets).toBe(closed);
    expect(gateway.app.retiring).toBe(0);
  });

  test('is sent with calls without a model, too, and replaced for them', async () => {
    await using gateway = await startGateway(
      options({ passthrough: { upstream: 'up', paths: ['/v1/vector_stores'] } }),
    );
    upstream.next([unauthorized], [json(200, { id: 'vs_1', object: 'vector_store' })]);
    const key = await gateway.key();
    const response = await fetch(`${gateway.url}/v1/vector_stores`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: '{"name":"docs"}',
    });
    expect(response.status).toBe(200);
    expect(authorizations()).toEqual(['Bearer issued-token-1', 'Bearer issued-token-2']);
  });

  test('is sent with health checks', async () => {
    await using gateway = await startGateway(options({}, { health: { path: '/health', interval: '100ms' } }));
    await until(() => upstream.requests.length > 0, 'a health check');
    expect(authorizations()[0]).toBe('Bearer issued-token-1');
    expect(gateway.app.retiring).toBe(0);
  });

  test('that a health check finds rejected is replaced, and the check is sent once more', async () => {
    upstream.next([unauthorized]);
    await using gateway = await startGateway(options({}, { health: { path: '/health', interval: '100ms' } }));
    await until(() => upstream.requests.length >= 4, 'more checks');
    expect(authorizations().slice(0, 3)).toEqual([
      'Bearer issued-token-1',
      'Bearer issued-token-2',
      'Bearer issued-token-2',
    ]);
    expect(issuer.requests).toHaveLength(2);
    expect(await gateway.metric('tollgate_upstream_healthy{upstream="up"}')).toBe(1);
  });

  test('that health checks find rejected again and again costs one renewal, and the upstream counts as unhealthy', async () => {
    upstream.always([unauthorized]);
    await using gateway = await startGateway(options({}, { health: { path: '/health', interval: '100ms' } }));
    const healthy = () => gateway.metric('tollgate_upstream_healthy{upstream="up"}');
    await until(
      async () => upstream.requests.length >= 6 && (await healthy()) === 0,
      'the unhealthy upstream',
    );
    expect(issuer.requests).toHaveLength(2);
  });

  test('that is a key of the configuration is not replaced after a rejected health check', async () => {
    upstream.always([unauthorized]);
    const plain: GatewayOptions = {
      upstreams: { up: upstream.baseUrl },
      config: { upstreams: { up: { health: { path: '/health', interval: '100ms' } } } },
    };
    await using gateway = await startGateway(plain);
    await until(
      async () => (await gateway.metric('tollgate_upstream_healthy{upstream="up"}')) === 0,
      'the unhealthy upstream',
    );
    expect(issuer.requests).toHaveLength(0);
  });

  test('that the upstream rejects in a realtime handshake is replaced, and the handshake is sent once more', async () => {
    await using realtime = await RealtimeUpstream.start({
      refuse: ({ headers }, socket) => rejectToken(headers, socket, /issued-token-1$/),
    });
    await using gateway = await startGateway(realtimeOptions(realtime));
    const session = realtime.next();
    const client = new WebSocket(`${gateway.url.replace('http', 'ws')}/v1/realtime?model=test-model`, {
      headers: { authorization: `Bearer ${await gateway.key()}` },
    });
    await within(once(client, 'open'), 'the session');
    await session;
    expect(realtime.handshakes.map(({ headers }) => headers.authorization)).toEqual([
      'Bearer issued-token-1',
      'Bearer issued-token-2',
    ]);
    expect(issuer.requests).toHaveLength(2);
    client.terminate();
  });

  test('that the upstream rejects in every realtime handshake costs one renewal and one repetition', async () => {
    await using realtime = await RealtimeUpstream.start({
      refuse: ({ headers }, socket) => rejectToken(headers, socket, /issued-token/),
    });
    await using gateway = await startGateway(realtimeOptions(realtime));
    const statuses: number[] = [];
    for (let session = 0; session < 3; session += 1) {
      const client = new WebSocket(`${gateway.url.replace('http', 'ws')}/v1/realtime?model=test-model`, {
        headers: { authorization: `Bearer ${await gateway.key()}` },
      });
      client.on('error', () => undefined);
      const [, response] = await within(once(client, 'unexpected-response'), 'a refusal');
      statuses.push(response.statusCode);
      client.terminate();
    }
    expect(statuses).toEqual([406, 406, 406]);
    // The first with both tokens, the others with the second alone.
    expect(realtime.handshakes).toHaveLength(4);
    expect(issuer.requests).toHaveLength(2);
    expect(gateway.output).not.toMatch(/issued-token-[12]/);
  });
});

function realtimeOptions(realtime: RealtimeUpstream): GatewayOptions {
  return {
    upstreams: { up: realtime.baseUrl },
    config: { retry: { attempts: 1 }, upstreams: { up: { api_key: null, auth: auth() } } },
  };
}

/** Answers 401 in HTTP where the token is one of these. */
function rejectToken({ authorization = '' }: IncomingHttpHeaders, socket: Socket, tokens: RegExp): boolean {
  if (!tokens.test(authorization)) return false;
  const body = JSON.stringify(upstreamError('invalid token'));
  socket.end(
    `HTTP/1.1 401 Unauthorized\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
  );
  return true;
}

describe('without a token', () => {
  test.each<[string, () => ReturnType<NonNullable<TokenServer['answer']>>]>([
    ['answers 500', () => ({ status: 500, body: {} })],
    ['answers HTML', () => ({ body: '<html>' })],
    ['rejects the client', () => ({ status: 401, body: { error: 'invalid_client' } })],
    ['gives a token that has expired', () => ({ body: { access_token: 'a', expires_in: 0 } })],
  ])('because the issuer %s, a request is told so, and the upstream is not asked', async (_, answer) => {
    issuer.answer = answer;
    await using gateway = await startGateway(options());
    const response = await gateway.chat(chatRequest());
    expect(response.status).toBe(406);
    expect(response.json()).toMatchObject({
      error: {
        code: 'upstream_auth_error',
        message: 'The gateway has no valid credential for the upstream. The operator has to act.',
      },
    });
    expect(upstream.requests).toHaveLength(0);
    const line = await gateway.logLine(({ msg }) => /failed to fetch a token/.test(String(msg)));
    expect(line).toMatchObject({ level: 'error', upstream: 'up' });
    expect(await gateway.metric('tollgate_upstream_token_fetches_total{upstream="up",result="failed"}')).toBe(
      1,
    );
  });

  test('the next target answers, and no breaker opens', async () => {
    issuer.answer = () => ({ status: 500, body: {} });
    await using other = await HostileUpstream.start();
    const both: GatewayOptions = {
      upstreams: { up: upstream.baseUrl, other: other.baseUrl },
      config: { upstreams: { up: { api_key: null, auth: auth() } } },
    };
    await using gateway = await startGateway(both);
    for (let request = 0; request < 20; request += 1)
      expect((await gateway.chat(chatRequest())).status).toBe(200);
    expect([upstream.requests.length, other.requests.length]).toEqual([0, 20]);
    expect(gateway.app.breaker('up', 'upstream-model')?.state ?? 'closed').toBe('closed');
  });

  test('a request whose client leaves does not wait for it', async () => {
    issuer.answer = () => undefined;
    await using gateway = await startGateway(options());
    const client = await gateway.open(chatRequest());
    await until(() => inFlight(gateway) === 1, 'the request');
    const file = gateway.directory.file('command.yaml');
    const ports = [gateway.url, gateway.adminUrl].map((url) => Number(new URL(url).port));
    await writeFile(file, configText(options(), ports));
    const { tollgate } = commandsWith(() => file, { TEST_DIR: gateway.directory.path });
    expect((await tollgate('upstreams', 'list')).out).toMatch(/^up\b.* not fetched$/m);
    client.destroy();
    await until(() => inFlight(gateway) === 0, 'its end');
    expect(issuer.requests).toHaveLength(1);
    expect(gateway.output).not.toMatch(/failed to fetch a token/);
    expect(upstream.requests).toHaveLength(0);
  });
});

function inFlight({ app }: Gateway): number {
  return app.inFlight;
}
