// Upstreams that code their answers although they were asked not to: the client, which asked for nothing, reads plain bytes.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Transform } from 'node:stream';
import * as zlib from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  DONE,
  defaultStream,
  frame,
  HostileUpstream,
  type Step,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import { RawClient, type RawResponse } from '../helpers/raw-client.ts';
import { pause, until } from '../helpers/wait.ts';

let upstream: HostileUpstream;
let gateway: Gateway;
const STREAM = chatRequest({ stream: true });

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({
    upstreams: { up: upstream.baseUrl },
    // One attempt: a second one would get the upstream's usual answer.
    config: {
      upstreams: { up: { timeouts: { idle: '60s' } } },
      retry: { attempts: 1 },
      // On a busy machine it takes longer than the default to read a bomb.
      stream: { commit_after: '60s' },
    },
  });
  await gateway.key();
});

afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

interface Coding {
  readonly all: (bytes: Buffer) => Buffer;
  readonly stream: () => Transform & { flush?: (callback: () => void) => void };
}

const CODINGS: Record<string, Coding> = {
  gzip: { all: (bytes) => zlib.gzipSync(bytes), stream: () => zlib.createGzip() },
  'x-gzip': { all: (bytes) => zlib.gzipSync(bytes), stream: () => zlib.createGzip() },
  deflate: { all: (bytes) => zlib.deflateSync(bytes), stream: () => zlib.createDeflate() },
  'raw deflate': { all: (bytes) => zlib.deflateRawSync(bytes), stream: () => zlib.createDeflateRaw() },
  br: { all: (bytes) => zlib.brotliCompressSync(bytes), stream: () => zlib.createBrotliCompress() },
  zstd: { all: (bytes) => zlib.zstdCompressSync(bytes), stream: () => zlib.createZstdCompress() },
};

/** All that the coder has ready. */
function ready(coder: Transform): Buffer {
  const pieces: Buffer[] = [];
  for (let piece: Buffer | null = coder.read(); piece !== null; piece = coder.read()) pieces.push(piece);
  return Buffer.concat(pieces);
}

const headerOf = (name: string) => (name === 'raw deflate' ? 'deflate' : name);
const codingOf = (name: string): Coding => {
  const coding = CODINGS[name];
  if (coding === undefined) throw new Error(`no coding ${name}`);
  return coding;
};

const answerWith =
  (status: number, type: string, coding: string, bytes: Buffer): Step =>
  async (c) => {
    await c.head(status, {
      'content-type': type,
      'content-encoding': coding,
      'content-length': bytes.length,
    });
    await c.send(bytes);
  };

async function relayed(script: Step, body: object = STREAM): Promise<RawResponse> {
  upstream.next(script);
  return await gateway.chat(body, { headers: { 'accept-encoding': 'gzip, br, zstd' } });
}

describe.each(Object.keys(CODINGS))('%s', (name) => {
  const header = headerOf(name);
  const { all, stream } = codingOf(name);

  test('of a JSON answer is undone', async () => {
    const text = JSON.stringify(completion());
    const response = await relayed(
      answerWith(200, 'application/json', header, all(Buffer.from(text))),
      chatRequest(),
    );
    const expected = text.replace('upstream-model', 'test-model');
    expect([response.status, response.text()]).toEqual([200, expected]);
    expect([response.header('content-encoding'), response.header('content-length')]).toEqual([
      undefined,
      String(expected.length),
    ]);
  });

  test('of an error is undone', async () => {
    const text = '{"error":{"message":"m","type":"t"}}';
    const response = await relayed(
      answerWith(429, 'application/json', header, all(Buffer.from(text))),
      chatRequest(),
    );
    expect([response.status, response.text(), response.header('content-encoding')]).toEqual([
      429,
      text,
      undefined,
    ]);
  });

  test('of a stream is undone frame by frame, as they come', async () => {
    using client = await gateway.connect();
    const coder = stream();
    const frames = [...defaultStream({ usage: true }).map(frame), DONE];
    upstream.next(async (c) => {
      await c.head(200, {
        'content-type': 'text/event-stream',
        'content-encoding': header,
        'transfer-encoding': 'chunked',
      });
      const flushed = async (text: string) => {
        coder.write(text);
        await new Promise<void>((resolve) => (coder.flush ? coder.flush(resolve) : resolve()));
        // One byte per chunk: the coding does not end where segments end.
        for (const byte of ready(coder)) await c.chunk(Buffer.of(byte));
      };
      for (const [index, each] of frames.entries()) {
        await flushed(each);
        const seen = index === 1 ? 'Hello' : index === 2 ? ' world' : undefined;
        if (seen !== undefined) await c.waitFor(() => client.received.bytes.includes(seen));
      }
      coder.end();
      await once(coder, 'readable');
      await c.chunk(ready(coder));
      await c.lastChunk();
    });
    const response = await client.ask({
      headers: { authorization: `Bearer ${await gateway.key()}` },
      body: STREAM,
    });
    expect([response.text(), response.complete, response.header('content-encoding')]).toEqual([
      [...defaultStream({ usage: true, model: 'test-model' }).slice(0, -1).map(frame), DONE].join(''),
      true,
      undefined,
    ]);
    expect(await gateway.accessLine(response)).toMatchObject({
      outcome: 'ok',
      prompt_tokens: 3,
      completion_tokens: 5,
    });
  });

  test('that is damaged is a 502', async () => {
    const bytes = all(Buffer.from(JSON.stringify(completion())));
    for (const bad of [bytes.subarray(0, bytes.length - 12), Buffer.from('not coded at all')]) {
      const response = await relayed(answerWith(200, 'application/json', header, bad), chatRequest());
      expect([response.status, response.json()]).toMatchObject([
        502,
        { error: { code: 'upstream_invalid_response' } },
      ]);
    }
  });
});

test('a stream that is cut within its coding is broken, and all that came is there', async () => {
  const frames = [
    frame(contentChunk('one', { model: 'test-model' })),
    frame(contentChunk('two', { model: 'test-model' })),
  ];
  const coder = zlib.createGzip();
  coder.write(frames.join(''));
  await new Promise<void>((resolve) => coder.flush(() => resolve()));
  const bytes = ready(coder);
  for (const end of ['reset', 'close', 'lastChunk'] as const) {
    const response = await relayed(async (c) => {
      await c.head(200, {
        'content-type': 'text/event-stream',
        'content-encoding': 'gzip',
        'transfer-encoding': 'chunked',
      });
      await c.chunk(bytes);
      await c.wait(30);
      await c[end]();
    });
    expect(response.text().startsWith(frames.join(''))).toBe(true);
    expect(response.text()).toMatch(/"code":"(stream_incomplete|upstream_invalid_response)"\}\}\n\n$/);
    expect(response.complete).toBe(false);
  }
  coder.destroy();
});

test('a stream that is cut behind [DONE], within its coding, is whole', async () => {
  const text = [frame(contentChunk('one', { model: 'test-model' })), frame(usageChunk()), DONE].join('');
  const bytes = zlib.gzipSync(text);
  const response = await relayed(async (c) => {
    await c.head(200, {
      'content-type': 'text/event-stream',
      'content-encoding': 'gzip',
      'transfer-encoding': 'chunked',
    });
    await c.chunk(bytes.subarray(0, bytes.length - 6));
    await c.lastChunk();
  });
  expect([response.text().endsWith(DONE), response.complete]).toEqual([true, true]);
});

test('identity is no coding', async () => {
  const text = Buffer.from(JSON.stringify(completion()));
  const response = await relayed(answerWith(200, 'application/json', 'identity', text), chatRequest());
  expect(response.status).toBe(200);
});

test('several codings, or one that nobody knows, are a 502', async () => {
  const bytes = zlib.gzipSync(JSON.stringify(completion()));
  for (const coding of ['gzip, gzip', 'foo', 'compress']) {
    const response = await relayed(answerWith(200, 'application/json', coding, bytes), chatRequest());
    expect(response.status).toBe(502);
  }
});

describe('a bomb', () => {
  const unit = Buffer.alloc(64 * 1024, ' ');

  test('as JSON is refused at a bound', async () => {
    const bytes = zlib.gzipSync(
      Buffer.concat([Buffer.from('{"a":"'), Buffer.alloc(80 * 1024 * 1024, 'x'), Buffer.from('"}')]),
    );
    expect(bytes.length).toBeLessThan(200_000);
    const response = await relayed(answerWith(200, 'application/json', 'gzip', bytes), chatRequest());
    expect(response.status).toBe(406);
  });

  test('as an error is refused at a bound, with its status', async () => {
    const bytes = zlib.gzipSync(Buffer.alloc(50 * 1024 * 1024, 'x'));
    const response = await relayed(answerWith(500, 'application/json', 'gzip', bytes), chatRequest());
    expect([response.status, response.json()]).toMatchObject([500, { error: { code: 'upstream_error' } }]);
  });

  test('as one event is refused at a bound', async () => {
    const bytes = zlib.gzipSync(
      Buffer.concat([Buffer.from('data: '), ...Array.from({ length: 600 }, () => unit)]),
    );
    const response = await relayed(answerWith(200, 'text/event-stream', 'gzip', bytes));
    expect(response.status).toBe(406);
  });

  test('as many events waits for a client that does not read', async () => {
    const line = frame(contentChunk('x'.repeat(1000), { model: 'test-model' }));
    const many = Buffer.from(line.repeat(40_000) + DONE);
    const bytes = zlib.gzipSync(many);
    upstream.next(answerWith(200, 'text/event-stream', 'gzip', bytes));
    using client = await RawClient.connect(gateway.url, { keep: false });
    await client.send({ headers: { authorization: `Bearer ${await gateway.key()}` }, body: STREAM });
    const response = await client.responseHead();
    client.pause();
    const before = process.memoryUsage().rss;
    let most = 0;
    const end = performance.now() + 1_500;
    await until(() => {
      most = Math.max(most, process.memoryUsage().rss - before);
      return performance.now() > end;
    });
    // 44 MB of events wait in a few kilobytes of code.
    expect(most).toBeLessThan(30 * 1024 * 1024);
    client.resume();
    await response.ended;
    expect([response.complete, response.body.equals(many)]).toEqual([true, true]);
  });
});

test('a client that does not read stops an upstream that codes', async () => {
  // Random text hardly gets smaller, so it is the coded bytes that would pile up.
  const lines = Array.from({ length: 400 }, () =>
    frame(contentChunk(randomBytes(48 * 1024).toString('base64'), { model: 'test-model' })),
  );
  const whole = Buffer.from(lines.join('') + DONE);
  const bytes = zlib.gzipSync(whole, { level: 1 });
  upstream.next(answerWith(200, 'text/event-stream', 'gzip', bytes));
  const index = upstream.requests.length;
  using client = await RawClient.connect(gateway.url, { keep: false });
  await client.send({ headers: { authorization: `Bearer ${await gateway.key()}` }, body: STREAM });
  const response = await client.responseHead();
  client.pause();
  const request = await upstream.request(index);
  let last = -1;
  await until(async () => {
    await pause(300);
    const stuck = request.bytesSent === last;
    last = request.bytesSent;
    return stuck;
  });
  expect(request.bytesSent).toBeLessThan(bytes.length);
  client.resume();
  await response.ended;
  expect([response.complete, response.body.equals(whole)]).toEqual([true, true]);
});
