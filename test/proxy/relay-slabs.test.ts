// Large bodies of many requests at once, whose memory is used again: whatever upstreams do with a body, nobody ever reads a byte
// of another one, and who reads all of it reads it as it was sent.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { fleetingClock, startGateway } from '../helpers/gateway.ts';
import { until } from '../helpers/wait.ts';

const KINDS = ['whole', 'early', 'refuse', 'reset', 'slow', 'leave', 'hedge'] as const;
type Kind = (typeof KINDS)[number];

const ANSWER = JSON.stringify({
  id: 'x',
  object: 'chat.completion',
  created: 1,
  model: 'upstream-model',
  choices: [{ index: 0, message: { role: 'assistant', content: 'read' }, finish_reason: 'stop' }],
});
const STREAM =
  'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"upstream-model","choices":[{"index":0,"delta":{"content":"read"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n';

/** Body number `index`: no part of it stands in another one. */
function bodyOf(index: number, model: string, isStream: boolean): Buffer {
  const unit = `${index.toString(36)}-${createHash('sha256').update(`${index}`).digest('hex')}|`;
  const size = 400_000 + ((index * 7919) % 17) * 150_000;
  const text = unit.repeat(Math.ceil(size / unit.length));
  return Buffer.from(
    `{"messages":[{"role":"user","content":"${text}"}],"model":"${model}","stream":${isStream},"stream_options":{"include_usage":true}}`,
  );
}

function modelOf(kind: Kind): string {
  return kind === 'hedge' ? 'hedged' : 'plain';
}

/** What it has read of a body, and whether that was ever anything else than the body. */
class Reader implements AsyncDisposable {
  /** Numbers of the bodies that were read whole, and right. */
  readonly whole = new Set<number>();
  readonly wrong: string[] = [];
  readonly #server: Server;
  readonly #isFirst: boolean;
  readonly #sockets = new Set<Socket>();

  constructor(isFirst: boolean) {
    this.#isFirst = isFirst;
    this.#server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => {}).once('close', () => this.#sockets.delete(socket));
      this.#serve(socket);
    });
  }

  async start(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    const address: AddressInfo | string | null = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    return `http://127.0.0.1:${address.port}/v1`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #serve(socket: Socket): void {
    let head = '';
    let expected: Buffer | undefined;
    let index = -1;
    let kind: Kind = 'whole';
    let at = 0;
    const read = (bytes: Buffer): void => {
      let piece = bytes;
      if (expected === undefined) {
        head += piece.toString('latin1');
        const end = head.indexOf('\r\n\r\n');
        if (end === -1) return;
        const [, number = '', word = ''] = /x-client-request-id: (\d+)-(\w+)/.exec(head) ?? [];
        index = Number(number);
        kind = KINDS.find((each) => each === word) ?? 'whole';
        expected = bodyOf(index, 'upstream-model', kind === 'hedge');
        if (Number(/content-length: (\d+)/.exec(head)?.[1]) !== expected.length)
          this.wrong.push(`${index}: length`);
        piece = Buffer.from(head.slice(end + 4), 'latin1');
        head = '';
        if (this.#isFirst && kind === 'early') answerWith(socket, 200, ANSWER);
        if (this.#isFirst && kind === 'refuse') answerWith(socket, 500, '{"error":{"message":"no"}}');
      }
      // Answered before its end, and sent to its end all the same: the next request may be behind it.
      const next = piece.subarray(expected.length - at);
      piece = piece.subarray(0, expected.length - at);
      if (!expected.subarray(at, at + piece.length).equals(piece)) {
        this.wrong.push(`${index}-${kind}: at ${at}`);
      }
      at += piece.length;
      if (this.#isFirst && kind === 'reset' && at > 300_000) socket.resetAndDestroy();
      const isSlow =
        kind === 'slow' || (this.#isFirst && ['leave', 'hedge', 'early', 'refuse'].includes(kind));
      if (isSlow) {
        socket.pause();
        setTimeout(() => socket.resume(), 4);
      }
      if (at < expected.length) return;
      this.whole.add(index);
      if (!this.#isFirst || kind === 'whole' || kind === 'slow') {
        if (kind === 'hedge') {
          const type = 'content-type: text/event-stream\r\nconnection: close';
          socket.end(`HTTP/1.1 200 OK\r\n${type}\r\n\r\n${STREAM}`);
        } else answerWith(socket, 200, ANSWER);
      }
      expected = undefined;
      at = 0;
      if (next.length > 0) read(next);
    };
    socket.on('data', read);
  }
}

function answerWith(socket: Socket, status: number, body: string): void {
  const length = `content-length: ${body.length}`;
  socket.write(`HTTP/1.1 ${status} X\r\ncontent-type: application/json\r\n${length}\r\n\r\n${body}`);
}

test('bodies with every fate at once are read by nobody but their own upstreams, and whole by who answers', async () => {
  await using first = new Reader(true);
  await using second = new Reader(false);
  const targets = {
    targets: [
      { upstream: 'a', model: 'upstream-model' },
      { upstream: 'b', model: 'upstream-model', priority: 2 },
    ],
  };
  await using gateway = await startGateway({
    // Every target is asked again at once, however it failed before.
    now: fleetingClock(),
    upstreams: { a: await first.start(), b: await second.start() },
    config: {
      models: { plain: targets, hedged: { ...targets, hedge: { after: '30ms' } } },
      retry: { after_send: true, budget: 1 },
    },
  });
  const key = await gateway.key();
  const send = (index: number, kind: Kind) =>
    new Promise<number>((resolve, reject) => {
      const sent = httpRequest(`${gateway.url}/v1/chat/completions`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${key}`,
          'content-type': 'application/json',
          'x-client-request-id': `${index}-${kind}`,
        },
      });
      sent.once('response', (response) => {
        response.resume();
        response.once('close', () => resolve(response.statusCode ?? 0)).once('error', reject);
      });
      sent.once('error', (error) => (kind === 'leave' ? resolve(0) : reject(error)));
      const body = bodyOf(index, modelOf(kind), kind === 'hedge');
      sent.setHeader('content-length', body.length);
      sent.end(body);
      if (kind === 'leave') setTimeout(() => sent.destroy(), 30 + index);
    });
  for (let wave = 0; wave < 2; wave++) {
    const sent = Array.from({ length: 21 }, (_, place) => {
      const index = wave * 21 + place;
      const kind = KINDS[index % KINDS.length] ?? 'whole';
      return { index, kind, status: send(index, kind) };
    });
    for (const { index, kind, status } of sent) {
      const got = await status;
      if (kind === 'leave') continue;
      expect(`${index} ${kind} ${got}`).toBe(`${index} ${kind} 200`);
      const isRead = first.whole.has(index) || second.whole.has(index);
      if (kind !== 'early') expect(`${index} ${kind} ${isRead}`).toBe(`${index} ${kind} true`);
    }
    expect(first.wrong).toEqual([]);
    expect(second.wrong).toEqual([]);
  }
  // All of it was given back, whoever had it last.
  await until(() => gateway.app.inFlight === 0 || undefined, 'the end of all');
  const kept = async () => {
    const text = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
    return Number(/^tollgate_body_memory_bytes (\d+)/m.exec(text)?.[1]);
  };
  expect(await kept()).toBeGreaterThan(1_000_000);
  expect(await kept()).toBeLessThanOrEqual(128 * 1024 * 1024);
}, 60_000);
