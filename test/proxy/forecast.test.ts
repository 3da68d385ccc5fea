// What the next hundred requests would do, against what the plan of requests does with real breakers in the same states.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Route, Target } from '../../src/proxy/routes/route-table.ts';
import { forecast, meanForecast } from '../../src/proxy/targets/forecast.ts';
import { Resilience } from '../../src/proxy/targets/resilience.ts';
import { REJECTION_CODES, TargetPlan } from '../../src/proxy/targets/target-plan.ts';
import { upstreamStates } from '../../src/proxy/targets/upstream-states.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import type { UpstreamState } from '../../src/upstream/state/upstream-state.ts';
import { Upstream } from '../../src/upstream/upstream.ts';
import { randomFrom } from '../helpers/random.ts';
import { targetSample, upstreamSample } from '../helpers/upstream-states.ts';

const CONFIG = {
  kind: 'builtin',
  builtin: 'echo',
  timeouts: { connect: 1000, idle: 1000, total: 1000 },
  max_concurrency: 2,
  stream_usage: 'off',
} as const;

interface Given {
  readonly weight: number;
  readonly priority: number;
  readonly isDrained: boolean;
  readonly failures: number;
  readonly pause: 'none' | 'default' | 'named';
  readonly latency: number | undefined;
}

/** Real upstreams, of which each has one target, `u0` and so on. */
function setting(all: readonly Partial<Given>[]) {
  const clock = { now: 50_000 };
  const drained = new Set(all.flatMap(({ isDrained }, at) => (isDrained === true ? [`u${at}`] : [])));
  const drain = (upstream: string) => ({ upstream, at: '2030', until: null, actor: 'ann', reason: null });
  const drains = { of: (name: string) => (drained.has(name) ? drain(name) : undefined) };
  const metrics = createMetrics();
  const resilience = new Resilience({ share: () => 1, now: () => clock.now, random: () => 0 });
  const targets = all.map(({ weight = 1, priority = 1 }, at): Target => {
    const upstream = new Upstream(`u${at}`, CONFIG, '', metrics, undefined, {}, undefined, drains);
    return { upstream, model: 'm', entry: 'm', weight, priority };
  });
  all.forEach(({ failures = 0, pause = 'none', latency }, at) => {
    const [target] = targets.slice(at);
    if (target === undefined) return;
    const { breaker, latency: average } = resilience.statusOf(target);
    const results = [
      ...(pause === 'none'
        ? []
        : [{ kind: 'limited' as const, ...(pause === 'named' && { retryAfterMs: 9000 }) }]),
      ...Array.from({ length: failures }, () => ({ kind: 'failure' as const })),
    ];
    for (const result of results) {
      const permit = breaker.force();
      if (permit.kind === 'permit') permit.release(result);
    }
    if (latency !== undefined) average.observe(latency);
  });
  const models = { m: { targets: targets.map(({ upstream }) => ({ upstream: upstream.name, model: 'm' })) } };
  const upstreams = new Map(targets.map(({ upstream }) => [upstream.name, upstream]));
  return { clock, targets, resilience, states: () => upstreamStates({ models }, upstreams, resilience) };
}

function counted(route: Pick<Route, 'targets' | 'balance'>, states: readonly UpstreamState[]) {
  const { counts, rejected } = forecast(route, states);
  return [...route.targets.map((target) => counts.get(target) ?? 0), Object.fromEntries(rejected)];
}

test('the forecast is what the plan does, in all states of breakers, pauses, drains, weights and priorities', () => {
  const given = fc.record({
    weight: fc.constantFrom(0, 1, 2, 5),
    priority: fc.integer({ min: 1, max: 2 }),
    isDrained: fc.boolean(),
    failures: fc.constantFrom(0, 0, 1, 5),
    pause: fc.constantFrom('none' as const, 'none' as const, 'default' as const, 'named' as const),
    latency: fc.constantFrom(undefined, 10, 200),
  });
  const balance = fc.constantFrom('weighted' as const, 'latency' as const, 'least_requests' as const);
  fc.assert(
    fc.property(fc.array(given, { minLength: 1, maxLength: 4 }), balance, (all, how) => {
      const { targets, resilience, states } = setting(all);
      const seen = new Map<Target | string, number>();
      // Plans draw several numbers, so one must not follow from another by a simple rule.
      const random = randomFrom(1);
      const rounds = 2000;
      for (let round = 0; round < rounds; round += 1) {
        const plan = new TargetPlan<Target>({
          targets,
          balance: how,
          statusOf: resilience.statusOf,
          isInService: ({ upstream }) => upstream.isInService,
          now: resilience.now,
          random,
        });
        const step = plan.next();
        if (step.kind === 'target') step.permit.release({ kind: 'neutral' });
        const what =
          step.kind === 'target' ? step.target : step.cause === 'tried' ? '' : REJECTION_CODES[step.cause];
        seen.set(what, (seen.get(what) ?? 0) + 100 / rounds);
      }
      const { counts, rejected } = forecast({ targets, balance: how }, states());
      for (const what of [...targets, ...Object.values(REJECTION_CODES)]) {
        const expected = (typeof what === 'string' ? rejected.get(what) : counts.get(what)) ?? 0;
        expect(Math.abs(expected - (seen.get(what) ?? 0))).toBeLessThan(6);
      }
    }),
    { numRuns: 100 },
  );
});

describe('a target', () => {
  test('that is half open gets one request, and the sole one all', () => {
    const { clock, targets, states } = setting([{ failures: 5, weight: 9 }, {}]);
    clock.now += 10_001;
    expect(counted({ targets, balance: 'weighted' }, states())).toEqual([1, 99, {}]);
    const alone = setting([{ failures: 5 }]);
    expect(counted({ targets: alone.targets, balance: 'weighted' }, alone.states())).toEqual([100, {}]);
    alone.clock.now += 10_001;
    expect(counted({ targets: alone.targets, balance: 'weighted' }, alone.states())).toEqual([100, {}]);
  });

  test('at its max_concurrency is passed over, and all at it reject', () => {
    const { targets } = setting([{ weight: 9 }, { priority: 2 }]);
    const full = (name: string) =>
      upstreamSample(name, [targetSample('m')], { in_flight: 2, max_concurrency: 2 });
    expect(counted({ targets, balance: 'weighted' }, [full('u0')])).toEqual([0, 100, {}]);
    expect(counted({ targets, balance: 'weighted' }, [full('u0'), full('u1')])).toEqual([
      0,
      0,
      { upstream_busy: 100 },
    ]);
  });

  test('whose pause was named is not tried, even alone', () => {
    const { targets, states } = setting([{ pause: 'named' }]);
    expect(counted({ targets, balance: 'weighted' }, states())).toEqual([0, { upstream_rate_limited: 100 }]);
  });

  test('that is unhealthy comes last, whatever its priority', () => {
    const { targets } = setting([{}, { priority: 2 }]);
    const health = { ok: false, since: '2030', reason: null };
    expect(counted({ targets, balance: 'weighted' }, [upstreamSample('u0', [], { health })])).toEqual([
      0,
      100,
      {},
    ]);
  });
});

test('several processes count as their mean', () => {
  const { targets } = setting([{}, {}]);
  const open = { breaker: 'open', cool_down: { cause: 'open', ms: 1, admits_sole: true } } as const;
  const route = { targets, balance: 'weighted' } as const;
  const all = [[], [upstreamSample('u0', [targetSample('m', open)])]].map((states) =>
    forecast(route, states),
  );
  expect(targets.map((target) => meanForecast(all).counts.get(target))).toEqual([25, 75]);
});
