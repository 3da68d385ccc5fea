// Every error that the gateway itself makes, set off over HTTP: its status, its body in OpenAI's shape, its retry headers,
// and no word about the inside. That the table is complete is checked too: a new code needs a way to set it off here.
import { randomBytes } from 'node:crypto';
import { DatabaseSync } from 'node:sqlite';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { ERRORS, type ErrorCode, isServerFault, OPERATOR_ERRORS } from '../../src/errors.ts';
import { signatureOf } from '../billing/stripe-stand-in.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { ConnectProxy } from '../helpers/connect-proxy.ts';
import { type Gateway, runCommand, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  close,
  contentChunk,
  frame,
  HostileUpstream,
  head,
  json,
  reset,
  type Script,
  SSE_HEADERS,
  send,
  silence,
  sse,
  standardAnswer,
  upstreamError,
  waitFor,
} from '../helpers/hostile-upstream.ts';
import {
  RawClient,
  type RawResponse,
  type RequestInput,
  WEBSOCKET_HANDSHAKE,
} from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';
import { ask, bearer, codeOf, field, listModels, order, rotate, statusOf, textField } from './holder.ts';

const REQUEST_ID = /^req_[0-9a-f]{32}$/;
const NOBODYS = 'ffeeddccbbaa99887766554433221100';

/** What no client may read: addresses, files, places in code, causes from libraries. */
const INSIDE =
  /127\.0\.0\.1|localhost|\/src\/|node_modules|\.ts\b|\.js\b|\bat .*:\d+|ECONN|ENOTFOUND|UND_ERR|HPE_|SQLITE|sqlite|no such table/;

const triggered = new Set<ErrorCode>();

/** What every error answer has to be. */
function expectError(response: RawResponse, code: ErrorCode, param: string | null = null): void {
  triggered.add(code);
  const rule = ERRORS[code];
  const body: unknown = response.json();
  expect({ status: response.status, code: field(body, 'error', 'code') }).toEqual({
    status: rule.status,
    code,
  });
  expect(Object.keys(Object(body))).toEqual(['error']);
  expect(field(body, 'error')).toEqual({ message: expect.any(String), type: rule.type, param, code });
  expect(String(field(body, 'error', 'message')).length).toBeGreaterThan(10);
  expect(response.complete).toBe(true);
  expect(response.header('content-type')).toBe('application/json');
  expect(response.header('content-length')).toBe(String(response.body.length));
  expectRetryHeaders(response, code);
  expect(response.rawHead.toString() + response.text()).not.toMatch(INSIDE);
}

function expectRetryHeaders(response: RawResponse, code: ErrorCode): void {
  const { retry, status } = ERRORS[code];
  const seconds = response.header('retry-after');
  if (retry === 'wait') {
    // Zero or text makes SDKs come back at once, and some wait for as long as they are told.
    expect(seconds).toMatch(/^([1-9]|[1-5]\d|60)$/);
    expect(Number(response.header('retry-after-ms'))).toBeGreaterThan(0);
    expect(response.header('x-should-retry')).toBeUndefined();
  } else {
    expect(seconds).toBeUndefined();
    const isTold = status === 429 || status === 403 || isServerFault(status);
    expect(response.header('x-should-retry')).toBe(retry === 'no' && isTold ? 'false' : undefined);
  }
}

const HOST = 'host: localhost\r\n';

describe('errors of the gateway over HTTP', () => {
  let upstream: HostileUpstream;
  let gateway: Gateway;
  let key: string;
  /** It never sends the end of its headers. */
  let slowClient: RawClient;

  beforeAll(async () => {
    upstream = await HostileUpstream.start();
    const scripted = { upstream: 'up', model: 'm' };
    gateway = await startGateway({
      config: {
        max_body: '64KiB',
        upstreams: {
          up: {
            base_url: upstream.baseUrl,
            api_key: 'credential-of-up',
            timeouts: { headers: '1s', first_token: '1s', idle: '1s' },
          },
          small: { base_url: upstream.baseUrl, api_key: 'credential-of-small', max_concurrency: 1 },
          refused: { base_url: 'http://127.0.0.1:9/v1', api_key: 'x' },
          nowhere: { base_url: 'http://nowhere.invalid/v1', api_key: 'x' },
        },
        models: {
          'test-model': { targets: [scripted] },
          small: { targets: [{ upstream: 'small', model: 'm' }] },
          limited: { targets: [{ upstream: 'up', model: 'limited' }] },
          disabled: { targets: [{ upstream: 'up', model: 'm', enabled: false }] },
          'pro-only': { targets: [scripted], tiers: ['Pro'] },
          'vectors-only': { targets: [scripted], endpoints: ['embeddings'] },
          guarded: { targets: [scripted], body: { refuse: ['provider'] } },
          refused: { targets: [{ upstream: 'refused', model: 'm' }] },
          nowhere: { targets: [{ upstream: 'nowhere', model: 'm' }] },
        },
        retry: { attempts: 1 },
        passthrough: { upstream: 'up', paths: ['/v1/files'] },
        free_keys: { per_ip_per_day: 1 },
      },
    });
    slowClient = await RawClient.connect(gateway.url);
    await slowClient.write(`GET /health HTTP/1.1\r\n${HOST}x: `);
    key = await gateway.key();
  });
  beforeEach(() => upstream.always(standardAnswer));
  afterAll(async () => {
    slowClient?.destroy();
    await gateway?.close();
    await upstream?.close();
  });

  const chat = (body: object | string | Buffer, headers: Record<string, string> = {}): Promise<RawResponse> =>
    ask(gateway.url, { headers: { ...bearer(key), ...headers }, body });

  const raw = async (text: string): Promise<RawResponse> => {
    using client = await RawClient.connect(gateway.url);
    await client.write(Buffer.from(text, 'latin1'));
    return await client.response();
  };

  const scripted = async (script: Script, extra: object = {}): Promise<RawResponse> => {
    upstream.always(script);
    return await chat(chatRequest(extra));
  };

  describe('the request line and its headers', () => {
    test.each([
      ['no Host', 'GET /health HTTP/1.1\r\n\r\n'],
      ['two Hosts', `GET /health HTTP/1.1\r\n${HOST}${HOST}\r\n`],
      ['a Host with a path', 'GET /health HTTP/1.1\r\nhost: a/b\r\n\r\n'],
      ['a name in an absolute target', `GET http://a@localhost/health HTTP/1.1\r\n${HOST}\r\n`],
      ['a backslash in the target', `GET /v1\\models HTTP/1.1\r\n${HOST}\r\n`],
      ['an encoded NUL in the target', `GET /v1/models/%00 HTTP/1.1\r\n${HOST}\r\n`],
      [
        'both framings',
        `POST /checkout HTTP/1.1\r\n${HOST}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n`,
      ],
      ['a name that could be another', `GET /health HTTP/1.1\r\n${HOST}content_length: 1\r\n\r\n`],
      ['a body on GET', `GET /health HTTP/1.1\r\n${HOST}content-length: 2\r\n\r\n{}`],
      ['no HTTP at all', 'HELLO\r\n\r\n'],
      ['a word that is no version', `GET /health HTTP/7.7\r\n${HOST}\r\n`],
    ])('invalid_http: %s', async (_name, text) => {
      const response = await raw(text);
      expectError(response, 'invalid_http');
      expect(response.header('connection')).toBe('close');
    });

    test('headers_too_large: bytes, and fields', async () => {
      expectError(
        await raw(`GET /health HTTP/1.1\r\n${HOST}x: ${'y'.repeat(20_000)}\r\n\r\n`),
        'headers_too_large',
      );
      const fields = Array.from({ length: 120 }, (_, index) => `x-${index}: 1\r\n`).join('');
      expectError(await raw(`GET /health HTTP/1.1\r\n${HOST}${fields}\r\n`), 'headers_too_large');
    });

    test('expectation_failed', async () => {
      expectError(await chat(chatRequest(), { expect: 'a-miracle' }), 'expectation_failed');
    });

    test('object_not_found', async () => {
      const target = '/v1/files/file-0123456789abcdef01234567';
      expectError(
        await ask(gateway.url, { method: 'GET', target, headers: bearer(key) }),
        'object_not_found',
      );
    });

    test('websocket_not_offered', async () => {
      const headers = {
        ...bearer(key),
        ...WEBSOCKET_HANDSHAKE,
      };
      const response = await ask(gateway.url, { method: 'GET', target: '/v1/responses', headers });
      expectError(response, 'websocket_not_offered');
      const plain = await ask(gateway.url, { method: 'GET', target: '/v1/responses', headers: bearer(key) });
      expect(plain.status).toBe(405);
    });

    test('upgrade_required', async () => {
      const target = '/v1/realtime?model=test-model';
      const response = await ask(gateway.url, { method: 'GET', target, headers: bearer(key) });
      expectError(response, 'upgrade_required');
      expect(response.header('upgrade')).toBe('websocket');
    });

    test('method_not_allowed: on a path with another one, and where no path has it', async () => {
      const response = await ask(gateway.url, {
        method: 'GET',
        target: '/v1/chat/completions',
        headers: bearer(key),
      });
      expectError(response, 'method_not_allowed');
      expect(response.header('allow')).toBe('POST');
      const put = await ask(gateway.url, { method: 'PUT', target: '/v1/models', headers: bearer(key) });
      expectError(put, 'method_not_allowed');
      expect(put.header('allow')).toMatch(/GET/);
    });

    test.each([
      '/',
      '/v1',
      '/v1/',
      '/v1/chat/completions/',
      '/V1/models',
      '/v1/fine_tuning/jobs',
      '/health/x',
      '/%76%31/models',
    ])('unknown_url: %s', async (target) => {
      expectError(await ask(gateway.url, { method: 'GET', target, headers: bearer(key) }), 'unknown_url');
    });
  });

  describe('the key', () => {
    test('missing_api_key', async () => {
      expectError(await ask(gateway.url, { body: chatRequest() }), 'missing_api_key');
      expectError(await ask(gateway.url, { method: 'GET', target: '/v1/models' }), 'missing_api_key');
      expectError(await ask(gateway.url, { target: '/admin/keys/rotate' }), 'missing_api_key');
    });

    test.each<[ErrorCode, string]>([
      ['invalid_api_key', `Bearer ${NOBODYS}`],
      ['invalid_api_key', `bearer ${NOBODYS}`],
      ['invalid_api_key', 'Bearer sk-x'],
      ['missing_api_key', `Basic ${NOBODYS}`],
      ['missing_api_key', 'Bearer'],
      ['missing_api_key', NOBODYS],
    ])('%s: %s', async (code, authorization) => {
      expectError(await ask(gateway.url, { headers: { authorization }, body: chatRequest() }), code);
    });

    test('api_key_expired', async () => {
      const expiresAt = new Date(Date.now() - 1000).toISOString();
      const { key } = await gateway.app.issuer.issue({ tier: 'Pro', key: { expiresAt } });
      expectError(await listModels(gateway.url, key.reveal()), 'api_key_expired');
      expectError(
        await ask(gateway.url, { headers: bearer(key.reveal()), body: chatRequest() }),
        'api_key_expired',
      );
    });

    test('key_already_rotated: during an overlap', async () => {
      const { key, prefix } = await gateway.app.issuer.issue({ tier: 'Pro' });
      await gateway.app.issuer.rotate({ prefix }, 3_600_000);
      expectError(await rotate(gateway.url, key.reveal()), 'key_already_rotated');
    });

    test('billing_not_active', async () => {
      const suspended = await gateway.issueKey('Pro');
      const { code } = await runCommand(
        ['keys', 'suspend', suspended.slice(0, 8), '--config', gateway.configFile],
        { TEST_DIR: gateway.directory.path },
      );
      expect(code).toBe(0);
      await until(async () => (await statusOf(gateway.url, suspended)) === 403, 'the suspension');
      expectError(
        await ask(gateway.url, { headers: bearer(suspended), body: chatRequest() }),
        'billing_not_active',
      );
      expectError(await listModels(gateway.url, suspended), 'billing_not_active');
    });
  });

  describe('the body of a chat request', () => {
    test.each([
      ['nothing', ''],
      ['half of it', '{"model":"test-model"'],
      ['more than one', `${JSON.stringify(chatRequest())} {}`],
      ['a byte order mark', `\uFEFF${JSON.stringify(chatRequest())}`],
      ['no UTF-8', Buffer.from('{"model":"test-model\xff"}', 'latin1')],
      ['too deep', `{"model":"test-model","x":${'['.repeat(20_000)}${']'.repeat(20_000)}}`],
    ])('invalid_json: %s', async (_name, body) => {
      expectError(await chat(body), 'invalid_json');
    });

    test.each(['[]', 'null', '"x"', '1'])('invalid_body: %s', async (body) => {
      expectError(await chat(body), 'invalid_body');
    });

    test('unsupported_parameter names the parameter', async () => {
      const body = chatRequest({ model: 'guarded', Provider: { only: ['x'] } });
      expectError(await chat(body), 'unsupported_parameter', 'provider');
    });

    test('missing_required_parameter, invalid_type and invalid_value name the parameter', async () => {
      expectError(await chat('{"messages":[]}'), 'missing_required_parameter', 'model');
      expectError(await chat('{"model":5}'), 'invalid_type', 'model');
      expectError(await chat(chatRequest({ stream: 'yes' })), 'invalid_type', 'stream');
      expectError(
        await chat(chatRequest({ stream: true, stream_options: 1 })),
        'invalid_type',
        'stream_options',
      );
      expectError(await chat('{"model":""}'), 'invalid_value', 'model');
    });

    test('duplicate_parameter', async () => {
      expectError(
        await chat('{"model":"test-model","model":"pro-only","messages":[]}'),
        'duplicate_parameter',
        'model',
      );
      expectError(
        await chat('{"model":"test-model","stream":true,"messages":[],"stream":false}'),
        'duplicate_parameter',
        'stream',
      );
    });

    test('invalid_form', async () => {
      const headers = { ...bearer(key), 'content-type': 'multipart/form-data; boundary=b' };
      const target = '/v1/audio/transcriptions';
      expectError(await ask(gateway.url, { target, headers, body: '--b--no' }), 'invalid_form');
    });

    test('unsupported_content_type', async () => {
      expectError(await chat(chatRequest(), { 'content-type': 'text/plain' }), 'unsupported_content_type');
    });

    test('corrupt_content_encoding and unsupported_content_encoding', async () => {
      const zipped = gzipSync(JSON.stringify(chatRequest()));
      zipped.fill(0xaa, 12, 20);
      expectError(await chat(zipped, { 'content-encoding': 'gzip' }), 'corrupt_content_encoding');
      expectError(await chat(zipped, { 'content-encoding': 'lzw' }), 'unsupported_content_encoding');
    });

    test('request_too_large: as declared, as it turns out, and as it decodes', async () => {
      const large = chatRequest({ x: 'y'.repeat(70_000) });
      expectError(await chat(large), 'request_too_large');
      const declared = await raw(
        `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${key}\r\n` +
          'content-type: application/json\r\ncontent-length: 999999999\r\n\r\n',
      );
      expectError(declared, 'request_too_large');
      expect(declared.header('connection')).toBe('close');
      const text = JSON.stringify(large);
      const chunked = `${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`;
      expectError(await chat(chunked, { 'transfer-encoding': 'chunked' }), 'request_too_large');
      const zipped = gzipSync(JSON.stringify(large));
      expectError(await chat(zipped, { 'content-encoding': 'gzip' }), 'request_too_large');
    });

    test('model_not_found, the same for what does not exist and what another tier has', async () => {
      const free = await gateway.issueKey('Free');
      const unknown = await chat(chatRequest({ model: 'no-such' }));
      const denied = await ask(gateway.url, {
        headers: bearer(free),
        body: chatRequest({ model: 'pro-only' }),
      });
      expectError(unknown, 'model_not_found');
      expectError(denied, 'model_not_found');
      expect(denied.text().replace('pro-only', 'no-such')).toBe(unknown.text());
      const retrieved = await ask(gateway.url, {
        method: 'GET',
        target: '/v1/models/no-such',
        headers: bearer(key),
      });
      expectError(retrieved, 'model_not_found');
    });

    test('response_not_found', async () => {
      const target = '/v1/responses/resp_unknown';
      const answer = await ask(gateway.url, { method: 'GET', target, headers: bearer(key) });
      expectError(answer, 'response_not_found');
    });

    test('endpoint_not_offered', async () => {
      expectError(await chat(chatRequest({ model: 'vectors-only' })), 'endpoint_not_offered');
    });
  });

  describe('the checkout', () => {
    const checkout = (body: object | string, headers: Record<string, string> = {}): Promise<RawResponse> =>
      ask(gateway.url, { target: '/checkout', headers, body });

    test('cross_origin_form', async () => {
      expectError(
        await checkout({ tier: 'Free' }, { origin: 'https://elsewhere.test' }),
        'cross_origin_form',
      );
      expectError(await checkout({ tier: 'Free' }, { 'sec-fetch-site': 'cross-site' }), 'cross_origin_form');
    });

    test('unknown_host', async () => {
      const answer = await ask(gateway.url, {
        target: '/checkout',
        host: 'evil.test',
        body: { tier: 'Free' },
      });
      expectError(answer, 'unknown_host');
    });

    test('what is wrong with the order', async () => {
      expectError(await checkout({}), 'missing_required_parameter', 'tier');
      expectError(await checkout({ tier: 'Gold' }), 'invalid_value', 'tier');
      expectError(await checkout({ tier: 'Pro' }), 'checkout_not_configured');
      expectError(await checkout('[]'), 'invalid_body');
      expectError(await checkout('{'), 'invalid_json');
      expectError(await checkout('tier=Free', { 'content-type': 'text/plain' }), 'unsupported_content_type');
      expectError(await checkout({ tier: 'Free', x: 'y'.repeat(70_000) }), 'request_too_large');
    });

    test('free_key_limit', async () => {
      expect((await order(gateway.url, 'Free')).status).toBe(201);
      expectError(await order(gateway.url, 'Free'), 'free_key_limit');
    });
  });

  describe('orders and payments', () => {
    const price = { amount: 900, currency: 'usd', interval: 'once' };
    const tiers = {
      Free: {},
      Lite: { price, stripe_price: 'price_1' },
      Pro: { price, stripe_price: 'price_2' },
    };
    const stripe = {
      provider: 'stripe',
      secret_key: 'sk_test_1',
      webhook_secret: 'whsec_1',
      // Nothing listens there.
      api_base: 'http://127.0.0.1:9',
    };

    test('payment_unavailable, and what is wrong with an event', async () => {
      await using shop = await startGateway({ config: { billing: stripe, tiers } });
      const event = (body: string, secret = 'whsec_1') =>
        ask(shop.url, {
          target: '/webhooks/stripe',
          headers: { 'stripe-signature': signatureOf(body, { secret }) },
          body,
        });
      expectError(await order(shop.url, 'Lite'), 'payment_unavailable');
      expectError(await event('{}', 'whsec_2'), 'invalid_signature');
      expectError(await event('{}'), 'invalid_event');
    });

    test('what is wrong with a claim', async () => {
      await using shop = await startGateway({ config: { billing: { provider: 'test' }, tiers } });
      const placed = await order(shop.url, 'Lite');
      const session_id = new URL(textField(placed.json(), 'url')).searchParams.get('session_id') ?? '';
      const cookie = (placed.header('set-cookie') ?? '').split(';')[0] ?? '';
      const claim = (headers: Record<string, string>) =>
        ask(shop.url, { target: '/checkout/claim', headers, body: { session_id } });
      expectError(await claim({}), 'claim_forbidden');
      expectError(await claim({ cookie }), 'order_not_paid');
      const headers = { 'content-type': 'application/x-www-form-urlencoded' };
      await ask(shop.url, {
        target: '/checkout/test',
        headers,
        body: `session_id=${session_id}&button=decline`,
      });
      expectError(await claim({ cookie }), 'order_closed');
      expectError(
        await ask(shop.url, {
          method: 'GET',
          target: '/checkout/complete?session_id=none',
          headers: { accept: 'application/json' },
        }),
        'unknown_order',
      );
      const pro = await shop.issueKey('Pro');
      expectError(
        await ask(shop.url, { target: '/checkout', headers: bearer(pro), body: { tier: 'Lite' } }),
        'already_entitled',
      );
      for (let count = 0; count < 10; count += 1) await order(shop.url, 'Lite');
      expectError(await order(shop.url, 'Lite'), 'order_limit');
    });
  });

  describe('the limits of a tier', () => {
    const limited = (limits: { readonly [name: string]: number }) =>
      startGateway({ config: { tiers: { Pro: limits } } });

    test('rate_limit_exceeded, of requests', async () => {
      await using own = await limited({ requests_per_minute: 1 });
      expect((await own.chat(chatRequest())).status).toBe(200);
      expectError(await own.chat(chatRequest()), 'rate_limit_exceeded');
    });

    test('insufficient_quota', async () => {
      await using own = await limited({ tokens_per_month: 1000 });
      const big = chatRequest({ messages: [{ role: 'user', content: 'word '.repeat(780) }] });
      expect((await own.chat(big)).status).toBe(200);
      expectError(await own.chat(big), 'insufficient_quota');
    });
  });

  describe('the upstream', () => {
    test('upstream_unreachable: refused, no such name, no TLS, reset', async () => {
      expectError(await chat(chatRequest({ model: 'refused' })), 'upstream_unreachable');
      expectError(await chat(chatRequest({ model: 'nowhere' })), 'upstream_unreachable');
      expectError(await scripted(reset()), 'upstream_unreachable');
    });

    test('an upstream that does not speak TLS', async () => {
      await using plain = await HostileUpstream.start({
        mute: true,
        onConnection: (connection) => connection.close(),
      });
      await using own = await startGateway({ upstreams: { up: plain.url.replace('http:', 'https:') } });
      expectError(await own.chat(chatRequest()), 'upstream_unreachable');
    });

    test('upstream_tls: a certificate that nobody vouches for', async () => {
      await using faked = await HostileUpstream.start({ tls: makeCertificate() });
      await using own = await startGateway({ upstreams: { up: faked.baseUrl } });
      const response = await own.chat(chatRequest());
      expectError(response, 'upstream_tls');
      expect(faked.requests).toHaveLength(0);
    });

    test.each<[ErrorCode, string]>([
      ['upstream_proxy_denied', 'HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n'],
      ['upstream_proxy_error', 'HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n'],
    ])('%s', async (code, answer) => {
      await using proxy = await ConnectProxy.start();
      proxy.script = (socket) => void socket.end(answer);
      const up = { base_url: 'https://vendor.invalid/v1', api_key: 'x', proxy: proxy.url() };
      await using own = await startGateway({
        config: {
          upstreams: { up },
          models: { 'test-model': { targets: [{ upstream: 'up', model: 'm' }] } },
        },
      });
      expectError(await own.chat(chatRequest()), code);
    });

    test('upstream_unusable_response: a stream that was not asked for', async () => {
      expectError(await scripted(sse([{ choices: [] }])), 'upstream_unusable_response');
    });

    test.each([401, 403])('upstream_auth_error: %i', async (status) => {
      const refusal = upstreamError('Incorrect API key provided: cred****f-up', { code: 'invalid_api_key' });
      const response = await scripted(json(status, refusal));
      expectError(response, 'upstream_auth_error');
      expect(response.text()).not.toMatch(/\*|Incorrect/);
    });

    test.each([402, 400])('upstream_account_error: %i', async (status) => {
      const refusal = upstreamError('Your credit balance is too low to access the API.');
      const response = await scripted(json(status, refusal));
      expectError(response, 'upstream_account_error');
      expect(response.text()).not.toMatch(/credit/);
    });

    test.each([
      ['HTML', [head(200, { 'content-type': 'text/html', 'content-length': 4 }), send('<p/>')]],
      ['nothing', [head(204)]],
      ['a redirect', [head(302, { location: 'http://elsewhere.test/', 'content-length': 0 })]],
      [
        'half of what it promised',
        [head(200, { 'content-type': 'application/json', 'content-length': 99 }), send('{'), close()],
      ],
      ['no JSON', json(200, 'nonsense')],
      ['no HTTP', [send('SSH-2.0-OpenSSH_9.9\r\n'), close()]],
    ] as [string, Script][])('upstream_invalid_response: %s', async (_name, script) => {
      expectError(await scripted(script), 'upstream_invalid_response');
    });

    test('upstream_error: a status of its own without a usable body', async () => {
      const page = '<h1>Service Unavailable: host db-7.internal</h1>';
      const response = await scripted([
        head(503, { 'content-type': 'text/html', 'content-length': page.length }),
        send(page),
      ]);
      triggered.add('upstream_error');
      expect([response.status, codeOf(response)]).toEqual([503, 'upstream_error']);
      expect(response.text()).not.toContain('db-7');
      expect(response.header('content-type')).toBe('application/json');
    });

    test('upstream_timeout: no head, and no first token', async () => {
      expectError(await scripted(silence()), 'upstream_timeout');
      expectError(await scripted([head(200, SSE_HEADERS), silence()], { stream: true }), 'upstream_timeout');
    });

    test('upstream_busy: all places are taken', async () => {
      let release = false;
      upstream.always([waitFor(() => release), standardAnswer]);
      const asked = upstream.requests.length;
      using first = await gateway.open(chatRequest({ model: 'small' }));
      await upstream.request(asked);
      expectError(await chat(chatRequest({ model: 'small' })), 'upstream_busy');
      release = true;
      expect((await first.response()).status).toBe(200);
    });

    test('upstream_rate_limited: the only target asked to be left alone', async () => {
      upstream.always(json(429, upstreamError('Slow down'), { 'retry-after': '7' }));
      expect((await chat(chatRequest({ model: 'limited' }))).status).toBe(429);
      const response = await chat(chatRequest({ model: 'limited' }));
      expectError(response, 'upstream_rate_limited');
      expect(response.header('retry-after')).toBe('7');
    });

    test('upstream_out_of_service: an operator has disabled the only target', async () => {
      expectError(await chat(chatRequest({ model: 'disabled' })), 'upstream_out_of_service');
    });

    test('stream_incomplete: a frame in what has begun, and no clean end', async () => {
      const response = await scripted(sse([contentChunk('Half')], { done: false }), { stream: true });
      triggered.add('stream_incomplete');
      expect(response.status).toBe(200);
      expect(response.complete).toBe(false);
      const last = JSON.parse(
        response
          .frames()
          .at(-1)
          ?.replace(/^data: /, '') ?? '',
      );
      expect(last).toEqual({
        error: {
          message: expect.any(String),
          type: ERRORS.stream_incomplete.type,
          param: null,
          code: 'stream_incomplete',
        },
      });
      expect(response.text()).not.toContain('[DONE]');
    });
  });

  describe('the gateway itself', () => {
    test('client_closed: 499 in the log', async () => {
      upstream.always([head(200, SSE_HEADERS), chunk(frame(contentChunk('Hi'))), silence()]);
      using client = await gateway.open(chatRequest({ stream: true }));
      const id = (await client.responseHead()).header('x-request-id');
      client.reset();
      const line = await gateway.logLine((each) => each['msg'] === 'request' && each['request_id'] === id);
      expect(line).toMatchObject({ status: 499, outcome: 'client_closed' });
      triggered.add('client_closed');
    });

    test('internal_error: the log has the fault under the id that the client read', async () => {
      const fault = new TypeError('a fault at /src/auth/key-issuer.ts');
      const spy = vi.spyOn(gateway.app.issuer, 'rotate').mockRejectedValue(fault);
      try {
        const response = await rotate(gateway.url, key);
        expectError(response, 'internal_error');
        const id = response.header('x-request-id');
        const line = await gateway.logLine((each) => each['request_id'] === id && each['level'] === 'error');
        expect(JSON.stringify(line)).toContain('a fault at');
      } finally {
        spy.mockRestore();
      }
      expect((await chat(chatRequest())).status).toBe(200);
    });

    test('auth_unavailable and store_unavailable: the store fails, keys stay good, and it heals', async () => {
      await using own = await startGateway();
      const [known, fresh] = [await own.key(), await own.issueKey('Pro')];
      expect((await rotate(own.url, known)).status).toBe(200);
      const database = new DatabaseSync(own.directory.file('tollgate.db'));
      database.exec('alter table keys rename to keys_elsewhere');
      try {
        const unknown = await ask(own.url, {
          headers: bearer(randomBytes(16).toString('hex')),
          body: chatRequest(),
        });
        expectError(unknown, 'auth_unavailable');
        expectError(await rotate(own.url, fresh), 'store_unavailable');
        expectError(await order(own.url, 'Free'), 'store_unavailable');
        expect((await own.chat(chatRequest(), { key: fresh })).status).toBe(200);
      } finally {
        database.exec('alter table keys_elsewhere rename to keys');
        database.close();
      }
      expect((await rotate(own.url, fresh)).status).toBe(200);
    });

    test('key_hashing_overloaded: many keys are made at once, and those who wait get theirs', async () => {
      await using own = await startGateway();
      const keys: string[] = [];
      while (keys.length < 90) keys.push(await own.issueKey('Pro'));
      // So that rotations need no check of their key.
      for (const key of keys) expect((await own.chat(chatRequest(), { key })).status).toBe(200);
      const rotateOnce = (key: string) =>
        ask(own.url, { target: '/admin/keys/rotate', headers: bearer(key) });
      vi.stubEnv('HELD_ARGON2', '1');
      const refused: { readonly key: string; readonly answer: RawResponse }[] = [];
      const all = keys.map(async (key) => {
        const answer = await rotateOnce(key);
        // A slow machine has other reasons, too.
        if (field(answer.json(), 'error', 'code') === 'key_hashing_overloaded') refused.push({ key, answer });
      });
      // One or two are computed, and 64 wait.
      await until(() => refused.length > 5, 'those that find no place');
      vi.unstubAllEnvs();
      await Promise.all(all);
      for (const { key, answer } of refused) {
        expectError(answer, 'key_hashing_overloaded');
        await until(async () => (await rotate(own.url, key)).status === 200, 'a place');
      }
    });

    test('too_many_failed_keys: the address waits, a known key does not', async () => {
      await using own = await startGateway({ config: { auth: { failures_per_minute: 3 } } });
      const good = await own.key();
      expect((await own.chat(chatRequest(), { key: good })).status).toBe(200);
      const guess = (): Promise<RawResponse> =>
        ask(own.url, { headers: bearer(randomBytes(16).toString('hex')), body: chatRequest() });
      const answers = [await guess(), await guess(), await guess(), await guess()];
      expect(answers.slice(0, 3).map((answer) => answer.status)).toEqual([401, 401, 401]);
      const [last] = answers.slice(-1);
      if (last !== undefined) expectError(last, 'too_many_failed_keys');
      expect((await own.chat(chatRequest(), { key: good })).status).toBe(200);
    });

    test('no_subscription: a key that nobody pays for has no customer portal', async () => {
      const target = '/checkout/portal';
      const response = await ask(gateway.url, { target, headers: bearer(key), body: {} });
      expectError(response, 'no_subscription');
    });

    test('model_unpriced: a budget cannot count what has no price', async () => {
      const target = { upstream: 'up', model: 'm' };
      await using own = await startGateway({
        upstreams: { up: upstream.baseUrl },
        config: {
          currency: 'usd',
          models: {
            priced: { targets: [target], price: { input: 1, output: 1 } },
            'test-model': { targets: [target] },
          },
          tiers: { Pro: { budget: { per_month: 5 } } },
          budgets: { unpriced: 'refuse' },
        },
      });
      expectError(await own.chat(chatRequest()), 'model_unpriced');
    });

    test('overloaded: what is new waits, and is told so; health is still answered', async () => {
      const overload = { heap: 0.01 };
      await using own = await startGateway({ upstreams: { up: upstream.baseUrl }, config: { overload } });
      // Less than this process has in use, whatever it does.
      const held = Array.from({ length: 100_000 }, (_, index) => ({ index }));
      const late = await until(async () => {
        const response = await own.chat(chatRequest());
        return response.status === 503 ? response : undefined;
      }, 'the heap to be measured');
      expectError(late, 'overloaded');
      expect(held).toHaveLength(100_000);
      expect((await ask(own.url, { method: 'GET', target: '/health' })).status).toBe(200);
    });

    test('draining: what has not begun is told so', async () => {
      await using own = await startGateway({ upstreams: { up: upstream.baseUrl } });
      upstream.always(silence());
      const asked = upstream.requests.length;
      using client = await own.open(chatRequest());
      await upstream.request(asked);
      const closed = own.close();
      expectError(await client.response(), 'draining');
      await closed;
    });
  });

  test('a page for a browser is HTML where it fails, too', async () => {
    const response = await ask(gateway.url, {
      target: '/checkout',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: 'tier=Pro',
    });
    expect([response.status, response.header('content-type')]).toEqual([501, 'text/html; charset=utf-8']);
  });

  test('every answer has an id, the same that the log has; a sane one of the client is kept', async () => {
    const inputs: RequestInput[] = [
      { method: 'GET', target: '/nothing' },
      { body: chatRequest() },
      { headers: bearer(key), body: '{' },
    ];
    for (const input of inputs) {
      const response = await ask(gateway.url, input);
      const id = response.header('x-request-id');
      expect(id).toMatch(REQUEST_ID);
      expect(await gateway.accessLine(response)).toMatchObject({
        status: response.status,
        outcome: codeOf(response),
      });
    }
    const own = await ask(gateway.url, {
      method: 'GET',
      target: '/nothing',
      headers: { 'x-request-id': 'mine-1' },
    });
    expect(own.header('x-request-id')).toBe('mine-1');
    const odd = await ask(gateway.url, {
      method: 'GET',
      target: '/nothing',
      headers: { 'x-request-id': 'a b<c' },
    });
    expect(odd.header('x-request-id')).toMatch(REQUEST_ID);
  });

  // Late, because its ten seconds have passed by then.
  test('request_timeout: headers that never end', async () => {
    expectError(await slowClient.response(60_000), 'request_timeout');
  });

  test('no code of the table is left out', () => {
    // Runs last; alone it can say nothing.
    // Errors of the admin listener: test/console/errors.test.ts.
    const all = Object.keys(ERRORS).filter((code) => !Object.hasOwn(OPERATOR_ERRORS, code));
    if (triggered.size > 5)
      expect(all.filter((code) => ![...triggered].some((each) => each === code))).toEqual([]);
  });
});
