// A stream through a live gateway: its bytes whatever the segments, its times, and pressure in both directions.
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunkBytes,
  contentChunk,
  DONE,
  defaultStream,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  roleChunk,
  SSE_HEADERS,
  type Step,
  toolChunk,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import { RawClient, type RawResponse } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';

let upstream: HostileUpstream;
let gateway: Gateway;
const STREAM = chatRequest({ stream: true });
const ALIAS = { model: 'test-model' };

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
  await gateway.key();
});

afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

/** The frames as the upstream writes them, and as the client must read them. */
interface Transcript {
  readonly sent: Buffer;
  readonly read: Buffer;
}

/** One of everything: characters of two to four bytes, comments, tool calls, a chunk that needs no change, usage. */
function transcript(eol = '\n'): Transcript {
  const chunks = (model: string, usage: boolean) => [
    ': OPENROUTER PROCESSING\n\n',
    frame(roleChunk({ model })),
    frame(contentChunk('héllo, 名前 😀 \u2028', { model })),
    `: a comment\ndata: {"id":"x","choices":[{"index":0,"delta":{"content":"\\ud83d\\ude00 1.0"}}],"model" : "${model}","created":12345678901234567890}\n: behind\n\n`,
    frame(toolChunk({ index: 0, id: 'call_1', name: 'f', arguments: '' }, { model })),
    frame(toolChunk({ index: 0, arguments: '{"a"' }, { model })),
    'data:{"choices":[{"delta":{"content":null,"reasoning_content":"r"}}],"usage":null}\n\n',
    ...(usage ? ['retry: 3000\n\n', 'id: 1\n\n'] : []),
    ': ping\n\n\n\n',
    frame(finishChunk('stop', { model })),
    ...(usage ? [frame(usageChunk({ prompt: 3, completion: 5 }, { model }))] : []),
    DONE,
  ];
  const bytes = (list: string[]) => Buffer.from(list.join('').replaceAll('\n', eol));
  return { sent: bytes(chunks('upstream-model', true)), read: bytes(chunks('test-model', false)) };
}

const ssh = (...steps: Step[]): Step[] => [head(200, SSE_HEADERS), ...steps];

/** The stream as one chunk of the coding per piece, each in its own segment. */
const inPieces =
  (bytes: Buffer, cuts: readonly number[]): Step =>
  async (c) => {
    await c.head(200, SSE_HEADERS);
    let from = 0;
    for (const to of [...cuts, bytes.length]) {
      if (to > from) await c.chunk(bytes.subarray(from, to));
      from = to;
      await c.wait(0);
    }
    await c.lastChunk();
  };

async function relayed(script: Step | Step[], body: object = STREAM): Promise<RawResponse> {
  upstream.next(script);
  return await gateway.chat(body);
}

async function tokens(response: RawResponse): Promise<unknown[]> {
  const line = await gateway.accessLine(response);
  return [line['outcome'], line['prompt_tokens'], line['completion_tokens']];
}

describe('the bytes of a stream', () => {
  test.each([
    ['LF', '\n'],
    ['CRLF', '\r\n'],
    ['CR', '\r'],
  ])('are the same when every byte is a segment, with %s', async (_name, eol) => {
    const { sent, read } = transcript(eol);
    const cuts = Array.from({ length: sent.length - 1 }, (_, index) => index + 1);
    const response = await relayed(inPieces(sent, cuts));
    expect(response.text()).toBe(read.toString());
    expect(response.complete).toBe(true);
    expect(await tokens(response)).toEqual(['ok', 3, 5]);
  });

  test('are the same when each segment is a byte on the wire, chunk framing and all', async () => {
    const { sent, read } = transcript('\r\n');
    const response = await relayed(async (c) => {
      await c.head(200, SSE_HEADERS);
      for (let at = 0; at < sent.length; at += 40) await c.drip(chunkBytes(sent.subarray(at, at + 40)));
      await c.drip('0\r\n\r\n');
    });
    expect(response.body.equals(read)).toBe(true);
  });

  test('are the same for any split, and so is the usage', async () => {
    const runs = Math.min(Number(process.env['FUZZ_RUNS'] ?? 40), 2_000);
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom('\n', '\r\n', '\r'),
        fc.array(fc.integer({ min: 0, max: 999_999 }), { maxLength: 30 }),
        async (eol, places) => {
          const { sent, read } = transcript(eol);
          const cuts = places.map((place) => Math.floor((place / 1e6) * sent.length)).sort((a, b) => a - b);
          const response = await relayed(inPieces(sent, cuts));
          expect(response.text()).toBe(read.toString());
          expect(await tokens(response)).toEqual(['ok', 3, 5]);
        },
      ),
      { numRuns: runs },
    );
  });

  test('hold invalid UTF-8 as it came, and no replacement character', async () => {
    const bad = Buffer.concat([
      Buffer.from('data: {"choices":[{"delta":{"content":"a'),
      Buffer.from([0xff, 0xc3, 0x28, 0xe5, 0x8c]),
      Buffer.from('"}}]}\n\n'),
    ]);
    const sent = Buffer.concat([bad, Buffer.from(frame(finishChunk())), Buffer.from(DONE)]);
    const response = await relayed(inPieces(sent, [42, 44]), chatRequest({ stream: true }));
    expect(response.body.subarray(0, bad.length).equals(bad)).toBe(true);
    expect(response.text().match(/\ufffd/g)?.length).toBe(bad.toString().match(/\ufffd/g)?.length);
    expect(response.complete).toBe(true);
  });

  test('of two hundred frames in one write are all there, in order', async () => {
    const all = Array.from({ length: 200 }, (_, index) => frame(contentChunk(`${index} `)));
    const sent = Buffer.from([...all, frame(finishChunk()), DONE].join(''));
    const response = await relayed(inPieces(sent, []));
    expect(response.text()).toBe(sent.toString().replaceAll('upstream-model', 'test-model'));
  });

  test('keep a `[DONE]` if it was sent, and get none if not', async () => {
    const frames = [frame(contentChunk('x', ALIAS)), frame(finishChunk('stop', ALIAS))].join('');
    const without = await relayed(inPieces(Buffer.from(frames), []));
    expect([without.text(), without.complete]).toEqual([frames, true]);
    const withIt = await relayed(inPieces(Buffer.from(frames + DONE), []));
    expect([withIt.text(), withIt.complete]).toEqual([frames + DONE, true]);
  });

  test('are framed by the gateway, whatever the length that the upstream gave', async () => {
    const body = Buffer.from([...defaultStream().map(frame), DONE].join(''));
    const response = await relayed([
      head(200, { 'content-type': 'text/event-stream', 'content-length': body.length }),
      (c) => c.send(body),
    ]);
    expect([response.framing, response.header('content-length'), response.complete]).toEqual([
      'chunked',
      undefined,
      true,
    ]);
    expect(response.text()).toBe(body.toString().replaceAll('upstream-model', 'test-model'));
  });

  test('have the headers of a stream that must not be buffered, and no line but data, comments and blanks', async () => {
    const response = await relayed(
      ssh(async (c) => {
        for (const each of [...defaultStream().map(frame), DONE]) await c.chunk(each);
        await c.lastChunk();
      }),
    );
    const fields = Object.fromEntries(response.headers);
    expect(fields).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
    });
    expect(response.text()).not.toMatch(/^(id|retry|event):/m);
  });
});

describe('lines that a chat stream does not have', () => {
  const X = frame(contentChunk('x', ALIAS));
  const chunk = (model: string) => `{"choices":[{"delta":{"content":"y"}}],"model":"${model}"}`;
  const END = frame(finishChunk('stop', ALIAS)) + DONE;

  test.each([
    ['a lone retry', `retry: 3000\n\n${X}`, X],
    ['a lone id', `${X}id: 1\n\n${X}`, X + X],
    ['an event without data', `${X}event: ping\n\n`, X],
    ['an event whose data is empty', `data:\n\n${X}event: ping\ndata: \n\ndata\n\n`, X],
    ['empty data beside a comment', `: c\ndata:\n\n${X}`, `: c\n\n${X}`],
    ['a byte order mark', `\ufeff${X}`, X],
    ['a byte order mark before a comment', `\ufeff: c\n\n${X}`, `: c\n\n${X}`],
    ['an id with data', `id: 7\n${X}`, X],
    [
      'an id behind data, and the model',
      `data: ${chunk('upstream-model')}\nid\nretry:1\n\n`,
      `data: ${chunk('test-model')}\n\n`,
    ],
    [
      'an id between a comment and data',
      `: c\nid:1\ndata: ${chunk('upstream-model')}\n\n`,
      `: c\ndata: ${chunk('test-model')}\n\n`,
    ],
    ['a retry beside a comment', `: c\nretry: 1\n\n${X}`, `: c\n\n${X}`],
    [
      'an id behind a bare CR',
      `data: ${chunk('upstream-model')}\rid: 1\n\n`,
      `data: ${chunk('test-model')}\r\n\n`,
    ],
    ['no field that only begins like one', `identity: 1\n${X}`, `identity: 1\n${X}`],
    ['an event with data is kept', `event: message\n${X}`, `event: message\n${X}`],
  ])('%s', async (_name, sent, read) => {
    for (const eol of ['\n', '\r\n']) {
      if (eol === '\r\n' && sent.includes('\r')) continue;
      const bytes = Buffer.from((sent + END).replaceAll('\n', eol));
      const expected = (read + END).replaceAll('\n', eol);
      expect((await relayed(inPieces(bytes, []))).text()).toBe(expected);
      const each = Array.from({ length: bytes.length - 1 }, (_, index) => index + 1);
      expect((await relayed(inPieces(bytes, each))).text()).toBe(expected);
    }
  });
});

describe('usage that the gateway asked for', () => {
  const withUsage = Buffer.from([...defaultStream({ usage: true }).map(frame), DONE].join(''));
  const hidden = [...defaultStream({ usage: true, model: 'test-model' }).slice(0, -1).map(frame), DONE].join(
    '',
  );
  const shown = [...defaultStream({ usage: true, model: 'test-model' }).map(frame), DONE].join('');

  test.each<[string, object, string]>([
    ['no options', {}, hidden],
    ['include_usage false', { stream_options: { include_usage: false } }, hidden],
    ['empty options', { stream_options: {} }, hidden],
    ['include_usage true', { stream_options: { include_usage: true } }, shown],
  ])('is seen by the client as it wished: %s', async (_name, extra, expected) => {
    const response = await relayed(inPieces(withUsage, []), { ...STREAM, ...extra });
    expect(response.text()).toBe(expected);
    expect(await tokens(response)).toEqual(['ok', 3, 5]);
  });

  test.each([
    [
      'without choices',
      '{"id":"x","usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}',
      false,
    ],
    ['with null choices', '{"choices":null,"usage":{"prompt_tokens":3,"completion_tokens":5}}', false],
    [
      'in x_groq',
      '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":3,"completion_tokens":5}}}',
      true,
    ],
  ])('is metered %s', async (_name, data, visible) => {
    const start = [frame(contentChunk('x', ALIAS)), frame(finishChunk('stop', ALIAS))].join('');
    const response = await relayed(inPieces(Buffer.from(`${start}data: ${data}\n\n${DONE}`), []));
    expect(response.text()).toBe(visible ? `${start}data: ${data}\n\n${DONE}` : start + DONE);
    expect(await tokens(response)).toEqual(['ok', 3, 5]);
  });

  test('is the last of many, and not their sum', async () => {
    const running = (n: number) =>
      `{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":3,"completion_tokens":${n},"total_tokens":${3 + n}}}`;
    const zero = '{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}';
    const all = [running(1), running(2), running(5), zero].map((data) => `data: ${data}\n\n`);
    const response = await relayed(inPieces(Buffer.from([...all, frame(finishChunk()), DONE].join('')), []));
    expect(await tokens(response)).toEqual(['ok', 3, 5]);
  });
});

describe('the times of a stream', () => {
  test('each frame reaches the client before the upstream sends the next', async () => {
    using client = await gateway.connect();
    const seen: string[] = [];
    upstream.next(async (c) => {
      await c.head(200, SSE_HEADERS);
      for (let i = 0; i < 10; i++) {
        await c.chunk(frame(contentChunk(`piece-${i}`)));
        await c.waitFor(() => client.received.bytes.includes(`piece-${i}`));
        seen.push(`piece-${i}`);
      }
      await c.chunk(frame(finishChunk()));
      await c.waitFor(() => client.received.bytes.includes('"finish_reason":"stop"'));
      await c.chunk(DONE);
      // The client's answer ends with `[DONE]`, not with the upstream's last chunk.
      await c.waitFor(() => client.responses[0]?.complete);
      await c.lastChunk();
    });
    const headers = { authorization: `Bearer ${await gateway.key()}`, 'accept-encoding': 'gzip, br' };
    const response = await client.ask({ headers, body: STREAM });
    expect([response.complete, response.header('content-encoding')]).toEqual([true, undefined]);
    expect(seen).toHaveLength(10);
  });

  test('a frame is delivered at the byte that completes it, with CR too', async () => {
    using client = await gateway.connect();
    upstream.next(async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.chunk('data: {"choices":[{"delta":{"content":"first"}}]}\r\r');
      await c.waitFor(() => client.received.bytes.includes('"first"'));
      await c.chunk('data: {"choices":[{"delta":{"content":"second"}}]}\r\n\r');
      await c.waitFor(() => client.received.bytes.includes('"second"'));
      await c.chunk('\ndata: [DONE]\r\n\r');
      await c.waitFor(() => client.received.bytes.includes('[DONE]'));
      await c.chunk('\n');
      await c.lastChunk();
    });
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    const response = await client.ask({ headers, body: STREAM });
    expect(response.text()).toBe(
      'data: {"choices":[{"delta":{"content":"first"}}]}\r\rdata: {"choices":[{"delta":{"content":"second"}}]}\r\n\r\ndata: [DONE]\r\n\r\n',
    );
  });
});

describe('pressure', () => {
  test('a client that does not read stops the upstream, loses nothing, and costs little memory', async () => {
    const line = frame(contentChunk('x'.repeat(1000)));
    const total = 200 * 1024 * 1024;
    const count = Math.ceil(total / line.length);
    const block = Buffer.from(line.repeat(64));
    const asRead = Buffer.byteLength(line.replaceAll('upstream-model', 'test-model'));
    upstream.next(async (c) => {
      await c.head(200, { 'content-type': 'text/event-stream' });
      for (let i = 0; i < Math.ceil(count / 64); i++) await c.send(block);
      await c.send(frame(finishChunk()) + DONE);
      c.close();
    });
    using client = await RawClient.connect(gateway.url, { keep: false });
    const index = upstream.requests.length;
    await client.send({ headers: { authorization: `Bearer ${await gateway.key()}` }, body: STREAM });
    const response = await client.responseHead();
    client.pause();
    const memory = process.memoryUsage().rss;
    const request = await upstream.request(index);
    // Until the upstream has not been able to send anything for a while.
    let last = -1;
    await until(async () => {
      const before = request.bytesSent;
      await new Promise((resolve) => setTimeout(resolve, 300));
      const stuck = request.bytesSent === before && before === last;
      last = before;
      return stuck;
    });
    // What the kernel may hold on two connections, and a little; a gateway that reads on would have all of it.
    expect(request.bytesSent).toBeLessThan(2 * socketBuffers() + 8 * 1024 * 1024);
    expect(request.bytesSent).toBeLessThan(total);
    // Both ends of the test are in this process too.
    expect(process.memoryUsage().rss - memory).toBeLessThan(80 * 1024 * 1024);
    expect(await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')).toBe(1);
    client.resume();
    let seen = 0;
    let bad = 0;
    // Pieces are looked at and let go, so that the test itself does not hold 200 MB.
    await until(() => {
      const pieces = [...response.pieces];
      for (const { bytes } of pieces.slice(-1)) if (!bytes.includes('x') && bytes.length > 200) bad += 1;
      seen = pieces.length;
      return response.complete || client.fault !== undefined;
    });
    expect([client.fault, bad, seen > 0]).toEqual([undefined, 0, true]);
    expect(response.body.length).toBe(
      Math.ceil(count / 64) * 64 * asRead + Buffer.byteLength(frame(finishChunk('stop', ALIAS)) + DONE),
    );
    expect(await tokens(response)).toEqual(['ok', undefined, undefined]);
  });
});

/** The most bytes that the kernel keeps for one connection between its ends, by its own settings. */
function socketBuffers(): number {
  const most = (name: string) =>
    Number(readFileSync(`/proc/sys/net/ipv4/${name}`, 'utf8').trim().split(/\s+/)[2]);
  return most('tcp_rmem') + most('tcp_wmem');
}
