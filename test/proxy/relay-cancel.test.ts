// The client leaves, in every phase of its request: the upstream is told at once, nobody else is asked, nothing is left.
import { createServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  contentChunk,
  frame,
  HostileUpstream,
  json,
  roleChunk,
  type Script,
  SSE_HEADERS,
  type Step,
  silence,
} from '../helpers/hostile-upstream.ts';
import type { RawClient } from '../helpers/raw-client.ts';
import { pause, until, within } from '../helpers/wait.ts';

let upstream: HostileUpstream;
let other: HostileUpstream;
let gateway: Gateway;
const STREAM = chatRequest({ stream: true });

beforeAll(async () => {
  upstream = await HostileUpstream.start(silence());
  other = await HostileUpstream.start();
  gateway = await startGateway({
    upstreams: { up: upstream.baseUrl, other: other.baseUrl },
    config: { retry: { after_send: true, attempts: 5 }, stream: { commit_after: '60s' } },
  });
  await gateway.key();
});

afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
  await other?.close();
});

const leave: [string, (client: RawClient) => void][] = [
  ['with FIN', (client) => client.destroy()],
  ['with RST', (client) => client.reset()],
];

const opened =
  (frames: readonly string[], then: Step = silence()): Step =>
  async (c) => {
    await c.head(200, SSE_HEADERS);
    for (const each of frames) await c.chunk(each);
    await then(c);
  };

/** Nothing is under way any more, anywhere. */
async function expectQuiet(): Promise<void> {
  await until(
    async () =>
      (await gateway.metric('tollgate_requests_in_flight')) === 0 &&
      (await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')) === 0,
    'the gauges to be 0',
  );
}

const lines = () => gateway.logs.filter((line) => line['msg'] === 'request');

async function expectLogged(before: number, fields: object): Promise<void> {
  await until(() => lines().length > before, 'a line of the log');
  expect(lines().at(-1)).toMatchObject({ status: 499, outcome: 'client_closed', ...fields });
}

describe.each(leave)('a client that leaves %s', (_how, go) => {
  const phases: [string, Script, object, boolean][] = [
    ['while the upstream is silent', silence(), chatRequest(), false],
    ['while the upstream of a stream is silent', silence(), STREAM, false],
    ['before the first token', opened([]), STREAM, false],
    ['behind a role and comments', opened([': ping\n\n', frame(roleChunk())]), STREAM, false],
    ['in the middle of a stream', opened([frame(contentChunk('x'))]), STREAM, true],
    ['in the middle of a frame', opened([frame(contentChunk('x')), 'data: {"cho']), STREAM, true],
    [
      'in a JSON answer',
      async (c) => {
        await c.head(200, { 'content-type': 'application/json', 'content-length': 100 });
        await c.send('{"id"');
        await c.silence();
      },
      chatRequest(),
      false,
    ],
    [
      'in the text of a refusal',
      async (c) => {
        await c.head(503, { 'content-type': 'application/json', 'content-length': 100 });
        await c.send('{"error"');
        await c.silence();
      },
      chatRequest(),
      false,
    ],
  ];

  test.each(phases)('%s', async (_phase, script, body, sees) => {
    const index = upstream.requests.length;
    const before = lines().length;
    upstream.next(script);
    const client = await gateway.open(body);
    const request = await upstream.request(index);
    if (sees) await client.responseHead();
    else await pause(30);
    const others = other.requests.length;
    go(client);
    const left = performance.now();
    const end = await within(request.closed, 'the end of the upstream’s socket');
    expect(end.by).toBe('peer');
    // Not a matter of some timeout: the next shortest is measured in seconds.
    expect(end.at - left).toBeLessThan(1_000);
    await expectLogged(before, { attempts: 1, upstream: 'up' });
    await expectQuiet();
    expect([upstream.requests.length, other.requests.length]).toEqual([index + 1, others]);
  });

  test('while a second attempt is under way', async () => {
    const before = lines().length;
    const index = upstream.requests.length;
    const others = other.requests.length;
    upstream.next(json(503, {}));
    other.next(silence());
    const client = await gateway.open(STREAM);
    await upstream.request(index);
    const second = await other.request(others);
    go(client);
    expect((await within(second.closed, 'the end of the second')).by).toBe('peer');
    await expectLogged(before, { attempts: 2, upstream: 'other' });
    await expectQuiet();
  });

  test('while it sends its body', async () => {
    const requests = upstream.requests.length;
    const before = lines().length;
    const client = await gateway.connect();
    const headers = { authorization: `Bearer ${await gateway.key()}`, 'content-length': '1000' };
    await client.send({ headers, body: '{"model":"test-model",' });
    await pause(30);
    go(client);
    await expectLogged(before, {});
    await expectQuiet();
    expect(upstream.requests.length).toBe(requests);
  });
});

test('while the connection to the upstream is being made, that connection is given up', async () => {
  // Takes connections and never begins TLS, so the gateway waits for the handshake.
  const sockets: { closed: boolean }[] = [];
  const server = createServer((socket) => {
    const state = { closed: false };
    sockets.push(state);
    socket.resume();
    socket.on('error', () => {});
    socket.on('close', () => {
      state.closed = true;
    });
  }).listen(0, '127.0.0.1');
  await until(() => server.listening);
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  await using slow = await startGateway({
    upstreams: { up: `https://127.0.0.1:${port}/v1`, other: other.baseUrl },
    config: { upstreams: { up: { timeouts: { connect: '60s' } } } },
  });
  const others = other.requests.length;
  const client = await slow.open(STREAM);
  await until(() => sockets.length === 1);
  client.destroy();
  await until(() => sockets[0]?.closed, 'the end of the connection');
  await until(async () => (await slow.metric('tollgate_upstream_in_flight{upstream="up"}')) === 0);
  expect(other.requests.length).toBe(others);
  server.close();
});

test('a gateway that is stopped ends what is left truthfully', async () => {
  const stopped = await startGateway({
    upstreams: { up: upstream.baseUrl },
    config: { drain: { timeout: '60s' }, stream: { commit_after: '60s' } },
  });
  try {
    const index = upstream.requests.length;
    const X = frame(contentChunk('x', { model: 'test-model' }));
    upstream.next(opened([X]), opened([]));
    const open = await stopped.open(STREAM);
    const response = await open.responseHead();
    const waiting = await stopped.open(STREAM);
    await upstream.request(index + 1);
    const closed = Promise.all([stopped.app.close(), stopped.app.close()]);
    await response.ended;
    expect([response.complete, response.frames().length]).toEqual([false, 2]);
    expect(response.text()).toMatch(/^data: .*\n\ndata: \{"error":.*"code":"draining"\}\}\n\n$/);
    const refused = await waiting.response();
    expect([refused.status, refused.json()]).toMatchObject([503, { error: { code: 'draining' } }]);
    expect(refused.header('retry-after')).toBe('1');
    await closed;
    const outcomes = stopped.logs.filter((line) => line['msg'] === 'request').map((line) => line['outcome']);
    expect(outcomes).toEqual(['draining', 'draining']);
    for (const at of [index, index + 1]) expect((await (await upstream.request(at)).closed).by).toBe('peer');
  } finally {
    await stopped.close();
  }
});

test('a thousand clients that leave at any moment leave nothing behind', async () => {
  const handles = (): Record<string, number> => {
    const counts: Record<string, number> = {};
    for (const kind of process.getActiveResourcesInfo()) counts[kind] = (counts[kind] ?? 0) + 1;
    return counts;
  };
  const scripts: Script[] = [
    silence(),
    opened([]),
    opened([frame(roleChunk())]),
    opened([frame(contentChunk('x')), frame(contentChunk('y'))]),
    opened([frame(contentChunk('x'))], async (c) => await c.flood(frame(contentChunk('z'.repeat(500))))),
    (c) => c.reset(),
    async (c) => {
      await c.wait(20);
      c.reset();
    },
    json(503, {}),
  ];
  await expectQuiet();
  await until(() => upstream.openSockets + other.openSockets < 20);
  const before = handles();
  const logged = lines().length;
  other.always(silence());
  const rounds = 20;
  for (let round = 0; round < rounds; round++) {
    await Promise.all(
      Array.from({ length: 50 }, async (_, index) => {
        upstream.next(scripts[(round * 50 + index) % scripts.length] ?? silence());
        const client = await gateway.open(index % 3 === 0 ? chatRequest() : STREAM);
        await pause((index * 7) % 60);
        if (index % 2 === 0) client.reset();
        else client.destroy();
      }),
    );
    // Clients that leave faster than they are accepted would be rejected as overload, without a line.
    await until(() => lines().length >= logged + (round + 1) * 50, 'a line for each of them');
  }
  await expectQuiet();
  expect(await gateway.metric('tollgate_upstream_in_flight{upstream="other"}')).toBe(0);
  // Not one call is still running at the upstream.
  await until(() => upstream.answering === 0 && other.answering === 0, 'no call at the upstream');
  // Kept sockets may stay; timers and sockets for each of a thousand requests may not.
  await until(
    () => {
      const now = handles();
      return (
        (now['Timeout'] ?? 0) <= (before['Timeout'] ?? 0) + 20 &&
        (now['TCPSocketWrap'] ?? 0) <= (before['TCPSocketWrap'] ?? 0) + 40
      );
    },
    `timers and sockets to go back from ${JSON.stringify(handles())} to ${JSON.stringify(before)}`,
  );
  other.always(json(200, { id: 'x', choices: [] }));
  upstream.next(json(200, { id: 'x', choices: [] }));
  expect((await gateway.chat(chatRequest())).status).toBe(200);
  expect(gateway.logs.filter((line) => line['level'] === 'error' || line['level'] === 'fatal')).toEqual([]);
});
