// Counts the active keys that are about to expire, for a metric. Each replica counts by itself: the store answers from an index.
import type { OrganisationStore } from '../store/organisation-record.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { EXPIRY_WARNING_MS } from './identify.ts';

const INTERVAL_MS = 10 * 60_000;

interface ExpiringKeysOptions {
  readonly store: Pick<OrganisationStore, 'countExpiring'>;
  readonly metrics: Pick<Metrics, 'expiringKeys'>;
}

export class ExpiringKeys {
  readonly #options: ExpiringKeysOptions;
  readonly #timer: NodeJS.Timeout;

  constructor(options: ExpiringKeysOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.count(), INTERVAL_MS).unref();
  }

  /** Never rejects: without the store, the gauge keeps its value. */
  async count(): Promise<void> {
    const { store, metrics } = this.#options;
    const now = Date.now();
    const at = (ms: number) => new Date(ms).toISOString();
    try {
      metrics.expiringKeys.set(await store.countExpiring(at(now), at(now + EXPIRY_WARNING_MS)));
    } catch {
      // The change feed reports a store that is unavailable.
    }
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
