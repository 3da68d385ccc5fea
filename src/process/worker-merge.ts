// What several workers come to that answer as one: their health, their targets, their metrics. Counters of a worker that has
// ended stay in the sum, so that none goes backwards.
import { AggregatorRegistry } from 'prom-client';
import type { TargetState } from '../http/admin/admin-listener.ts';
import type { CheckState, HealthReport } from '../http/admin/health.ts';
import type { Samples } from './worker-messages.ts';

/** What the primary says itself and no sum would: it reads the file, and it has the workers. */
const OWN =
  /^(tollgate_config_|tollgate_workers$|tollgate_worker_restarts_total$|process_start_time_seconds$)/;

export class MergedMetrics {
  /** Of all workers that have ended. */
  #gone: Samples = [];

  /** A worker has ended, and this is what it reported last. */
  keep(samples: Samples): void {
    const sums = samples.filter(({ type }) => isCumulative(type));
    this.#gone = asSamples(this.#gone, sums);
  }

  /**
   * @param own of the primary, which is a process as well: what it counts and holds is added, where it says something
   * @returns the text of one page
   */
  page(workers: readonly Samples[], own: Samples): Promise<string> {
    const said = own.filter(({ name }) => OWN.test(name));
    const names = new Set(said.map(({ name }) => name));
    const added = own.filter(
      ({ name, type, aggregator }) =>
        !names.has(name) && (isCumulative(type) || (/^(process|nodejs)_/.test(name) && aggregator === 'sum')),
    );
    const others = [...workers, added, this.#gone].map((samples) =>
      samples.filter(({ name }) => !names.has(name)),
    );
    // What the primary says alone has no second value, so that any way to join them will do.
    return AggregatorRegistry.aggregate([
      ...others,
      said.map((metric) => ({ ...metric, aggregator: 'first' })),
    ]).metrics();
  }
}

/** prom-client's types say that it is a number, and it is a word. */
function isCumulative(type: unknown): boolean {
  return type === 'counter' || type === 'histogram';
}

function asSamples(a: Samples, b: Samples): Samples {
  const merged: Samples = [];
  const byName = new Map(a.map((metric) => [metric.name, metric]));
  for (const metric of b) {
    const before = byName.get(metric.name);
    byName.delete(metric.name);
    merged.push(before === undefined ? metric : { ...metric, values: added(before.values, metric.values) });
  }
  return [...merged, ...byName.values()];
}

type Values = Samples[number]['values'];

function added(a: Values, b: Values): Values {
  const sums = new Map<string, Values[number]>();
  for (const value of [...a, ...b]) {
    const key = keyOf(value);
    const before = sums.get(key);
    sums.set(key, before === undefined ? value : { ...value, value: before.value + value.value });
  }
  return [...sums.values()];
}

/** Parts of a histogram have names of their own. */
function keyOf(value: Values[number]): string {
  const labels = Object.entries(value.labels).sort(([x], [y]) => (x < y ? -1 : 1));
  return JSON.stringify([Reflect.get(value, 'metricName'), labels]);
}

const STATES: readonly TargetState['state'][] = ['closed', 'half_open', 'open'];

/** Each target once: requests are added, and of breakers the one that is worst off is shown. */
export function mergeTargets(workers: readonly (readonly TargetState[])[]): TargetState[] {
  const merged = new Map<string, TargetState>();
  for (const target of workers.flat()) {
    const key = JSON.stringify([target.upstream, target.model]);
    const before = merged.get(key);
    if (before === undefined) {
      merged.set(key, target);
      continue;
    }
    const until = Math.max(before.until_ms ?? 0, target.until_ms ?? 0);
    const isWorse = STATES.indexOf(target.state) > STATES.indexOf(before.state);
    merged.set(key, {
      upstream: target.upstream,
      model: target.model,
      state: isWorse ? target.state : before.state,
      in_flight: before.in_flight + target.in_flight,
      ...(until === 0 ? {} : { until_ms: until }),
    });
  }
  return [...merged.values()];
}

const CHECKS: readonly CheckState[] = ['ok', 'degraded', 'failed'];

/** Of each check the worst state that any worker has found. */
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
