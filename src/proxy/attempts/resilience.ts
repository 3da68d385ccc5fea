// The state of targets across requests: breakers, latencies, retry budgets. One per process; it sends nothing and takes no
// decision about a single request.

import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { CircuitBreaker } from '../../upstream/circuit-breaker.ts';
import { RetryBudget } from '../../upstream/retry-budget.ts';
import { LatencyAverage } from '../../upstream/target-latency.ts';
import type { Target } from '../routes/route-table.ts';
import { type TargetStatus, TargetStatuses } from './target-plan.ts';

interface ResilienceOptions {
  readonly metrics: Metrics;
  /** `retry.budget` of the current configuration. */
  readonly share: () => number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** From 0 (included) to 1 (excluded). */
  readonly random?: () => number;
}

export class Resilience {
  readonly now: () => number;
  readonly random: () => number;
  readonly budget: RetryBudget;
  readonly statuses: TargetStatuses;
  readonly #share: () => number;
  readonly #roundBudgets = new WeakMap<object, RetryBudget>();
  readonly #breakers: Metrics['breakers'];
  readonly #retired = new WeakSet<object>();

  constructor({ metrics, share, now = () => performance.now(), random = Math.random }: ResilienceOptions) {
    this.#share = share;
    this.now = now;
    this.random = random;
    this.budget = new RetryBudget({ share, now });
    // With a pattern, clients name the models: a series starts with the first change of a breaker and is removed with it.
    const { breakers } = metrics;
    this.#breakers = breakers;
    this.statuses = new TargetStatuses(
      (upstream, model, entry) => ({
        breaker: new CircuitBreaker({
          now,
          random,
          onChange: (state) => {
            // An upstream of the same name may have replaced this one and own the series.
            if (!this.#retired.has(upstream)) breakers.set(nameOf(upstream), entry, model, state);
          },
        }),
        latency: new LatencyAverage(now),
        entry,
      }),
      (upstream, model, { entry = model }) => {
        if (!this.#retired.has(upstream)) breakers.forget(nameOf(upstream), entry, model);
      },
    );
  }

  /** The upstream left the configuration. Running requests continue, but its metrics series end. */
  retire(upstream: object): void {
    for (const [model, { entry = model }] of this.statuses.known(upstream)) {
      this.#breakers.forget(nameOf(upstream), entry, model);
    }
    this.#retired.add(upstream);
  }

  /** The budget of retry rounds at one upstream, filled by its own traffic: a retry storm at one does not drain the others'. */
  roundBudgetOf(upstream: object): RetryBudget {
    let budget = this.#roundBudgets.get(upstream);
    if (budget === undefined) {
      budget = new RetryBudget({ share: this.#share, now: this.now });
      this.#roundBudgets.set(upstream, budget);
    }
    return budget;
  }

  /** The status of a target. A bound function, so that it can be passed on. */
  readonly statusOf = ({
    upstream,
    model,
    entry,
  }: Pick<Target, 'upstream' | 'model' | 'entry'>): TargetStatus => this.statuses.of(upstream, model, entry);
}

function nameOf(upstream: object): string {
  return 'name' in upstream ? String(upstream.name) : '';
}
