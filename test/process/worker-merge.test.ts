// The merged view of several workers, and the backoff of a worker slot.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MergedMetrics, mergeChecks } from '../../src/process/worker-merge.ts';
import { WORKER_TIMES } from '../../src/process/workers.ts';
import { Backoff } from '../../src/redis/reconnect-backoff.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';

type Page = ReadonlyMap<string, number>;

function read(text: string): Page {
  const samples = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    samples.map((line) => {
      const at = line.lastIndexOf(' ');
      return [line.slice(0, at), Number(line.slice(at + 1))];
    }),
  );
}

type Metrics = ReturnType<typeof createMetrics>;
const samplesOf = ({ registry }: Metrics) => registry.getMetricsAsJSON();

async function pageOf(
  merged: MergedMetrics,
  workers: readonly Metrics[],
  own = createMetrics(),
): Promise<Page> {
  return read(await merged.page(await Promise.all(workers.map(samplesOf)), await samplesOf(own)));
}

describe('the merged page', () => {
  test('sums counters and histograms, and aggregates each gauge by its rule', async () => {
    const [a, b] = [createMetrics(), createMetrics()];
    for (const [metrics, lag, up] of [
      [a, 0.25, 1],
      [b, 0.5, 0],
    ] as const) {
      metrics.overload.refused.inc({ cause: 'heap' }, 2);
      metrics.overload.delay.set(lag);
      metrics.connections.set(3);
      metrics.redis.onState(up === 1);
      metrics.recordRequest({
        route: '/x',
        status: 200,
        model: undefined,
        upstream: undefined,
        outcome: 'ok',
        seconds: 0.2,
      });
    }
    const page = await pageOf(new MergedMetrics(), [a, b]);
    expect(page.get('tollgate_overload_refused_total{cause="heap"}')).toBe(4);
    expect(page.get('tollgate_event_loop_delay_seconds')).toBe(0.5);
    expect(page.get('tollgate_connections')).toBe(6);
    expect(page.get('tollgate_redis_up')).toBe(0);
    expect(page.get('tollgate_request_duration_seconds_count{route="/x"}')).toBe(2);
    expect(page.get('tollgate_request_duration_seconds_bucket{le="+Inf",route="/x"}')).toBe(2);
  });

  test('takes some metrics from the primary only, and adds its process resources', async () => {
    const [worker, own] = [createMetrics(), createMetrics()];
    worker.config.onState(true, 'worker', 7);
    worker.config.onReload('applied');
    own.config.onState(false, 'primary', 1);
    own.config.onReload('rejected');
    own.workers.workers.set({ state: 'serving' }, 1);
    const [theirs, ours] = [await samplesOf(worker), await samplesOf(own)];
    const page = read(await new MergedMetrics().page([theirs], ours));
    expect(page.get('tollgate_config_info{hash="primary"}')).toBe(1);
    expect(page.get('tollgate_config_info{hash="worker"}')).toBeUndefined();
    expect(page.get('tollgate_config_restart_pending')).toBe(1);
    expect(page.get('tollgate_config_reloads_total{result="applied"}')).toBe(0);
    expect(page.get('tollgate_config_reloads_total{result="rejected"}')).toBe(1);
    expect(page.get('tollgate_workers{state="serving"}')).toBe(1);
    const memory = [...theirs, ...ours].filter(({ name }) => name === 'process_resident_memory_bytes');
    const sum = memory.reduce((before, { values }) => before + (values[0]?.value ?? 0), 0);
    expect(memory).toHaveLength(2);
    expect(page.get('process_resident_memory_bytes')).toBe(sum);
    // One of the two and no sum; it is said in whole seconds, to the nearest.
    expect(page.get('process_start_time_seconds')).toBeLessThanOrEqual(Math.ceil(Date.now() / 1000));
  });

  test('names the running version once, also while no worker reports', async () => {
    const [worker, own] = [createMetrics(), createMetrics()];
    for (const { buildInfo } of [worker, own]) buildInfo.set({ version: '1.2.3', node: 'v26' }, 1);
    for (const workers of [[], [worker]]) {
      const page = await pageOf(new MergedMetrics(), workers, own);
      expect(page.get('tollgate_build_info{version="1.2.3",node="v26"}')).toBe(1);
    }
  });

  test('no counter decreases, in any order of exits', async () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant('count' as const), worker: fc.nat(2), by: fc.nat(5) }),
      fc.record({ kind: fc.constant('end' as const), worker: fc.nat(2) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
        const merged = new MergedMetrics();
        const workers = [createMetrics(), createMetrics(), createMetrics()];
        let sum = 0;
        for (const each of steps) {
          const worker = workers[each.worker];
          if (worker === undefined) continue;
          if (each.kind === 'count') {
            worker.overload.refused.inc({ cause: 'heap' }, each.by);
            sum += each.by;
          } else {
            worker.connections.set(9);
            merged.addExited(await samplesOf(worker));
            workers[each.worker] = createMetrics();
          }
          const page = await pageOf(merged, workers);
          expect(page.get('tollgate_overload_refused_total{cause="heap"}') ?? 0).toBe(sum);
          // What is there now is not what was there in those who have ended.
          expect(page.get('tollgate_connections') ?? 0).toBe(0);
        }
      }),
      { numRuns: 15 },
    );
  });
});

test('the worst state of each check counts', () => {
  const report = { status: 'ok', version: '', uptime_s: 0, config_hash: '' } as const;
  expect(
    mergeChecks([
      { ...report, checks: { store: 'ok', redis: 'degraded' } },
      { ...report, checks: { store: 'degraded', redis: 'ok', load: 'failed' } },
      { ...report, checks: { load: 'ok' } },
    ]),
  ).toEqual({ store: 'degraded', redis: 'degraded', load: 'failed' });
});

test('a slot restarts at once, later with backoff, and at once after a calm period', () => {
  let now = 0;
  const backoff = new Backoff({ ...WORKER_TIMES.restart, now: () => now, random: () => 0 });
  const waits = Array.from({ length: 9 }, () => backoff.next());
  expect(waits).toEqual([250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
  // One that serves for a moment is not calm.
  backoff.succeeded();
  now += WORKER_TIMES.restart.resetMs - 1;
  expect(backoff.next()).toBe(30_000);
  backoff.succeeded();
  now += WORKER_TIMES.restart.resetMs;
  expect(backoff.next()).toBe(250);
});
