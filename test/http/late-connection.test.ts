// Connections that waited too long to be accepted, and requests whose clients have left before they could be served.
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { readBody } from '../../src/http/body/read-body.ts';
import { answerJson } from '../../src/http/exchange/response-writer.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { until } from '../helpers/wait.ts';
import { errorCode, Served, type ServedOptions } from './served.ts';

/** A listener with one route under /v1, that rejects every new connection. */
async function startLate(options: ServedOptions = {}): Promise<Served> {
  const served = await Served.start({
    ...options,
    routes: (server, { begun }) =>
      server.route('POST', '/v1/echo', async (exchange) => {
        begun.push(exchange);
        await readBody(exchange, 100_000);
        answerJson(exchange, 200, {});
      }),
  });
  Object.assign(served.server.acceptQueue, { accept: () => true });
  return served;
}

const CALL = 'POST /v1/echo HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}';

describe('a connection that waited too long', () => {
  test('is answered 503 when it asks the API, closed and counted', async () => {
    await using served = await startLate();
    const { response, client } = await served.say(CALL);
    expect([response.status, errorCode(response)]).toEqual([503, 'overloaded']);
    expect(Number(response.header('retry-after'))).toBeGreaterThanOrEqual(1);
    expect(response.header('connection')).toBe('close');
    expect(await client.closed).toBe('fin');
    expect(served.begun).toEqual([]);
    const page = await served.metrics.registry.metrics();
    expect(page).toContain('tollgate_overload_refused_total{cause="accept_queue"} 1');
    expect(page).toContain('tollgate_requests_total{route="none",status="503"} 1');
  });

  test.each(['http://gateway:8080', `HTTPS://${'a'.repeat(255)}:12345`])(
    'is answered 503 for a target in absolute form, too',
    async (origin) => {
      await using served = await startLate();
      const { response } = await served.say(CALL.replace('/v1', `${origin}/v1`));
      expect([response.status, errorCode(response)]).toEqual([503, 'overloaded']);
      expect(served.begun).toEqual([]);
    },
  );

  test('gets a retry time of two to four seconds that differs from that of others', async () => {
    await using served = await startLate();
    const waits = new Set<number>();
    for (let i = 0; i < 40; i += 1) {
      const { response } = await served.say(CALL);
      waits.add(Number(response.header('retry-after-ms')));
    }
    expect(waits.size).toBeGreaterThan(2);
    expect(Math.min(...waits)).toBeGreaterThanOrEqual(2_000);
    expect(Math.max(...waits)).toBeLessThanOrEqual(4_000);
  });

  test('is served when it asks for anything else, and stays open', async () => {
    await using served = await startLate();
    using client = await served.connect();
    for (let i = 0; i < 3; i += 1) {
      const response = await client.ask({ method: 'GET', target: '/health' });
      expect(response.status).toBe(200);
    }
    // It has been accepted now.
    expect((await client.ask({ method: 'POST', target: '/v1/echo', body: {} })).status).toBe(200);
  });

  test('is answered in TLS in the same way, after its handshake', async () => {
    await using served = await startLate({ certificate: makeCertificate() });
    const { response, client } = await served.say(CALL);
    expect([response.status, errorCode(response)]).toEqual([503, 'overloaded']);
    await client.closed;
    expect(served.begun).toEqual([]);
    using other = await served.connect();
    for (let i = 0; i < 3; i += 1)
      expect((await other.ask({ method: 'GET', target: '/health' })).status).toBe(200);
  });

  test('is served when its request comes in pieces, or is none', async () => {
    await using served = await startLate();
    using slow = await served.connect();
    await slow.segments(['G', 'ET /health HTTP/1.1\r\nho', 'st: a\r\n\r\n'], 5);
    expect((await slow.response()).status).toBe(200);
    const { response } = await served.say('NONSENSE\r\n\r\n');
    expect([response.status, errorCode(response)]).toEqual([400, 'invalid_http']);
  });

  test('gets its answer though most of a large body is still to come', async () => {
    await using served = await startLate();
    using client = await served.connect();
    const head = 'POST /v1/echo HTTP/1.1\r\nhost: a\r\ncontent-length: 800000\r\n\r\n';
    void client.write(head + 'x'.repeat(200_000)).catch(() => undefined);
    const response = await client.response();
    expect([response.status, response.complete]).toEqual([503, true]);
    await client.closed;
  });

  test('is closed when it says nothing', async () => {
    await using served = await startLate();
    using client = await served.connect();
    await client.closed;
    expect(client.responses).toEqual([]);
  });
});

describe('where the event loop is late', () => {
  test('a request whose client has left is not begun', async () => {
    await using served = await Served.start({ isLate: () => true });
    for (let i = 0; i < 20; i += 1) {
      const client = await served.connect();
      await client.write('GET /health HTTP/1.1\r\nhost: a\r\n\r\n');
      client.destroy();
    }
    await until(() => served.ended.length === 20, 'all of them to end');
    expect(served.begun).toEqual([]);
    expect(new Set(served.ended.map(({ stopped }) => stopped))).toEqual(new Set(['client_closed']));
  });

  test('a client that half-closes is answered', async () => {
    await using served = await Served.start({ isLate: () => true });
    using client = await served.connect();
    await client.write('GET /health HTTP/1.1\r\nhost: a\r\n\r\n');
    client.halfClose();
    const response = await client.response();
    expect([response.status, response.complete]).toEqual([200, true]);
  });

  test('requests on a kept connection are answered in order', async () => {
    await using served = await Served.start({ isLate: () => true });
    using client = await served.connect();
    const target = (i: number) => `GET /health?${i} HTTP/1.1\r\nhost: a\r\n\r\n`;
    await client.write(Array.from({ length: 50 }, (_, i) => target(i)).join(''));
    await until(() => client.responses.length === 50, 'fifty answers');
    expect(served.begun.map((exchange) => exchange.target)).toEqual(
      Array.from({ length: 50 }, (_, i) => `/health?${i}`),
    );
  });
});

describe('before work that costs money', () => {
  test('a request that took long in the gateway is served under overload while its client waits', async () => {
    await using served = await Served.start({
      routes: (server) =>
        server.route('GET', '/work', async (exchange) => {
          await until(() => exchange.elapsed > 1_000, 'a second to pass');
          await exchange.checkClient();
          answerJson(exchange, 200, {});
        }),
    });
    Object.defineProperty(served.server.acceptQueue, 'isOverloaded', { value: true });
    using client = await served.connect();
    expect((await client.ask({ method: 'GET', target: '/work' })).status).toBe(200);
  });

  test('the client of a request that took long is looked for again', async () => {
    const after: string[] = [];
    await using served = await Served.start({
      routes: (server) =>
        server.route('GET', '/work', async (exchange) => {
          // The loop stands still, and meanwhile the client leaves.
          await until(() => left.length > 0, 'the client to leave');
          const end = performance.now() + 150;
          while (performance.now() < end);
          const checking = exchange.checkClient();
          await checking;
          after.push(exchange.target);
          answerJson(exchange, 200, {});
        }),
    });
    const left: true[] = [];
    const client = await served.connect();
    await client.write('GET /work HTTP/1.1\r\nhost: a\r\n\r\n');
    await pause(20);
    left.push(true);
    client.destroy();
    await until(() => served.ended.length === 1, 'the request to end');
    expect([after, served.ended[0]?.stopped]).toEqual([[], 'client_closed']);
  });
});
