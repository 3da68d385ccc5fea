// Load shedding: when and how many new requests are rejected, and what continues meanwhile.
import { PassThrough } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { DynamicConfig } from '../../src/config/schema/config-schema.ts';
import { LoadShedder, OverloadControl } from '../../src/process/overload-control.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  lastChunk,
  SSE_HEADERS,
  waitFor,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

const LIMITS: DynamicConfig['overload'] = { event_loop_delay: 100, heap: 0.8 };

/** Of a hundred requests, how many are turned away. */
function refused(shedder: LoadShedder): number {
  return Array.from({ length: 100 }, () => shedder.shouldReject()).filter(Boolean).length;
}

const CALM_MS = 100_000;

describe('the rejected share', () => {
  test('is 0 for one or two stalls of any length', () => {
    const shedder = new LoadShedder();
    for (const delayMs of [5_000, 5_000, 10, 900, 900, 0, 101, 101])
      shedder.update({ delayMs, heap: 0 }, LIMITS);
    expect([shedder.share, shedder.cause, refused(shedder)]).toEqual([0, undefined, 0]);
  });

  test('grows while the loop is late, stays in between, and shrinks slowly when it is calm', () => {
    const shedder = new LoadShedder();
    const note = (delayMs: number, windows: number) => {
      for (let window = 0; window < windows; window += 1) shedder.update({ delayMs, heap: 0 }, LIMITS);
    };
    note(300, 4);
    expect(shedder.share).toBeCloseTo(0.6);
    expect(shedder.cause).toBe('event_loop');
    expect(refused(shedder)).toBe(60);
    note(70, 100);
    expect(shedder.share).toBeCloseTo(0.6);
    note(20, 4);
    expect(shedder.share).toBeCloseTo(0.4);
    note(20, 8);
    expect([shedder.share, refused(shedder)]).toEqual([0, 0]);
    note(300, 100);
    // Some are always tried.
    expect(refused(shedder)).toBe(95);
  });

  test('is 1 while the heap is full, until it has fallen well below the limit', () => {
    const shedder = new LoadShedder();
    shedder.update({ delayMs: 0, heap: 0.81 }, LIMITS);
    expect([shedder.share, shedder.cause, refused(shedder)]).toEqual([1, 'heap', 100]);
    shedder.update({ delayMs: 0, heap: 0.75 }, LIMITS);
    expect(shedder.share).toBe(1);
    shedder.update({ delayMs: 0, heap: 0.7 }, LIMITS);
    expect(shedder.share).toBe(0);
  });

  test('is 0 when the control is off or is switched off', () => {
    const shedder = new LoadShedder();
    const off: DynamicConfig['overload'] = { event_loop_delay: 'off', heap: 'off' };
    shedder.update({ delayMs: 0, heap: 1 }, LIMITS);
    for (let window = 0; window < 30; window += 1) shedder.update({ delayMs: 1e6, heap: 1 }, off);
    expect([shedder.share, refused(shedder)]).toEqual([0, 0]);
  });

  test('is kept exactly in any sequence, and ends when the loop is calm', () => {
    const load = fc.record({
      delayMs: fc.double({ min: 0, max: 1e4, noNaN: true }),
      heap: fc.double({ min: 0, max: 1, noNaN: true }),
    });
    fc.assert(
      fc.property(fc.array(load, { maxLength: 60 }), (loads) => {
        const shedder = new LoadShedder();
        for (const each of loads) {
          shedder.update(each, LIMITS);
          expect(shedder.share).toBeGreaterThanOrEqual(0);
          expect(shedder.share).toBeLessThanOrEqual(1);
          expect(Math.abs(refused(shedder) - 100 * shedder.share)).toBeLessThanOrEqual(1);
        }
        for (let window = 0; window < 25; window += 1) shedder.update({ delayMs: 0, heap: 0 }, LIMITS);
        expect([shedder.share, refused(shedder)]).toEqual([0, 0]);
      }),
    );
  });
});

test.each([
  [50, false],
  [150, true],
])(
  'after %d ms in the accept queue, a client may have left before its request is read: %s',
  (waitMs, isLate) => {
    const control = new OverloadControl({
      limits: () => LIMITS,
      logger: createLogger(new PassThrough()),
      metrics: createMetrics().overload,
      measure: () => ({ delayMs: 0, heap: 0 }),
      queues: {
        acceptQueue: { isOverloaded: false, waitMs, takeReport: () => ({ waitMs, rejected: 0 }) },
      },
    });
    expect(control.isLate).toBe(isLate);
  },
);

test('what is rejected because compressed bodies wait to be decoded is counted and logged', async () => {
  const metrics = createMetrics();
  const log = new PassThrough();
  const reports = [{ waitMs: 700, rejected: 5 }];
  const control = new OverloadControl({
    limits: () => LIMITS,
    logger: createLogger(log),
    metrics: metrics.overload,
    measure: () => ({ delayMs: 0, heap: 0 }),
    queues: {
      decodeQueue: {
        isOverloaded: true,
        takeReport: () => reports.shift() ?? { waitMs: 700, rejected: 0 },
      },
    },
  });
  control.start();
  try {
    await until(() => control.isOverloaded, 'the first window to end');
    const page = await metrics.registry.metrics();
    expect(page).toContain('tollgate_overload_refused_total{cause="decode_queue"} 5');
    expect(page).toContain('tollgate_decode_wait_seconds 0.7');
    expect(String(log.read())).toContain('"cause":"decode_queue"');
  } finally {
    control.stop();
  }
});

describe('a gateway whose event loop is late', () => {
  test('rejects new requests with 503 and continues its streams, until it is calm again', async () => {
    await using upstream = await HostileUpstream.start();
    await using gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { overload: { event_loop_delay: '10ms' } },
    });
    let isOver = false;
    upstream.next([
      head(200, SSE_HEADERS),
      chunk(frame(contentChunk('before'))),
      waitFor(() => isOver),
      chunk(`${frame(finishChunk())}${DONE}`),
      lastChunk(),
    ]);
    using running = await gateway.open(chatRequest({ stream: true }));
    await running.readUntil('before');
    // The gateway runs in this process: who blocks this thread blocks both.
    const still = new Int32Array(new SharedArrayBuffer(4));
    const busy = setInterval(() => void Atomics.wait(still, 0, 0, 25), 1);
    try {
      using client = await gateway.connect();
      const headers = { authorization: `Bearer ${await gateway.key()}` };
      const refusal = await until(async () => {
        const response = await client.ask({ headers, body: chatRequest() });
        return response.status === 503 ? response : undefined;
      }, 'a request to be turned away');
      expect(refusal.text()).toContain('"code":"overloaded"');
      expect(Number(refusal.header('retry-after'))).toBeGreaterThanOrEqual(1);
      // A client that is told to come back may do so on the same connection.
      expect(refusal.header('connection')).toBe('keep-alive');
      const health = await client.ask({ method: 'GET', target: '/health' });
      expect(health.status).toBe(200);
      await until(async () => {
        const { status, text } = await fetch(`${gateway.url}/health`).then(async (response) => ({
          status: response.status,
          text: await response.text(),
        }));
        return status === 200 && text.includes('"load":"degraded"');
      }, 'the health to say so');
      isOver = true;
      expect((await running.response()).complete).toBe(true);
      expect(await gateway.metric('tollgate_overload_refused_total{cause="event_loop"}')).toBeGreaterThan(0);
      expect(await gateway.metric('tollgate_overload_refused_share')).toBeGreaterThan(0);
    } finally {
      clearInterval(busy);
    }
    // What else a busy machine does holds up the event loop, too.
    await until(async () => (await gateway.metric('tollgate_overload_refused_share')) === 0, 'calm', CALM_MS);
    expect((await gateway.chat(chatRequest())).status).toBe(200);
    await gateway.logLine((line) => String(line['msg']).startsWith('no longer overloaded'));
  });
});

test('connections beyond listen.max_connections are refused and counted', async () => {
  await using gateway = await startGateway({ config: { listen: { max_connections: 3 } } });
  expect(await gateway.metric('tollgate_connections_limit')).toBe(3);
  const clients = await Promise.all([gateway.connect(), gateway.connect(), gateway.connect()]);
  await until(async () => (await gateway.metric('tollgate_connections')) === 3);
  using refused = await gateway.connect();
  await refused.closed;
  expect(await gateway.metric('tollgate_connections_dropped_total')).toBe(1);
  for (const client of clients) client.destroy();
});
