// What a holder had used before somebody began to count: one question to the usage store at a time for each holder, few at
// once, none for long. It keeps no totals; a store that fails is asked again after a pause.
import { startDeadline } from '../deadline.ts';
import { RecentMap } from '../recent-map.ts';
import type { HolderTotals, LimitMetrics, ReadTotals } from './limiter.ts';

export interface InitialTotalsOptions {
  readonly read: ReadTotals;
  readonly metrics: Pick<LimitMetrics, 'limitSeedFailures'>;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** How long a request waits for totals. Default 250 ms. */
  readonly deadlineMs?: number;
  /** After a failure the holder's totals are not asked for during this time. Default 5 s. */
  readonly restMs?: number;
  /** Questions under way at once. Default 16. */
  readonly maxRunning?: number;
  /** Questions that wait for their turn; more have failed. Default 1,000. */
  readonly maxWaiting?: number;
}

/** Failures that are remembered; the oldest are forgotten first. */
const MAX_RESTING = 10_000;

export class InitialTotals {
  readonly #read: ReadTotals;
  readonly #metrics: InitialTotalsOptions['metrics'];
  readonly #now: () => number;
  readonly #deadlineMs: number;
  readonly #restMs: number;
  readonly #maxRunning: number;
  readonly #maxWaiting: number;
  readonly #asked = new Map<string, Promise<HolderTotals | undefined>>();
  readonly #restingUntil = new RecentMap<string, number>(MAX_RESTING);
  /** In the order in which they came. */
  readonly #waiting = new Set<() => void>();
  #running = 0;

  constructor(options: InitialTotalsOptions) {
    this.#read = options.read;
    this.#metrics = options.metrics;
    this.#now = options.now ?? (() => performance.now());
    this.#deadlineMs = options.deadlineMs ?? 250;
    this.#restMs = options.restMs ?? 5000;
    this.#maxRunning = options.maxRunning ?? 16;
    this.#maxWaiting = options.maxWaiting ?? 1000;
  }

  /** Whether the store has failed for this holder of late. */
  isResting(holder: string): boolean {
    const until = this.#restingUntil.get(holder);
    if (until === undefined) return false;
    if (this.#now() < until) return true;
    this.#restingUntil.delete(holder);
    return false;
  }

  /** Never rejects. @returns undefined when the store did not say in time, or has failed of late */
  read(holder: string): Promise<HolderTotals | undefined> {
    if (this.isResting(holder)) return Promise.resolve(undefined);
    const asked = this.#asked.get(holder);
    if (asked !== undefined) return asked;
    const answer = this.#ask(holder).finally(() => this.#asked.delete(holder));
    this.#asked.set(holder, answer);
    return answer;
  }

  async #ask(holder: string): Promise<HolderTotals | undefined> {
    let giveUp = () => {};
    const late = new Promise<undefined>((resolve) => {
      giveUp = () => resolve(undefined);
    });
    const stop = startDeadline(this.#deadlineMs, giveUp);
    const totals = await Promise.race([this.#inTurn(holder, late).catch(() => undefined), late]);
    stop();
    // Whoever still waits for its turn leaves.
    giveUp();
    if (totals === undefined || !isSane(totals)) {
      this.#metrics.limitSeedFailures.inc();
      this.#rest(holder);
      return undefined;
    }
    return totals;
  }

  /** A question that was given up still counts as under way until the store has ended it: a slow store gets no more of them. */
  async #inTurn(holder: string, late: Promise<undefined>): Promise<HolderTotals | undefined> {
    if (this.#running >= this.#maxRunning) {
      if (this.#waiting.size >= this.#maxWaiting) return undefined;
      if (!(await this.#turn(late))) return undefined;
    } else {
      this.#running += 1;
    }
    try {
      return await this.#read(holder);
    } finally {
      const [next] = this.#waiting;
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }

  /** Takes over the place of one that ends. @returns false when it became late before that */
  #turn(late: Promise<undefined>): Promise<boolean> {
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

  #rest(holder: string): void {
    this.#restingUntil.set(holder, this.#now() + this.#restMs);
  }
}

function isSane({ dayRequests, monthTokens }: HolderTotals): boolean {
  return isCount(dayRequests) && isCount(monthTokens);
}

function isCount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}
