// The admin listener: metrics, probes and the state of targets, and that it survives what is not a request.
import { createServer } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AdminServer } from '../../src/http/admin/admin-listener.ts';
import { type CheckState, Health } from '../../src/http/admin/health.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { RawClient } from '../helpers/raw-client.ts';

let admin: AdminServer;
let port: number;
let state: CheckState;
let draining: boolean;
let upstreams: () => readonly object[];
beforeEach(async () => {
  state = 'ok';
  draining = false;
  upstreams = () => [];
  const health = new Health({
    version: '1',
    configHash: () => 'h',
    draining: () => draining,
    checks: { store: () => state },
  });
  admin = new AdminServer(createMetrics(), health, { upstreams: () => upstreams() });
  ({ port } = await admin.listen('127.0.0.1', 0));
});
afterEach(() => admin.close());

const ask = async (target: string, method = 'GET') => {
  using client = await RawClient.connect(port);
  return await client.ask({ method, target });
};

describe('the admin listener', () => {
  test('gives the metrics', async () => {
    const response = await ask('/metrics');
    expect(response.status).toBe(200);
    expect(response.header('content-type')).toMatch(/^text\/plain; version=/);
    expect(response.text()).toContain('# TYPE tollgate_requests_total counter');
  });

  test('says that it lives', async () => {
    const response = await ask('/livez?verbose');
    expect([response.status, response.text()]).toEqual([200, 'ok\n']);
    draining = true;
    state = 'failed';
    expect((await ask('/livez')).status).toBe(200);
  });

  test.each<[CheckState, boolean, number, string]>([
    ['ok', false, 200, 'ok'],
    ['degraded', false, 200, 'degraded'],
    ['failed', false, 503, 'failed'],
    ['ok', true, 503, 'draining'],
  ])('is ready or not: %s, draining %s', async (checked, drains, status, said) => {
    state = checked;
    draining = drains;
    const response = await ask('/readyz');
    expect([response.status, response.json()]).toMatchObject([status, { status: said }]);
  });

  test('tells the state of the targets as it is at the moment', async () => {
    const first = await ask('/upstreams');
    expect([first.status, first.header('content-type'), first.json()]).toEqual([200, 'application/json', []]);
    const states = [
      { upstream: 'a', state: 'open', in_flight: 0 },
      { upstream: 'b', state: 'ok', in_flight: 3 },
    ];
    upstreams = () => states;
    expect((await ask('/upstreams')).json()).toEqual(states);
  });

  test('answers 500 when the state cannot be told, and lives on', async () => {
    upstreams = () => {
      throw new Error('no state');
    };
    const response = await ask('/upstreams');
    expect([response.status, response.text()]).toEqual([500, 'failed\n']);
    expect((await ask('/livez')).status).toBe(200);
  });

  test('has no page of targets when it knows none', async () => {
    const health = new Health({ version: '', configHash: () => '', draining: () => false, checks: {} });
    const plain = new AdminServer(createMetrics(), health);
    const at = await plain.listen('127.0.0.1', 0);
    using client = await RawClient.connect(at.port);
    expect((await client.ask({ method: 'GET', target: '/upstreams' })).status).toBe(404);
    await plain.close();
  });

  test('takes a target in absolute form, with its authority as Host', async () => {
    const response = await ask('http://127.0.0.1/livez');
    expect([response.status, response.text()]).toEqual([200, 'ok\n']);
    expect((await ask('http://evil.example/livez')).status).toBe(421);
  });

  test.each(['/', '/health', '/metrics/', '/__proto__', '/constructor', '//metrics'])(
    'has no %s',
    async (path) => {
      expect((await ask(path)).status).toBe(404);
    },
  );

  test.each(['POST', 'PUT', 'DELETE', 'OPTIONS'])('does not take %s', async (method) => {
    const response = await ask('/metrics', method);
    expect([response.status, response.header('allow')]).toEqual([405, 'GET, HEAD']);
  });

  test('answers HEAD without a body', async () => {
    using client = await RawClient.connect(port);
    const response = await client.ask({ method: 'HEAD', target: '/livez' });
    expect([response.status, response.header('content-length')]).toEqual([200, '3']);
    expect((await client.ask({ method: 'GET', target: '/livez' })).text()).toBe('ok\n');
  });

  test('survives garbage', async () => {
    using client = await RawClient.connect(port);
    await client.write('garbage\r\n\r\n');
    await client.closed;
    expect((await ask('/livez')).status).toBe(200);
  });

  test('fails to listen on a port that is taken', async () => {
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
    const address = taken.address();
    const other = new AdminServer(
      createMetrics(),
      new Health({ version: '', configHash: () => '', draining: () => false, checks: {} }),
    );
    const at = typeof address === 'object' && address !== null ? address.port : 0;
    await expect(other.listen('127.0.0.1', at)).rejects.toMatchObject({ code: 'EADDRINUSE' });
    await other.close();
    taken.close();
  });

  test('closes although someone keeps a connection', async () => {
    using client = await RawClient.connect(port);
    await client.ask({ method: 'GET', target: '/livez' });
    await admin.close();
    await client.closed;
  });
});
