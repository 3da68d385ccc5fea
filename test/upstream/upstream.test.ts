// One upstream: its URL, its headers, its places. What goes over the wire is in transport.test.ts.
import { describe, expect, test } from 'vitest';
import type { UpstreamConfig } from '../../src/config/schema/config-schema.ts';
import { GatewayError } from '../../src/errors.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import type { Call, Transport, UpstreamRequest } from '../../src/upstream/transport.ts';
import { Upstream } from '../../src/upstream/upstream.ts';
import { endpoint } from '../../src/upstream/upstream-query.ts';

const CALL: Call = { pause: () => {}, resume: () => {}, abort: () => {} };

function upstream(config: Partial<Extract<UpstreamConfig, { kind: 'http' }>> = {}) {
  const requests: UpstreamRequest[] = [];
  const transport: Transport = {
    send(request) {
      requests.push(request);
      return CALL;
    },
    retire: () => Promise.resolve(),
    close: () => Promise.resolve(),
  };
  const metrics = createMetrics();
  const full: UpstreamConfig = {
    kind: 'http',
    base_url: 'https://api.example.com/v1',
    headers: {},
    query: {},
    timeouts: { connect: 1, headers: 1, first_token: 1, idle: 1, total: 1 },
    max_concurrency: 2,
    stream_usage: 'inject',
    ...config,
  };
  return { it: new Upstream('up', full, 'tollgate/test', metrics, transport), requests, metrics };
}

const SINK = { onHead: () => {}, onData: () => {}, onEnd: () => {}, onError: () => {} };
const BODY = Buffer.from('{}');

function headersOf(
  config: Partial<Extract<UpstreamConfig, { kind: 'http' }>>,
  client: Record<string, string | string[]>,
  accept = 'application/json',
) {
  const { it, requests } = upstream(config);
  it.send(
    { body: BODY, requestId: 'req_1', client, endpoint: { path: 'chat/completions' }, accept, fresh: false },
    SINK,
  );
  return { ...requests[0]?.common, ...requests[0]?.headers };
}

describe('the endpoint', () => {
  test.each([
    ['https://a.example/v1', {}, 'https://a.example', '/v1/chat/completions'],
    ['https://a.example/v1/', {}, 'https://a.example', '/v1/chat/completions'],
    ['https://a.example', {}, 'https://a.example', '/chat/completions'],
    ['https://a.example//', {}, 'https://a.example', '/chat/completions'],
    ['http://a.example:8000/x/y/?k=v%20w', {}, 'http://a.example:8000', '/x/y/chat/completions?k=v%20w'],
    [
      'https://a.example/openai/deployments/my%20dep',
      { 'api-version': '2024-10-21' },
      'https://a.example',
      '/openai/deployments/my%20dep/chat/completions?api-version=2024-10-21',
    ],
    [
      'https://a.example/v1?flag&x=a%20b%2fc',
      { 'api-version': 'new' },
      'https://a.example',
      '/v1/chat/completions?flag&x=a%20b%2fc&api-version=new',
    ],
    ['https://[::1]:1/v1', {}, 'https://[::1]:1', '/v1/chat/completions'],
    ['https://a.example/v1', { q: 'a b&c' }, 'https://a.example', '/v1/chat/completions?q=a+b%26c'],
  ])('of %s with %o', (base, query, origin, path) => {
    expect(endpoint(base, 'chat/completions', query)).toEqual({ origin, path });
  });
});

describe('the headers', () => {
  test('are those of the gateway, with the credential', () => {
    expect(headersOf({ api_key: 'k' }, {})).toEqual({
      'content-type': 'application/json',
      'accept-encoding': 'identity',
      'user-agent': 'tollgate/test',
      authorization: 'Bearer k',
      accept: 'application/json',
      'x-request-id': 'req_1',
    });
    expect(headersOf({}, {}, 'text/event-stream')).toMatchObject({ accept: 'text/event-stream' });
    expect(headersOf({}, {})).not.toHaveProperty('authorization');
  });

  test('of the configuration win, in any spelling', () => {
    expect(
      headersOf(
        { api_key: 'k', headers: { Authorization: 'Basic x', 'USER-AGENT': 'y', 'Api-Key': 'z' } },
        {},
      ),
    ).toMatchObject({
      authorization: 'Basic x',
      'user-agent': 'y',
      'api-key': 'z',
    });
  });

  test('of the client pass by an allow-list, and not when `connection` names them', () => {
    const client = {
      authorization: 'Bearer secret',
      'api-key': 'secret',
      'x-api-key': 'secret',
      cookie: 'secret',
      'openai-organization': 'secret',
      'x-forwarded-for': 'secret',
      'content-length': '99',
      host: 'secret',
      'openai-beta': 'b',
      'x-client-request-id': 'c',
      traceparent: 't',
      tracestate: 's',
    };
    const passed = { 'openai-beta': 'b', 'x-client-request-id': 'c', traceparent: 't', tracestate: 's' };
    const headers = headersOf({}, client);
    expect(headers).toMatchObject(passed);
    expect(JSON.stringify(headers)).not.toContain('secret');
    expect(Object.keys(headers ?? {})).toHaveLength(5 + 4);
    for (const connection of ['close, Traceparent', 'keep-alive,TRACEPARENT ,x']) {
      expect(headersOf({}, { ...client, connection })).not.toHaveProperty('traceparent');
    }
    expect(headersOf({}, { ...client, connection: 'keep-alive' })).toMatchObject(passed);
  });

  test('that came twice do not pass', () => {
    expect(headersOf({}, { traceparent: ['a', 'b'] })).not.toHaveProperty('traceparent');
  });
});

describe('the places', () => {
  test('are as many as configured, and each is given back once with its outcome', async () => {
    const { it, metrics } = upstream({ max_concurrency: 2 });
    it.acquire();
    it.acquire();
    expect(() => it.acquire()).toThrow(GatewayError);
    expect(it.inFlight).toBe(2);
    it.release('ok');
    it.acquire();
    it.release('ok');
    it.release('upstream_timeout');
    expect(it.inFlight).toBe(0);
    const text = await metrics.registry.metrics();
    expect(text).toContain('tollgate_upstream_in_flight{upstream="up"} 0');
    expect(text).toContain('tollgate_upstream_attempts_total{upstream="up",outcome="ok"} 2');
    expect(text).toContain('tollgate_upstream_attempts_total{upstream="up",outcome="upstream_timeout"} 1');
  });
});
