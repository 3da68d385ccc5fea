// What `/health` and the admin listener are told about the parts of a running gateway. It asks nothing that costs.
import type { Keys } from '../auth/keys.ts';
import type { TargetState } from '../http/admin.ts';
import type { Metering } from '../proxy/metering.ts';
import type { Resilience } from '../proxy/resilience.ts';
import type { Store } from '../store/store.ts';
import type { Upstream } from '../upstream/upstream.ts';

/** The gateway serves verified keys for a while without its store, so a store that is away degrades and does not fail it. */
export async function checkStore(store: Store): Promise<'ok' | 'degraded'> {
  try {
    await store.ping();
    return 'ok';
  } catch {
    return 'degraded';
  }
}

/** Without Redis, or without the messages that come through it, replicas go on by themselves. */
export function checkRedis({ redis, isLinked }: Keys, { isDegraded }: Metering): 'ok' | 'degraded' {
  return redis?.isUp === true && isLinked && !isDegraded ? 'ok' : 'degraded';
}

/** How the targets at one upstream are doing, for the admin listener. */
export function statesOf(upstream: Upstream, { standings, now }: Resilience): TargetState[] {
  return Array.from(standings.known(upstream), ([model, { breaker }]) => {
    const { state, inFlight, refusal } = breaker.snapshot();
    const about = { upstream: upstream.name, model, state, in_flight: inFlight };
    return refusal === undefined
      ? about
      : { ...about, until_ms: Math.max(1, Math.ceil(refusal.until - now())) };
  });
}
