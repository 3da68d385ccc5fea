// The answer to an inner request as messages: whatever events a stream has and wherever it is cut, the client gets each once, and whole.
import { ServerResponse } from 'node:http';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { Exchange } from '../../src/http/exchange/exchange.ts';
import { answerError } from '../../src/http/exchange/response-writer.ts';
import { InnerRequest } from '../../src/realtime/responses/inner-request.ts';
import { until } from '../helpers/wait.ts';

function begin(streamId?: string, body = Buffer.from('{"a":1}')) {
  const request = {
    headers: { 'user-agent': 'a', 'sec-websocket-key': 'b' },
    method: 'GET',
    url: '/v1/responses',
  };
  const outer: Exchange = Reflect.construct(Exchange, [request, {}, '']);
  const messages: unknown[] = [];
  const inner = new InnerRequest({
    outer,
    authorization: 'Bearer k',
    body,
    streamId,
    write(more, done) {
      messages.push(...more.map((each) => JSON.parse(each.toString())));
      setImmediate(done);
    },
  });
  return { inner, messages };
}

test('any events come through, however they are cut', async () => {
  const event = fc.record({ type: fc.string(), delta: fc.string({ unit: 'grapheme' }), n: fc.jsonValue() });
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 6 }), fc.array(fc.nat(40)), async (events, cuts) => {
      const { inner, messages } = begin();
      const frames = events.map((each) => `event: x\ndata: ${JSON.stringify(each)}\n\n: keep-alive\n\n`);
      let rest = Buffer.from(frames.join(''));
      inner.response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
      for (const size of cuts) {
        inner.response.write(rest.subarray(0, size));
        rest = rest.subarray(size);
      }
      inner.response.end(rest);
      await until(() => inner.response.destroyed || inner.response.closed, 'the end');
      const expected = events.map((each) => JSON.parse(JSON.stringify(each)));
      expect(messages).toEqual(expected);
    }),
    { numRuns: 60 },
  );
});

test('the request has the body and the headers of the handshake, without those of the connection', async () => {
  const { inner } = begin();
  const pieces: Buffer[] = [];
  for await (const piece of inner.request) pieces.push(piece);
  expect(String(Buffer.concat(pieces))).toBe('{"a":1}');
  expect([inner.request.method, inner.request.url, inner.request.httpVersion]).toEqual([
    'POST',
    '/v1/responses',
    '1.0',
  ]);
  expect(inner.request.headers).toEqual({
    'user-agent': 'a',
    authorization: 'Bearer k',
    'content-type': 'application/json',
    'content-length': '7',
  });
  inner.destroy();
});

test('an error answer is one event with its status, its lane and the time to wait', async () => {
  const { inner, messages } = begin('lane');
  const exchange = new Exchange(inner.request, inner.response, '');
  expect(inner.response).toBeInstanceOf(ServerResponse);
  answerError(exchange, new GatewayError('overloaded', undefined, { retryAfterMs: 2_000 }));
  await until(() => messages.length === 1, 'the event');
  expect(messages).toMatchObject([
    {
      type: 'error',
      status: 503,
      error: { code: 'overloaded' },
      headers: { 'retry-after': '2', 'retry-after-ms': '2000' },
      stream_id: 'lane',
    },
  ]);
});

test('an error of the gateway within a stream gets a status', async () => {
  const { inner, messages } = begin('lane');
  inner.response.writeHead(200, { 'content-type': 'text/event-stream' });
  const own = { type: 'error', code: 'stream_incomplete', message: 'x', param: null, sequence_number: 3 };
  inner.response.end(`data: ${JSON.stringify(own)}\n\n`);
  await until(() => messages.length === 1, 'the event');
  expect(messages).toEqual([{ ...own, status: 502, stream_id: 'lane' }]);
});

test('a large body comes in pieces as from a connection, at the pace of its reader', async () => {
  const body = Buffer.from(JSON.stringify({ a: 'x'.repeat(1_000_000) }));
  const { inner } = begin(undefined, body);
  const pieces: Buffer[] = [];
  for await (const piece of inner.request) {
    pieces.push(piece);
    expect(inner.request.readableLength).toBeLessThan(200_000);
  }
  expect(Buffer.concat(pieces).equals(body)).toBe(true);
  expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThan(200_000);
  inner.destroy();
});
