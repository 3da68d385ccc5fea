// Complete answers: the headers of errors, and that a client reads its answer although it is still sending.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ERRORS, type ErrorCode, GatewayError, isServerFault } from '../../src/errors.ts';
import { answer, answerError, answerJson, retryHeaders } from '../../src/http/exchange/response-writer.ts';
import { pause } from '../helpers/wait.ts';
import { errorCode, Served } from './served.ts';

const waiting = (retryAfterMs: number) =>
  retryHeaders(new GatewayError('upstream_busy', undefined, { retryAfterMs }));

describe('retry headers', () => {
  test.each([
    [0, '1', '1'],
    [-5, '1', '1'],
    [0.2, '1', '1'],
    [1, '1', '1'],
    [999, '1', '999'],
    [1000, '1', '1000'],
    [1001, '2', '1001'],
    [59_001, '60', '59001'],
    [60_000, '60', '59999'],
    [86_400_000, '60', '59999'],
    [Number.POSITIVE_INFINITY, '60', '59999'],
    [Number.NaN, '1', '1'],
  ])('to wait %s ms is said as %s s and %s ms', (ms, seconds, millis) => {
    expect(waiting(ms)).toEqual({ 'retry-after': seconds, 'retry-after-ms': millis });
  });

  test.each(Object.keys(ERRORS).filter((code): code is ErrorCode => code in ERRORS))(
    '%s says what its rule says',
    (code) => {
      const error = new GatewayError(code);
      const headers = retryHeaders(error);
      const { retry } = error.rule;
      expect(headers['retry-after'] !== undefined).toBe(retry === 'wait');
      expect(headers['x-should-retry']).toBe(
        retry === 'no' && (error.status === 429 || error.status === 403 || isServerFault(error.status))
          ? 'false'
          : undefined,
      );
    },
  );
});

describe('on the wire', () => {
  let served: Served;
  beforeAll(async () => {
    served = await Served.start({
      routes: (server) => {
        server.route('POST', '/refuse', (exchange) =>
          answerError(exchange, new GatewayError('invalid_api_key')),
        );
        server.route('POST', '/busy', (exchange) => {
          const error = new GatewayError('upstream_busy', undefined, { retryAfterMs: 2_500 });
          answerError(exchange, error, { 'x-extra': 'yes' });
        });
        server.route('GET', '/twice', (exchange) => {
          answerJson(exchange, 200, { first: true });
          answerJson(exchange, 500, { second: true });
          answerError(exchange, new GatewayError('internal_error'));
        });
        server.route('GET', '/text', (exchange) =>
          answer(exchange, 200, { 'content-type': 'text/plain' }, 'äöü€'),
        );
        server.route('GET', '/empty', (exchange) => answer(exchange, 200, {}, ''));
        server.route('GET', '/own-headers', (exchange) => {
          exchange.headers['x-limit'] = '5';
          throw new GatewayError('too_many_failed_keys');
        });
      },
    });
  });
  afterAll(async () => {
    await served[Symbol.asyncDispose]();
  });

  test('an error carries its body, its advice and the headers it is given', async () => {
    using client = await served.connect();
    const response = await client.ask({ target: '/busy' });
    expect(response.status).toBe(503);
    expect(errorCode(response)).toBe('upstream_busy');
    expect(response.header('retry-after')).toBe('3');
    expect(response.header('retry-after-ms')).toBe('2500');
    expect(response.header('x-extra')).toBe('yes');
  });

  test('a 401 says how to authenticate, and nothing else does', async () => {
    using client = await served.connect();
    const refused = await client.ask({ target: '/refuse' });
    expect(refused.header('www-authenticate')).toBe('Bearer realm="tollgate", error="invalid_token"');
    expect((await client.ask({ target: '/busy' })).header('www-authenticate')).toBeUndefined();
  });

  test('only the first answer is sent', async () => {
    using client = await served.connect();
    expect((await client.ask({ method: 'GET', target: '/twice' })).json()).toEqual({ first: true });
    expect((await client.ask({ method: 'GET', target: '/health' })).status).toBe(200);
    expect(client.responses).toHaveLength(2);
  });

  test('lengths are those of the bytes', async () => {
    using client = await served.connect();
    const text = await client.ask({ method: 'GET', target: '/text' });
    expect([text.header('content-length'), text.text()]).toEqual(['9', 'äöü€']);
    const empty = await client.ask({ method: 'GET', target: '/empty' });
    expect([empty.header('content-length'), empty.text()]).toEqual(['0', '']);
  });

  test('headers of the exchange are on its error too', async () => {
    using client = await served.connect();
    const response = await client.ask({ method: 'GET', target: '/own-headers' });
    expect(response.status).toBe(429);
    expect(response.header('x-limit')).toBe('5');
    expect(response.header('x-request-id')).toMatch(/^req_/);
  });

  test('a refusal reaches a client that goes on sending its body, and is not followed by a reset', async () => {
    using client = await served.connect();
    const size = 20 * 1024 * 1024;
    await client.write(`POST /refuse HTTP/1.1\r\nhost: a\r\ncontent-length: ${size}\r\n\r\n`);
    // All of it, before it reads.
    for (let sent = 0; sent < size; sent += 1024 * 1024) await client.write(Buffer.alloc(1024 * 1024));
    const response = await client.response();
    expect(response.status).toBe(401);
    expect(response.header('connection')).toBe('close');
    expect(await client.closed).toBe('fin');
  });

  test('a client that sends slower than the answer comes can still end its body', async () => {
    using client = await served.connect();
    await client.write('POST /refuse HTTP/1.1\r\nhost: a\r\ncontent-length: 3000\r\n\r\n');
    const response = await client.responseHead();
    for (let i = 0; i < 6; i += 1) {
      await pause(300);
      await client.write(Buffer.alloc(500));
    }
    await response.ended;
    expect(errorCode(response)).toBe('invalid_api_key');
    expect(await client.closed).toBe('fin');
    await served.idle();
  });

  test('a client that sends nothing more is let go after a moment, and its time ends with the answer', async () => {
    using client = await served.connect();
    await client.write('POST /refuse HTTP/1.1\r\nhost: a\r\ncontent-length: 3000\r\n\r\nabc');
    expect((await client.response()).status).toBe(401);
    expect(await client.closed).toBe('fin');
    await served.idle();
    const ended = served.ended.at(-1);
    expect(ended?.outcome).toBe('invalid_api_key');
    expect(ended?.stopped).toBeUndefined();
    expect(ended?.elapsed).toBeLessThan(900);
  });

  test('a client that leaves after its refusal has not left early', async () => {
    const client = await served.connect();
    await client.write('POST /refuse HTTP/1.1\r\nhost: a\r\ncontent-length: 3000\r\n\r\nabc');
    expect((await client.response()).status).toBe(401);
    client.reset();
    await served.idle();
    expect(served.ended.at(-1)?.stopped).toBeUndefined();
  });

  test('nothing after an unread body is taken for a request', async () => {
    using client = await served.connect();
    const inner = 'GET /health HTTP/1.1\r\nhost: a\r\n\r\n';
    await client.write(`POST /refuse HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n12345${inner}`);
    expect((await client.response()).status).toBe(401);
    await client.closed;
    expect(client.responses).toHaveLength(1);
  });
});
