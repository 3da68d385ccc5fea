// The order in which one request tries the targets of its route: priority, health, breaker, balance within a group. It hands out
// one target at a time with a breaker permit, and sends nothing.
import { type ErrorCode, GatewayError } from '../../errors.ts';
import type { CircuitBreaker } from '../../upstream/breaker/circuit-breaker.ts';
import type { BreakerRejection, Permit } from '../../upstream/breaker/permit.ts';
import { type Failure, failure } from '../../upstream/error-outcome.ts';
import { choose, firstWithRoom, type LoadBalance, rendezvousOrder } from '../../upstream/load-balance.ts';
import type { LatencyAverage } from '../../upstream/target-latency.ts';

/** What a plan needs from a target. */
interface Ranked {
  readonly weight: number;
  /** 1 is tried first. */
  readonly priority: number;
}

/** What a plan reads of the status of a target. */
export interface PlanStatus {
  readonly breaker: Pick<CircuitBreaker, 'rejection' | 'admit' | 'force' | 'inFlight'>;
  readonly latency: Pick<LatencyAverage, 'value'>;
}

/**
 * - `sticky`: the target of the key.
 * - `overflow`: another one, because that has more than its share of the load.
 * - `moved`: another one, because that is not available.
 */
export type AffinityResult = 'sticky' | 'overflow' | 'moved';

/** What requests with the same key have in common, for `balance: affinity`. */
export interface Affinity<T> {
  readonly key: string;
  /** The name of the target before all others, if it is one of them. */
  readonly maker?: string | undefined;
  /** The same on all replicas. */
  readonly nameOf: (target: T) => string;
  /** Called for the first target of the request. */
  readonly onChoice: (result: AffinityResult) => void;
}

export interface TargetPlanOptions<T extends Ranked> {
  /** Targets without weight are never tried. */
  readonly targets: readonly T[];
  readonly balance: LoadBalance;
  /** Default: none, so that `affinity` is `least_requests`. */
  readonly affinity?: Affinity<T> | undefined;
  readonly statusOf: (target: T) => PlanStatus;
  /** Others get no requests: an operator has taken them out of service. Default: all. */
  readonly isInService?: (target: T) => boolean;
  /**
   * The result of active health checks. They probe another path than requests use, so they only rank: unhealthy targets come
   * last regardless of priority, and only the breaker rejects. Default: all healthy.
   */
  readonly isHealthy?: (target: T) => boolean;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** From 0 (included) to 1 (excluded). */
  readonly random: () => number;
}

/** A target to try now. Release the permit exactly once, even if nothing is sent. */
export interface PlannedTarget<T> {
  readonly kind: 'target';
  readonly target: T;
  readonly permit: Permit;
}

/**
 * No target is available now.
 * - `tried`: this request has tried all of them.
 * - `limit`: all untried ones are rate limited (429).
 * - `open`: the breaker of at min one untried target is open because of failures (503).
 * - `out_of_service`: no target with weight is in service (503).
 */
export interface Exhausted {
  readonly kind: 'exhausted';
  readonly cause: 'tried' | 'limit' | 'open' | 'out_of_service';
  /** Time until the first target is available, tried or not; at min 1 ms, 0 when one is available now. */
  readonly retryAfterMs: number;
}

/** Hint for clients: nobody knows when an operator puts a target back, and SDKs wait this long before they report the error. */
const OUT_OF_SERVICE_MS = 5000;

export class TargetPlan<T extends Ranked> {
  readonly #options: TargetPlanOptions<T>;
  /** With weight, in service or not. */
  readonly #targets: readonly T[];
  readonly #isInService: (target: T) => boolean;
  /** Tried by this request in this round. */
  #tried: readonly T[] = [];

  constructor(options: TargetPlanOptions<T>) {
    this.#options = options;
    const { targets } = options;
    // Nearly always all of them: a request then needs no list of its own.
    const isTried = ({ weight }: T) => weight > 0;
    this.#targets = targets.every(isTried) ? targets : targets.filter(isTried);
    this.#isInService = options.isInService ?? (() => true);
  }

  /** Chooses an untried target and takes its permit. @param isSuitable filter; default: any */
  next(isSuitable: (target: T) => boolean = () => true): PlannedTarget<T> | Exhausted {
    const usable = this.#targets.every(this.#isInService)
      ? this.#targets
      : this.#targets.filter(this.#isInService);
    const [first] = usable;
    // A single target needs no choice.
    if (first !== undefined && usable.length === 1 && this.#tried.length === 0 && isSuitable(first))
      return this.#sole(first);
    const { isHealthy = () => true } = this.#options;
    const untried = usable.filter((target) => !this.#tried.includes(target) && isSuitable(target));
    const admissible = untried.filter((target) => this.#breaker(target).rejection() === undefined);
    const healthy = admissible.filter(isHealthy);
    const target = this.#choose(healthy.length > 0 ? healthy : admissible);
    if (target !== undefined) {
      const step = this.#take(target, this.#breaker(target).admit());
      if (step !== undefined) return step;
    }
    if (usable.length === 0 && this.#tried.length === 0)
      return { kind: 'exhausted', cause: 'out_of_service', retryAfterMs: OUT_OF_SERVICE_MS };
    return this.#exhausted(untried);
  }

  /**
   * A sole target is tried even with an open breaker: its own answer is worth more than the gateway's rejection. It is
   * rejected only for the time that it named itself, which becomes the client's `retry-after`.
   */
  #sole(target: T): PlannedTarget<T> | Exhausted {
    const breaker = this.#breaker(target);
    const step = breaker.rejection() === undefined ? this.#take(target, breaker.admit()) : undefined;
    if (step !== undefined) return step;
    const admission = breaker.force();
    if (admission.kind === 'rejection') {
      const cause = admission.cause === 'limit' ? 'limit' : 'open';
      return { kind: 'exhausted', cause, retryAfterMs: waitMs(admission, this.#options.now()) };
    }
    return this.#take(target, admission) ?? this.#exhausted([target]);
  }

  /**
   * Starts another round: each target may be tried once more. Call it after the wait between rounds.
   * @param without targets to leave out
   */
  startRound(without: readonly T[] = []): void {
    this.#tried = [...without];
  }

  /** The target was not asked: releases the permit and makes the target available again. */
  putBack({ target, permit }: PlannedTarget<T>): void {
    permit.release({ kind: 'neutral' });
    this.#tried = this.#tried.filter((each) => each !== target);
  }

  #take(target: T, admission: Permit | BreakerRejection): PlannedTarget<T> | undefined {
    if (admission.kind === 'rejection') return undefined;
    this.#tried = [...this.#tried, target];
    return { kind: 'target', target, permit: admission };
  }

  /** Chooses within the best priority present. */
  #choose(targets: readonly T[]): T | undefined {
    const { affinity, balance, statusOf, random } = this.#options;
    if (affinity !== undefined) return this.#chooseByKey(targets, affinity);
    if (targets.length <= 1) return targets[0];
    const group = firstPriority(targets);
    const candidates = group.map((target) => {
      const { breaker, latency } = statusOf(target);
      return { weight: target.weight, inFlight: breaker.inFlight, latencyMs: latency.value };
    });
    return group[choose(candidates, balance, random) ?? 0];
  }

  #chooseByKey(targets: readonly T[], { key, maker, nameOf, onChoice }: Affinity<T>): T | undefined {
    const { statusOf } = this.#options;
    const group = firstPriority(targets);
    const { priority } = group[0] ?? {};
    // Of all targets, also those that are not available: the first one is the target of the key.
    const all = this.#targets.filter((target) => target.priority === priority);
    const named = all.map((target) => ({ name: nameOf(target), weight: target.weight }));
    const ranked = rendezvousOrder(named, key).flatMap((index) => all[index] ?? []);
    const isMaker = (target: T) => nameOf(target) === maker;
    const order =
      maker === undefined ? ranked : ranked.toSorted((a, b) => Number(isMaker(b)) - Number(isMaker(a)));
    const available = order.filter((target) => group.includes(target));
    const loads = available.map((target) => ({
      weight: target.weight,
      inFlight: statusOf(target).breaker.inFlight,
    }));
    const chosen = available[firstWithRoom(loads)];
    if (this.#tried.length > 0 || chosen === undefined) return chosen;
    const isMoved = available[0] !== order[0] || firstPriority(this.#targets)[0]?.priority !== priority;
    onChoice(isMoved ? 'moved' : chosen === order[0] ? 'sticky' : 'overflow');
    return chosen;
  }

  #exhausted(untried: readonly T[]): Exhausted {
    const rejections = untried.flatMap((target) => this.#breaker(target).rejection() ?? []);
    const cause =
      rejections.length === 0
        ? 'tried'
        : rejections.every((each) => each.cause === 'limit')
          ? 'limit'
          : 'open';
    return { kind: 'exhausted', cause, retryAfterMs: this.#soonest() };
  }

  #soonest(): number {
    const now = this.#options.now();
    const waits = this.#targets.filter(this.#isInService).map((target) => {
      const rejection = this.#breaker(target).rejection();
      return rejection === undefined ? 0 : waitMs(rejection, now);
    });
    return waits.length === 0 ? 0 : Math.min(...waits);
  }

  #breaker(target: T): PlanStatus['breaker'] {
    return this.#options.statusOf(target).breaker;
  }
}

/** The targets of the best priority present. */
function firstPriority<T extends Ranked>(targets: readonly T[]): readonly T[] {
  const first = targets.reduce((min, { priority }) => Math.min(min, priority), Number.POSITIVE_INFINITY);
  return targets.filter(({ priority }) => priority === first);
}

function waitMs({ until }: BreakerRejection, now: number): number {
  return Math.max(1, Math.ceil(until - now));
}

export const REJECTION_CODES = {
  limit: 'upstream_rate_limited',
  open: 'upstream_busy',
  out_of_service: 'upstream_out_of_service',
} as const;

/** Whether a code is the gateway's own, because no target was asked: it does not hide the answer of one that was. */
export function isOwnRejection(code: ErrorCode): boolean {
  return code === 'upstream_busy' || code === 'upstream_out_of_service';
}

/** The gateway's own answer when no target is available. */
export function rejectedAttempt({ cause, retryAfterMs }: Exhausted): Failure {
  if (cause === 'tried') {
    const why = new Error('a route without targets');
    return failure(new GatewayError('internal_error', undefined, { cause: why }), false);
  }
  const code = REJECTION_CODES[cause];
  const why = new Error(`no target is available: ${cause}`);
  return failure(new GatewayError(code, undefined, { cause: why, retryAfterMs }), false);
}
