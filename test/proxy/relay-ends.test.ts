// How a stream can end, and that its client can always tell: whole answers end cleanly, broken ones never do.
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ErrorCode } from '../../src/errors.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunkBytes,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  SSE_HEADERS,
  type Step,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';

let upstream: HostileUpstream;
let gateway: Gateway;
const STREAM = chatRequest({ stream: true });

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
  await gateway.key();
});

afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

const own = { model: 'test-model' };
const TWO = [frame(contentChunk('one', own)), frame(contentChunk('two', own))];
const FINISH = frame(finishChunk('stop', own));
const ERROR = 'data: {"error":{"message":"overloaded","type":"server_error","code":"x"}}\n\n';

/** The frames, seen by the client before the script goes on to its end. */
const ending =
  (frames: readonly string[], end: Step, headers: Record<string, string> = SSE_HEADERS): Step =>
  async (c) => {
    const isChunked = headers['transfer-encoding'] === 'chunked';
    await c.head(200, headers);
    for (const each of frames) await c.send(isChunked ? chunkBytes(each) : each);
    await c.wait(30);
    await end(c);
  };

async function relayed(script: Step, body: object = STREAM): Promise<RawResponse> {
  upstream.next(script);
  return await gateway.chat(body);
}

const errorFrame = (code: string) =>
  new RegExp(
    `data: \\{"error":\\{"message":"[^"]+","type":"server_error","param":null,"code":"${code}"\\}\\}\\n\\n$`,
  );

/** The frames, then our error, then no final chunk; and the log and the metrics know. */
async function expectBroken(response: RawResponse, frames: string, code: string): Promise<void> {
  expect(response.text()).toMatch(errorFrame(code));
  expect(response.text().slice(0, response.text().lastIndexOf('data: {"error"'))).toBe(frames);
  expect([response.status, response.complete]).toEqual([200, false]);
  expect(response.text()).not.toContain('[DONE]');
  expect(response.text()).not.toMatch(/127\.0\.0\.1|ECONN|other side/);
  expect(await gateway.accessLine(response)).toMatchObject({ outcome: code, status: 200, upstream: 'up' });
  expect(
    await gateway.metric(`tollgate_streams_broken_total{upstream="up",cause="${code}"}`),
  ).toBeGreaterThan(0);
  await until(async () => (await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')) === 0);
}

async function expectWhole(response: RawResponse, text: string): Promise<void> {
  expect([response.text(), response.complete]).toEqual([text, true]);
  expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'ok', status: 200 });
}

describe('a stream that breaks after its first output', () => {
  const length = { 'content-type': 'text/event-stream', 'content-length': '5000' };
  const close = { 'content-type': 'text/event-stream', connection: 'close' };

  test.each<[string, Step]>([
    ['by a reset', ending(TWO, (c) => c.reset())],
    ['by a close without the last chunk', ending(TWO, (c) => c.close())],
    ['by a reset within a frame', ending([...TWO, 'data: {"choi'], (c) => c.reset())],
    ['by a close within a frame', ending([...TWO, 'data: {"choi'], (c) => c.close())],
    [
      'by a close within a chunk of the coding',
      ending(TWO, async (c) => {
        await c.send('ff\r\ndata: {"choices');
        c.close();
      }),
    ],
    ['by a clean end without a finish reason or [DONE]', ending(TWO, (c) => c.lastChunk())],
    ['by a clean end within a frame', ending([...TWO, 'data: {"choi'], (c) => c.lastChunk())],
    [
      'by a clean end without the blank line of a frame',
      ending([...TWO, `${frame(contentChunk('3', own)).trimEnd()}\n`], (c) => c.lastChunk()),
    ],
    ['short of its length', ending(TWO, (c) => c.close(), length)],
    ['by a reset short of its length', ending(TWO, (c) => c.reset(), length)],
    ['by the end of a connection that frames it', ending(TWO, (c) => c.close(), close)],
    ['by a reset of a connection that frames it', ending(TWO, (c) => c.reset(), close)],
    ['by a reset after its finish reason', ending([...TWO, FINISH], (c) => c.reset())],
  ])('%s', async (_name, script) => {
    const frames =
      _name.includes('finish reason') && _name.includes('after') ? TWO.join('') + FINISH : TWO.join('');
    await expectBroken(await relayed(script), frames, 'stream_incomplete');
  });

  test.each<[string, Step, ErrorCode]>([
    [
      'bytes that are no chunk',
      ending(TWO, (c) => c.send('zz\r\nnot a chunk\r\n')),
      'upstream_invalid_response',
    ],
    [
      'an event of more than 32 MiB',
      ending(TWO, async (c) => {
        const piece = 'x'.repeat(1024 * 1024);
        for (let i = 0; i < 33; i++) await c.chunk(i === 0 ? `data: ${piece}` : piece);
        await c.silence();
      }),
      'upstream_unusable_response',
    ],
  ])('by %s', async (_name, script, code) => {
    await expectBroken(await relayed(script), TWO.join(''), code);
  });

  test('keeps the usage that was seen', async () => {
    const running =
      '{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}';
    const response = await relayed(ending([`data: ${running}\n\n`], (c) => c.reset()));
    expect(await gateway.accessLine(response)).toMatchObject({ prompt_tokens: 3, completion_tokens: 1 });
  });
});

describe('an error frame of the upstream in a stream that has begun', () => {
  test.each<[string, Step]>([
    ['a reset', ending([...TWO, ERROR], (c) => c.reset())],
    ['a close', ending([...TWO, ERROR], (c) => c.close())],
  ])('is forwarded as it is, with nothing behind it, before %s', async (_name, script) => {
    const response = await relayed(script);
    expect([response.text(), response.complete]).toEqual([TWO.join('') + ERROR, false]);
    expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'upstream_error', status: 200 });
  });

  test.each<[string, Step]>([
    ['its final chunk', ending([...TWO, ERROR], (c) => c.lastChunk())],
    [
      'the end of a connection that frames it',
      ending([...TWO, ERROR], (c) => c.close(), { 'content-type': 'text/event-stream', connection: 'close' }),
    ],
  ])('ends as cleanly as the upstream did, by %s', async (_name, script) => {
    const response = await relayed(script);
    expect([response.text(), response.complete]).toEqual([TWO.join('') + ERROR, true]);
    expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'upstream_error', status: 200 });
  });

  test('and the [DONE] that some send behind it', async () => {
    const response = await relayed(ending([...TWO, ERROR, DONE], (c) => c.lastChunk()));
    expect([response.text(), response.complete]).toEqual([TWO.join('') + ERROR + DONE, true]);
    expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'upstream_error' });
  });

  test('beside a finish reason is an error all the same', async () => {
    const chunk =
      'data: {"id":"x","error":{"code":"server_error","message":"gone"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}\n\n';
    const response = await relayed(ending([...TWO, chunk], (c) => c.lastChunk()));
    expect([response.text(), response.complete]).toEqual([TWO.join('') + chunk, true]);
    expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'upstream_error' });
  });

  test('of `event: error` counts too', async () => {
    const event = 'event: error\ndata: {"message":"gone"}\n\n';
    const response = await relayed(ending([...TWO, event], (c) => c.lastChunk()));
    expect([response.text(), response.complete]).toEqual([TWO.join('') + event, true]);
    expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'upstream_error' });
  });

  test('keeps usage and is counted', async () => {
    const usage = frame(usageChunk({ prompt: 3, completion: 2 }, own));
    const response = await relayed(ending([...TWO, usage, ERROR], (c) => c.lastChunk()));
    expect(await gateway.accessLine(response)).toMatchObject({ prompt_tokens: 3, completion_tokens: 2 });
    expect(
      await gateway.metric('tollgate_streams_broken_total{upstream="up",cause="upstream_error"}'),
    ).toBeGreaterThan(0);
  });
});

describe('a stream is whole', () => {
  const whole = [...TWO, FINISH, DONE];

  test.each<[string, Step]>([
    ['with a final chunk', ending(whole, (c) => c.lastChunk())],
    ['with a reset behind [DONE]', ending(whole, (c) => c.reset())],
    ['with a close behind [DONE]', ending(whole, (c) => c.close())],
    ['with garbage behind [DONE]', ending(whole, (c) => c.send('zzz\r\n'))],
    ['with silence behind [DONE]', ending(whole, (c) => c.silence())],
    ['with more frames behind [DONE]', ending([...whole, ...TWO], (c) => c.lastChunk())],
    [
      'with its length exceeded',
      ending([...whole, 'more'], (c) => c.close(), {
        'content-type': 'text/event-stream',
        'content-length': String(whole.join('').length),
      }),
    ],
    ['framed by the connection', ending(whole, (c) => c.close(), { 'content-type': 'text/event-stream' })],
  ])('%s', async (_name, script) => {
    await expectWhole(await relayed(script), whole.join(''));
    expect(await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')).toBe(0);
  });

  test('with a finish reason and no [DONE], and ends as it came', async () => {
    await expectWhole(await relayed(ending([...TWO, FINISH], (c) => c.lastChunk())), TWO.join('') + FINISH);
  });

  test('with a [DONE] that lacks its blank line, which is passed as it came', async () => {
    const frames = [...TWO, FINISH, 'data: [DONE]'];
    await expectWhole(await relayed(ending(frames, (c) => c.lastChunk())), frames.join(''));
  });

  test.each([': bye\n', ': bye', ': bye\r\n: bye'])(
    'with the comment %j behind the finish reason that lacks its blank line',
    async (comment) => {
      const frames = [...TWO, FINISH, comment];
      await expectWhole(await relayed(ending(frames, (c) => c.lastChunk())), frames.join(''));
    },
  );

  test.each([': bye\nda', ': bye\r\n: bye\nd'])(
    'with %j behind the finish reason, which could be torn data and is left out',
    async (rest) => {
      const frames = [...TWO, FINISH];
      await expectWhole(await relayed(ending([...frames, rest], (c) => c.lastChunk())), frames.join(''));
    },
  );

  test('with a torn usage frame behind the finish reason, which is left out', async () => {
    await expectWhole(
      await relayed(ending([...TWO, FINISH, 'data: {"choices":[],"usage":{"pro'], (c) => c.lastChunk())),
      TWO.join('') + FINISH,
    );
  });

  test('with nothing but [DONE]', async () => {
    await expectWhole(await relayed(ending([DONE], (c) => c.lastChunk())), DONE);
  });

  test('and its connection is used again', async () => {
    // One of its own: connections to an upstream that sent bytes behind an answer are not kept.
    await using sound = await HostileUpstream.start(ending(whole, (c) => c.lastChunk()));
    await using fresh = await startGateway({ upstreams: { up: sound.baseUrl } });
    for (let i = 0; i < 8; i++) {
      const response = await fresh.chat(STREAM);
      expect([response.complete, response.text()]).toEqual([true, whole.join('')]);
      // The client has its end before the gateway has the upstream's.
      await until(() => sound.answering === 0);
    }
    expect(sound.connections).toBeLessThanOrEqual(3);
  });

  test('and the connection of an upstream that never ends is closed', async () => {
    const index = upstream.requests.length;
    await expectWhole(await relayed(ending(whole, (c) => c.silence())), whole.join(''));
    expect(await (await upstream.request(index)).closed).toMatchObject({ by: 'peer' });
  });
});

describe('a client of HTTP/1.0, where the end of the connection is the end of the answer', () => {
  /** All bytes, and whether the connection ended with FIN or RST. */
  async function old(script: Step): Promise<{ text: string; end: string }> {
    upstream.next(script);
    const key = await gateway.key();
    const body = JSON.stringify(STREAM);
    const { port } = new URL(gateway.url);
    return await new Promise((resolve) => {
      const socket = connect(Number(port), '127.0.0.1');
      let text = '';
      socket.on('data', (bytes: Buffer) => (text += bytes.toString()));
      socket.on('error', (error: Error & { code?: string }) => resolve({ text, end: error.code ?? 'error' }));
      socket.on('end', () => resolve({ text, end: 'fin' }));
      socket.write(
        `POST /v1/chat/completions HTTP/1.0\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      );
    });
  }

  test('reads a whole stream up to a FIN, without chunks', async () => {
    const { text, end } = await old(ending([...TWO, FINISH, DONE], (c) => c.lastChunk()));
    expect(text.slice(text.indexOf('\r\n\r\n') + 4)).toBe([...TWO, FINISH, DONE].join(''));
    expect([end, /transfer-encoding/i.test(text)]).toEqual(['fin', false]);
  });

  test.each<[string, Step]>([
    ['breaks', ending(TWO, (c) => c.reset())],
    ['is incomplete', ending(TWO, (c) => c.lastChunk())],
    ['has an error', ending([...TWO, ERROR], (c) => c.reset())],
  ])('gets a reset when it %s', async (_name, script) => {
    const { text, end } = await old(script);
    expect(end).toBe('ECONNRESET');
    expect(text).toContain('"error"');
  });
});
