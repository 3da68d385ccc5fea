// Counts the active keys that are about to expire, for a metric. Each replica counts by itself: the store answers from an index.
import type { OrganisationStore } from '../store/organisation-record.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { EXPIRY_WARNING_MS } from './identify.ts';

const INTERVAL_MS = 10 * 60_000;

/** Counts now and then regularly. Without the store, the gauge keeps its value. @returns stops it */
export function countExpiringKeys(
  store: Pick<OrganisationStore, 'countExpiring'>,
  gauge: Metrics['expiringKeys'],
): () => void {
  const count = async (): Promise<void> => {
    const now = Date.now();
    const at = (ms: number) => new Date(ms).toISOString();
    try {
      gauge.set(await store.countExpiring(at(now), at(now + EXPIRY_WARNING_MS)));
    } catch {
      // The change feed reports a store that is unavailable.
    }
  };
  void count();
  const timer = setInterval(() => void count(), INTERVAL_MS).unref();
  return () => clearInterval(timer);
}
