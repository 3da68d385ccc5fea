// Which target of a route is asked next, for one request: by priority, by health, by breaker, by the balance within a group.
// It hands out one target at a time with the permit to ask it, and sends nothing.

import type { BreakerRejection, CircuitBreaker, Permit } from '../../upstream/circuit-breaker.ts';
import { choose, type LoadBalance } from '../../upstream/load-balance.ts';
import type { LatencyAverage } from '../../upstream/target-latency.ts';

/** What a plan needs to know of a target. */
interface Ranked {
  readonly weight: number;
  /** 1 is asked first. */
  readonly priority: number;
}

/** What this process remembers of a target from one request to the next. */
export interface TargetStatus {
  readonly breaker: CircuitBreaker;
  readonly latency: LatencyAverage;
  /** Its model as it is configured, for reports: models of one pattern share it. */
  readonly entry?: string;
}

export interface TargetPlanOptions<T extends Ranked> {
  /** Those without weight are never asked. */
  readonly targets: readonly T[];
  readonly balance: LoadBalance;
  readonly standing: (target: T) => TargetStatus;
  /**
   * Whether the active checks think well of it. They ask another path than requests do, so they only rank: an unhealthy
   * target comes after all healthy ones, of whatever priority, and its breaker decides on facts. Default: all healthy.
   */
  readonly isHealthy?: (target: T) => boolean;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** From 0 (included) to 1 (excluded). */
  readonly random: () => number;
}

/** A target to ask now. The permit is to be released once, also when nothing is sent. */
export interface Next<T> {
  readonly kind: 'target';
  readonly target: T;
  readonly permit: Permit;
}

/**
 * No target may be asked now.
 * - `tried`: this request has asked all of them.
 * - `limit`: those that it has not asked are all at a limit of theirs (429).
 * - `open`: of those that it has not asked, one at least is left alone because it fails (503).
 */
export interface Exhausted {
  readonly kind: 'exhausted';
  readonly cause: 'tried' | 'limit' | 'open';
  /** Until the first of the targets may be asked, tried or not; at least 1 ms, 0 when one may be asked now. */
  readonly retryAfterMs: number;
}

export class TargetPlan<T extends Ranked> {
  readonly #options: TargetPlanOptions<T>;
  readonly #targets: readonly T[];
  /** Asked by this request already, in this round. */
  #tried: T[] = [];

  constructor(options: TargetPlanOptions<T>) {
    this.#options = options;
    this.#targets = options.targets.filter(({ weight }) => weight > 0);
  }

  /**
   * Chooses a target that this request has not asked, and takes the permit for it.
   * @param suits only such a one; default: any
   */
  next(suits: (target: T) => boolean = () => true): Next<T> | Exhausted {
    const [first] = this.#targets;
    // With a single target there is nothing to choose.
    if (first !== undefined && this.#targets.length === 1 && this.#tried.length === 0 && suits(first))
      return this.#sole(first);
    const { isHealthy = () => true } = this.#options;
    const untried = this.#targets.filter((target) => !this.#tried.includes(target) && suits(target));
    const admissible = untried.filter((target) => this.#breaker(target).rejection() === undefined);
    const healthy = admissible.filter(isHealthy);
    const target = this.#choose(healthy.length > 0 ? healthy : admissible);
    if (target !== undefined) {
      const step = this.#hand(target, this.#breaker(target).admit());
      if (step !== undefined) return step;
    }
    return this.#exhausted(untried);
  }

  /**
   * There is no other target, and its own answer is worth more than a rejection of ours. It is rejected only for the time
   * that it named, so the client is told to wait for that and not for the end of the open state.
   */
  #sole(target: T): Next<T> | Exhausted {
    const breaker = this.#breaker(target);
    const step = breaker.rejection() === undefined ? this.#hand(target, breaker.admit()) : undefined;
    if (step !== undefined) return step;
    const admission = breaker.force();
    if (admission.kind === 'rejection') {
      const cause = admission.cause === 'limit' ? 'limit' : 'open';
      return { kind: 'exhausted', cause, retryAfterMs: waitMs(admission, this.#options.now()) };
    }
    return this.#hand(target, admission) ?? this.#exhausted([target]);
  }

  /**
   * Begins another round: each target may be asked once more. To be called after the wait between the two.
   * @param without these are not asked again
   */
  again(without: readonly T[] = []): void {
    this.#tried = [...without];
  }

  /** It was not asked after all: the permit is released, and it may be handed out again. */
  giveBack({ target, permit }: Next<T>): void {
    permit.release({ kind: 'neutral' });
    this.#tried = this.#tried.filter((each) => each !== target);
  }

  #hand(target: T, admission: Permit | BreakerRejection): Next<T> | undefined {
    if (admission.kind === 'rejection') return undefined;
    this.#tried.push(target);
    return { kind: 'target', target, permit: admission };
  }

  /** One of the first priority that is there. */
  #choose(targets: readonly T[]): T | undefined {
    if (targets.length <= 1) return targets[0];
    const { balance, standing, random } = this.#options;
    const first = targets.reduce(
      (least, { priority }) => Math.min(least, priority),
      Number.POSITIVE_INFINITY,
    );
    const group = targets.filter(({ priority }) => priority === first);
    const candidates = group.map((target) => {
      const { breaker, latency } = standing(target);
      return { weight: target.weight, inFlight: breaker.inFlight, latencyMs: latency.value };
    });
    return group[choose(candidates, balance, random) ?? 0];
  }

  #exhausted(untried: readonly T[]): Exhausted {
    const refusals = untried.flatMap((target) => this.#breaker(target).rejection() ?? []);
    const cause =
      refusals.length === 0 ? 'tried' : refusals.every((each) => each.cause === 'limit') ? 'limit' : 'open';
    return { kind: 'exhausted', cause, retryAfterMs: this.#soonest() };
  }

  #soonest(): number {
    const now = this.#options.now();
    const waits = this.#targets.map((target) => {
      const rejection = this.#breaker(target).rejection();
      return rejection === undefined ? 0 : waitMs(rejection, now);
    });
    return waits.length === 0 ? 0 : Math.min(...waits);
  }

  #breaker(target: T): CircuitBreaker {
    return this.#options.standing(target).breaker;
  }
}

function waitMs({ until }: BreakerRejection, now: number): number {
  return Math.max(1, Math.ceil(until - now));
}

/** With patterns the client names the model, so the number of them has to have an end. */
const MAX_MODELS = 256;

/**
 * The standings of all targets. They belong to an upstream as an object and last as long as it does: an upstream that a new
 * configuration leaves as it was keeps them, one that it changes begins anew.
 */
export class TargetStatuses {
  readonly #create: (upstream: object, model: string, entry: string) => TargetStatus;
  readonly #onForget: (upstream: object, model: string, standing: TargetStatus) => void;
  readonly #byUpstream = new WeakMap<object, Map<string, TargetStatus>>();

  /**
   * @param create what is not yet known of a target
   * @param onForget called when a target's standing made room for another
   */
  constructor(
    create: (upstream: object, model: string, entry: string) => TargetStatus,
    onForget: (upstream: object, model: string, standing: TargetStatus) => void = () => {},
  ) {
    this.#create = create;
    this.#onForget = onForget;
  }

  /** @param entry the model as it is configured, where that is a pattern */
  of(upstream: object, model: string, entry = model): TargetStatus {
    let models = this.#byUpstream.get(upstream);
    if (models === undefined) {
      models = new Map();
      this.#byUpstream.set(upstream, models);
    }
    let standing = models.get(model);
    if (standing === undefined) {
      if (models.size >= MAX_MODELS) {
        const forgotten = forgetOne(models);
        if (forgotten !== undefined) this.#onForget(upstream, ...forgotten);
      }
      standing = this.#create(upstream, model, entry);
      models.set(model, standing);
    }
    return standing;
  }

  /** As `of`, but remembers nothing new: for reports. */
  peek(upstream: object, model: string): TargetStatus | undefined {
    return this.#byUpstream.get(upstream)?.get(model);
  }

  /** What is remembered of an upstream, by model: for reports. */
  known(upstream: object): ReadonlyMap<string, TargetStatus> {
    return this.#byUpstream.get(upstream) ?? new Map();
  }
}

/** The oldest of which nothing is to be remembered, or else the oldest: invented names are not to displace an open breaker. */
function forgetOne(models: Map<string, TargetStatus>): [string, TargetStatus] | undefined {
  let chosen: [string, TargetStatus] | undefined;
  for (const [model, standing] of models) {
    chosen ??= [model, standing];
    if (!standing.breaker.isPristine) continue;
    chosen = [model, standing];
    break;
  }
  if (chosen !== undefined) models.delete(chosen[0]);
  return chosen;
}
