// `forward_headers`: headers of clients that an upstream or a target gets, on every way to it, and nothing that is a credential.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ForwardedHeaders } from '../../src/upstream/http/forwarded-headers.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { chatRequest, completion, HostileUpstream, json } from '../helpers/hostile-upstream.ts';
import { RawClient, WEBSOCKET_HANDSHAKE } from '../helpers/raw-client.ts';

let first: HostileUpstream;
let second: HostileUpstream;
let gateway: Gateway;
let key: string;

beforeAll(async () => {
  first = await HostileUpstream.start();
  second = await HostileUpstream.start(json(200, completion()));
  gateway = await startGateway({
    config: {
      upstreams: {
        first: {
          base_url: first.baseUrl,
          headers: { 'X-Vendor-Fixed': 'operator' },
          forward_headers: ['X-Team', 'idempotency-key', 'x-vendor-*'],
        },
        second: { base_url: second.baseUrl },
      },
      models: {
        m: { targets: [{ upstream: 'first', model: 'x' }] },
        both: {
          targets: [
            { upstream: 'first', model: 'x', forward_headers: ['x-cost-*'] },
            { upstream: 'second', model: 'x', priority: 2, forward_headers: ['x-other'] },
          ],
        },
      },
      passthrough: { upstream: 'first', paths: ['/v1/files'] },
      cors: { origins: ['https://app.example.com'] },
      retry: { attempts: 2 },
    },
  });
  key = await gateway.key();
});
afterAll(async () => {
  await gateway?.close();
  await first?.close();
  await second?.close();
});

const SENT = {
  'X-TEAM': 'search',
  'idempotency-key': 'abc',
  'x-vendor-user': 'u\u00e9',
  'x-vendor-fixed': 'client',
  'x-vendor-api-key': 'secret',
  'x-vendor-token': 'secret',
  'x-vendor_user': 'not named',
  'x-cost-center': '7',
  'x-other': 'other',
  'x-unnamed': 'unnamed',
  cookie: 'secret',
  'x-forwarded-for': '10.0.0.1',
};

/** The headers with which an upstream was asked, but for those that all requests have. */
async function seenBy(
  upstream: HostileUpstream,
  act: () => Promise<unknown>,
): Promise<Record<string, string>> {
  const coming = upstream.request(upstream.requests.length);
  await act();
  const { headers } = await coming;
  const known =
    /^(host|connection|content-.*|accept.*|user-agent|authorization|x-request-id|upgrade|sec-.*)$/i;
  return Object.fromEntries(
    headers.flatMap(([name, value]) => (known.test(name) ? [] : [[name.toLowerCase(), value]])),
  );
}

const OF_FIRST = {
  'x-vendor-fixed': 'operator',
  'x-team': 'search',
  'idempotency-key': 'abc',
  'x-vendor-user': 'u\u00e9',
};

describe('a client header that the configuration names is forwarded', () => {
  test('with a chat completion', async () => {
    first.always(json(200, completion()));
    const seen = await seenBy(first, () => gateway.chat(chatRequest({ model: 'm' }), { headers: SENT }));
    expect(seen).toEqual(OF_FIRST);
  });

  test('to each target by its own list', async () => {
    first.always(json(503, {}));
    const ofSecond = seenBy(second, async () => {
      const seen = await seenBy(first, () => gateway.chat(chatRequest({ model: 'both' }), { headers: SENT }));
      expect(seen).toEqual({ ...OF_FIRST, 'x-cost-center': '7' });
    });
    expect(await ofSecond).toEqual({ 'x-other': 'other' });
  });

  test('with a call without a model', async () => {
    first.always(json(404, {}));
    const seen = await seenBy(first, async () => {
      using client = await RawClient.connect(gateway.url);
      const headers = { ...SENT, authorization: `Bearer ${key}` };
      await client.ask({
        method: 'POST',
        target: '/v1/files',
        headers: { ...headers, 'content-type': 'multipart/form-data; boundary=x' },
        body: '--x--\r\n',
      });
    });
    expect(seen).toEqual(OF_FIRST);
  });

  test('with the handshake of a session', async () => {
    first.always(json(403, {}));
    const seen = await seenBy(first, async () => {
      using client = await RawClient.connect(gateway.url);
      const headers = {
        ...SENT,
        ...WEBSOCKET_HANDSHAKE,
        'sec-websocket-protocol': `realtime, openai-insecure-api-key.${key}`,
        'x-vendor-seen': `${key}`,
      };
      await client.ask({ method: 'GET', target: '/v1/realtime?model=both', headers });
    });
    expect(seen).toEqual({ ...OF_FIRST, 'x-cost-center': '7' });
  });
});

test('a value with the key of the client is not forwarded', async () => {
  first.always(json(200, completion()));
  const headers = { 'x-team': key, 'x-vendor-a': `Bearer ${key}`, 'x-vendor-b': 'b' };
  const seen = await seenBy(first, () => gateway.chat(chatRequest({ model: 'm' }), { headers }));
  expect(seen).toEqual({ 'x-vendor-fixed': 'operator', 'x-vendor-b': 'b' });
});

test.each(['api-key', 'x-api-key'])('nor one with a key that came in %s', (name) => {
  const key = '0123456789abcdef0123456789abcdef';
  const [client, to] = [{ [name]: key, 'x-team': `team of ${key}`, 'x-other': 'other' }, {}];
  new ForwardedHeaders(['x-team', 'x-other']).copy(client, to);
  expect(to).toEqual({ 'x-other': 'other' });
});

test('an upstream gets the headers of its own API', () => {
  const client = { 'openai-beta': 'a', 'anthropic-beta': 'b', 'anthropic-version': 'c' };
  const copied = (protocol: 'openai' | 'anthropic') => {
    const to = {};
    new ForwardedHeaders([], [], protocol).copy(client, to);
    return to;
  };
  expect(copied('openai')).toEqual({ 'openai-beta': 'a' });
  expect(copied('anthropic')).toEqual({ 'anthropic-beta': 'b', 'anthropic-version': 'c' });
});

test('what `connection` names is not forwarded', async () => {
  first.always(json(200, completion()));
  const headers = { 'x-team': 'a', 'x-vendor-b': 'b', connection: 'close, X-Team, x-vendor-b' };
  const seen = await seenBy(first, () => gateway.chat(chatRequest({ model: 'm' }), { headers }));
  expect(seen).toEqual({ 'x-vendor-fixed': 'operator' });
});

test('pages may send it', async () => {
  using client = await RawClient.connect(gateway.url);
  const answer = await client.ask({
    method: 'OPTIONS',
    target: '/v1/chat/completions',
    headers: {
      origin: 'https://app.example.com',
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'x-team, X-Other, x-vendor-q, x-vendor-token, x-unnamed, cookie',
    },
  });
  expect(answer.header('access-control-allow-headers')).toBe('x-team, x-other, x-vendor-q');
});
