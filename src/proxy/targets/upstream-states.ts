// The state of the upstreams of this process, computed in this one place for the admin listener, the metrics, and the fleet.
import { maskKeys } from '../../telemetry/log/key-mask.ts';
import {
  breakerStateName,
  latest,
  type StateName,
  type TargetState,
  type UpstreamState,
  worstState,
} from '../../upstream/state/upstream-state.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import type { Resilience } from './resilience.ts';
import type { TargetStatus } from './target-statuses.ts';

interface ConfiguredModel {
  readonly targets: readonly { readonly upstream: string; readonly model: string }[];
}

/** All upstreams of the configuration with all of their configured targets; of a pattern the models that were requested. */
export function upstreamStates(
  { models }: { readonly models: Readonly<Record<string, ConfiguredModel>> },
  upstreams: ReadonlyMap<string, Upstream>,
  resilience: Pick<Resilience, 'statuses' | 'now'>,
): UpstreamState[] {
  const all = Object.values(models).flatMap(({ targets }) => targets);
  const byUpstream = Map.groupBy(all, ({ upstream }) => upstream);
  return Array.from(upstreams.values(), (upstream) => {
    const entries = byUpstream.get(upstream.name)?.map(({ model }) => model);
    return stateOf(upstream, new Set(entries), resilience);
  });
}

function stateOf(
  upstream: Upstream,
  entries: ReadonlySet<string>,
  { statuses, now }: Pick<Resilience, 'statuses' | 'now'>,
): UpstreamState {
  const about = upstream.describe();
  const own: StateName = !upstream.isEnabled
    ? 'disabled'
    : about.drained !== null
      ? 'drained'
      : upstream.isHealthy
        ? 'ok'
        : 'unhealthy';
  const known = statuses.known(upstream);
  const targets = Array.from(known, ([model, status]) => targetState(model, status, own, now()));
  const seen = new Set(targets.map(({ entry }) => entry));
  for (const entry of entries) if (!seen.has(entry)) targets.push(unusedTarget(entry, own));
  const failed = targets.flatMap(({ model, last_failure: last }) =>
    last === null ? [] : [{ ...last, model }],
  );
  return {
    ...about,
    state: worstState([own, ...targets.map(({ state }) => state)]),
    last_failure: failed.reduce<(typeof failed)[number] | null>((a, b) => latest(a, b), null),
    targets,
  };
}

function targetState(
  model: string,
  { breaker, latency, entry = model }: TargetStatus,
  ofUpstream: StateName,
  now: number,
): TargetState {
  const { state, inFlight, rejection, isForcible, lastFailure } = breaker.snapshot();
  const own = {
    breaker: state,
    cool_down:
      rejection === undefined
        ? null
        : {
            cause: rejection.cause,
            ms: Math.max(1, Math.ceil(rejection.until - now)),
            admits_sole: isForcible,
          },
  };
  return {
    model: maskKeys(model),
    entry,
    state: worstState([ofUpstream, breakerStateName(own)]),
    ...own,
    in_flight: inFlight,
    latency_ms: latency.value === undefined ? null : Math.round(latency.value * 10) / 10,
    last_failure:
      lastFailure === undefined ? null : { code: lastFailure.code, at: lastFailure.at.toISOString() },
  };
}

/** A target that has had no request yet. */
function unusedTarget(entry: string, ofUpstream: StateName): TargetState {
  return {
    model: maskKeys(entry),
    entry,
    state: ofUpstream,
    breaker: 'closed',
    cool_down: null,
    in_flight: 0,
    latency_ms: null,
    last_failure: null,
  };
}
