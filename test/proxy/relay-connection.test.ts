// Kept connections to an upstream, the races they have, and comments that keep the client's connection alive.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  json,
  type Script,
  SSE_HEADERS,
} from '../helpers/hostile-upstream.ts';
import { pause, until } from '../helpers/wait.ts';

let upstream: HostileUpstream;
let gateway: Gateway;

beforeEach(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
  await gateway.key();
});

afterEach(async () => {
  await gateway?.close();
  await upstream?.close();
});

const ask = () => gateway.chat(chatRequest());

/** Closes a connection that has served before when the next request comes, without a byte; a new one it answers. */
const closesUsed =
  (how: 'close' | 'reset'): Script =>
  async (c) => {
    if (c.request.sequence > 0) c[how]();
    else await json(200, completion())(c);
  };

describe('a kept connection', () => {
  test('is used again, for streams and for JSON', async () => {
    for (let i = 0; i < 6; i++) {
      expect((await gateway.chat(chatRequest({ stream: i % 2 === 0 }))).complete).toBe(true);
      await until(() => upstream.answering === 0);
      await pause(20);
    }
    expect(upstream.connections).toBe(1);
  });

  test.each(['close', 'reset'] as const)(
    'that the upstream ends (%s) as the request comes is replaced once',
    async (how) => {
      upstream.always(closesUsed(how));
      expect((await ask()).status).toBe(200);
      const response = await ask();
      expect(response.status).toBe(200);
      expect(upstream.connections).toBe(2);
      expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'ok', attempts: 2 });
    },
  );

  test('that was replaced is not replaced twice', async () => {
    expect((await ask()).status).toBe(200);
    const before = upstream.requests.length;
    upstream.always((c) => c.reset());
    const response = await ask();
    expect(response.status).toBe(502);
    expect(upstream.requests.length - before).toBe(2);
    expect(await gateway.accessLine(response)).toMatchObject({
      outcome: 'upstream_unreachable',
      attempts: 2,
    });
  });

  test('on which a byte of the answer came is not replaced', async () => {
    expect((await ask()).status).toBe(200);
    const before = upstream.requests.length;
    upstream.next(async (c) => {
      await c.send('H');
      await c.wait(20);
      c.reset();
    });
    expect((await ask()).status).toBe(502);
    expect(upstream.requests.length - before).toBe(1);
  });

  test('is not replaced with `attempts: 1`, and a new one that breaks never is', async () => {
    await using strict = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { retry: { attempts: 1 } },
    });
    upstream.always(closesUsed('close'));
    expect((await strict.chat(chatRequest())).status).toBe(200);
    expect((await strict.chat(chatRequest())).status).toBe(502);
    upstream.always((c) => c.reset());
    const before = upstream.requests.length;
    expect((await ask()).status).toBe(502);
    expect(upstream.requests.length - before).toBe(1);
  });

  test.each(['fin', 'reset'] as const)('that was ended while idle (%s) costs no request', async (how) => {
    for (let i = 0; i < 20; i++) {
      const response = await ask();
      expect(response.status).toBe(200);
      await until(() => upstream.closeIdle(how) > 0);
    }
  });

  test.each([
    [
      'a whole answer',
      `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 37\r\n\r\n{"id":"of somebody else","choices":[]}`,
    ],
    ['half a head', 'HTTP/1.1 200 OK\r\ncontent-type: appl'],
    ['an interim answer', 'HTTP/1.1 100 Continue\r\n\r\n'],
    ['a timeout', 'HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n'],
    ['garbage', '\r\n\r\nx'],
  ])('on which %s came unasked is discarded', async (_name, bytes) => {
    for (let i = 0; i < 5; i++) {
      const response = await ask();
      expect([response.status, response.text().includes('somebody else')]).toEqual([200, false]);
      // After the first time connections are not kept, unless it was a timeout.
      await until(async () => (await upstream.sendUnsolicited(bytes)) > 0 || upstream.openSockets === 0);
      // At once: the bytes may not have been read when the next request is there.
    }
    expect((await ask()).text()).not.toContain('somebody else');
    expect(upstream.connections).toBeGreaterThan(1);
  });

  test('gets no second answer that came with the first', async () => {
    const text = JSON.stringify(completion({ content: 'mine' }));
    const other = JSON.stringify(completion({ content: 'of somebody else' }));
    const head = (body: string) =>
      `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    upstream.next((c) => c.send(head(text) + head(other)));
    expect((await ask()).text()).toContain('mine');
    for (let i = 0; i < 5; i++) expect((await ask()).text()).not.toContain('somebody else');
  });

  test('is never given more than one request at a time', async () => {
    upstream.always(async (c) => {
      await c.wait(20);
      await json(200, completion())(c);
    });
    const responses = await Promise.all(Array.from({ length: 30 }, ask));
    expect(responses.every((response) => response.status === 200)).toBe(true);
    expect(upstream.requests.some((request) => request.pipelined)).toBe(false);
  });

  test('of an upstream that wants it closed is closed', async () => {
    upstream.always(json(200, completion(), { connection: 'close' }));
    expect((await ask()).status).toBe(200);
    expect((await ask()).status).toBe(200);
    expect(upstream.connections).toBe(2);
  });
});

test('no more requests than `max_concurrency` are under way, and the others are told to wait', async () => {
  await using small = await startGateway({
    upstreams: { up: upstream.baseUrl },
    config: { upstreams: { up: { max_concurrency: 2 } } },
  });
  const go = Promise.withResolvers<void>();
  upstream.always(async (c) => {
    await c.waitFor(go.promise);
    await json(200, completion())(c);
  });
  const first = [small.chat(chatRequest()), small.chat(chatRequest())];
  await until(() => upstream.answering === 2);
  const third = await small.chat(chatRequest());
  expect([third.status, third.json(), third.header('retry-after')]).toMatchObject([
    503,
    { error: { code: 'upstream_busy' } },
    '1',
  ]);
  const unserved = 'tollgate_upstream_unserved_total{outcome="upstream_busy"}';
  await until(async () => (await small.metric(unserved)) === 1, 'the count');
  go.resolve();
  expect((await Promise.all(first)).map((response) => response.status)).toEqual([200, 200]);
  expect((await small.chat(chatRequest())).status).toBe(200);
});

describe('comments that keep the client’s connection alive', () => {
  const X = frame(contentChunk('x', { model: 'test-model' }));
  const KEEP = ': keep-alive\n\n';

  test('come in silence, between frames, and do not count as progress', async () => {
    await using patient = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: {
        stream: { keepalive: '1s', commit_after: '50ms' },
        upstreams: { up: { timeouts: { idle: '3500ms' } } },
      },
    });
    upstream.next(async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.chunk(X);
      // The client has the frame and a comment; half of the next frame does not stand in its way.
      await c.chunk(X.slice(0, 30));
      await c.silence();
    });
    const response = await patient.chat(chatRequest({ stream: true }));
    const text = response.text();
    expect(text.startsWith(X + KEEP + KEEP)).toBe(true);
    expect(text.slice(X.length)).toMatch(/^(: keep-alive\n\n){2,3}data: \{"error":.*upstream_timeout/);
    expect(response.complete).toBe(false);
  });

  test('come before the first output once the stream is open, and never behind its end', async () => {
    await using patient = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { stream: { keepalive: '1s', commit_after: '50ms' } },
    });
    using client = await patient.connect();
    upstream.next(async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.waitFor(() => client.received.bytes.includes(KEEP));
      await c.chunk(X + frame(finishChunk('stop', { model: 'test-model' })) + DONE);
      await c.silence();
    });
    const headers = { authorization: `Bearer ${await patient.key()}` };
    const response = await client.ask({ headers, body: chatRequest({ stream: true }) });
    expect(response.text()).toBe(`${KEEP}${X}${frame(finishChunk('stop', { model: 'test-model' }))}${DONE}`);
    expect(response.complete).toBe(true);
  });

  test('do not come while frames do', async () => {
    await using busy = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { stream: { keepalive: '1s' } },
    });
    upstream.next(async (c) => {
      await c.head(200, SSE_HEADERS);
      for (let i = 0; i < 15; i++) {
        await c.chunk(X);
        await c.wait(100);
      }
      await c.chunk(DONE);
      await c.lastChunk();
    });
    const response = await busy.chat(chatRequest({ stream: true }));
    // A machine that stops for a second would see one; the frames are what must be right.
    expect(response.text().replaceAll(KEEP, '')).toBe(X.repeat(15) + DONE);
    expect(response.text().split(KEEP).length).toBeLessThan(4);
  });
});
