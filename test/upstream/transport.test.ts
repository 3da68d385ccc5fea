// The HTTP transport alone: what a sink hears, in which order, and how far a request had come when it failed.
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { GatewayError } from '../../src/errors.ts';
import { BodyPieces } from '../../src/http/pieces/body-pieces.ts';
import type { BodySource } from '../../src/http/pieces/body-source.ts';
import { HttpTransport } from '../../src/upstream/http/http-transport.ts';
import {
  type ConnectionOwner,
  READ_OPTIONS,
  type ResponseHandler,
  UpstreamConnection,
  WRITE_BYTES,
} from '../../src/upstream/http/upstream-connection.ts';
import type { Call, Delivery, ResponseHeaders, Sink } from '../../src/upstream/transport.ts';
import { closedPort } from '../helpers/closed-port.ts';
import {
  chunkBytes,
  completion,
  HostileUpstream,
  json,
  type Script,
  send,
  silence,
} from '../helpers/hostile-upstream.ts';
import { pause, until, within } from '../helpers/wait.ts';

let upstream: HostileUpstream;
let transport: HttpTransport;

beforeEach(async () => {
  upstream = await HostileUpstream.start({ script: json(200, completion()), allowViolations: true });
  transport = new HttpTransport({ origin: upstream.url, connectTimeout: 20_000, connections: 10 });
});

afterEach(async () => {
  await transport.close();
  await upstream.close();
});

/** Notes what it hears, and that it hears nothing too early or too late. */
class Ear implements Sink {
  readonly heard: string[] = [];
  readonly chunks: Buffer[] = [];
  status = 0;
  headers: ResponseHeaders = {};
  error: GatewayError | undefined;
  delivery: Delivery | undefined;
  readonly over = Promise.withResolvers<void>();
  onFirstData: (() => void) | undefined;
  returned = false;

  onUpload(): void {
    this.#note('upload');
  }

  onSent(): void {
    this.#note('sent');
  }

  onHead(status: number, headers: ResponseHeaders): void {
    this.#note('head');
    this.status = status;
    this.headers = headers;
  }

  onData(chunk: Buffer): void {
    if (this.chunks.length === 0) this.#note('data');
    this.chunks.push(chunk);
    const first = this.onFirstData;
    this.onFirstData = undefined;
    first?.();
  }

  onEnd(): void {
    this.#note('end');
    this.over.resolve();
  }

  onError(error: GatewayError, delivery: Delivery): void {
    this.#note('error');
    this.error = error;
    this.delivery = delivery;
    this.over.resolve();
  }

  get bytes(): number {
    return this.chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  }

  #note(what: string): void {
    this.heard.push(this.returned ? what : `${what} before send had returned`);
  }
}

function sent(
  ear = new Ear(),
  over = transport,
  fresh = false,
  body: Buffer | BodySource = Buffer.from('{"a":1}'),
): { ear: Ear; call: Call } {
  const headers = { 'content-type': 'application/json', authorization: 'Bearer x' };
  const call = over.send({ path: '/v1/chat/completions?a=b', headers, body, fresh }, ear);
  ear.returned = true;
  return { ear, call };
}

async function heard(script?: Script, fresh = false): Promise<Ear> {
  if (script !== undefined) upstream.next(script);
  const { ear } = sent(new Ear(), transport, fresh);
  await within(ear.over.promise, 'the end of the call');
  // A connection is free again when the event loop has turned.
  await pause(5);
  return ear;
}

test('a request is one write, and unchanged though the kernel takes it late and others are written meanwhile', async () => {
  const SIZE = 120_000;
  const peers: Socket[] = [];
  const server = createServer({ pauseOnConnect: true }, (socket) => peers.push(socket));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the server has no port');
  const { port } = address;
  const owner: ConnectionOwner = {
    onFree() {},
    onClosed() {},
    onUnsolicited() {},
    isSuspect: false,
    headerLines: [],
    writeBuffer: Buffer.allocUnsafeSlow(WRITE_BYTES),
  };
  const open = async () => {
    const socket = connect({ port, host: '127.0.0.1', onread: READ_OPTIONS });
    await once(socket, 'connect');
    return { socket, connection: new UpstreamConnection(socket, owner, 0) };
  };
  const head = 'POST / HTTP/1.1\r\n\r\n';
  const begin = async (connection: UpstreamConnection, body: Buffer | BodyPieces) => {
    const complete = Promise.withResolvers<void>();
    const written = Promise.withResolvers<void>();
    const handler: ResponseHandler = {
      onWriteStart: written.resolve,
      onHead() {},
      onBody() {},
      onComplete: complete.resolve,
      onBroken: complete.reject,
      onUnsent: complete.reject,
      onStall() {},
      onWritten() {},
      onSourceError: complete.reject,
    };
    connection.begin(handler, { head, body, isLast: false });
    await written.promise;
    return { complete: complete.promise };
  };
  const contentOf = (i: number) => Buffer.alloc(SIZE, `${String(i).padStart(5, '0')},`);
  const { socket, connection } = await open();
  let sent = 0;
  // The peer answers and reads nothing, until the kernel holds no more.
  for (let isTaken = true; isTaken; sent += 1) {
    expect(sent).toBeLessThan(1_000);
    const content = contentOf(sent);
    const body = sent % 2 === 0 ? content : new BodyPieces([content.subarray(0, 7), content.subarray(7)]);
    const { complete } = await begin(connection, body);
    expect(socket.bytesWritten).toBe((sent + 1) * (head.length + SIZE));
    await pause(0);
    isTaken = socket.writableLength === 0;
    if (isTaken) peers[0]?.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
    if (isTaken) await within(complete, 'an answer');
    else void complete.catch(() => undefined);
  }
  const other = await open();
  const last = await begin(other.connection, Buffer.alloc(SIZE, 'x'));
  void last.complete.catch(() => undefined);
  await pause(0);
  const pieces: Buffer[] = [];
  peers[0]?.on('data', (piece: Buffer) => pieces.push(piece)).resume();
  const size = sent * (head.length + SIZE);
  await until(() => pieces.reduce((sum, { length }) => sum + length, 0) >= size, 'all to arrive');
  const bodies = Buffer.concat(pieces).toString('latin1').split(head).slice(1);
  expect(bodies.map((each, i) => each === contentOf(i).toString('latin1'))).toEqual(Array(sent).fill(true));
  for (const each of [socket, other.socket]) each.destroy();
  server.close();
});

describe('a sink', () => {
  test('hears sent, head, data and end, once each and in this order', async () => {
    const ear = await heard();
    expect(ear.heard).toEqual(['sent', 'head', 'data', 'end']);
    expect([ear.status, ear.headers['content-type']]).toEqual([200, 'application/json']);
    expect(JSON.parse(Buffer.concat(ear.chunks).toString())).toEqual(completion());
    const request = await upstream.request(0);
    expect([request.target, request.header('content-length'), request.body.toString()]).toEqual([
      '/v1/chat/completions?a=b',
      '7',
      '{"a":1}',
    ]);
    // On the connection that is there, too.
    expect((await heard()).heard).toEqual(['sent', 'head', 'data', 'end']);
  });

  test('hears when a body that arrives at its own pace begins and when it was sent; one in memory is sent at once', async () => {
    const pieces = new BodyPieces([Buffer.alloc(300_000, ' '), Buffer.from('{}')]);
    const arriving: BodySource = { length: pieces.length, open: () => pieces.open() };
    for (const [body, before] of [
      [pieces, ['sent']],
      [arriving, ['upload', 'sent']],
    ] as const) {
      const { ear } = sent(new Ear(), transport, false, body);
      await within(ear.over.promise, 'the end of the call');
      expect(ear.heard).toEqual([...before, 'head', 'data', 'end']);
    }
  });

  test('hears nothing after abort, whenever it comes', async () => {
    for (const script of [silence(), json(200, completion())]) {
      upstream.always(script);
      const { ear, call } = sent();
      call.abort();
      call.abort();
      call.pause();
      call.resume();
      await pause(50);
      expect(ear.heard.filter((what) => what !== 'sent')).toEqual([]);
    }
    upstream.next(async (c) => {
      await c.head(200, { 'content-type': 'x', 'transfer-encoding': 'chunked' });
      for (let i = 0; i < 100; i++) await c.chunk('x'.repeat(10_000));
      await c.lastChunk();
    });
    const { ear, call } = sent();
    ear.onFirstData = () => call.abort();
    await until(() => ear.heard.includes('data'));
    const { bytes } = ear;
    await until(() => upstream.openSockets === 0);
    expect([ear.heard.at(-1), ear.bytes]).toEqual(['data', bytes]);
  });

  test('that pauses stops the upstream, and loses nothing', async () => {
    upstream.next(async (c) => {
      await c.head(200, { 'content-type': 'x', 'content-length': 50_000_000 });
      await c.flood('0123456789', 50_000_000);
    });
    const { ear, call } = sent();
    ear.onFirstData = () => call.pause();
    const request = await upstream.request(0);
    let last = -1;
    await until(async () => {
      await pause(200);
      const stuck = request.bytesSent === last;
      last = request.bytesSent;
      return stuck;
    });
    expect(ear.bytes).toBeLessThan(200_000);
    call.resume();
    await within(ear.over.promise, 'the end of the call');
    expect([
      ear.bytes,
      Buffer.concat(ear.chunks).equals(Buffer.from('0123456789'.repeat(5_000_000))),
    ]).toEqual([50_000_000, true]);
  });

  test('is told of a closed transport after send has returned', async () => {
    await transport.close();
    const ear = await heard();
    expect([ear.heard, ear.error?.code, ear.delivery]).toEqual([
      ['error'],
      'upstream_unreachable',
      'not_sent',
    ]);
  });

  test('is told of a header that cannot be sent', async () => {
    const ear = new Ear();
    transport.send({ path: '/', headers: { 'x-a': 'a\nb' }, body: Buffer.alloc(1) }, ear);
    ear.returned = true;
    await within(ear.over.promise, 'the end');
    expect([ear.heard, ear.delivery]).toEqual([['error'], 'not_sent']);
    expect(upstream.requests).toHaveLength(0);
  });
});

describe('how far a request had come', () => {
  test('not_sent: a closed port', async () => {
    const dead = new HttpTransport({
      origin: `http://127.0.0.1:${await closedPort()}`,
      connectTimeout: 5_000,
      connections: 2,
    });
    const { ear } = sent(new Ear(), dead);
    await ear.over.promise;
    expect([ear.error?.code, ear.delivery]).toEqual(['upstream_unreachable', 'not_sent']);
    await dead.close();
  });

  test('not_sent: a connection that is not made in time', async () => {
    const server = createServer((socket) => socket.on('error', () => {}).resume()).listen(0, '127.0.0.1');
    await until(() => server.listening);
    const address = server.address();
    const port = address !== null && typeof address === 'object' ? address.port : 0;
    const slow = new HttpTransport({
      origin: `https://127.0.0.1:${port}`,
      connectTimeout: 100,
      connections: 2,
    });
    const { ear } = sent(new Ear(), slow);
    await within(ear.over.promise, 'the end');
    expect([ear.error?.code, ear.delivery]).toEqual(['upstream_timeout', 'not_sent']);
    await slow.close();
    server.close();
  });

  test.each<[string, Script]>([
    ['reset', (c) => c.reset()],
    ['closed', (c) => c.close()],
  ])('maybe_sent: a new connection that was %s; unheard: one that had served', async (_how, script) => {
    expect(await heard(script)).toMatchObject({ delivery: 'maybe_sent', heard: ['sent', 'error'] });
    await heard();
    const ear = await heard(script);
    expect([ear.delivery, ear.error?.code]).toEqual(['no_response', 'upstream_unreachable']);
    await heard();
    expect(await heard(script, true)).toMatchObject({ delivery: 'maybe_sent' });
  });

  test('maybe_sent: a byte of the answer came', async () => {
    await heard();
    const partial: Script = async (c) => {
      await c.send('HTTP/1.1 1');
      await c.wait(20);
      c.close();
    };
    expect(await heard(partial)).toMatchObject({ delivery: 'maybe_sent' });
  });
});

describe('a fresh connection', () => {
  test('is a new one although others are idle, and is closed after its request', async () => {
    await heard();
    const ear = await heard(undefined, true);
    expect([
      ear.heard.at(-1),
      upstream.connections,
      (await upstream.request(1)).header('connection'),
    ]).toMatchObject(['end', 2, expect.any(String)]);
    await until(() => upstream.openSockets === 1);
  });

  test('can be aborted, and ends with the transport', async () => {
    upstream.always(silence());
    const { call } = sent(new Ear(), transport, true);
    await upstream.request(0);
    call.abort();
    await until(() => upstream.openSockets === 0);
    const { ear } = sent(new Ear(), transport, true);
    await upstream.request(1);
    await transport.close();
    await until(() => upstream.openSockets === 0);
    expect(ear.heard).toEqual(['sent', 'error']);
  });
});

describe('interim answers', () => {
  const answer = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';
  test.each([
    ['none', answer, 200],
    ['five', `${'HTTP/1.1 100 Continue\r\n\r\n'.repeat(5)}${answer}`, 200],
    ['one of HTTP/1.0', `HTTP/1.0 100 Continue\r\n\r\n${answer}`, 200],
    ['one with many headers', `HTTP/1.1 103 x\r\n${'a: b\r\n'.repeat(100)}\r\n${answer}`, 200],
    ['six', `${'HTTP/1.1 100 Continue\r\n\r\n'.repeat(6)}${answer}`, undefined],
    ['one without end', `HTTP/1.1 100 Continue\r\n${'a: b\r\n'.repeat(5_000)}`, undefined],
    ['101', `HTTP/1.1 101 x\r\nupgrade: y\r\nconnection: upgrade\r\n\r\n${answer}`, undefined],
  ])('%s, in any split', async (_name, bytes, status) => {
    const whole = Buffer.from(bytes);
    const cuts = [1, 7, 9, 10, 11, 12, 13, 24, 25, 26, whole.length - 1].filter((cut) => cut < whole.length);
    const scripts: Script[] = [
      send(whole),
      ...cuts.map(
        (cut): Script =>
          (c) =>
            c.segments([whole.subarray(0, cut), whole.subarray(cut)]),
      ),
    ];
    for (const script of scripts) {
      const ear = await heard(script);
      if (status === undefined) {
        expect([ear.heard, ear.error?.code]).toEqual([['sent', 'error'], 'upstream_invalid_response']);
      } else {
        expect([ear.heard, ear.status, Buffer.concat(ear.chunks).toString()]).toEqual([
          ['sent', 'head', 'data', 'end'],
          status,
          'ok',
        ]);
      }
    }
  });

  test('do not disturb what follows on the connection', async () => {
    for (let i = 0; i < 5; i++) {
      const ear = await heard(send(`HTTP/1.1 100 Continue\r\n\r\n${answer}`));
      expect(ear.status).toBe(200);
    }
    expect(upstream.connections).toBe(1);
  });
});

test('the transport has no deadline of its own for an answer', async () => {
  // A body and a head that take longer than a lowered default would: its timers are coarse, so the option is what counts.
  upstream.next(async (c) => {
    await c.wait(1_500);
    await c.head(200, { 'content-type': 'x', 'transfer-encoding': 'chunked' });
    await c.wait(1_500);
    await c.send(chunkBytes('x'));
    await c.lastChunk();
  });
  expect((await heard()).heard).toEqual(['sent', 'head', 'data', 'end']);
});
