// A whole gateway with a scripted upstream: a client that leaves in any phase of a chat frees everything, large and
// unwanted bodies get their answer, and a key is asked for before a body is.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  contentChunk,
  HostileUpstream,
  sse,
  standardAnswer,
} from '../helpers/hostile-upstream.ts';
import type { RawClient } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';
import { errorCode } from './served.ts';

let upstream: HostileUpstream;
let gateway: Gateway;
beforeAll(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({ upstreams: { one: upstream.baseUrl }, config: { max_body: '1MiB' } });
  await gateway.key();
});
afterAll(async () => {
  await gateway.close();
  await upstream.close();
});

const quiet = async () => {
  await until(
    async () => (await gateway.metric('tollgate_requests_in_flight')) === 0,
    'nothing to be in flight',
  );
  await until(
    async () => (await gateway.metric('tollgate_upstream_in_flight{upstream="one"}')) === 0,
    'nothing to be in flight upstream',
  );
  expect(gateway.app.inFlight).toBe(0);
  await until(() => upstream.answering === 0, 'the upstream to be left alone');
};

const LEAVE: readonly [string, (client: RawClient) => void][] = [
  ['closes', (client) => client.destroy()],
  ['resets', (client) => client.reset()],
];

describe.each(LEAVE)('a client that %s', (_how, leave) => {
  const headOf = async (length: number) =>
    `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${await gateway.key()}\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n\r\n`;

  test('while it sends its body never gets to the upstream', async () => {
    const before = upstream.requests.length;
    const client = await gateway.connect();
    await client.write(`${await headOf(1000)}{"model":`);
    await until(() => gateway.app.inFlight === 1);
    leave(client);
    await quiet();
    expect(upstream.requests).toHaveLength(before);
    await gateway.logLine((line) => line['outcome'] === 'client_closed' && line['status'] === 499);
  });

  test('while the upstream is silent ends the call', async () => {
    upstream.next((c) => c.silence());
    const before = upstream.requests.length;
    const client = await gateway.open(chatRequest());
    await upstream.request(before);
    leave(client);
    await quiet();
  });

  test('while the upstream has sent its headers and no token ends the call', async () => {
    upstream.next([
      (c) => c.head(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked' }),
      (c) => c.silence(),
    ]);
    const before = upstream.requests.length;
    const client = await gateway.open(chatRequest({ stream: true }));
    await upstream.request(before);
    leave(client);
    await quiet();
  });

  test('in the middle of a stream ends the call', async () => {
    upstream.next(
      sse(
        Array.from({ length: 2_000 }, () => contentChunk('x')),
        { pause: 10 },
      ),
    );
    const client = await gateway.open(chatRequest({ stream: true }));
    await client.readUntil('"x"');
    leave(client);
    await quiet();
  });

  test('in the middle of a stream that is silent ends the call', async () => {
    upstream.next([sse([contentChunk('x')], { done: false, end: false }), (c) => c.silence()]);
    const client = await gateway.open(chatRequest({ stream: true }));
    await client.readUntil('"x"');
    leave(client);
    await quiet();
  });

  test('after the last byte has had its answer', async () => {
    upstream.next(standardAnswer);
    const client = await gateway.open(chatRequest());
    const response = await client.response();
    leave(client);
    await quiet();
    expect((await gateway.accessLine(response))['status']).toBe(200);
  });
});

test('a stream to a client that half-closed arrives whole', async () => {
  upstream.next(sse([contentChunk('a'), contentChunk('b')], { pause: 400 }));
  using client = await gateway.open(chatRequest({ stream: true }));
  client.halfClose();
  const response = await client.response();
  expect([response.status, response.complete]).toEqual([200, true]);
  expect(response.text()).toContain('[DONE]');
  await quiet();
});

describe('what is refused before the body was read', () => {
  const head = (key: string, length: number, ...fields: string[]) =>
    [
      'POST /v1/chat/completions HTTP/1.1',
      'host: a',
      `authorization: Bearer ${key}`,
      'content-type: application/json',
      `content-length: ${length}`,
      ...fields,
      '',
      '',
    ].join('\r\n');

  test('a wrong key gets 401 without 100 Continue', async () => {
    using client = await gateway.connect();
    await client.write(head('0'.repeat(32), 5000, 'expect: 100-continue'));
    const response = await client.response();
    expect([response.status, errorCode(response), response.interim]).toEqual([401, 'invalid_api_key', []]);
    expect(response.header('connection')).toBe('close');
    expect(await client.closed).toBe('fin');
  });

  test('a right key gets 100 Continue', async () => {
    using client = await gateway.connect();
    const body = Buffer.from(JSON.stringify(chatRequest()));
    await client.write(head(await gateway.key(), body.length, 'expect: 100-continue'));
    await client.readUntil('HTTP/1.1 100 Continue\r\n\r\n');
    await client.write(body);
    expect((await client.response()).status).toBe(200);
    expect(upstream.requests.at(-1)?.header('expect')).toBeUndefined();
  });

  test('a body that is too large gets 413 while it is being sent, and the upstream nothing', async () => {
    const before = upstream.requests.length;
    for (const framing of ['length', 'chunked']) {
      using client = await gateway.connect();
      const size = 6 * 1024 * 1024;
      const start = head(await gateway.key(), size);
      await client.write(
        framing === 'length' ? start : start.replace(/content-length: \d+/, 'transfer-encoding: chunked'),
      );
      const piece = Buffer.alloc(65_536, 0x20);
      for (let sent = 0; sent < size; sent += piece.length) {
        await client.write(
          framing === 'length'
            ? piece
            : Buffer.concat([Buffer.from('10000\r\n'), piece, Buffer.from('\r\n')]),
        );
      }
      const response = await client.response();
      expect([response.status, errorCode(response)]).toEqual([413, 'request_too_large']);
      expect(response.header('connection')).toBe('close');
      client.halfClose();
      await client.closed;
    }
    expect(upstream.requests).toHaveLength(before);
    await quiet();
  });

  test('a wrong key with a large body gets 401 while it is being sent', async () => {
    using client = await gateway.connect();
    const size = 8 * 1024 * 1024;
    await client.write(head('0'.repeat(32), size));
    for (let sent = 0; sent < size; sent += 65_536) await client.write(Buffer.alloc(65_536, 0x20));
    expect(errorCode(await client.response())).toBe('invalid_api_key');
    expect(await client.closed).toBe('fin');
  });
});
