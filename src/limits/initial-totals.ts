// Reads what was used in a scope before a limiter started to count: single-flight for each scope, with bounds on concurrency, queue
// and time. It caches no totals; a failure starts a backoff.
import { TOTAL_LIMITS } from '../config/limit-table.ts';
import { startDeadline } from '../deadline.ts';
import { RecentMap } from '../recent-map.ts';
import { singleFlight } from '../single-flight.ts';
import type { HolderTotals } from '../store/usage-record.ts';
import type { CompareTotals, LimitMetrics, ReadTotals, TotalsReading } from './limiter.ts';
import type { Scope } from './scope.ts';

export interface InitialTotalsOptions {
  readonly read: ReadTotals;
  /** Default: `read`. */
  readonly compare?: CompareTotals;
  readonly metrics: Pick<LimitMetrics, 'limitSeedFailures'>;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** How long a request waits for totals. Default 250 ms. */
  readonly deadlineMs?: number;
  /** After a failure the scope's totals are not read again for this time. Default 5 s. */
  readonly backoffMs?: number;
  /** Concurrent reads. Default 16. */
  readonly maxRunning?: number;
  /** Reads that wait for a slot; more fail at once. Default 1,000. */
  readonly maxWaiting?: number;
}

/** Failures that are remembered; the oldest are forgotten first. */
const MAX_FAILURES = 10_000;

export class InitialTotals {
  readonly #options: Required<InitialTotalsOptions>;
  readonly #asked = singleFlight((_id: string, scope: Scope, reading: TotalsReading) =>
    this.#ask(scope, reading),
  );
  readonly #backoffUntil = new RecentMap<string, number>(MAX_FAILURES);
  /** First in, first out. */
  readonly #waiting = new Set<() => void>();
  #running = 0;

  constructor(options: InitialTotalsOptions) {
    this.#options = {
      now: () => performance.now(),
      deadlineMs: 250,
      backoffMs: 5000,
      maxRunning: 16,
      maxWaiting: 1000,
      compare: () => undefined,
      ...options,
    };
  }

  /** Whether a read for this scope has failed recently. */
  isBackingOff({ id }: Scope): boolean {
    const until = this.#backoffUntil.get(id);
    if (until === undefined) return false;
    if (this.#options.now() < until) return true;
    this.#backoffUntil.delete(id);
    return false;
  }

  /** Never rejects. @returns undefined when the store does not answer in time, or has failed recently */
  read(scope: Scope, reading: TotalsReading = 'first'): Promise<HolderTotals | undefined> {
    return this.isBackingOff(scope) ? Promise.resolve(undefined) : this.#asked(scope.id, scope, reading);
  }

  async #ask(scope: Scope, reading: TotalsReading): Promise<HolderTotals | undefined> {
    let giveUp = () => {};
    const late = new Promise<undefined>((resolve) => {
      giveUp = () => resolve(undefined);
    });
    const stop = startDeadline(this.#options.deadlineMs, giveUp);
    const together = reading === 'compare' ? this.#options.compare(scope) : undefined;
    const totals = await Promise.race([(together ?? this.#queue(scope, late)).catch(() => undefined), late]);
    stop();
    // Leaves the queue if it still waits.
    giveUp();
    if (totals === undefined || !isValid(totals)) {
      this.#options.metrics.limitSeedFailures.inc({ reading });
      this.#backoffUntil.set(scope.id, this.#options.now() + this.#options.backoffMs);
      return undefined;
    }
    return totals;
  }

  /** A read that was given up keeps its slot until the store has ended it, so that a slow store gets no more of them. */
  async #queue(scope: Scope, late: Promise<undefined>): Promise<HolderTotals | undefined> {
    if (this.#running >= this.#options.maxRunning) {
      if (this.#waiting.size >= this.#options.maxWaiting) return undefined;
      if (!(await this.#slot(late))) return undefined;
    } else {
      this.#running += 1;
    }
    try {
      return await this.#options.read(scope);
    } finally {
      const [next] = this.#waiting;
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }

  /** Takes over the slot of a read that ends. @returns false when the deadline came first */
  #slot(late: Promise<undefined>): Promise<boolean> {
    return new Promise((resolve) => {
      const begin = () => {
        this.#waiting.delete(begin);
        resolve(true);
      };
      this.#waiting.add(begin);
      void late.then(() => {
        if (this.#waiting.delete(begin)) resolve(false);
      });
    });
  }
}

function isValid(totals: HolderTotals): boolean {
  return TOTAL_LIMITS.every(({ name }) => Number.isSafeInteger(totals[name]) && totals[name] >= 0);
}
