// The listener: addresses it listens on, faults of handlers, paths of models, and what it says about an ended exchange.
import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { clientAddress } from '../../src/http/client-address.ts';
import { answerJson } from '../../src/http/exchange/response-writer.ts';
import { MODEL_PATH } from '../../src/http/router.ts';
import { RawClient } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';
import { errorCode, property, Served } from './served.ts';

describe('listening', () => {
  test.each([
    ['127.0.0.1', '127.0.0.1'],
    ['::1', '::1'],
    ['localhost', undefined],
    ['0.0.0.0', '127.0.0.1'],
    ['::', '127.0.0.1'],
  ])('on %s answers each request once', async (host, to) => {
    await using served = await Served.start();
    await served.server.drain(0, 0);
    await using other = await unlistened();
    const { port, host: bound } = await other.server.listen(host, 0);
    const target = to ?? bound;
    using client = await RawClient.connect(`http://${target.includes(':') ? `[${target}]` : target}:${port}`);
    const response = await client.ask({ method: 'GET', target: '/health' });
    expect(property(response.json(), 'address')).toBe(target);
    await other.idle();
    expect([other.begun.length, other.ended.length]).toEqual([1, 1]);
  });

  test('on a port that is taken fails with the error of the system', async () => {
    await using served = await Served.start();
    await using other = await unlistened();
    await expect(other.server.listen('127.0.0.1', served.port)).rejects.toMatchObject({ code: 'EADDRINUSE' });
  });

  async function unlistened(): Promise<Served> {
    return await Served.start({ listen: false });
  }
});

describe('a handler that fails', () => {
  const start = () =>
    Served.start({
      routes: (server) => {
        server.route('GET', '/throws', () => {
          throw new Error('secret of the inside');
        });
        server.route('GET', '/rejects', () => Promise.reject(new Error('secret of the inside')));
        server.route('GET', '/typed', () => {
          throw new GatewayError('model_not_found', 'No such model.', { param: 'model' });
        });
        server.route('GET', '/late', async (exchange) => {
          exchange.response.writeHead(200, exchange.headers);
          await new Promise<void>((resolve) => exchange.response.write('begun', () => resolve()));
          throw new Error('secret of the inside');
        });
        server.route('GET', '/after', (exchange) => {
          answerJson(exchange, 200, { ok: true });
          throw new Error('secret of the inside');
        });
        server.route('GET', '/stop', (exchange) => {
          exchange.onStop(() => {
            throw new Error('secret of the inside');
          });
          exchange.onStop(() => {
            exchange.access.outcome = 'reached';
          });
        });
      },
    });

  test.each(['/throws', '/rejects'])('%s: answers 500 without saying why, and logs it', async (target) => {
    await using served = await start();
    using client = await served.connect();
    const response = await client.ask({ method: 'GET', target });
    expect([response.status, errorCode(response)]).toEqual([500, 'internal_error']);
    expect(response.text()).not.toContain('secret');
    expect(served.log).toContain('secret of the inside');
    expect(served.log).toContain(response.header('x-request-id'));
    expect((await client.ask({ method: 'GET', target: '/health' })).status).toBe(200);
  });

  test('with an error of the table answers it', async () => {
    await using served = await start();
    using client = await served.connect();
    const response = await client.ask({ method: 'GET', target: '/typed' });
    expect([response.status, response.json()]).toEqual([
      404,
      {
        error: {
          message: 'No such model.',
          type: 'invalid_request_error',
          param: 'model',
          code: 'model_not_found',
        },
      },
    ]);
    expect(served.log).toBe('');
  });

  test('after it has begun an answer cuts it', async () => {
    await using served = await start();
    using client = await served.connect();
    const response = await client.ask({ method: 'GET', target: '/late' });
    expect(response.complete).toBe(false);
    await served.idle();
    expect(served.ended.at(-1)).toMatchObject({ outcome: 'internal_error' });
  });

  test('after a whole answer leaves it whole', async () => {
    await using served = await start();
    using client = await served.connect();
    const response = await client.ask({ method: 'GET', target: '/after' });
    expect([response.json(), response.complete]).toEqual([{ ok: true }, true]);
    expect((await client.ask({ method: 'GET', target: '/health' })).status).toBe(200);
  });

  test('when it is stopped costs nobody else anything', async () => {
    await using served = await start();
    const client = await served.connect();
    await client.send({ method: 'GET', target: '/stop' });
    await until(() => served.server.inFlight === 1);
    client.reset();
    await served.idle();
    expect(served.ended.at(-1)).toMatchObject({ outcome: 'reached', stopped: 'client_closed' });
    expect(served.log).toContain('failed to stop a request cleanly');
    using other = await served.connect();
    expect((await other.ask({ method: 'GET', target: '/health' })).status).toBe(200);
  });
});

describe('faults around a request', () => {
  test('in the address cost that connection', async () => {
    await using served = await Served.start({
      addressOf: () => {
        throw new Error('no address');
      },
    });
    using client = await served.connect();
    await client.send({ method: 'GET', target: '/health' });
    await client.closed;
    expect(client.responses).toHaveLength(0);
    expect(served.log).toContain('failed to start a request; closing its connection');
    expect(served.server.inFlight).toBe(0);
  });

  test('in what is done at the end cost nothing', async () => {
    await using served = await Served.start({
      onEnd: () => {
        throw new Error('no log');
      },
    });
    using client = await served.connect();
    await client.write('GET /health HTTP/1.1\r\nhost: a\r\n\r\n'.repeat(3));
    for (let i = 0; i < 3; i += 1) expect((await client.response()).status).toBe(200);
    await until(() => served.log.match(/failed to write the access log/g)?.length === 3);
    await served.idle();
  });
});

describe('what it passes on', () => {
  test('the address behind a trusted proxy', async () => {
    await using served = await Served.start({ addressOf: clientAddress(['127.0.0.1']) });
    using client = await served.connect();
    const headers: [string, string][] = [
      ['x-forwarded-for', '198.51.100.7'],
      ['x-forwarded-for', '203.0.113.9'],
    ];
    const response = await client.ask({ method: 'GET', target: '/health', headers });
    expect(property(response.json(), 'address')).toBe('203.0.113.9');
  });

  test.each([
    'm',
    'org/name',
    'org%2Fname',
    'hf.co/a/b:Q4_K_M',
    'a%20b',
    'x/',
    '/',
    '%',
    '..',
    ':id',
    'a?x=1',
  ])('the model path %s as it was sent', async (id) => {
    await using served = await Served.start({
      routes: (server) => {
        server.route('GET', `${MODEL_PATH}:id`, (exchange) =>
          answerJson(exchange, 200, { target: exchange.target }),
        );
      },
    });
    using client = await served.connect();
    const response = await client.ask({ method: 'GET', target: `/v1/models/${id}` });
    expect([response.status, response.json()]).toEqual([200, { target: `/v1/models/${id}` }]);
  });

  test.each(['', ';', 'text/plain; charset', '/', 'a/b; c="', 'application/json; charset=utf-8'])(
    'a body labelled "%s", which is for the handler to judge',
    async (type) => {
      await using served = await Served.start();
      using client = await served.connect();
      const response = await client.ask({ target: '/echo', headers: { 'content-type': type }, body: '{}' });
      expect(response.json()).toMatchObject({ bytes: 2 });
      const unknown = await client.ask({ target: '/nowhere', headers: { 'content-type': type } });
      expect(errorCode(unknown)).toBe('unknown_url');
    },
  );

  test('headers that a router could misunderstand', async () => {
    await using served = await Served.start();
    using client = await served.connect();
    for (const headers of [
      { 'accept-version': '2.0.0' },
      { 'x-http-method-override': 'DELETE' },
      { 'x-original-url': '/nowhere', 'x-rewrite-url': '/nowhere' },
      { accept: 'text/html' },
    ]) {
      expect((await client.ask({ method: 'GET', target: '/health', headers })).status).toBe(200);
    }
  });

  test('what the exchange was, once', async () => {
    await using served = await Served.start();
    using client = await served.connect();
    await client.ask({ target: '/echo', body: 'abc' });
    await served.idle();
    expect(served.ended).toEqual([
      {
        method: 'POST',
        target: '/echo',
        status: 200,
        outcome: undefined,
        stopped: undefined,
        bytesIn: 3,
        elapsed: expect.any(Number),
      },
    ]);
  });
});

test('a connection is counted before its first request, and until its end', async () => {
  await using served = await Served.start();
  using first = await served.connect();
  await until(async () => (await served.openConnections()) === 1, 'the first connection');
  using second = await served.connect();
  await until(async () => (await served.openConnections()) === 2, 'the second connection');
  first.destroy();
  await until(async () => (await served.openConnections()) === 1, 'the end of the first');
  second.destroy();
  await until(async () => (await served.openConnections()) === 0, 'the end of the second');
});

test('a flood of resets leaves no trace', async () => {
  await using served = await Served.start();
  for (let round = 0; round < 10; round += 1) {
    await Promise.all(
      Array.from(
        { length: 100 },
        () =>
          new Promise<void>((resolve) => {
            const socket = connect(served.port, '127.0.0.1', () => {
              socket.write('GET /health HT');
              socket.resetAndDestroy();
            });
            socket.on('close', () => resolve()).on('error', () => undefined);
          }),
      ),
    );
  }
  await until(async () => (await served.openConnections()) === 0);
  await served.idle();
  using client = await served.connect();
  expect((await client.ask({ method: 'GET', target: '/health' })).status).toBe(200);
});
