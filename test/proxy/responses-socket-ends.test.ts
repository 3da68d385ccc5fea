// How a WebSocket for responses begins and ends: handshakes, frames that no client may send, lost upstreams, clients that leave or do
// not read, revoked keys and drains. The upstream is a real WebSocket server, and it gets what the gateway sends.
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { isPrefix, PREFIX_LENGTH, type Prefix } from '../../src/store/key-record.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import { WEBSOCKET_HANDSHAKE } from '../helpers/raw-client.ts';
import { rejectedHandshake, ResponsesSocket as Socket } from '../helpers/responses-socket.ts';
import { eventsOf, ResponsesUpstream } from '../helpers/responses-upstream.ts';
import { pause, until, within } from '../helpers/wait.ts';

let upstream: ResponsesUpstream;
let gateway: Gateway;

const options = (config: Parameters<typeof startGateway>[0] = {}) => ({
  upstreams: { fake: upstream.baseUrl },
  now: fleetingClock(),
  config: { upstreams: { fake: { websocket: true } }, max_body: '1MiB', ...config.config },
});

beforeAll(async () => {
  upstream = await ResponsesUpstream.start();
  gateway = await startGateway(options());
});

afterAll(async () => {
  await gateway[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

beforeEach(() => {
  upstream.created.length = 0;
  upstream.answer = (event, id) => eventsOf(event, id);
  delete Object(upstream.server.options)['refuse'];
});

const sessions = () => upstream.server.sessions;
const latest = () => {
  const session = sessions().at(-1);
  if (session === undefined) throw new Error('there is no session');
  return session;
};

function prefixOf(key: string): Prefix {
  const prefix = key.slice(0, PREFIX_LENGTH);
  if (!isPrefix(prefix)) throw new Error('no prefix');
  return prefix;
}

describe('a handshake', () => {
  test('without a model over WebSockets is 426, with which clients go on by HTTP', async () => {
    await using plain = await startGateway({ upstreams: { fake: upstream.baseUrl } });
    const headers = { authorization: `Bearer ${await plain.key()}` };
    const answer = await rejectedHandshake(plain, headers);
    expect(answer).toMatchObject({ status: 426, body: { error: { code: 'websocket_not_offered' } } });
  });

  test.each([
    ['no key', {}, 401, 'missing_api_key'],
    ['a wrong key', { authorization: 'Bearer sk-wrong' }, 401, 'invalid_api_key'],
  ])('with %s is rejected', async (_what, headers, status, code) => {
    expect(await rejectedHandshake(gateway, headers)).toMatchObject({ status, body: { error: { code } } });
  });

  test('is not a plain GET', async () => {
    const headers = { authorization: `Bearer ${await gateway.key()}` };
    const answer = await fetch(`${gateway.url}/v1/responses`, { headers });
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'POST']);
  });

  test.each([
    ['another protocol', { upgrade: 'h2c' }],
    ['another version', { upgrade: 'websocket', 'sec-websocket-version': '8' }],
  ])('of %s is 426, and says which protocol and version there is', async (_what, upgrade) => {
    using raw = await gateway.connect();
    const headers = {
      connection: 'upgrade',
      'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
      ...upgrade,
      authorization: `Bearer ${await gateway.key()}`,
    };
    const answer = await raw.ask({ method: 'GET', target: '/v1/responses', headers });
    expect([answer.status, answer.header('upgrade'), answer.header('sec-websocket-version')]).toEqual([
      426,
      'websocket',
      '13',
    ]);
  });

  test('may be followed at once by an event', async () => {
    const { hostname, port, host } = new URL(gateway.url);
    const socket = connect(Number(port), hostname);
    const event = Buffer.from('{"type":"response.create","model":"test-model","input":"early"}');
    const head = [
      'GET /v1/responses HTTP/1.1',
      `host: ${host}`,
      'connection: Upgrade',
      'upgrade: websocket',
      'sec-websocket-version: 13',
      'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==',
      `authorization: Bearer ${await gateway.key()}`,
    ].join('\r\n');
    socket.write(
      Buffer.concat([
        Buffer.from(`${head}\r\n\r\n`),
        Buffer.from([0x81, 0x80 | event.length, 0, 0, 0, 0]),
        event,
      ]),
    );
    await until(() => upstream.events.length === 1, 'the event');
    expect(upstream.events).toMatchObject([{ input: 'early', model: 'upstream-model' }]);
    socket.destroy();
  });
});

describe('frames of the client', () => {
  test('come in pieces, and a ping is answered', async () => {
    using socket = await Socket.open(gateway);
    const pong = once(socket.raw, 'pong');
    socket.raw.ping('alive');
    expect(String((await within(pong, 'a pong'))[0])).toBe('alive');
    socket.raw.send('{"type":"response.create","model":"test-', { fin: false });
    socket.raw.send('model","input":"pieces"}', { fin: true });
    await socket.next('response.completed');
    expect(upstream.events).toMatchObject([{ input: 'pieces' }]);
  });

  test('behind a wrong one are not answered', async () => {
    using raw = await gateway.connect();
    const headers = {
      ...WEBSOCKET_HANDSHAKE,
      authorization: `Bearer ${await gateway.key()}`,
    };
    await raw.send({ method: 'GET', target: '/v1/responses', headers });
    await raw.readUntil('101 Switching');
    await raw.write(Buffer.from([0x81, 0]));
    await raw.readUntil('"invalid_value"');
    await raw.write(Buffer.from([0x81, 0]));
    raw.halfClose();
    await within(raw.closed, 'the end of the connection');
    expect(String(raw.received.bytes).split('"invalid_value"')).toHaveLength(2);
  });

  test.each([
    ['binary', 1003, (socket: Socket) => socket.raw.send(Buffer.from('{}'))],
    ['larger than max_body', 1009, (socket: Socket) => socket.create({ input: 'x'.repeat(1 << 20) })],
    [
      'larger than max_body before they end',
      1009,
      (socket: Socket) => socket.raw.send('x'.repeat((1 << 20) + 1), { fin: false }),
    ],
    ['not masked', 1002, (socket: Socket) => socket.raw.send('{}', { mask: false })],
  ] as const)('that are %s end the connection with %i', async (_what, code, send) => {
    using socket = await Socket.open(gateway);
    send(socket);
    expect(await socket.closed).toMatchObject({ code });
    expect(socket.events).toMatchObject([{ type: 'error' }]);
    expect(upstream.events).toEqual([]);
  });

  test.each([
    [1000, 1000],
    [4321, 4321],
    [undefined, 1000],
  ])('with a Close of %s get one back', async (code, answered) => {
    using socket = await Socket.open(gateway);
    await socket.respond();
    const session = latest();
    socket.raw.close(code);
    // The code that came back; without one `ws` reports 1005.
    expect([answered, 1005]).toContain((await socket.closed).code);
    expect(await within(session.closed, 'the end at the upstream')).toMatchObject({ code: 1000 });
  });
});

test('large events of one holder arrive a few at a time, and those of others beside them', async () => {
  const key = await gateway.issueKey();
  const sockets = await Promise.all(Array.from({ length: 5 }, () => Socket.open(gateway, key)));
  using opened = new DisposableStack();
  for (const each of sockets) opened.use(each);
  const text = (input: string) => JSON.stringify({ type: 'response.create', model: 'test-model', input });
  const large = text('x'.repeat(100_000));
  const [first, ...others] = sockets.slice(0, 4);
  for (const { raw } of sockets.slice(0, 4)) {
    const pong = once(raw, 'pong');
    raw.send(large.slice(0, 90_000), { fin: false });
    raw.ping();
    await within(pong, 'a pong');
  }
  sockets[4]?.raw.send(large);
  using other = await Socket.open(gateway, await gateway.issueKey());
  other.raw.send(text('y'.repeat(100_000)));
  await other.next('response.completed');
  expect(upstream.events.map(({ input }) => String(input)[0])).toEqual(['y']);
  first?.raw.send(large.slice(90_000), { fin: true });
  others[0]?.raw.terminate();
  for (const each of [first, sockets[4]]) await each?.next('response.completed');
  expect(upstream.events.map(({ input }) => String(input)[0])).toEqual(['y', 'x', 'x']);
});

test.each([0, 999, 1004, 1006, 1015, 65_535])(
  'a Close with the code %s, which is never sent, is answered with 1002',
  async (code) => {
    using socket = await Socket.open(gateway);
    const { _socket: connection } = Object(socket.raw);
    connection.write(Buffer.from([0x88, 0x82, 0, 0, 0, 0, code >> 8, code & 255]));
    expect(await socket.closed).toMatchObject({ code: 1002 });
  },
);

describe('an upstream that is lost', () => {
  test('between two responses ends the connection with its code', async () => {
    using socket = await Socket.open(gateway);
    await socket.respond();
    latest().socket.close(1012, 'restart');
    expect(await socket.closed).toMatchObject({ code: 1012 });
    const line = await gateway.logLine((each) => each['close_code'] === 1012);
    expect(line).toMatchObject({ closed_by: 'upstream', outcome: 'ok' });
  });

  test('together with the last event of a response ends the connection behind that, and not before another response', async () => {
    using socket = await Socket.open(gateway);
    upstream.answer = (event, id) => {
      const { raw, socket: connection } = latest();
      // The event and the Close come in one segment.
      raw.cork();
      for (const each of eventsOf(event, id)) connection.send(JSON.stringify(each));
      connection.close(1012);
      raw.uncork();
      return [];
    };
    socket.create({ input: 'first' });
    socket.create({ input: 'second' });
    await socket.next('response.completed');
    await socket.next('response.completed');
    expect(await socket.closed).toMatchObject({ code: 1012 });
    expect(upstream.events.map(({ input }) => input)).toEqual(['first', 'second']);
  });

  test('between two responses without a Close ends it with 1001', async () => {
    using socket = await Socket.open(gateway);
    await socket.respond();
    latest().raw.destroy();
    expect(await socket.closed).toMatchObject({ code: 1001 });
  });

  test('before output: the request goes to a new connection', async () => {
    using socket = await Socket.open(gateway);
    await socket.respond();
    const before = sessions().length;
    upstream.answer = (event, id) => {
      if (sessions().length === before) latest().raw.destroy();
      return eventsOf(event, id);
    };
    await socket.respond({ input: 'again' });
    expect(upstream.events.map(({ input }) => input)).toEqual(['Hello?', 'again', 'again']);
    expect(sessions().length).toBe(before + 1);
  });

  test('during output: the client gets an error with a status, and the connection stays', async () => {
    upstream.answer = (event, id) => {
      for (const each of eventsOf(event, id).slice(0, 3)) latest().socket.send(JSON.stringify(each));
      setTimeout(() => latest().raw.destroy(), 50);
      return [];
    };
    using socket = await Socket.open(gateway);
    socket.create({ stream_id: 'a' });
    await socket.next('response.output_text.delta');
    expect(await socket.next('error')).toMatchObject({
      status: 502,
      code: 'stream_incomplete',
      error: { code: 'stream_incomplete' },
      stream_id: 'a',
    });
    upstream.answer = (event, id) => eventsOf(event, id);
    await socket.respond();
  });

  test.each([
    ['rejects WebSockets', 404, '{}', 502, 'upstream_invalid_response'],
    ['rejects the credential', 401, '{"error":{"message":"no"}}', 406, 'upstream_auth_error'],
    ['is busy', 429, '{"error":{"message":"busy","code":"slow"}}', 429, 'slow'],
  ])('at the handshake: it %s', async (_what, status, body, expected, code) => {
    Object.assign(upstream.server.options, {
      refuse: (_request: unknown, raw: { end(text: string): void }) => {
        raw.end(
          `HTTP/1.1 ${status} No\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
        );
        return true;
      },
    });
    using socket = await Socket.open(gateway);
    expect(await socket.fail()).toMatchObject({ status: expected, error: { code } });
    delete Object(upstream.server.options)['refuse'];
    await socket.respond();
  });

  test.each([
    ['a binary message', (raw: { write(bytes: Buffer): void }) => raw.write(Buffer.from([0x82, 1, 0x61]))],
    ['no frames', (raw: { write(bytes: Buffer): void }) => raw.write(Buffer.from('HTTP/1.1 200 OK\r\n\r\n'))],
  ])('because it sends %s', async (_what, send) => {
    upstream.answer = () => {
      send(latest().raw);
      return [];
    };
    using socket = await Socket.open(gateway);
    expect(await socket.fail()).toMatchObject({ status: 502, error: { code: 'upstream_invalid_response' } });
  });
});

describe('a client', () => {
  test('that leaves during a response ends it at the upstream, and pays what it got', async () => {
    const key = await gateway.issueKey();
    upstream.answer = (event, id) => eventsOf(event, id).slice(0, 3);
    const socket = await Socket.open(gateway, key);
    socket.create();
    await socket.next('response.output_text.delta');
    const session = latest();
    socket.raw.terminate();
    await within(session.closed, 'the end at the upstream');
    const line = await gateway.logLine(
      (each) => each['outcome'] === 'client_closed' && each['upstream'] === 'fake',
    );
    expect(line).toMatchObject({ route: '/v1/responses' });
    await until(
      async () => (await gateway.metric('tollgate_upstream_in_flight{upstream="fake"}')) === 0,
      'no slot',
    );
    await until(async () => (await gateway.metric('tollgate_requests_in_flight')) === 0, 'no request');
  });

  test('that reads late gets all of it', async () => {
    const delta = { type: 'response.output_text.delta', delta: 'x'.repeat(100_000) };
    upstream.answer = (event, id) => {
      const [first, ...rest] = eventsOf(event, id);
      return [{ ...first }, ...Array.from({ length: 200 }, () => delta), ...rest];
    };
    using socket = await Socket.open(gateway);
    socket.raw.pause();
    socket.create();
    await until(() => latest().socket.bufferedAmount > 1_000_000, 'backpressure at the upstream');
    socket.raw.resume();
    await until(() => socket.events.at(-1)?.['type'] === 'response.completed', 'the end');
    expect(socket.events).toHaveLength(206);
  });

  test('that only pings and does not read is not read either', async () => {
    await using own = await startGateway(options({ config: { stream: { write_stall: '1s' } } }));
    const { hostname, port, host } = new URL(own.url);
    const socket = connect(Number(port), hostname);
    socket.on('error', () => undefined);
    const head = [
      'GET /v1/responses HTTP/1.1',
      `host: ${host}`,
      'connection: Upgrade',
      'upgrade: websocket',
      'sec-websocket-version: 13',
      'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==',
      `authorization: Bearer ${await own.key()}`,
    ];
    socket.write(`${head.join('\r\n')}\r\n\r\n`);
    await once(socket, 'readable');
    const ping = Buffer.concat([Buffer.from([0x89, 0x80 | 125, 0, 0, 0, 0]), Buffer.alloc(125, 'a')]);
    const many = Buffer.concat(Array.from({ length: 8_000 }, () => ping));
    const closed = new Promise((resolve) => socket.once('close', resolve));
    let sent = 0;
    while (!socket.destroyed && sent < 64) {
      if (!socket.write(many))
        await Promise.race([new Promise((resolve) => socket.once('drain', resolve)), closed, pause(500)]);
      sent += 1;
    }
    // It was cut before all 64 MB were read.
    const line = await own.logLine((each) => each['status'] === 101 || each['route'] === '/v1/responses');
    expect(Number(line['bytes_in'])).toBeLessThan(40_000_000);
    socket.destroy();
  });

  test('that does not read stops the upstream, and is cut', async () => {
    await using own = await startGateway(options({ config: { stream: { write_stall: '500ms' } } }));
    const delta = { type: 'response.output_text.delta', delta: 'x'.repeat(100_000) };
    upstream.answer = (event, id) => [
      ...eventsOf(event, id).slice(0, 2),
      ...Array.from({ length: 400 }, () => delta),
      ...eventsOf(event, id).slice(-1),
    ];
    using socket = await Socket.open(own);
    socket.raw.pause();
    socket.create();
    await until(() => upstream.created.length === 1, 'the response');
    const session = latest();
    await pause(250);
    expect(session.socket.bufferedAmount).toBeGreaterThan(10_000_000);
    await within(session.closed, 'the end at the upstream');
  });
});

describe('the gateway', () => {
  test('ends a connection between two responses when it drains', async () => {
    await using own = await startGateway(options({ config: { drain: { delay: '10ms', timeout: '20s' } } }));
    using idle = await Socket.open(own);
    using busy = await Socket.open(own);
    const gate = Promise.withResolvers<void>();
    upstream.answer = async (event, id) => {
      await gate.promise;
      return eventsOf(event, id);
    };
    busy.create();
    await until(() => upstream.events.length === 1, 'the response');
    const closed = own.app.close();
    expect(await idle.closed).toMatchObject({ code: 1001 });
    gate.resolve();
    await busy.next('response.completed');
    expect(await busy.closed).toMatchObject({ code: 1001 });
    await within(closed, 'the end of the gateway');
  });

  test('ends a running response at the end of a drain', async () => {
    await using own = await startGateway(options({ config: { drain: { delay: '10ms', timeout: '100ms' } } }));
    upstream.answer = (event, id) => eventsOf(event, id).slice(0, 3);
    using socket = await Socket.open(own);
    socket.create();
    await socket.next('response.output_text.delta');
    const closed = own.app.close();
    expect(await socket.closed).toMatchObject({ code: 1001 });
    expect(socket.events.at(-1)).toMatchObject({ type: 'error', status: 503, error: { code: 'draining' } });
    await within(closed, 'the end of the gateway');
  });

  test('ends the connection of a compromised key at once, and of another revoked one at its next response', async () => {
    const [bad, retired] = [await gateway.issueKey(), await gateway.issueKey()];
    using first = await Socket.open(gateway, bad);
    using second = await Socket.open(gateway, retired);
    await second.respond();
    await gateway.app.issuer.revoke(prefixOf(bad), 'compromised: found in a repository');
    expect(await first.closed).toEqual({ code: 1008, reason: 'invalid_api_key' });
    await gateway.app.issuer.revoke(prefixOf(retired), 'left the company');
    expect(await second.fail()).toMatchObject({ status: 401, error: { code: 'invalid_api_key' } });
    expect(await second.closed).toEqual({ code: 1008, reason: 'invalid_api_key' });
  });

  test('lets a response end during which its key expires, and ends the connection at the next one', async () => {
    const now = Date.now();
    const issued = await gateway.app.issuer.issue({
      tier: 'Pro',
      key: { expiresAt: new Date(now + 3_600_000).toISOString() },
    });
    const gate = Promise.withResolvers<void>();
    upstream.answer = async (event, id) => {
      await gate.promise;
      return eventsOf(event, id);
    };
    using socket = await Socket.open(gateway, issued.key.reveal());
    socket.create();
    await until(() => upstream.created.length === 1, 'the response to begin');
    vi.useFakeTimers({ toFake: ['Date'], now: now + 3_600_000 });
    try {
      gate.resolve();
      await socket.next('response.completed');
      expect(await socket.fail()).toMatchObject({ status: 401, error: { code: 'api_key_expired' } });
      expect(await socket.closed).toEqual({ code: 1008, reason: 'api_key_expired' });
    } finally {
      vi.useRealTimers();
    }
  });

  test('ends a connection that is idle or too old, but not one with a response', async () => {
    await using own = await startGateway(options({ config: { realtime: { idle: '1s', lifetime: '2s' } } }));
    using idle = await Socket.open(own);
    using old = await Socket.open(own);
    upstream.answer = async (event, id) => {
      await pause(2_500);
      return eventsOf(event, id);
    };
    old.create();
    expect(await idle.closed).toEqual({ code: 1001, reason: 'session was idle' });
    await old.next('response.completed');
    expect(await old.closed).toEqual({ code: 1001, reason: 'session lifetime reached' });
  });
});

test('many connections that end in every way leave nothing behind', async () => {
  upstream.answer = async (event, id) => {
    await pause(Math.random() * 40);
    const ways = [() => latest().raw.destroy(), () => latest().socket.close(1001), () => {}, () => {}];
    ways[Math.floor(Math.random() * ways.length)]?.();
    return eventsOf(event, id);
  };
  const key = await gateway.key();
  await Promise.all(
    Array.from({ length: 60 }, async () => {
      const socket = await Socket.open(gateway, key);
      for (const lane of ['a', 'b', 'a'])
        if (socket.raw.readyState === socket.raw.OPEN) socket.create({ stream_id: lane });
      await pause(Math.random() * 100);
      if (Math.random() < 0.5) socket.raw.terminate();
      else socket.raw.close();
      setTimeout(() => socket.raw.terminate(), 500);
      await socket.closed;
    }),
  );
  for (const sample of [
    'tollgate_responses_websockets',
    'tollgate_requests_in_flight',
    'tollgate_upstream_in_flight{upstream="fake"}',
  ])
    await until(async () => (await gateway.metric(sample)) === 0, `no ${sample}`);
  await until(() => sessions().every(({ raw }) => raw.destroyed), 'no connection at the upstream');
});
