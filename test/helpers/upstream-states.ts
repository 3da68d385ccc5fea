// States of upstreams as a gateway reports them, for tests of what shows or merges them.
import {
  breakerStateName,
  type TargetState,
  type UpstreamState,
  worstState,
} from '../../src/upstream/state/upstream-state.ts';

export function targetSample(model: string, given: Partial<TargetState> = {}): TargetState {
  const idle = {
    breaker: 'closed',
    cool_down: null,
    in_flight: 0,
    latency_ms: null,
    last_failure: null,
  } as const;
  const state = breakerStateName({ ...idle, ...given });
  return { model, entry: model, ...idle, state, ...given };
}

export function upstreamSample(
  upstream: string,
  targets: readonly TargetState[],
  given: Partial<UpstreamState> = {},
): UpstreamState {
  return {
    upstream,
    state: worstState(targets.map(({ state }) => state)),
    health: null,
    in_flight: targets.reduce((sum, { in_flight }) => sum + in_flight, 0),
    max_concurrency: 200,
    last_failure: null,
    credential: { kind: 'none', since: null, expires_at: null },
    drained: null,
    targets: [...targets],
    ...given,
  };
}

/** Lines of the log, parsed. */
export function logLines(text: string): Record<string, unknown>[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}
