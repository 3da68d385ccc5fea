// A large JSON body on its way to an upstream is treated as a small one is: connections, retries, deadlines, endings.
import { expect, test } from 'vitest';
import { fleetingClock, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  completion,
  contentChunk,
  early,
  frame,
  HostileUpstream,
  head,
  json,
  SSE_HEADERS,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

/** More than any socket takes before somebody reads. */
const LONG = 24 * 1024 * 1024;
const request = (bytes = 500_000, extra = {}) => chatRequest({ ...extra, padding: 'x'.repeat(bytes) });
const sent = (bytes = 500_000, extra = {}) =>
  JSON.stringify(request(bytes, extra)).replace('"test-model"', '"upstream-model"');

test('goes over a kept connection, again and again', async () => {
  await using upstream = await HostileUpstream.start();
  await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
  for (const bytes of [70_000, 500_000, 3_000_000, 100, 500_000]) {
    expect((await gateway.chat(request(bytes))).status).toBe(200);
    await until(() => upstream.answering === 0);
  }
  expect(upstream.connections).toBe(1);
  for (const [index, bytes] of [70_000, 500_000, 3_000_000, 100, 500_000].entries())
    expect((await upstream.request(index)).body.toString() === sent(bytes)).toBe(true);
});

test.each(['close', 'reset'] as const)(
  'is sent once more when a kept connection turns out to be closed (%s)',
  async (how) => {
    await using upstream = await HostileUpstream.start({
      script: async (c) => {
        if (c.request.sequence > 0) c[how]();
        else await json(200, completion())(c);
      },
    });
    await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
    expect((await gateway.chat(request())).status).toBe(200);
    const response = await gateway.chat(request());
    expect(response.status).toBe(200);
    expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'ok', attempts: 2 });
    expect((await upstream.request(2)).body.toString() === sent()).toBe(true);
  },
);

test('that was refused before it was sent goes to the next target, and no further to this one', async () => {
  await using first = await HostileUpstream.start({
    script: early(async (c) => {
      c.pauseReading();
      await json(503, upstreamError('no'))(c);
      await c.silence();
    }),
  });
  await using second = await HostileUpstream.start();
  await using gateway = await startGateway({
    upstreams: { a: first.baseUrl, b: second.baseUrl },
    config: { max_body: '32MiB' },
    now: fleetingClock(),
  });
  for (let round = 0; round < 2; round++) {
    expect((await gateway.chat(request(LONG))).status).toBe(200);
    expect((await second.request(round)).body.toString() === sent(LONG)).toBe(true);
  }
  // A connection with half a request on it is of no use.
  expect(first.connections).toBe(2);
  expect((await first.requestHead(1)).body.length).toBeLessThan(LONG);
});

/** Reads no further, and says nothing. */
const DEAF = early(async (c) => {
  c.pauseReading();
  await c.silence();
});

test('waits no longer than for the head of any answer, from its first byte on', async () => {
  await using upstream = await HostileUpstream.start({
    script: DEAF,
  });
  await using gateway = await startGateway({
    upstreams: { up: upstream.baseUrl },
    config: {
      max_body: '32MiB',
      upstreams: { up: { timeouts: { headers: '400ms', idle: '60s' } } },
      retry: { attempts: 1 },
    },
  });
  const response = await gateway.chat(request(LONG));
  expect(response.status).toBe(504);
  expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'upstream_timeout' });
  await until(async () => (await gateway.metric('tollgate_body_memory_bytes')) > LONG);
});

test('is answered by the model in this process as well', async () => {
  await using gateway = await startGateway();
  const response = await gateway.chat(request());
  expect(response.status).toBe(200);
  expect(response.text()).toContain('You said');
});

test('ends with its client, wherever it is, and gives its memory back', async () => {
  await using upstream = await HostileUpstream.start({
    script: DEAF,
  });
  await using gateway = await startGateway({
    upstreams: { up: upstream.baseUrl },
    config: { max_body: '32MiB' },
  });
  const client = await gateway.open(request(LONG));
  await upstream.requestHead(0);
  client[Symbol.dispose]();
  await until(async () => (await gateway.metric('tollgate_body_memory_bytes')) > LONG);
});

test('is given back when its stream has begun, however long that lasts', async () => {
  await using upstream = await HostileUpstream.start({
    script: [head(200, SSE_HEADERS), (c) => c.chunk(frame(contentChunk('x'))), (c) => c.silence()],
  });
  await using gateway = await startGateway({ upstreams: { up: upstream.baseUrl } });
  const client = await gateway.open(request(500_000, { stream: true }));
  await until(async () => (await gateway.metric('tollgate_body_memory_bytes')) > 500_000);
  expect(await gateway.metric('tollgate_requests_in_flight')).toBe(1);
  client.destroy();
});
