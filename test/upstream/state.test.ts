// States of several processes as one, and what metrics say of the requests in flight.
import { describe, expect, test } from 'vitest';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { Bulkhead } from '../../src/upstream/state/bulkhead.ts';
import {
  breakerStateName,
  mergeUpstreams,
  upstreamState,
  worstState,
} from '../../src/upstream/state/upstream-state.ts';
import { targetSample, upstreamSample } from '../helpers/upstream-states.ts';

const at = (minute: number) => `2030-01-31T00:${String(minute).padStart(2, '0')}:00.000Z`;

describe('merged states', () => {
  test('add requests, and have the worst of everything else', () => {
    const open = { breaker: 'open', cool_down: { cause: 'open', ms: 40, admits_sole: true } } as const;
    const half = {
      breaker: 'half_open',
      cool_down: { cause: 'probing', ms: 10, admits_sole: true },
    } as const;
    const other = targetSample('n', { in_flight: 1 });
    expect(
      mergeUpstreams([
        [upstreamSample('u', [targetSample('m', { in_flight: 1, latency_ms: 3 }), other])],
        [upstreamSample('u', [targetSample('m', { ...open, in_flight: 2, latency_ms: 9 })])],
        [upstreamSample('u', [targetSample('m', half)]), upstreamSample('v', [])],
      ]),
    ).toEqual([
      upstreamSample('u', [targetSample('m', { ...open, in_flight: 3, latency_ms: 9 }), other], {
        max_concurrency: 600,
      }),
      upstreamSample('v', []),
    ]);
  });

  test('have the latest failure and drain, the failing health check, and the credential that ends first', () => {
    const health = (ok: boolean) => ({ ok, since: at(0), reason: ok ? null : 'status 503' });
    const fetched = (minute: number) => ({ kind: 'fetched', since: at(0), expires_at: at(minute) }) as const;
    const drained = { by: 'ann', at: at(3), until: null, reason: null };
    const failure = (minute: number) => ({ code: 'upstream_error', at: at(minute), model: 'm' });
    const states = [
      upstreamSample('u', [], { health: health(true), credential: fetched(9), last_failure: failure(2) }),
      upstreamSample('u', [], { health: health(false), credential: fetched(8), state: 'unhealthy' }),
      upstreamSample('u', [], { health: health(true), drained, state: 'drained', last_failure: failure(1) }),
    ];
    for (const order of [states, states.toReversed()])
      expect(mergeUpstreams(order.map((each) => [each]))).toMatchObject([
        {
          state: 'drained',
          health: { ok: false, reason: 'status 503' },
          drained: { by: 'ann' },
          last_failure: failure(2),
          credential: { kind: 'fetched', expires_at: at(8) },
        },
      ]);
  });

  test('of a target have the known latency and the longer cool-down', () => {
    const paused = (ms: number) => ({ cool_down: { cause: 'pause', ms, admits_sole: true } as const });
    const merged = (...targets: Parameters<typeof targetSample>[1][]) =>
      mergeUpstreams(targets.map((given) => [upstreamSample('u', [targetSample('m', given)])]))[0]
        ?.targets[0];
    for (const pair of [
      [{ latency_ms: 5 }, paused(0)],
      [paused(0), { latency_ms: 5 }],
    ])
      expect(merged(...pair)).toMatchObject({ latency_ms: 5, ...paused(0), state: 'cooling_down' });
    expect(merged({ latency_ms: 5, ...paused(7) }, { latency_ms: 4, ...paused(6) })).toMatchObject({
      latency_ms: 5,
      ...paused(7),
    });
    expect(merged({}, {})?.latency_ms).toBeNull();
  });

  test('have the older of two credentials without an end, and the one with an end', () => {
    const merged = (...all: [string | null, string | null][]) =>
      mergeUpstreams(
        all.map(([since, expires_at]) => [
          upstreamSample('u', [], { credential: { kind: 'fetched', since, expires_at } }),
        ]),
      )[0]?.credential;
    expect(merged([at(2), null], [at(1), null])?.since).toBe(at(1));
    expect(merged([at(1), null], [at(2), null])?.since).toBe(at(1));
    expect(merged([at(1), null], [null, null])?.since).toBeNull();
    expect(merged([at(1), null], [at(2), at(9)])?.since).toBe(at(2));
  });

  test.each([
    ['closed', null, 'ok'],
    ['closed', { cause: 'limit', ms: 1, admits_sole: false }, 'cooling_down'],
    ['half_open', { cause: 'probing', ms: 1, admits_sole: false }, 'half_open'],
    ['open', { cause: 'open', ms: 1, admits_sole: false }, 'open'],
  ] as const)('a target whose breaker is %s with the cool-down %j is %s', (breaker, cool_down, state) => {
    expect(breakerStateName({ breaker, cool_down })).toBe(state);
    const sample = upstreamSample('u', [targetSample('m', { breaker, cool_down })]);
    expect(upstreamState.parse(sample)).toEqual(sample);
  });

  test.each(['none', 'configured', 'fetched'] as const)('have credentials that are %s', (kind) => {
    const sample = upstreamSample('u', [], { credential: { kind, since: at(1), expires_at: at(2) } });
    expect(upstreamState.parse(sample)).toEqual(sample);
  });

  test('without targets are ok', () => {
    expect([worstState([]), worstState(['ok', 'drained', 'open'])]).toEqual(['ok', 'drained']);
  });
});

test('requests in flight are bounded, and counted with their outcomes and durations', async () => {
  const metrics = createMetrics();
  const [one, later] = [new Bulkhead('u', metrics), new Bulkhead('u', metrics)];
  one.acquire(2);
  one.acquire(2);
  expect(() => one.acquire(2)).toThrow(expect.objectContaining({ code: 'upstream_busy' }));
  later.acquire(2);
  expect([one.inFlight, one.inFlightOfName, later.inFlight]).toEqual([2, 3, 1]);
  one.release('ok', 1500);
  one.release('upstream_timeout', 250);
  later.release('ok');
  expect([one.inFlight, one.inFlightOfName]).toEqual([0, 0]);
  const text = await metrics.registry.metrics();
  expect(text).toMatch(/^tollgate_upstream_attempts_total\{upstream="u",outcome="ok"\} 2$/m);
  expect(text).toMatch(/^tollgate_upstream_attempts_total\{upstream="u",outcome="upstream_timeout"\} 1$/m);
  expect(text).toMatch(/^tollgate_upstream_duration_seconds_sum\{upstream="u",result="ok"\} 1.5$/m);
  expect(text).toMatch(/^tollgate_upstream_duration_seconds_sum\{upstream="u",result="failed"\} 0.25$/m);
});
