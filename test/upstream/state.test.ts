// States of several processes as one.
import { describe, expect, test } from 'vitest';
import { mergeUpstreams } from '../../src/upstream/state/upstream-state.ts';
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
});
