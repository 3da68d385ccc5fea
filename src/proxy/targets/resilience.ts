// The state of targets across requests: breakers, latencies, retry budgets. One per process; it sends nothing and decides
// nothing about a single request: that is the plan's task.
import { type BreakerChange, CircuitBreaker } from '../../upstream/breaker/circuit-breaker.ts';
import { RetryBudget } from '../../upstream/retry-budget.ts';
import { LatencyAverage } from '../../upstream/target-latency.ts';
import type { Route, Target } from '../routes/route-table.ts';
import { type Affinity, TargetPlan } from './target-plan.ts';
import { type TargetStatus, TargetStatuses } from './target-statuses.ts';

export interface ResilienceOptions {
  /** `retry.budget` of the current configuration. */
  readonly share: () => number;
  /** Monotonic milliseconds. */
  readonly now?: (() => number) | undefined;
  /** From 0 (included) to 1 (excluded). */
  readonly random?: (() => number) | undefined;
  /** Called when the state of a target changes. Not for an upstream that has left the configuration. */
  readonly onChange?: (change: TargetChange) => void;
}

export interface TargetChange {
  readonly upstream: string;
  readonly model: string;
  readonly to: BreakerChange;
  /** For people. */
  readonly reason: string;
  /** Duration of a cool-down that begins, in milliseconds. */
  readonly ms?: number;
}

export class Resilience {
  readonly now: () => number;
  readonly random: () => number;
  readonly budget: RetryBudget;
  readonly statuses: TargetStatuses;
  readonly #share: () => number;
  readonly #roundBudgets = new WeakMap<object, RetryBudget>();
  readonly #retired = new WeakSet<object>();
  /** Their cool-downs are not known to be over. */
  readonly #cooling = new Set<CircuitBreaker>();

  constructor({
    share,
    now = () => performance.now(),
    random = Math.random,
    onChange = () => {},
  }: ResilienceOptions) {
    this.#share = share;
    this.now = now;
    this.random = random;
    this.budget = new RetryBudget({ share, now });
    this.statuses = new TargetStatuses((upstream, model, entry) => {
      const report = (change: Omit<TargetChange, 'upstream' | 'model'>) => {
        if (change.to === 'open' || change.to === 'cooling_down') this.#cooling.add(breaker);
        // An upstream of the same name may have replaced this one.
        if (!this.#retired.has(upstream)) onChange({ upstream: nameOf(upstream), model, ...change });
      };
      const breaker: CircuitBreaker = new CircuitBreaker({
        now,
        random,
        onChange: (to, reason, ms) => report({ to, reason, ...(ms !== undefined && { ms }) }),
      });
      return { breaker, latency: new LatencyAverage(now), entry };
    });
  }

  /** The order in which one request tries the targets of a route. @param affinity for `balance: affinity` */
  planFor(
    { targets, balance }: Pick<Route, 'targets' | 'balance'>,
    affinity?: Affinity<Target>,
  ): TargetPlan<Target> {
    return new TargetPlan<Target>({
      targets,
      balance,
      affinity,
      statusOf: this.statusOf,
      isInService: ({ upstream }) => upstream.isInService,
      isHealthy: ({ upstream }) => upstream.isHealthy,
      now: this.now,
      random: this.random,
    });
  }

  /** Reports cool-downs that are over, also of targets that get no requests. To be called every second or so. */
  observe(): void {
    for (const breaker of this.#cooling) if (!breaker.observe()) this.#cooling.delete(breaker);
  }

  /** The upstream left the configuration. Running requests continue, but changes of its state are not reported. */
  retire(upstream: object): void {
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
