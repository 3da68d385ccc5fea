// The scripted upstream and the raw client against each other: what one says is what the other saw, to the byte.
import { setImmediate as turn } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { makeCertificate } from './certificate.ts';
import { closedPort } from './closed-port.ts';
import {
  chatRequest,
  chunk,
  close,
  contentChunk,
  drip,
  early,
  flood,
  frame,
  HostileUpstream,
  head,
  json,
  lastChunk,
  reset,
  SSE_HEADERS,
  segments,
  send,
  silence,
  sse,
  upstreamError,
  usageChunk,
  wait,
  waitFor,
} from './hostile-upstream.ts';
import { RawClient, requestBytes } from './raw-client.ts';
import { pause, tempDir, until, within } from './wait.ts';

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';
const GET = 'GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n';

describe('what the upstream records', () => {
  test('the head verbatim, fields in order and spelling, the body by length', async () => {
    await using upstream = await HostileUpstream.start(send(OK));
    using client = await RawClient.connect(upstream.port);
    const bytes = 'POST /v1/x?a=%2F HTTP/1.1\r\nhOsT: h\r\nX-B:  two \r\nx-b: 1\r\nContent-Length: 4\r\n\r\n';
    await client.segments([bytes.slice(0, 20), bytes.slice(20), 'h\0', '\xff'], 2);
    const request = await upstream.request(0);
    expect(request.rawHead.toString('latin1')).toBe(bytes);
    expect(request.headers).toEqual([
      ['hOsT', 'h'],
      ['X-B', 'two'],
      ['x-b', '1'],
      ['Content-Length', '4'],
    ]);
    expect([request.method, request.target, request.framing]).toEqual(['POST', '/v1/x?a=%2F', 'length']);
    expect(request.body.toString()).toBe('h\0\xff');
    expect(request.header('HOST')).toBe('h');
    expect(request.header('missing')).toBeUndefined();
    expect(() => request.header('x-b')).toThrow(/2 times/);
  });

  test('a chunked body without its framing', async () => {
    await using upstream = await HostileUpstream.start(send(OK));
    using client = await RawClient.connect(upstream.port);
    await client.segments(
      [
        'POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r',
        '\n3\r',
        '\nabc\r\n0',
        'a\r\n0123',
        '456789\r\n0\r\n\r\n',
      ],
      2,
    );
    const request = await upstream.request(0);
    expect(request.framing).toBe('chunked');
    expect(request.body.toString()).toBe('abc0123456789');
  });

  test('connections, requests on them, and whether one was pipelined', async () => {
    const gate = Promise.withResolvers<void>();
    await using upstream = await HostileUpstream.start([waitFor(gate.promise), send(OK)]);
    using first = await RawClient.connect(upstream.port);
    using second = await RawClient.connect(upstream.port);
    await first.write(GET + GET);
    await upstream.request(1);
    await second.write(GET);
    await upstream.request(2);
    expect(upstream.answering).toBe(2);
    gate.resolve();
    await first.response();
    await first.response();
    await second.response();
    expect(
      upstream.requests.map((each) => [each.index, each.connection, each.sequence, each.pipelined]),
    ).toEqual([
      [0, 0, 0, false],
      [1, 0, 1, true],
      [2, 1, 0, false],
    ]);
    expect([upstream.connections, upstream.openSockets, upstream.answering, upstream.peakAnswering]).toEqual([
      2, 2, 0, 2,
    ]);
  });

  test('who ended the socket, and whether with FIN or RST', async () => {
    await using upstream = await HostileUpstream.start(send(OK));
    const ends: [(client: RawClient) => void, object][] = [
      [(client) => client.destroy(), { by: 'peer', how: 'fin' }],
      [(client) => client.halfClose(), { by: 'peer', how: 'fin' }],
      [(client) => client.reset(), { by: 'peer', how: 'reset' }],
    ];
    for (const [index, [end, seen]] of ends.entries()) {
      using client = await RawClient.connect(upstream.port);
      await client.ask({ method: 'GET' });
      const before = performance.now();
      end(client);
      const closed = await (await upstream.request(index)).closed;
      expect(closed).toMatchObject(seen);
      expect(closed.at).toBeGreaterThanOrEqual(before);
    }
    expect(upstream.openSockets).toBe(0);
  });

  test('a client that leaves in the middle of its body never counts as a request', async () => {
    await using upstream = await HostileUpstream.start();
    using client = await RawClient.connect(upstream.port);
    await client.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc');
    const request = await upstream.requestHead(0);
    client.destroy();
    await request.closed;
    expect([request.complete, request.body.toString()]).toEqual([false, 'abc']);
    await expect(upstream.request(0, 20)).rejects.toThrow(/body of request 0 .*3 bytes/);
    await expect(upstream.request(1, 20)).rejects.toThrow(/request 1/);
  });

  test.each([
    ['two lengths', 'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\na'],
    [
      'length and coding',
      'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n',
    ],
    ['an unknown coding', 'POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n'],
    ['a signed length', 'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: +1\r\n\r\na'],
    ['no host', 'GET / HTTP/1.1\r\n\r\n'],
    ['two hosts', 'GET / HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n'],
    ['HTTP/1.0', 'GET / HTTP/1.0\r\nhost: x\r\n\r\n'],
    ['a space before the colon', 'GET / HTTP/1.1\r\nhost : x\r\n\r\n'],
    ['a folded line', 'GET / HTTP/1.1\r\nhost: x\r\n y\r\n\r\n'],
    ['a bare LF', 'GET / HTTP/1.1\nhost: x\n\n'],
    ['a NUL', 'GET / HTTP/1.1\r\nhost: x\0\r\n\r\n'],
    ['a chunk size that is none', 'POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0x1\r\n'],
    [
      'chunk data that is too long',
      'POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n',
    ],
    ['a body longer than its length', 'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nab\r\n\r\n'],
  ])('malformed HTTP is a violation that fails the test: %s', async (_name, bytes) => {
    const upstream = await HostileUpstream.start(silence());
    using client = await RawClient.connect(upstream.port);
    await client.write(bytes);
    expect(await within(client.closed, 'the end')).toBe('reset');
    expect(upstream.violations.length).toBe(1);
    await expect(upstream.request(upstream.requests.length)).rejects.toThrow(/malformed HTTP/);
    await expect(upstream.close()).rejects.toThrow(/malformed HTTP/);
  });

  test('a fault of a script itself is not hidden', async () => {
    const upstream = await HostileUpstream.start(() => {
      throw new Error('the script is wrong');
    });
    using client = await RawClient.connect(upstream.port);
    await client.write(GET);
    await client.closed;
    await expect(upstream.close()).rejects.toThrow(/a script of the upstream failed/);
  });
});

describe('what a script can say', () => {
  test('exact bytes and nothing besides', async () => {
    await using upstream = await HostileUpstream.start([
      head(200, { 'X-Odd': 'a  b', 'Set-Cookie': ['c', 'd'] }, 'Fine'),
      send(Buffer.of(0, 255, 13)),
      close(),
    ]);
    using client = await RawClient.connect(upstream.port);
    await client.write(GET);
    expect(await client.closed).toBe('fin');
    expect(client.received.bytes.toString('latin1')).toBe(
      'HTTP/1.1 200 Fine\r\nX-Odd: a  b\r\nSet-Cookie: c\r\nSet-Cookie: d\r\n\r\n\x00\xff\r',
    );
    expect(await client.response()).toMatchObject({
      status: 200,
      reason: 'Fine',
      framing: 'close',
      complete: true,
    });
  });

  test('each segment reaches the reader apart', async () => {
    const pieces = ['data: {"con', Buffer.of(0xe5, 0x8c), Buffer.of(0x97), '"}\r', '\n'];
    await using upstream = await HostileUpstream.start([head(200), segments(pieces, 10), close()]);
    using client = await RawClient.connect(upstream.port);
    await client.write(GET);
    const response = await client.response();
    expect(response.pieces.map((piece) => piece.bytes.toString('latin1'))).toEqual(
      pieces.map((piece) => Buffer.from(piece).toString('latin1')),
    );
  });

  test('one byte at a time', async () => {
    const text = 'data: 北京 😀\n\n';
    await using upstream = await HostileUpstream.start([head(200), drip(text), close()]);
    using client = await RawClient.connect(upstream.port);
    await client.write(GET);
    const response = await client.response();
    expect(response.text()).toBe(text);
    // The kernel may still join two of them; never most of them.
    const alone = response.pieces.filter((piece) => piece.bytes.length === 1);
    expect(alone.length).toBeGreaterThan(Buffer.byteLength(text) / 2);
  });

  test('pauses between chunks are seen in their arrival', async () => {
    await using upstream = await HostileUpstream.start([
      head(200, SSE_HEADERS),
      chunk('one'),
      wait(60),
      chunk('two'),
      lastChunk(),
    ]);
    using client = await RawClient.connect(upstream.port);
    await client.write(GET);
    const response = await client.response();
    expect(response.chunks.map((each) => each.bytes.toString())).toEqual(['one', 'two']);
    const [one, two] = response.chunks;
    expect((two?.at ?? 0) - (one?.at ?? 0)).toBeGreaterThan(40);
    expect(response).toMatchObject({ framing: 'chunked', complete: true });
  });

  test.each([
    ['no last chunk, FIN', [head(200, SSE_HEADERS), chunk('x'), close()], 'fin'],
    ['no last chunk, RST', [head(200, SSE_HEADERS), chunk('x'), waitForReader(), reset()], 'reset'],
    ['half a chunk', [head(200, SSE_HEADERS), send('5\r\nx'), close()], 'fin'],
    ['a length too long', [head(200, { 'content-length': 10 }), send('x'), close()], 'fin'],
    ['half a head', [send('HTTP/1.1 200 OK\r\ncontent-'), close()], 'fin'],
  ] as const)('an answer that never comes to its end: %s', async (name, script, how) => {
    await using upstream = await HostileUpstream.start(script);
    using client = await RawClient.connect(upstream.port);
    await client.write(GET);
    expect(await within(client.closed, 'the end')).toBe(how);
    await expect((await upstream.request(0)).closed).resolves.toMatchObject({ by: 'upstream', how });
    if (name === 'half a head')
      await expect(client.response()).rejects.toThrow(/ended .fin. without response 0/);
    else expect(await client.response()).toMatchObject({ complete: false, body: Buffer.from('x') });
  });

  test('silence lasts until the client leaves, and the script ends with it', async () => {
    await using upstream = await HostileUpstream.start(silence());
    using client = await RawClient.connect(upstream.port);
    await client.write(GET);
    const request = await upstream.request(0);
    await pause(30);
    expect(upstream.answering).toBe(1);
    client.destroy();
    expect(await request.answered).toBe('cut');
    await until(() => upstream.answering === 0, 'the end of the script');
  });

  test('an early answer, before the body', async () => {
    await using upstream = await HostileUpstream.start(early(json(503, upstreamError('busy')), close()));
    using client = await RawClient.connect(upstream.port);
    await client.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nabc');
    const response = await client.response();
    expect([response.status, response.json()]).toEqual([503, upstreamError('busy')]);
    expect((await upstream.requestHead(0)).complete).toBe(false);
  });

  test('interim answers before the final one', async () => {
    await using upstream = await HostileUpstream.start([
      send('HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n'),
      send(OK),
    ]);
    using client = await RawClient.connect(upstream.port);
    await client.write(GET);
    const response = await client.response();
    expect(response.interim.map((each) => each.status)).toEqual([103, 100]);
    expect(response.status).toBe(200);
  });

  test('queued answers first, then the standing one', async () => {
    await using upstream = await HostileUpstream.start(json(500, {}));
    upstream.next(json(501, {}), json(502, {}));
    upstream.always(json(503, {}));
    using client = await RawClient.connect(upstream.port);
    const statuses: number[] = [];
    for (let index = 0; index < 4; index += 1) statuses.push((await client.ask({ method: 'GET' })).status);
    expect(statuses).toEqual([501, 502, 503, 503]);
    expect(upstream.connections).toBe(1);
  });

  test('without a script: a completion, or a stream when asked for one', async () => {
    await using upstream = await HostileUpstream.start();
    using client = await RawClient.connect(upstream.port);
    const whole = await client.ask({ body: chatRequest() });
    expect(whole.json()).toMatchObject({ object: 'chat.completion', model: 'test-model' });
    const plain = await client.ask({ body: chatRequest({ stream: true }) });
    expect(plain.complete).toBe(true);
    expect(plain.frames().length).toBe(5);
    expect(plain.frames().at(-1)).toBe('data: [DONE]');
    expect(plain.text()).not.toContain('usage');
    const metered = await client.ask({
      body: chatRequest({ stream: true, stream_options: { include_usage: true } }),
    });
    expect(metered.frames().at(-2)).toBe(frame(usageChunk(undefined, { model: 'test-model' })).trimEnd());
  });

  test('sse frames are a chunk each; strings go out as they are', async () => {
    const frames = [': ping\n\n', contentChunk('a'), 'data: {"half'];
    await using upstream = await HostileUpstream.start([sse(frames, { done: false, end: false }), close()]);
    using client = await RawClient.connect(upstream.port);
    const response = await client.ask({ method: 'GET' });
    expect(response.chunks.map((each) => each.bytes.toString())).toEqual([
      ': ping\n\n',
      frame(contentChunk('a')),
      'data: {"half',
    ]);
    expect(response.frames()).toEqual([': ping', frame(contentChunk('a')).trimEnd()]);
    expect(response.complete).toBe(false);
  });

  test('a flood waits for a reader that does not read, and counts what went out', async () => {
    const limit = 300 * 1024 * 1024;
    await using upstream = await HostileUpstream.start([head(200), flood('data: x\n\n', limit)]);
    using client = await RawClient.connect(upstream.port, { keep: false });
    await client.write(GET);
    await client.responseHead();
    client.pause();
    const request = await upstream.request(0);
    let before = -1;
    await until(async () => {
      const now = request.bytesSent;
      const still = now === before;
      before = now;
      await pause(50);
      return still;
    }, 'the flood to stand still');
    expect(request.bytesSent).toBeGreaterThan(100_000);
    expect(request.bytesSent).toBeLessThan(limit / 4);
    client.resume();
    await until(() => request.bytesSent > before + 1_000_000, 'the flood to go on');
    client.destroy();
    expect(await request.answered).toBe('cut');
  });

  test('a flood has exactly its limit', async () => {
    await using upstream = await HostileUpstream.start([head(200), flood('abc', 1_000_001), close()]);
    using client = await RawClient.connect(upstream.port);
    const response = await client.ask({ method: 'GET' });
    expect(response.body.length).toBe(1_000_001);
    expect(response.body.subarray(0, 7).toString()).toBe('abcabca');
  });
});

describe('what an upstream does between requests', () => {
  test('closes idle sockets, and no others', async () => {
    await using upstream = await HostileUpstream.start();
    upstream.next(send(OK), send(OK), silence());
    using first = await RawClient.connect(upstream.port);
    using second = await RawClient.connect(upstream.port);
    using busy = await RawClient.connect(upstream.port);
    await first.ask({ method: 'GET' });
    await second.ask({ method: 'GET' });
    await busy.send({ method: 'GET' });
    await upstream.request(2);
    expect(upstream.closeIdle()).toBe(2);
    expect(await Promise.all([first.closed, second.closed])).toEqual(['fin', 'fin']);
    expect(upstream.openSockets).toBe(1);
  });

  test('resets idle sockets', async () => {
    await using upstream = await HostileUpstream.start(send(OK));
    using client = await RawClient.connect(upstream.port);
    await client.ask({ method: 'GET' });
    expect(upstream.closeIdle('reset')).toBe(1);
    expect(await client.closed).toBe('reset');
  });

  test('speaks unasked', async () => {
    await using upstream = await HostileUpstream.start(send(OK));
    using client = await RawClient.connect(upstream.port);
    await client.ask({ method: 'GET' });
    expect(await upstream.sendUnsolicited(OK)).toBe(1);
    expect((await client.response()).text()).toBe('ok');
  });

  test('ends a connection before it says anything', async () => {
    await using upstream = await HostileUpstream.start({ onConnection: (connection) => connection.reset() });
    // The reset may come before the client knows that it was connected.
    const seen = await RawClient.connect(upstream.port).then((client) => client.closed, String);
    expect(seen).toMatch(/reset/i);
    expect([upstream.connections, upstream.requests.length]).toEqual([1, 0]);
  });

  test('goes down and comes back on the same port', async () => {
    await using upstream = await HostileUpstream.start(send(OK));
    using before = await RawClient.connect(upstream.port);
    await before.ask({ method: 'GET' });
    await upstream.down();
    await before.closed;
    await expect(RawClient.connect(upstream.port)).rejects.toThrow(/ECONNREFUSED/);
    await upstream.up();
    using after = await RawClient.connect(upstream.port);
    expect((await after.ask({ method: 'GET' })).status).toBe(200);
  });

  test('mute: takes everything and says nothing', async () => {
    await using upstream = await HostileUpstream.start({ mute: true });
    using client = await RawClient.connect(upstream.port);
    await client.write('not HTTP at all\n');
    await until(() => upstream.sockets[0]?.received.bytes.toString() === 'not HTTP at all\n', 'the bytes');
    expect(client.received.length).toBe(0);
  });
});

describe('over TLS', () => {
  test('a request and its answer', async () => {
    await using upstream = await HostileUpstream.start({ tls: makeCertificate() });
    using client = await RawClient.connect(upstream.url);
    const response = await client.ask({ body: chatRequest() });
    expect(response.status).toBe(200);
    client.destroy();
    expect(await (await upstream.request(0)).closed).toMatchObject({ by: 'peer' });
  });

  test('FIN and RST', async () => {
    await using upstream = await HostileUpstream.start({ tls: makeCertificate() });
    upstream.next([send(OK), close()], [send(OK), waitForReader(), reset()]);
    using first = await RawClient.connect(upstream.url);
    await first.ask({ method: 'GET' });
    expect(await first.closed).toBe('fin');
    using second = await RawClient.connect(upstream.url);
    await second.ask({ method: 'GET' });
    expect(await second.closed).toBe('reset');
  });

  test.each([
    ['good', {}, undefined],
    ['expired', { notAfter: new Date(Date.now() - 1000) }, 'CERT_HAS_EXPIRED'],
    ['for another host', { names: ['other.example'] }, 'ERR_TLS_CERT_ALTNAME_INVALID'],
  ])('a certificate that is %s', async (_name, input, code) => {
    const certificate = makeCertificate(input);
    await using upstream = await HostileUpstream.start({ tls: certificate });
    const seen = await new Promise<string | undefined>((resolve) => {
      const socket = connectTls({ host: '127.0.0.1', port: upstream.port, ca: certificate.cert }, () => {
        socket.destroy();
        resolve(undefined);
      });
      socket.on('error', (error) => resolve('code' in error ? String(error.code) : error.message));
    });
    expect(seen).toBe(code);
  });
});

describe('the raw client', () => {
  test('reads several answers on one socket', async () => {
    await using upstream = await HostileUpstream.start();
    upstream.next(json(200, { n: 1 }), json(404, { n: 2 }), send('HTTP/1.1 204 None\r\n\r\n'));
    using client = await RawClient.connect(upstream.port);
    await client.write(GET + GET + GET);
    expect((await client.response()).json()).toEqual({ n: 1 });
    expect((await client.response()).json()).toEqual({ n: 2 });
    expect(await client.response()).toMatchObject({ status: 204, complete: true, framing: 'none' });
  });

  test('knows that the answer to HEAD has no body', async () => {
    await using upstream = await HostileUpstream.start([head(200, { 'content-length': 10 })]);
    using client = await RawClient.connect(upstream.port);
    expect(await client.ask({ method: 'HEAD' })).toMatchObject({ complete: true, framing: 'none' });
  });

  test('hears the answer after it half-closed', async () => {
    const gate = Promise.withResolvers<void>();
    await using upstream = await HostileUpstream.start([waitFor(gate.promise), send(OK)]);
    using client = await RawClient.connect(upstream.port);
    await client.write(GET);
    client.halfClose();
    const request = await upstream.request(0);
    // This upstream takes a FIN for a goodbye, as many do; what counts here is that the FIN came and no RST.
    expect(await request.closed).toMatchObject({ by: 'peer', how: 'fin' });
    gate.resolve();
  });

  test.each([
    ['length and coding', 'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n'],
    ['not HTTP', 'SSH-2.0\r\n\r\n'],
    ['a second answer that is garbage', `${OK}garbage\r\n\r\n`],
  ])('malformed answers are faults: %s', async (_name, bytes) => {
    await using upstream = await HostileUpstream.start([send(bytes), close()]);
    using client = await RawClient.connect(upstream.port);
    await client.write(GET);
    await client.closed;
    expect(client.fault).toBeDefined();
    await expect(client.response()).rejects.toThrow(client.fault);
  });

  test('readUntil goes on from what it found', async () => {
    await using upstream = await HostileUpstream.start([send('a-b-'), wait(20), send('a-c')]);
    using client = await RawClient.connect(upstream.port);
    await client.write(GET);
    await client.readUntil('a-');
    const all = await client.readUntil('a-');
    expect(all.toString()).toMatch(/^a-b-a-/);
    await client.readUntil((bytes) => bytes.length === 7);
    await expect(client.readUntil('never', 20)).rejects.toThrow(/"never"/);
  });

  test('requestBytes adds host, content-type and length, and nothing that is given', () => {
    expect(requestBytes({ body: '{}' }).toString()).toBe(
      'POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}',
    );
    const headers = [
      ['Content-Type', 'x'],
      ['transfer-encoding', 'chunked'],
    ] as const;
    expect(
      requestBytes({ method: 'PUT', target: '/t', headers, host: 'h', body: '0\r\n\r\n' }).toString(),
    ).toBe('PUT /t HTTP/1.1\r\nhost: h\r\nContent-Type: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n');
  });

  test('any split of an answer gives the same answer', async () => {
    const bytes = Buffer.from(
      'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\nx-t: 1\r\n\r\n' +
        'HTTP/1.1 404 No\r\ncontent-length: 3\r\n\r\nabc',
    );
    await using upstream = await HostileUpstream.start();
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(fc.integer({ min: 1, max: bytes.length - 1 }), { maxLength: 12 }),
        async (cuts) => {
          const edges = [0, ...cuts.sort((a, b) => a - b), bytes.length];
          const pieces = edges.slice(1).map((end, index) => bytes.subarray(edges[index], end));
          upstream.next(async (c) => {
            for (const piece of pieces) {
              await c.send(piece);
              await turn();
            }
          });
          using client = await RawClient.connect(upstream.port);
          await client.write(GET);
          const [one, two] = [await client.response(), await client.response()];
          expect([one.text(), one.chunks.length, one.trailers, one.complete]).toEqual([
            'hello world',
            3,
            [['x-t', '1']],
            true,
          ]);
          expect([two.status, two.text(), two.complete]).toEqual([404, 'abc', true]);
        },
      ),
      { numRuns: 60 },
    );
  });
});

describe('waiting', () => {
  test('until gives what the condition gave, and names what did not come', async () => {
    let calls = 0;
    expect(await until(() => (++calls > 2 ? 'yes' : undefined))).toBe('yes');
    await expect(until(() => false, 'the impossible', 10)).rejects.toThrow(/the impossible .* 10 ms/);
    const failing = until(
      () => {
        throw new Error('why');
      },
      'it',
      10,
    );
    await expect(failing).rejects.toMatchObject({ cause: new Error('why') });
  });

  test('within names what is late', async () => {
    expect(await within(Promise.resolve(1), 'one')).toBe(1);
    await expect(within(new Promise(() => {}), 'never', 10, () => 'at 5')).rejects.toThrow(
      /never .* 10 ms \(at 5\)/,
    );
  });

  test('a closed port refuses', async () => {
    await expect(RawClient.connect(await closedPort())).rejects.toThrow(/ECONNREFUSED/);
  });

  test('a temporary directory goes with its block', async () => {
    const { existsSync, writeFileSync } = await import('node:fs');
    let path = '';
    {
      await using directory = await tempDir();
      path = directory.path;
      writeFileSync(directory.file('x'), 'x');
      expect(existsSync(path)).toBe(true);
    }
    expect(existsSync(path)).toBe(false);
  });
});

/** Gives the reader time to take what was sent: a reset throws away what the kernel still holds. */
function waitForReader(): ReturnType<typeof wait> {
  return wait(50);
}
