// Large JSON answers: read as they come, not copied, and byte for byte what the upstream sent, but for the model's name.
import { createHash } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import { chatRequest, HostileUpstream, json, type Script } from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

const MIB = 1024 * 1024;

let upstream: HostileUpstream;
let gateway: Gateway;
let key: string;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({
    now: fleetingClock(),
    upstreams: { up: upstream.baseUrl },
    config: {
      retry: { attempts: 1 },
      models: { 'test-model': { targets: [{ upstream: 'up', model: 'upstream-model' }] } },
    },
  });
  key = await gateway.key();
});

afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

/** About `size` bytes, without a short period. */
function textOf(size: number): string {
  const unit = Array.from({ length: 4096 }, (_, index) => (index * index * 7919).toString(36)).join('.');
  return unit.repeat(Math.ceil(size / unit.length)).slice(0, size);
}

const USAGE = '"usage":{"prompt_tokens":11,"completion_tokens":22,"total_tokens":33}';
const LONG = textOf(20 * MIB);
const answerOf = (model: string, text = LONG) =>
  `{"id":"x", "choices":[{"index":0,"message":{"role":"assistant","content":"${text}"},"finish_reason":"stop"}],${USAGE} ,"model":"${model}","created":1.0}`;

async function ask(
  script: Script,
  more: Readonly<Record<string, unknown>> = {},
): Promise<{ status: number; headers: Headers; body: Buffer }> {
  upstream.next(script);
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(chatRequest({ model: 'test-model', ...more })),
  });
  const body = Buffer.from(await response.arrayBuffer());
  return { status: response.status, headers: response.headers, body };
}

const digest = (bytes: Buffer | string) => createHash('sha256').update(bytes).digest('hex');

const chunked =
  (body: Buffer, size: number): Script =>
  async (c) => {
    await c.head(200, { 'content-type': 'application/json', 'transfer-encoding': 'chunked' });
    for (let at = 0; at < body.length; at += size) await c.chunk(body.subarray(at, at + size));
    await c.lastChunk();
  };

test.each<[string, Script]>([
  ['of a known length', json(200, answerOf('upstream-model'))],
  ['in chunks of many sizes', chunked(Buffer.from(answerOf('upstream-model')), 99_991)],
  [
    'as gzip',
    async (c) => {
      const body = gzipSync(answerOf('upstream-model'), { level: 1 });
      const type = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
      await c.head(200, { ...type, 'content-length': body.length });
      await c.send(body);
    },
  ],
])('20 MiB %s', async (_, script) => {
  const { status, headers, body } = await ask(script);
  const expected = answerOf('test-model');
  expect(status).toBe(200);
  expect(headers.get('content-length')).toBe(String(expected.length));
  expect(digest(body)).toBe(digest(expected));
});

test('one behind a byte order mark keeps it', async () => {
  const text = textOf(MIB);
  const { status, body } = await ask(json(200, `\ufeff${answerOf('upstream-model', text)}`));
  expect(status).toBe(200);
  expect(digest(body)).toBe(digest(`\ufeff${answerOf('test-model', text)}`));
});

test.each([
  ['on one line', ' '],
  ['on several lines', '\r\n'],
])('one %s becomes the stream that was asked for', async (_, space) => {
  const asked = { stream: true, stream_options: { include_usage: true } };
  const text = answerOf('upstream-model').replaceAll(/(?<=[,{[])(?=")/g, space);
  const { status, headers, body } = await ask(json(200, text), asked);
  const [said = '', finish = '', usage = '', ...rest] = body.toString().split('\n\n');
  expect([status, headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8']);
  expect(headers.get('content-length')).toBe(String(body.length));
  const common = { id: 'x', model: 'test-model', created: 1, object: 'chat.completion.chunk' };
  const choice = { index: 0, finish_reason: null };
  const parsed = (event: string): unknown => {
    expect(event.startsWith('data: ')).toBe(true);
    return JSON.parse(event.slice('data: '.length));
  };
  const content = JSON.stringify(LONG);
  // Compared as text, and not shown where it differs.
  expect(said.includes(content) && !said.includes('\n')).toBe(true);
  expect(parsed(said.replace(content, '"LONG"'))).toEqual({
    ...common,
    choices: [{ ...choice, delta: { role: 'assistant', content: 'LONG' } }],
  });
  expect(parsed(finish)).toEqual({ ...common, choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
  expect(parsed(usage)).toEqual({
    ...common,
    choices: [],
    usage: { prompt_tokens: 11, completion_tokens: 22, total_tokens: 33 },
  });
  expect(rest).toEqual(['data: [DONE]', '']);
});

test.each([
  ['that is cut, with the length of what is there', answerOf('upstream-model', textOf(MIB)).slice(0, -1)],
  ['with bytes behind it', `${answerOf('upstream-model', textOf(MIB))}]`],
  ['that is no object', `["${textOf(MIB)}"]`],
])('one %s is no answer', async (_, text) => {
  const { status, body } = await ask(json(200, text));
  expect(status).toBe(502);
  expect(JSON.parse(body.toString())).toMatchObject({ error: { code: 'upstream_invalid_response' } });
});

test('one that is an error in a 200 is told as the error that it is', async () => {
  const error = `{"error":{"message":"${textOf(MIB)}","type":"server_error","code":500}}`;
  const { status } = await ask(json(200, error));
  expect(status).toBeGreaterThanOrEqual(500);
});

test('a client that reads slowly gets all of it, and one that leaves costs nothing more', async () => {
  const hear = (onPiece: (piece: Buffer, leave: () => void) => Promise<void>) => {
    upstream.next(json(200, answerOf('upstream-model')));
    return new Promise<string>((resolve) => {
      const sent = httpRequest(`${gateway.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      });
      sent.once('response', async (response) => {
        const hash = createHash('sha256');
        try {
          for await (const piece of response) {
            hash.update(piece);
            await onPiece(piece, () => sent.destroy());
          }
          resolve(hash.digest('hex'));
        } catch {
          resolve('left');
        }
      });
      sent.end(JSON.stringify(chatRequest({ model: 'test-model' })));
    });
  };
  let read = 0;
  const slow = hear(async () => {
    read += 1;
    // Now and then long enough for everything on the way to be full.
    if (read % 40 === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  });
  expect(await slow).toBe(digest(answerOf('test-model')));
  expect(await hear(async (_, leave) => leave())).toBe('left');
  await until(() => gateway.app.inFlight === 0 || undefined, 'the end of all');
  // Nobody holds the memory of an answer any more: it is kept for the next one.
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  const kept = Number(/^tollgate_body_memory_bytes (\d+)/m.exec(metrics)?.[1]);
  expect(kept).toBeGreaterThanOrEqual(20 * MIB);
  expect(kept).toBeLessThanOrEqual(128 * MIB);
  // The road is free.
  expect((await ask(json(200, answerOf('upstream-model', 'short')))).status).toBe(200);
});
