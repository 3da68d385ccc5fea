// What `/health` and the admin listener are told about the parts of a running gateway. It asks nothing that costs.
import type { Keys } from '../auth/key-wiring.ts';
import type { TargetState } from '../http/admin/admin-listener.ts';
import type { Resilience } from '../proxy/attempts/resilience.ts';
import type { Metering } from '../proxy/reservation/metering.ts';
import type { Store } from '../store/store.ts';
import { maskKeys } from '../telemetry/log/key-mask.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { Upstream } from '../upstream/upstream.ts';

/** Between two checks while no real write tells the state, in milliseconds. */
const STORE_CHECK_MS = 5000;

interface StoreCheckOptions {
  readonly store: Pick<Store, 'ping'>;
  readonly logger: Pick<Logger, 'info' | 'error'>;
  readonly writable: Pick<Metrics['storeWritable'], 'set'>;
}

/**
 * Whether the store answers and can be written, also where no probe asks. The gateway serves verified keys for a while without its
 * store, so a store that is away degrades and does not fail it; but it is not ready.
 */
export class StoreCheck {
  readonly #options: StoreCheckOptions;
  readonly #timer: NodeJS.Timeout;
  #isWritable = true;

  constructor(options: StoreCheckOptions) {
    this.#options = options;
    options.writable.set({}, 1);
    this.#timer = setInterval(() => void this.check(), STORE_CHECK_MS);
    this.#timer.unref();
  }

  /** Never rejects. */
  async check(): Promise<'ok' | 'degraded'> {
    const { store, logger } = this.#options;
    try {
      await store.ping();
      if (this.#turned(true)) logger.info('the store can be written again');
      return 'ok';
    } catch (err) {
      if (this.#turned(false)) logger.error({ err }, 'the store cannot be written; known keys are served');
      return 'degraded';
    }
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Whether it is another state than before. */
  #turned(isWritable: boolean): boolean {
    const isNew = isWritable !== this.#isWritable;
    this.#isWritable = isWritable;
    if (isNew) this.#options.writable.set({}, isWritable ? 1 : 0);
    return isNew;
  }
}

/** Without Redis, or without the messages that come through it, replicas go on by themselves. */
export function checkRedis({ redis, isLinked }: Keys, { isDegraded }: Metering): 'ok' | 'degraded' {
  return redis?.isUp === true && isLinked && !isDegraded ? 'ok' : 'degraded';
}

/** How the targets at one upstream are doing, for the admin listener. */
export function targetStatesOf(upstream: Upstream, { standings, now }: Resilience): TargetState[] {
  return Array.from(standings.known(upstream), ([model, { breaker }]) => {
    const { state, inFlight, rejection } = breaker.snapshot();
    const about = { upstream: upstream.name, model: maskKeys(model), state, in_flight: inFlight };
    return rejection === undefined
      ? about
      : { ...about, until_ms: Math.max(1, Math.ceil(rejection.until - now())) };
  });
}
