// Estimates `retry-after` for callers that a full queue rejects: the time to serve the queue and all callers rejected
// earlier. It blocks no caller: one that returns sooner and finds room is served.
import { MAX_RETRY_AFTER_MS } from '../../errors.ts';

/** The wait, in milliseconds. */
export const MIN_DRAIN_MS = 1000;
export const MAX_DRAIN_MS = MAX_RETRY_AFTER_MS;
/** Random extension of the wait, as a share of it, so that callers do not return all at once. */
const JITTER = 0.5;
/** Weight of the newest measurement. */
const ALPHA = 0.1;

interface DrainEstimateOptions {
  readonly slots: number;
  /** Service time in milliseconds until one is measured. */
  readonly initialMs: number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** From 0 (included) to 1 (excluded). */
  readonly random?: () => number;
}

export class DrainEstimate {
  readonly #slots: number;
  readonly #now: () => number;
  readonly #random: () => number;
  #serviceMs: number;
  /** When the last rejected caller would have been served. */
  #servedAt = Number.NEGATIVE_INFINITY;

  constructor({ slots, initialMs, now, random }: DrainEstimateOptions) {
    this.#slots = slots;
    this.#serviceMs = initialMs;
    this.#now = now ?? (() => performance.now());
    this.#random = random ?? Math.random;
  }

  /** Records a service time, without the wait before it. */
  measured(ms: number): void {
    if (ms >= 0 && ms < Number.POSITIVE_INFINITY) this.#serviceMs += ALPHA * (ms - this.#serviceMs);
  }

  /** @returns milliseconds until a caller behind so many is served, without the callers that were rejected */
  turnMs(ahead: number): number {
    return (ahead * this.#serviceMs) / this.#slots;
  }

  /**
   * Call it for each rejected caller: it reserves the next time slot, so that the next caller gets a later one.
   * @param ahead number of callers in service and in the queue
   * @returns milliseconds, at least MIN_DRAIN_MS and at most MAX_DRAIN_MS
   */
  retryAfterMs(ahead: number): number {
    const now = this.#now();
    const each = this.turnMs(1);
    const longest = MAX_DRAIN_MS / (1 + JITTER);
    const servedAt = Math.max(this.#servedAt, now + ahead * each) + each;
    // Bounded, so that callers that keep returning too early cannot delay others further.
    this.#servedAt = Math.min(servedAt, now + longest);
    const wait = Math.max(MIN_DRAIN_MS, this.#servedAt - now);
    return Math.round(wait * (1 + JITTER * this.#random()));
  }
}
