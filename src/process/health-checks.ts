// The health checks of a running gateway for `/health`. All checks are cheap.
import type { Keys } from '../auth/key-wiring.ts';
import type { Metering } from '../proxy/reservation/metering.ts';
import type { Store } from '../store/store.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';

/** Interval of checks, in milliseconds. */
const STORE_CHECK_MS = 5000;

interface StoreCheckOptions {
  readonly store: Pick<Store, 'ping'>;
  readonly logger: Pick<Logger, 'info' | 'error'>;
  readonly writable: Pick<Metrics['storeWritable'], 'set'>;
}

/**
 * Checks at an interval, and for each probe, whether the store is writable. The gateway serves verified keys for a while without its
 * store, so an unavailable store makes it degraded and not ready, but not failed.
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
      if (this.#hasChanged(true)) logger.info('the store is writable again');
      return 'ok';
    } catch (err) {
      if (this.#hasChanged(false))
        logger.error({ err }, 'the store is not writable; serving verified keys only');
      return 'degraded';
    }
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Records the state. @returns whether it differs from the previous one */
  #hasChanged(isWritable: boolean): boolean {
    const isNew = isWritable !== this.#isWritable;
    this.#isWritable = isWritable;
    if (isNew) this.#options.writable.set({}, isWritable ? 1 : 0);
    return isNew;
  }
}

/** Degraded without Redis or its subscription: replicas then enforce limits independently. */
export function checkRedis({ redis, isLinked }: Keys, { isDegraded }: Metering): 'ok' | 'degraded' {
  return redis?.isUp === true && isLinked && !isDegraded ? 'ok' : 'degraded';
}
