// Realtime sessions through a whole gateway: the handshake and whose key it carries, the model in the query, bytes in both
// directions, and every way in which a session can end. The upstream is a real WebSocket server.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createServer } from 'node:tls';
import OpenAI from 'openai';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WebSocket as Client } from 'ws';
import { closeFrame, textFrame } from '../../src/realtime/websocket/websocket-frames.ts';
import { isPrefix, PREFIX_LENGTH, type Prefix } from '../../src/store/key-record.ts';
import { makeCertificate } from '../helpers/certificate.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import { WEBSOCKET_HANDSHAKE } from '../helpers/raw-client.ts';
import { RealtimeUpstream, responseDone, type UpstreamSession } from '../helpers/realtime-upstream.ts';
import { pause, until, within } from '../helpers/wait.ts';

interface Opened {
  readonly client: Client;
  readonly session: UpstreamSession;
  /** What the client read, in order. */
  readonly messages: { text: string; binary: boolean }[];
  readonly closed: Promise<{ code: number; reason: string }>;
}

const wsUrl = (gateway: Gateway, query = '?model=test-model') =>
  `${gateway.url.replace('http', 'ws')}/v1/realtime${query}`;

function listen(client: Client): Pick<Opened, 'messages' | 'closed'> {
  const messages: { text: string; binary: boolean }[] = [];
  client.on('message', (data, binary) => messages.push({ text: String(data), binary }));
  client.on('error', () => undefined);
  const closed = new Promise<{ code: number; reason: string }>((resolve) =>
    client.once('close', (code, reason) => resolve({ code, reason: String(reason) })),
  );
  return { messages, closed: within(closed, 'the end of the session') };
}

async function open(
  gateway: Gateway,
  upstream: RealtimeUpstream,
  key?: string,
  query?: string,
): Promise<Opened> {
  const next = upstream.next();
  const client = new Client(wsUrl(gateway, query), ['realtime'], {
    headers: { authorization: `Bearer ${key ?? (await gateway.key())}` },
  });
  const heard = listen(client);
  await within(once(client, 'open'), 'the session to open');
  return { client, session: await next, ...heard };
}

/** The answer in HTTP to a handshake that is refused. */
async function refusal(
  gateway: Gateway,
  query: string,
  headers: Record<string, string>,
  protocols: string[] = [],
): Promise<{ status: number; headers: Record<string, unknown>; body: unknown }> {
  const client = new Client(wsUrl(gateway, query), protocols, { headers });
  client.on('error', () => undefined);
  const [, response] = await within(once(client, 'unexpected-response'), 'a refusal');
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return {
    status: response.statusCode,
    headers: response.headers,
    body: JSON.parse(String(Buffer.concat(chunks))),
  };
}

/** The handshake of RFC 6455, 1.3. */
const handshake = (key: string) =>
  [
    'GET /v1/realtime?model=test-model HTTP/1.1',
    'host: a',
    'connection: keep-alive, Upgrade',
    'upgrade: WebSocket',
    'sec-websocket-version: 13',
    'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==',
    `authorization: Bearer ${key}`,
    '\r\n',
  ].join('\r\n');

/** The public name of a key. */
function prefixOf(key: string): Prefix {
  const prefix = key.slice(0, PREFIX_LENGTH);
  if (!isPrefix(prefix)) throw new Error('no key');
  return prefix;
}

const errorCode = (body: unknown): unknown => Reflect.get(Object(Reflect.get(Object(body), 'error')), 'code');

const lineOf = (gateway: Gateway, holds: (line: Record<string, unknown>) => boolean = () => true) =>
  gateway.logLine((line) => line['route'] === '/v1/realtime' && holds(line), 'the line of the session');

describe('a realtime session', () => {
  let upstream: RealtimeUpstream;
  let gateway: Gateway;
  let key: string;

  beforeAll(async () => {
    upstream = await RealtimeUpstream.start();
    gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: {
        upstreams: {
          up: { headers: { 'openai-organization': 'org-of-operator' }, query: { 'api-version': '1' } },
        },
      },
    });
    key = await gateway.key();
  });

  afterAll(async () => {
    await gateway.close();
    await upstream[Symbol.asyncDispose]();
  });

  test('forwards texts and bytes unchanged and in order, in both directions', async () => {
    const { client, session, messages, closed } = await open(gateway, upstream);
    client.send('{"type":"session.update"}');
    client.send(Buffer.from([0, 255, 1]));
    session.socket.send('{"type":"session.created"}');
    session.socket.send(Buffer.alloc(300_000, 7));
    session.socket.send('in two', { fin: false });
    session.socket.send(' parts', { fin: true });
    await until(() => session.messages.length === 2 && messages.length === 3, 'all messages');
    expect(session.messages).toEqual([
      { text: '{"type":"session.update"}', binary: false },
      { text: String(Buffer.from([0, 255, 1])), binary: true },
    ]);
    expect(messages.map(({ text, binary }) => [text.length, binary])).toEqual([
      [26, false],
      [300_000, true],
      [12, false],
    ]);
    client.close(1000, 'done');
    expect(await closed).toEqual({ code: 1000, reason: 'done' });
  });

  test("is opened with the operator's credentials, and without any of the client's", async () => {
    const next = upstream.next();
    const client = new Client(
      wsUrl(gateway, '?model=test-model&x=%2f+%C3%A4&x=2'),
      ['realtime', 'openai-beta.realtime-v1', 'other'],
      {
        headers: {
          authorization: `Bearer ${key}`,
          cookie: 'a=b',
          'openai-organization': 'org-of-client',
          'x-forwarded-for': '1.2.3.4',
          'openai-beta': 'realtime=v1',
          origin: 'https://example.com',
        },
      },
    );
    const { closed } = listen(client);
    await within(once(client, 'open'), 'the session');
    const { request } = await next;
    expect(request.url).toBe('/v1/realtime?api-version=1&model=upstream-model&x=%2f+%C3%A4&x=2');
    const { headers } = request;
    expect(headers).toMatchObject({
      authorization: 'Bearer credential-of-up',
      'openai-organization': 'org-of-operator',
      'openai-beta': 'realtime=v1',
      'sec-websocket-protocol': 'realtime, openai-beta.realtime-v1',
      host: new URL(upstream.baseUrl).host,
    });
    for (const name of ['cookie', 'x-forwarded-for', 'origin', 'sec-websocket-extensions'])
      expect(headers[name]).toBeUndefined();
    expect(JSON.stringify(headers)).not.toContain(key);
    expect(client.protocol).toBe('realtime');
    client.close();
    await closed;
  });

  test('reads the key of a browser from the subprotocol, and does not forward it', async () => {
    const next = upstream.next();
    const client = new WebSocket(wsUrl(gateway), ['realtime', `openai-insecure-api-key.${key}`]);
    await within(once(client, 'open'), 'the session');
    const session = await next;
    expect(client.protocol).toBe('realtime');
    expect(session.request.headers['sec-websocket-protocol']).toBe('realtime');
    const message = once(client, 'message');
    session.socket.send('hello');
    expect((await message)[0].data).toBe('hello');
    const closed = once(client, 'close');
    session.socket.close(4404, 'gone');
    const [event] = await within(closed, 'the close');
    expect([event.code, event.reason, event.wasClean]).toEqual([4404, 'gone', true]);
    expect(gateway.output).not.toContain(key);
  });

  test('works with the official client, which forces TLS', async () => {
    const port = Number(new URL(gateway.url).port);
    const front = createServer(makeCertificate(), (socket) => {
      const back = connect(port, '127.0.0.1');
      socket.on('error', () => back.destroy());
      back.on('error', () => socket.destroy());
      socket.pipe(back).pipe(socket);
    }).listen(0, '127.0.0.1');
    await once(front, 'listening');
    const address = front.address();
    if (address === null || typeof address === 'string') throw new Error('it does not listen');
    const next = upstream.next();
    const client = new OpenAI({ apiKey: key, baseURL: `https://127.0.0.1:${address.port}/v1` });
    const realtime = new OpenAIRealtimeWS(
      { model: 'test-model', options: { rejectUnauthorized: false } },
      client,
    );
    realtime.on('error', () => undefined);
    await within(once(realtime.socket, 'open'), 'the session to open');
    const session = await next;
    const done = new Promise<number | undefined>((resolve) =>
      realtime.on('response.done', ({ response }) => resolve(response.usage?.total_tokens)),
    );
    realtime.send({ type: 'response.create' });
    await until(() => session.messages.some(({ text }) => text.includes('response.create')), 'the question');
    session.socket.send(responseDone(3, 4));
    expect(await within(done, 'the answer')).toBe(7);
    const closed = once(realtime.socket, 'close');
    realtime.close();
    await within(closed, 'the end');
    expect(await session.closed).toMatchObject({ code: 1000 });
    front.close();
  });

  test.each([1000, 1001, 1003, 1007, 1008, 1009, 1011, 1012, 1013, 1014, 3000, 4404, 4999])(
    'passes on the close code %i in either direction',
    async (code) => {
      const first = await open(gateway, upstream);
      first.session.socket.close(code, `reason ${code}`);
      expect(await first.closed).toEqual({ code, reason: `reason ${code}` });
      expect(await first.session.closed).toEqual({ code, reason: `reason ${code}` });
      const second = await open(gateway, upstream);
      second.client.close(code, 'x'.repeat(123));
      expect(await within(second.session.closed, 'the close')).toEqual({ code, reason: 'x'.repeat(123) });
      await second.closed;
    },
  );

  test('counts codes that no Close may have as one', async () => {
    const ended = (code: string) =>
      gateway.metric(`tollgate_realtime_sessions_ended_total{by="client",code="${code}"}`);
    const before = await ended('other');
    for (const code of [0, 7, 999]) {
      const { client, closed } = await open(gateway, upstream);
      const { _socket: connection } = Object(client);
      connection.write(Buffer.from([0x88, 0x82, 0, 0, 0, 0, code >> 8, code & 255]));
      await closed;
    }
    await until(async () => (await ended('other')) === before + 3, 'the counts');
    expect([await ended('0'), await ended('7'), await ended('999')]).toEqual([0, 0, 0]);
  });

  test('forwards a Close without a code, and the bytes before it', async () => {
    const { session, messages, closed } = await open(gateway, upstream);
    for (let i = 0; i < 50; i++) session.socket.send(Buffer.alloc(10_000, i));
    session.socket.close();
    expect(await closed).toEqual({ code: 1005, reason: '' });
    expect(messages.length).toBe(50);
  });

  test('is cut, and not closed cleanly, if the upstream breaks off', async () => {
    const { session, messages, closed } = await open(gateway, upstream);
    session.socket.send('the last');
    await until(() => messages.length === 1);
    session.raw.resetAndDestroy();
    expect(await closed).toMatchObject({ code: 1006 });
    const line = await lineOf(gateway, (each) => each['outcome'] === 'stream_incomplete');
    expect(line).toMatchObject({ close_code: 1006, closed_by: 'upstream', status: 101 });
    const ended = await open(gateway, upstream);
    ended.session.socket.send('kept');
    ended.session.raw.end();
    expect(await ended.closed).toMatchObject({ code: 1006 });
    expect(ended.messages.map(({ text }) => text)).toEqual(['kept']);
  });

  test('is cut if the upstream ends it while it does not read', async () => {
    const { client, session, closed } = await open(gateway, upstream);
    session.raw.pause();
    const piece = Buffer.alloc(1024 * 1024);
    for (let i = 0; i < 24; i++) client.send(piece);
    await pause(200);
    expect(client.bufferedAmount).toBeGreaterThan(piece.length);
    session.raw.end();
    expect(await closed).toMatchObject({ code: 1006 });
  });

  test('ends at the upstream when the client disconnects', async () => {
    const { client, session, closed } = await open(gateway, upstream);
    client.terminate();
    expect(await within(session.closed, 'the end at the upstream')).toMatchObject({ code: 1006 });
    await closed;
    const line = await lineOf(gateway, (each) => each['outcome'] === 'client_closed');
    expect(line).toMatchObject({ status: 499, close_code: 1006, closed_by: 'client' });
  });

  test('forwards pings and pongs with their payload', async () => {
    const { client, session, closed } = await open(gateway, upstream);
    const ping = once(session.socket, 'ping');
    const pong = once(client, 'pong');
    client.ping('one');
    expect(String((await within(ping, 'the ping'))[0])).toBe('one');
    expect(String((await within(pong, 'the pong'))[0])).toBe('one');
    const other = once(client, 'ping');
    session.socket.ping('two');
    expect(String((await within(other, 'the ping'))[0])).toBe('two');
    client.close();
    await closed;
  });

  test('buffers what the client sends before the upstream answers', async () => {
    let answer = () => {};
    const asked = new Promise<void>((resolve) => {
      upstream.options = {
        refuse: (_request, socket) => {
          // Held until the early frames are under way.
          socket.pause();
          answer = () => {
            upstream.options = {};
          };
          resolve();
          return false;
        },
      };
    });
    const next = upstream.next();
    const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
    socket.write(
      Buffer.concat([Buffer.from(handshake(key)), Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69])]),
    );
    await within(asked, 'the handshake at the upstream');
    socket.write(Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x6f]));
    answer();
    const session = await next;
    session.raw.resume();
    await until(() => session.messages.length === 2, 'the early frames');
    expect(session.messages.map(({ text }) => text)).toEqual(['hi', 'ho']);
    socket.destroy();
    await session.closed;
  });

  test('applies backpressure of a client that does not read', async () => {
    const { client, session, closed } = await open(gateway, upstream);
    client.pause();
    const piece = Buffer.alloc(1024 * 1024);
    let sent = 0;
    for (let i = 0; i < 32; i++) session.socket.send(piece, () => (sent += 1));
    await pause(300);
    const before = sent;
    expect(before).toBeLessThan(30);
    let read = 0;
    client.on('message', () => (read += 1));
    client.resume();
    await until(() => read === 32, 'all pieces');
    client.close();
    await closed;
  });

  test('applies backpressure of an upstream that does not read', async () => {
    const { client, session, closed } = await open(gateway, upstream);
    session.raw.pause();
    const piece = Buffer.alloc(1024 * 1024);
    for (let i = 0; i < 24; i++) client.send(piece);
    await pause(200);
    expect(client.bufferedAmount).toBeGreaterThan(piece.length);
    session.raw.resume();
    await until(() => session.messages.length === 24, 'all pieces');
    client.close();
    await closed;
  });

  test('is opened after an earlier request on the same connection', async () => {
    const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.write(`GET /health HTTP/1.1\r\nhost: a\r\n\r\n${handshake(key)}`);
    const text = await until(() => {
      const heard = Buffer.concat(chunks).toString('latin1');
      return heard.includes('101 Switching') ? heard : undefined;
    }, 'the 101');
    expect(text.indexOf('HTTP/1.1 200')).toBe(0);
    expect(text).toContain('sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=');
    socket.destroy();
  });

  test('is opened for a target in absolute form, whose model and path are read', async () => {
    const next = upstream.next();
    const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    const absolute = handshake(key).replace('GET /', 'GET http://gateway.example/');
    socket.write(Buffer.concat([Buffer.from(absolute), textFrame('{"type":"x"}', true)]));
    const session = await within(next, 'the session');
    await until(() => session.messages.length === 1, 'the frame');
    expect(session.messages).toEqual([{ text: '{"type":"x"}', binary: false }]);
    expect(session.request.url).toBe('/v1/realtime?api-version=1&model=upstream-model');
    expect(session.request.headers.host).toBe(new URL(upstream.baseUrl).host);
    await until(() => Buffer.concat(chunks).toString('latin1').startsWith('HTTP/1.1 101 '), 'the 101');
    socket.destroy();
    await session.closed;
  });

  test('that is rejected answers a client that has already sent much', async () => {
    const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    const ended = once(socket, 'end');
    socket.write(handshake('0'.repeat(32)));
    socket.write(Buffer.alloc(300_000));
    await within(ended, 'the end of the answer');
    expect(Buffer.concat(chunks).toString()).toMatch(
      /^HTTP\/1\.1 401 .*connection: close.*"invalid_api_key"/is,
    );
    socket.destroy();
  });

  test('counts one request and the tokens of its answers, and logs them', async () => {
    const holder = await gateway.issueKey('Pro');
    const { client, session, messages, closed } = await open(gateway, upstream, holder);
    session.socket.send(responseDone(100, 20, 40));
    session.socket.send(responseDone(200, 30));
    session.socket.send('{"type":"response.output_text.delta","delta":"a"}');
    session.socket.send('{"type":"response.output_text.delta","delta":"b"}');
    await until(() => messages.length === 4);
    client.close(1000);
    await closed;
    const line = await lineOf(gateway, (each) => each['responses'] === 3);
    expect(line).toMatchObject({
      status: 101,
      outcome: 'ok',
      prompt_tokens: 300,
      completion_tokens: 52,
      close_code: 1000,
      closed_by: 'client',
      upstream: 'up',
      upstream_model: 'upstream-model',
      model: 'test-model',
      attempts: 1,
    });
    const usage = await until(async () => {
      const response = await fetch(`${gateway.url}/admin/usage`, {
        headers: { authorization: `Bearer ${holder}` },
      });
      const text = await response.text();
      return text.includes('352') || text.includes('300') ? text : undefined;
    }, 'the usage');
    expect(usage).toMatch(/"requests":1\b/);
    expect(
      await gateway.metric('tollgate_realtime_responses_total{counted="reported"}'),
    ).toBeGreaterThanOrEqual(2);
    expect(await gateway.metric('tollgate_limit_leases')).toBe(0);
  });

  test.each([
    ['no key', '?model=test-model', {}, [], 401, 'missing_api_key'],
    [
      'a wrong key',
      '?model=test-model',
      { authorization: `Bearer ${'0'.repeat(32)}` },
      [],
      401,
      'invalid_api_key',
    ],
    [
      'a wrong key in the subprotocol',
      '?model=test-model',
      {},
      ['realtime', `openai-insecure-api-key.${'0'.repeat(32)}`],
      401,
      'invalid_api_key',
    ],
    [
      'two keys in subprotocols',
      '?model=test-model',
      {},
      ['openai-insecure-api-key.a', 'openai-insecure-api-key.b'],
      401,
      'missing_api_key',
    ],
    ['no model', '', 'key', [], 400, 'missing_required_parameter'],
    ['two models', '?model=a&mod%65l=b', 'key', [], 400, 'duplicate_parameter'],
    ['a model in no encoding', '?model=%ff', 'key', [], 400, 'invalid_value'],
    ['an unknown model', '?model=nobodys', 'key', [], 404, 'model_not_found'],
  ] as const)('is refused in HTTP with %s', async (_what, query, headers, protocols, status, code) => {
    const given = headers === 'key' ? { authorization: `Bearer ${key}` } : { ...headers };
    const answer = await refusal(gateway, query, given, [...protocols]);
    expect([answer.status, errorCode(answer.body)]).toEqual([status, code]);
    expect(answer.headers['content-type']).toBe('application/json');
    expect(answer.headers['x-request-id']).toMatch(/^req_/);
  });

  test.each([
    ['a plain request', {}, 426],
    ['another protocol', { connection: 'upgrade', upgrade: 'h2c' }, 426],
    [
      'another version',
      {
        connection: 'upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '8',
        'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
      },
      426,
    ],
    [
      'no key of the handshake',
      { connection: 'upgrade', upgrade: 'websocket', 'sec-websocket-version': '13' },
      400,
    ],
  ])('is no session with %s', async (_what, headers, status) => {
    using raw = await gateway.connect();
    const response = await raw.ask({ method: 'GET', target: '/v1/realtime?model=test-model', headers });
    expect(response.status).toBe(status);
    expect(response.header('sec-websocket-version')).toBe('13');
    expect(response.json()).toHaveProperty('error.message');
  });

  test('an upgrade on another URL is an ordinary request', async () => {
    using raw = await gateway.connect();
    const response = await raw.ask({ method: 'GET', target: '/health', headers: WEBSOCKET_HANDSHAKE });
    expect(response.status).toBe(200);
  });
});

/** An upstream that answers handshakes with these bytes. */
const answering = (text: string) => (_request: unknown, socket: Socket) => {
  socket.end(text);
  return true;
};

const errorAnswer = (status: number, headers = '') => {
  const body = JSON.stringify({ error: { message: `no: ${status}`, type: 'x', param: null, code: 'y' } });
  return `HTTP/1.1 ${status} X\r\ncontent-type: application/json\r\n${headers}content-length: ${body.length}\r\n\r\n${body}`;
};

describe('an upstream that opens no session', () => {
  test.each([
    ['401', errorAnswer(401), 406, 'upstream_auth_error'],
    ['400', errorAnswer(400), 400, 'y'],
    ['429', errorAnswer(429, 'retry-after: 7\r\n'), 429, 'y'],
    ['200', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi', 502, 'upstream_invalid_response'],
    ['no HTTP', 'nonsense\r\n\r\n', 502, 'upstream_invalid_response'],
    ['nothing', '', 502, 'upstream_unreachable'],
    [
      'the answer to another handshake',
      'HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\n',
      502,
      'upstream_invalid_response',
    ],
  ])('with %s', async (what, text, status, code) => {
    await using upstream = await RealtimeUpstream.start({ refuse: answering(text) });
    await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
    const answer = await refusal(gateway, '?model=test-model', {
      authorization: `Bearer ${await gateway.key()}`,
    });
    expect([answer.status, errorCode(answer.body)]).toEqual([status, code]);
    expect(await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')).toBe(0);
    const noted = /^\d/.test(what) ? Number(what) : undefined;
    expect((await lineOf(gateway))['upstream_status']).toBe(noted);
  });

  test.each([
    ['an extension', 'sec-websocket-extensions: permessage-deflate'],
    ['a subprotocol', 'sec-websocket-protocol: other'],
  ])('with %s that was not offered', async (_what, line) => {
    await using upstream = await RealtimeUpstream.start({
      refuse: ({ headers }, socket) => {
        const guid = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
        const accept = createHash('sha1').update(`${headers['sec-websocket-key']}${guid}`).digest('base64');
        const head = [
          'HTTP/1.1 101 X',
          'connection: upgrade',
          'upgrade: websocket',
          `sec-websocket-accept: ${accept}`,
        ];
        socket.write([...head, line, '\r\n'].join('\r\n'));
        return true;
      },
    });
    await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    const answer = await refusal(gateway, '?model=test-model', headers);
    expect([answer.status, errorCode(answer.body)]).toEqual([502, 'upstream_invalid_response']);
  });

  test('is followed by the next target', async () => {
    await using broken = await RealtimeUpstream.start({ refuse: answering(errorAnswer(503)) });
    await using good = await RealtimeUpstream.start();
    await using gateway = await startGateway({
      upstreams: { dead: 'http://127.0.0.1:9/v1', broken: broken.baseUrl, good: good.baseUrl },
    });
    const { client, session, closed } = await open(gateway, good);
    expect(session.request.headers.authorization).toBe('Bearer credential-of-good');
    client.close(1000);
    await closed;
    expect(await lineOf(gateway)).toMatchObject({ attempts: 3, upstream: 'good', upstream_status: 101 });
  });

  test('is answered with the refusal of the last target, and not of one that is busy', async () => {
    await using first = await RealtimeUpstream.start({ refuse: answering(errorAnswer(500)) });
    await using last = await RealtimeUpstream.start();
    await using gateway = await startGateway({
      upstreams: { first: first.baseUrl, last: last.baseUrl },
      config: { upstreams: { last: { max_concurrency: 1 } } },
    });
    const { client, closed } = await open(gateway, last);
    const answered = async () => {
      const { status, body } = await refusal(gateway, '?model=test-model', {
        authorization: `Bearer ${await gateway.key()}`,
      });
      return [status, errorCode(body)];
    };
    expect(await answered()).toEqual([500, 'y']);
    client.close(1000);
    await closed;
    await until(async () => (await gateway.metric('tollgate_upstream_in_flight{upstream="last"}')) === 0);
    last.options = { refuse: answering('nonsense\r\n\r\n') };
    expect(await answered()).toEqual([502, 'upstream_invalid_response']);
  });

  test('is left at its deadline', async () => {
    await using upstream = await RealtimeUpstream.start({ refuse: () => true });
    await using gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { upstreams: { up: { timeouts: { connect: '50ms', headers: '50ms' } } } },
    });
    const answer = await refusal(gateway, '?model=test-model', {
      authorization: `Bearer ${await gateway.key()}`,
    });
    expect([answer.status, errorCode(answer.body)]).toEqual([504, 'upstream_timeout']);
  });

  test('counts in the breaker after a deadline of the target', async () => {
    await using upstream = await RealtimeUpstream.start({ refuse: () => true });
    const target = { upstream: 'up', model: 'upstream-model', timeouts: { headers: '20ms' } };
    await using gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: {
        upstreams: { up: { timeouts: { connect: '1s', headers: '1h' } } },
        models: { 'test-model': { targets: [target] } },
      },
    });
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    for (let i = 0; i < 5; i += 1) {
      expect((await refusal(gateway, '?model=test-model', headers)).status).toBe(504);
    }
    const breaker = 'tollgate_upstream_breaker_state{upstream="up",model="upstream-model"}';
    expect(await gateway.metric(breaker)).toBe(2);
  });

  test('is left when the client disconnects first', async () => {
    let socket: Socket | undefined;
    await using upstream = await RealtimeUpstream.start({
      refuse: (_request, raw) => {
        socket = raw;
        return true;
      },
    });
    await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
    const client = new Client(wsUrl(gateway), {
      headers: { authorization: `Bearer ${await gateway.key()}` },
    });
    client.on('error', () => undefined);
    const held = await until(() => socket, 'the handshake');
    const ended = once(held, 'end');
    held.resume();
    client.terminate();
    await within(ended, 'the end of the attempt');
    expect(await lineOf(gateway)).toMatchObject({ status: 499, outcome: 'client_closed' });
  });
});

test('the built-in model answers in a session', async () => {
  await using gateway = await startGateway();
  const client = new Client(wsUrl(gateway), ['realtime'], {
    headers: { authorization: `Bearer ${await gateway.key()}` },
  });
  const { messages, closed } = listen(client);
  await within(once(client, 'open'), 'the session');
  expect(client.protocol).toBe('realtime');
  const content = [{ type: 'input_text', text: 'hello there' }];
  const item = { type: 'message', role: 'user', content };
  client.send(JSON.stringify({ type: 'conversation.item.create', item }));
  client.send(JSON.stringify({ type: 'response.create' }));
  client.send('nonsense');
  const pong = once(client, 'pong');
  client.ping('x');
  expect(String((await within(pong, 'the pong'))[0])).toBe('x');
  const events = messages.map(({ text }) => JSON.parse(text));
  expect(events.map(({ type }) => type)).toEqual([
    'session.created',
    'conversation.item.added',
    'response.created',
    ...events.filter(({ type }) => type === 'response.output_text.delta').map(({ type }) => type),
    'response.output_text.done',
    'response.done',
    'error',
  ]);
  expect(new Set(events.map(({ event_id }) => event_id)).size).toBe(events.length);
  expect(events.find(({ type }) => type === 'response.output_text.done').text).toBe('You said: hello there');
  client.close(1000);
  expect(await closed).toMatchObject({ code: 1000 });
  const line = await lineOf(gateway);
  expect(line).toMatchObject({
    status: 101,
    upstream: 'echo',
    responses: 1,
    close_code: 1000,
    outcome: 'ok',
  });
  expect(line['completion_tokens']).toBe(4);
});

test('a model that is not offered for it opens no session', async () => {
  await using upstream = await RealtimeUpstream.start();
  await using gateway = await startGateway({
    config: {
      upstreams: { up: { base_url: upstream.baseUrl } },
      models: {
        elsewhere: { targets: [{ upstream: 'up', model: 'm' }], endpoints: ['chat'] },
      },
    },
  });
  const headers = { authorization: `Bearer ${await gateway.key()}` };
  for (const model of ['elsewhere']) {
    const answer = await refusal(gateway, `?model=${model}`, headers);
    expect([answer.status, errorCode(answer.body)]).toEqual([404, 'endpoint_not_offered']);
  }
  expect(upstream.handshakes).toEqual([]);
});

describe('the gateway ends a session', () => {
  test('at the end of a drain, with 1001, and opens none during it', async () => {
    await using upstream = await RealtimeUpstream.start();
    await using gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { drain: { delay: '300ms', timeout: '200ms' } },
    });
    const { session, messages, closed } = await open(gateway, upstream);
    const down = gateway.app.close();
    const refused = await refusal(gateway, '?model=test-model', {
      authorization: `Bearer ${await gateway.key()}`,
    });
    expect([refused.status, errorCode(refused.body)]).toEqual([503, 'draining']);
    session.socket.send(responseDone(5, 6));
    expect((await closed).code).toBe(1001);
    expect((await within(session.closed, 'the close')).code).toBe(1001);
    await within(down, 'the end of the gateway');
    expect(JSON.parse(messages.at(-1)?.text ?? '')).toMatchObject({
      type: 'error',
      error: { code: 'draining' },
    });
    expect(await lineOf(gateway, (line) => line['status'] === 101)).toMatchObject({
      outcome: 'draining',
      close_code: 1001,
      closed_by: 'gateway',
      prompt_tokens: 5,
    });
  });

  test('of a compromised key with 1008, and no other session', async () => {
    await using upstream = await RealtimeUpstream.start();
    await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
    const bad = await gateway.issueKey();
    const retired = await gateway.issueKey();
    const first = await open(gateway, upstream, bad);
    const second = await open(gateway, upstream, retired);
    const { issuer } = gateway.app;
    await issuer.revoke(prefixOf(retired), 'left the company');
    await issuer.revoke(prefixOf(bad), 'compromised: found in a repository');
    expect(await first.closed).toEqual({ code: 1008, reason: 'invalid_api_key' });
    expect(await within(first.session.closed, 'the close')).toEqual({
      code: 1008,
      reason: 'invalid_api_key',
    });
    second.session.socket.send('goes on');
    await until(() => second.messages.length === 1);
    second.client.close();
    await second.closed;
  });

  test.each([
    ['minute', { tokens_per_minute: 100 }, 1013, 'rate_limit_exceeded'],
    ['month', { tokens_per_month: 100 }, 1008, 'insufficient_quota'],
    // 90 tokens cost 0.00009.
    ['month, for money', { budget: { per_month: 0.0001 } }, 1008, 'insufficient_quota'],
  ] as const)('whose holder has no tokens left in this %s', async (_what, limits, code, reason) => {
    await using upstream = await RealtimeUpstream.start();
    await using gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: {
        currency: 'EUR',
        models: {
          'test-model': {
            targets: [{ upstream: 'up', model: 'upstream-model' }],
            price: { input: 1, output: 1 },
          },
        },
        tiers: { Pro: { ...limits, concurrency: 2 } },
      },
    });
    const { session, messages, closed } = await open(gateway, upstream);
    session.socket.send(responseDone(40, 50));
    await until(() => messages.length === 1);
    session.socket.send(responseDone(40, 50));
    expect(await closed).toEqual({ code, reason });
    expect(JSON.parse(messages.at(-1)?.text ?? '')).toMatchObject({ type: 'error', error: { code: reason } });
    const next = await refusal(gateway, '?model=test-model', {
      authorization: `Bearer ${await gateway.key()}`,
    });
    expect([next.status, errorCode(next.body)]).toEqual([429, reason]);
  });

  test('whose model has no budget left for its holder, which a message tells', async () => {
    await using upstream = await RealtimeUpstream.start();
    const price = { input: 1e6, output: 1e6 };
    const target = { upstream: 'up', model: 'upstream-model' };
    await using gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: {
        currency: 'EUR',
        models: {
          'test-model': {
            targets: [target],
            price,
            limits: { Pro: { budget: { per_month: 100, soft: 0.5 } } },
          },
        },
      },
    });
    const { session, messages, closed } = await open(gateway, upstream);
    session.socket.send(responseDone(40, 50));
    await until(() => messages.length === 1);
    const noticed = await gateway.logLine(({ msg }) => msg === 'a budget is used up to a soft threshold');
    expect(noticed).toMatchObject({ used: '90', scope: { kind: 'model', model: 'test-model' } });
    session.socket.send(responseDone(40, 50));
    expect(await closed).toEqual({ code: 1008, reason: 'insufficient_quota' });
    expect(messages.at(-1)?.text).toContain('The monthly budget of the model is spent.');
    await gateway.logLine(({ msg }) => msg === 'a budget is spent');
  });

  test('that is idle, or too old', async () => {
    await using upstream = await RealtimeUpstream.start();
    await using gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { realtime: { idle: '1s', lifetime: '2s' } },
    });
    const [silent, busy] = [await open(gateway, upstream), await open(gateway, upstream)];
    const timer = setInterval(() => busy.client.ping(), 100);
    try {
      expect(await silent.closed).toEqual({ code: 1001, reason: 'session was idle' });
      expect(await busy.closed).toEqual({ code: 1001, reason: 'session lifetime reached' });
    } finally {
      clearInterval(timer);
    }
  });

  test('whose client has not read for too long', async () => {
    await using upstream = await RealtimeUpstream.start();
    await using gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { stream: { write_stall: '300ms' } },
    });
    const { client, session } = await open(gateway, upstream);
    client.pause();
    for (let i = 0; i < 24; i++) session.socket.send(Buffer.alloc(1024 * 1024));
    expect(await within(session.closed, 'the cut')).toMatchObject({ code: 1006 });
    // The client's connection ends, too, although nobody reads it.
    await until(
      async () => (await gateway.metric('tollgate_realtime_sessions')) === 0,
      'the end of the session',
    );
    client.terminate();
  });

  test.each([
    ['the gateway has closed the session', (session: UpstreamSession) => session.socket.pause()],
    ['the upstream has broken off', (session: UpstreamSession) => session.socket.terminate()],
  ])('and forwards nothing that comes after %s', async (_what, end) => {
    await using upstream = await RealtimeUpstream.start();
    await using gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { realtime: { lifetime: '1s' } },
    });
    const next = upstream.next();
    const { port, hostname: host } = new URL(gateway.url);
    const client = connect({ port: Number(port), host, allowHalfOpen: true });
    const chunks: Buffer[] = [];
    client.on('data', (chunk: Buffer) => chunks.push(chunk));
    client.write(handshake(await gateway.key()));
    end(await next);
    // A Close is in no head.
    const isOver = () => client.readableEnded || Buffer.concat(chunks).includes(0x88);
    await until(isOver, 'the end of the session');
    client.end(Buffer.concat([textFrame('late', true), closeFrame(1000, '', true)]));
    expect(await lineOf(gateway)).toMatchObject({ closed_by: expect.any(String), bytes_in: 0 });
    client.destroy();
  });

  test('at a frame boundary, and not within a frame', async () => {
    await using upstream = await RealtimeUpstream.start();
    await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
    const { session, messages, closed } = await open(gateway, upstream);
    // It is not to answer the Close before the frame is whole.
    session.socket.pause();
    // The head of a text of five bytes, and two of them.
    session.raw.write(Buffer.from([0x81, 5, 0x68, 0x65]));
    await pause(50);
    const down = Promise.all([gateway.app.close(), gateway.app.close()]);
    await pause(50);
    session.raw.write(Buffer.from([0x6c, 0x6c, 0x6f, 0x81, 1, 0x78]));
    expect(await closed).toMatchObject({ code: 1001 });
    expect(messages.map(({ text }) => text)).toEqual(['hello']);
    await down;
  });
});

test('a session holds a concurrency slot of its holder until it ends', async () => {
  await using upstream = await RealtimeUpstream.start();
  await using gateway = await startGateway({
    upstreams: { up: upstream.baseUrl },
    config: { tiers: { Pro: { concurrency: 1, requests_per_day: 2 } } },
  });
  const headers = { authorization: `Bearer ${await gateway.key()}` };
  const first = await open(gateway, upstream);
  expect((await refusal(gateway, '?model=test-model', headers)).status).toBe(429);
  first.client.close();
  await first.closed;
  await until(async () => (await gateway.metric('tollgate_limit_leases')) === 0, 'the place');
  const second = await open(gateway, upstream);
  second.client.close();
  await second.closed;
  expect((await refusal(gateway, '?model=test-model', headers)).status).toBe(429);
});

test('many sessions that end in every way at random times leave nothing behind', async () => {
  await using upstream = await RealtimeUpstream.start({
    onSession: ({ socket, raw }) => {
      socket.send('{"type":"session.created"}');
      const ways = [
        () => socket.close(1000),
        () => socket.terminate(),
        () => raw.resetAndDestroy(),
        () => raw.end(),
        () => socket.send(Buffer.alloc(200_000)),
      ];
      setTimeout(() => ways[Math.floor(Math.random() * ways.length)]?.(), Math.random() * 60);
    },
  });
  await using gateway = await startGateway({
    upstreams: { up: upstream.baseUrl },
    // Breakers are not to hide it.
    now: fleetingClock(),
    config: { tiers: { Pro: { concurrency: 1000, tokens_per_minute: 1_000_000 } } },
  });
  const headers = { authorization: `Bearer ${await gateway.key()}` };
  const ends = Array.from({ length: 80 }, async () => {
    const client = new Client(wsUrl(gateway), ['realtime'], { headers });
    const { closed } = listen(client);
    client.once('open', () => client.send('x'));
    await pause(Math.random() * 120);
    const ways = [() => client.terminate(), () => client.close(), () => client.pause()];
    ways[Math.floor(Math.random() * ways.length)]?.();
    setTimeout(() => client.terminate(), 200);
    await closed;
  });
  await within(Promise.all(ends), 'the end of all clients');
  await until(async () => {
    const text = await gateway.metrics();
    return [
      'tollgate_realtime_sessions 0',
      'tollgate_limit_leases 0',
      'tollgate_upstream_in_flight{upstream="up"} 0',
      'tollgate_requests_in_flight 0',
    ].every((line) => text.includes(`${line}\n`));
  }, 'everything to be given back');
  const { client, closed } = await open(gateway, upstream);
  client.close();
  await closed;
});
