// By which names in a Host header pages and the admin listener can be reached, so that a page under a name of somebody else's that
// leads to the gateway's address (DNS rebinding) reads and does nothing.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { adminHostCheck, requireOwnHost } from '../../src/http/own-host.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { RawClient } from '../helpers/raw-client.ts';

const exchangeOf = (host: string | undefined) => Object({ request: { headers: { host } } });
const accepts = (host: string | undefined, publicUrl: string, listenHost: string) => {
  try {
    requireOwnHost(exchangeOf(host), publicUrl, listenHost);
    return true;
  } catch (error) {
    expect(error).toMatchObject({ code: 'unknown_host', status: 421 });
    return false;
  }
};

describe('a page', () => {
  const PUBLIC = 'https://llm.example.com';
  const OTHER_PORT = 'http://llm.example.com:8080/below';
  const LOCAL = 'http://127.0.0.1:8080';
  const NONE = 'http://0.0.0.0:8080';

  test.each([
    ['llm.example.com', PUBLIC, '0.0.0.0'],
    ['LLM.Example.COM', PUBLIC, '0.0.0.0'],
    ['llm.example.com.', PUBLIC, '0.0.0.0'],
    ['llm.example.com:443', PUBLIC, '0.0.0.0'],
    ['llm.example.com.:443', PUBLIC, '0.0.0.0'],
    ['llm.example.com:8080', OTHER_PORT, '10.0.0.1'],
    ['localhost:8080', PUBLIC, '127.0.0.1'],
    ['127.0.0.1:9999', PUBLIC, '127.0.0.1'],
    ['[::1]:8080', PUBLIC, '::1'],
    ['localhost:3000', LOCAL, '0.0.0.0'],
    ['192.168.1.7:8080', NONE, '0.0.0.0'],
    ['10.0.0.1:8080', PUBLIC, '10.0.0.1'],
    ['127.0.0.1:8080', PUBLIC, '0.0.0.0'],
    ['[fd00::7]:8080', 'http://[::]:8080', '::'],
    ['localhost:8080', NONE, '0.0.0.0'],
  ])('is served to %s (%s, listens on %s)', (host, publicUrl, listenHost) => {
    expect(accepts(host, publicUrl, listenHost)).toBe(true);
  });

  test.each([
    ['evil.example', PUBLIC, '127.0.0.1'],
    ['evil.example:8080', NONE, '0.0.0.0'],
    ['evil.example:8080', LOCAL, '127.0.0.1'],
    ['llm.example.com:8080', PUBLIC, '0.0.0.0'],
    ['llm.example.com:80', PUBLIC, '0.0.0.0'],
    ['llm.example.com', OTHER_PORT, '0.0.0.0'],
    ['xllm.example.com', PUBLIC, '0.0.0.0'],
    ['llm.example.com.evil.example', PUBLIC, '0.0.0.0'],
    ['127.0.0.1.evil.example', PUBLIC, '127.0.0.1'],
    ['localhost.evil.example', PUBLIC, '127.0.0.1'],
    ['localhost:8080', PUBLIC, '0.0.0.0'],
    ['gateway:8080', PUBLIC, '0.0.0.0'],
    ['', PUBLIC, '0.0.0.0'],
    ['llm.example.com..', PUBLIC, '0.0.0.0'],
    [undefined, PUBLIC, '0.0.0.0'],
  ])('is not served to %s (%s, listens on %s)', (host, publicUrl, listenHost) => {
    expect(accepts(host, publicUrl, listenHost)).toBe(false);
  });
});

describe('the admin listener', () => {
  test.each([
    undefined,
    '127.0.0.1:9090',
    '10.1.2.3',
    '[fd00::1]:9090',
    'localhost:9090',
    'tollgate:9090',
    'tollgate.prod.svc:9090',
    'tollgate-0.tollgate.prod.svc.cluster.local:9090',
    'gateway.internal',
    'Metrics.Example.com.:9090',
  ])('answers to %s', (host) => {
    expect(adminHostCheck(['metrics.example.com'])(host)).toBe(true);
  });

  test.each([
    'evil.example:9090',
    'metrics.example.com.evil.example',
    'local.evil.example',
    'tollgate.dev',
    '',
  ])('does not answer to %s', (host) => {
    expect(adminHostCheck(['metrics.example.com'])(host)).toBe(false);
    expect(adminHostCheck(['*'])(host)).toBe(true);
  });
});

describe('a gateway', () => {
  let gateway: Gateway;
  beforeAll(async () => {
    gateway = await startGateway({ config: { public_url: 'https://llm.example.com', tiers: { Free: {} } } });
  });
  afterAll(() => gateway.close());

  const ask = async (
    host: string,
    method: string,
    target: string,
    headers: Record<string, string> = {},
    body?: string,
  ) => {
    using client = await gateway.connect();
    return await client.ask({ host, method, target, headers, ...(body === undefined ? {} : { body }) });
  };
  const REBOUND = { origin: 'http://evil.example', 'sec-fetch-site': 'same-origin' };

  test.each([
    ['GET', '/pricing'],
    ['GET', '/account'],
    ['POST', '/checkout'],
    ['GET', '/checkout/complete?session_id=x'],
    ['GET', '/checkout/cancelled'],
    ['POST', '/checkout/claim'],
  ])('refuses %s %s under another name, in words for people and for programs', async (method, target) => {
    const body = method === 'POST' ? '{"tier":"Free"}' : undefined;
    const type = body === undefined ? {} : { 'content-type': 'application/json' };
    const answer = await ask('evil.example', method, target, { ...REBOUND, ...type }, body);
    expect([answer.status, answer.json()]).toMatchObject([421, { error: { code: 'unknown_host' } }]);
    expect(answer.text()).toContain('https://llm.example.com');
    const page = await ask('evil.example', method, target, { accept: 'text/html,*/*;q=0.8', ...type }, body);
    expect([page.status, page.header('content-type')]).toEqual([421, 'text/html; charset=utf-8']);
    expect(page.text()).toContain('https://llm.example.com');
  });

  test.each([
    ['its public name', 'llm.example.com', 'https://llm.example.com', 201],
    ['this machine', 'localhost:8080', 'http://localhost:8080', 201],
    ['another scheme than the public one', 'llm.example.com', 'http://llm.example.com', 403],
    ['another site', 'llm.example.com', 'http://evil.example', 403],
    ['another port of this machine', 'localhost:8080', 'http://localhost:8081', 403],
    ['a foreign name', 'evil.example', 'http://evil.example', 421],
  ])('gives a key to a form of %s: or not', async (_what, host, origin, status) => {
    const headers = { 'content-type': 'application/json', origin };
    expect((await ask(host, 'POST', '/checkout', headers, '{"tier":"Free"}')).status).toBe(status);
  });

  test('answers the API, webhooks and probes under any name', async () => {
    const key = { authorization: `Bearer ${await gateway.issueKey()}` };
    expect((await ask('gateway.internal.example', 'GET', '/v1/models', key)).status).toBe(200);
    expect((await ask('gateway.internal.example', 'GET', '/admin/usage', key)).status).toBe(200);
    expect((await ask('10.1.2.3:8080', 'GET', '/health')).status).toBe(200);
    const event = await ask(
      'x.example',
      'POST',
      '/webhooks/stripe',
      { 'content-type': 'application/json' },
      '{}',
    );
    expect(event.status).not.toBe(421);
  });

  test('shows its metrics to no page of somebody else’s', async () => {
    const port = Number(new URL(gateway.adminUrl).port);
    for (const target of ['/metrics', '/upstreams', '/livez', '/readyz']) {
      using client = await RawClient.connect(port);
      const answer = await client.ask({ method: 'GET', host: 'evil.example:9090', target });
      expect([answer.status, answer.text()]).toEqual([421, expect.stringContaining('admin.hosts')]);
      expect((await client.ask({ method: 'GET', host: 'prometheus-target:9090', target })).status).toBe(200);
    }
  });
});
