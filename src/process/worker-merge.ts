// Merges health and metrics of all workers into one view; upstream/state merges the states of upstreams. The counters of exited workers stay in the sums, so that no
// counter decreases.
import { AggregatorRegistry } from 'prom-client';
import type { CheckState, HealthReport } from '../http/admin/health.ts';
import type { Samples } from './worker-messages.ts';

/** Metrics that only the primary reports: it reads the configuration file, manages the workers, and is there before them. */
const PRIMARY_ONLY =
  /^(tollgate_config_|tollgate_workers$|tollgate_worker_restarts_total$|tollgate_build_info$|process_start_time_seconds$)/;

export class MergedMetrics {
  /** Sums over all exited workers. */
  #exited: Promise<Samples> = Promise.resolve([]);

  /** Adds the last report of a worker that exited. */
  addExited(samples: Samples): void {
    const cumulative = samples.filter(({ type }) => isCumulative(type));
    this.#exited = this.#exited.then((before) =>
      AggregatorRegistry.aggregate([before, cumulative]).getMetricsAsJSON(),
    );
  }

  /**
   * @param own metrics of the primary; its counters and its process resources are added to those of the workers
   * @returns the page in the Prometheus text format
   */
  async page(workers: readonly Samples[], own: Samples): Promise<string> {
    const primaryOnly = own.filter(({ name }) => PRIMARY_ONLY.test(name));
    const names = new Set(primaryOnly.map(({ name }) => name));
    const added = own.filter(
      ({ name, type, aggregator }) =>
        !names.has(name) && (isCumulative(type) || (/^(process|nodejs)_/.test(name) && aggregator === 'sum')),
    );
    const others = [...workers, added, await this.#exited].map((samples) =>
      samples.filter(({ name }) => !names.has(name)),
    );
    // Only one process reports these, so the aggregator does not matter.
    return AggregatorRegistry.aggregate([
      ...others,
      primaryOnly.map((metric) => ({ ...metric, aggregator: 'first' })),
    ]).metrics();
  }
}

/** prom-client declares `type` as a number; at run time it is a string. */
function isCumulative(type: unknown): boolean {
  return type === 'counter' || type === 'histogram';
}

const CHECKS: readonly CheckState[] = ['ok', 'degraded', 'failed'];

/** The worst state of each check over all workers. */
export function mergeChecks(reports: readonly Pick<HealthReport, 'checks'>[]): Record<string, CheckState> {
  const merged: Record<string, CheckState> = {};
  for (const { checks } of reports) {
    for (const [name, state] of Object.entries(checks)) {
      const before = merged[name];
      if (before === undefined || CHECKS.indexOf(state) > CHECKS.indexOf(before)) merged[name] = state;
    }
  }
  return merged;
}
