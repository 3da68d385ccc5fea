// What this process remembers of its targets from one request to the next: breakers, latencies, the retry budget. One per
// process, made from a clock and a source of chance. It sends nothing and decides about no single request.

import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { CircuitBreaker } from '../../upstream/circuit-breaker.ts';
import { RetryBudget } from '../../upstream/retry-budget.ts';
import { LatencyAverage } from '../../upstream/target-latency.ts';
import type { Target } from '../routes/route-table.ts';
import { type TargetStatus, TargetStatuses } from './target-plan.ts';

interface ResilienceOptions {
  readonly metrics: Metrics;
  /** `retry.budget` of the present configuration. */
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
  readonly standings: TargetStatuses;
  readonly #share: () => number;
  readonly #rounds = new WeakMap<object, RetryBudget>();
  readonly #breakers: Metrics['breakers'];
  readonly #retired = new WeakSet<object>();

  constructor({ metrics, share, now = () => performance.now(), random = Math.random }: ResilienceOptions) {
    this.#share = share;
    this.now = now;
    this.random = random;
    this.budget = new RetryBudget({ share, now });
    // Clients name models where a pattern serves them: a series begins when a breaker first changes, and goes with it.
    const { breakers } = metrics;
    this.#breakers = breakers;
    this.standings = new TargetStatuses(
      (upstream, model, entry) => ({
        breaker: new CircuitBreaker({
          now,
          random,
          onChange: (state) => {
            // A successor of the same name has the series then.
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

  /** The upstream is no part of the configuration any more. Requests that began before go on, but nothing of it is shown. */
  retire(upstream: object): void {
    for (const [model, { entry = model }] of this.standings.known(upstream)) {
      this.#breakers.forget(nameOf(upstream), entry, model);
    }
    this.#retired.add(upstream);
  }

  /** What a second round at this upstream may use of its own traffic: quiet neighbours do not pay for a storm at one. */
  roundsAt(upstream: object): RetryBudget {
    let budget = this.#rounds.get(upstream);
    if (budget === undefined) {
      budget = new RetryBudget({ share: this.#share, now: this.now });
      this.#rounds.set(upstream, budget);
    }
    return budget;
  }

  standing({ upstream, model, entry }: Pick<Target, 'upstream' | 'model' | 'entry'>): TargetStatus {
    return this.standings.of(upstream, model, entry);
  }

  /** `standing`, to be handed on. */
  readonly standingOf = (target: Pick<Target, 'upstream' | 'model' | 'entry'>): TargetStatus =>
    this.standing(target);
}

function nameOf(upstream: object): string {
  return 'name' in upstream ? String(upstream.name) : '';
}
