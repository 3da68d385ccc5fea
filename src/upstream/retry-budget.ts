// Retry budget of the whole process: bounds attempts beyond the first, so that retries do not multiply the load of a failing
// upstream. Attempts per request are counted elsewhere.
import { TimeSlots } from './breaker/time-slots.ts';

/** Unused deposits expire after this time: quiet hours do not pay for a retry storm. */
const WINDOW_MS = 10_000;

/** Rounding tolerance: sums of fractions such as 0.1 must reach 1. */
const EPSILON = 1e-9;

interface RetryBudgetOptions {
  /** Extra attempts per first attempt, e.g. 0.2; may change with the configuration. */
  readonly share: () => number;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** Extra attempts per second that are always allowed, for a process with little traffic. Default 3. */
  readonly floor?: number;
}

/**
 * Each first attempt deposits a fraction of an extra attempt. An extra attempt is charged to both the deposits and the floor, so
 * the larger of the two is the allowed rate.
 */
export class RetryBudget {
  readonly #share: () => number;
  readonly #now: () => number;
  readonly #floor: number;
  readonly #deposits = new TimeSlots(WINDOW_MS);
  #floorLeft: number;
  #floorAt: number;

  constructor({ share, now, floor = 3 }: RetryBudgetOptions) {
    this.#share = share;
    this.#now = now;
    this.#floor = floor;
    this.#floorLeft = floor;
    this.#floorAt = now();
  }

  /** Records a first attempt. @param now monotonic milliseconds */
  deposit(now = this.#now()): void {
    this.#deposits.add(now, this.#share());
  }

  /** @returns whether an extra attempt is allowed; if so, it is charged */
  withdraw(): boolean {
    const now = this.#now();
    this.#refill(now);
    const isPaid = this.#deposits.sum(now) >= 1 - EPSILON;
    if (isPaid) this.#deposits.take(now, 1);
    else if (this.#floorLeft < 1 - EPSILON) return false;
    this.#floorLeft = Math.max(0, this.#floorLeft - 1);
    return true;
  }

  /** Extra attempts available now. */
  get available(): number {
    const now = this.#now();
    this.#refill(now);
    return Math.floor(Math.max(this.#deposits.sum(now), this.#floorLeft) + EPSILON);
  }

  #refill(now: number): void {
    const seconds = Math.max(0, now - this.#floorAt) / 1000;
    this.#floorLeft = Math.min(this.#floor, this.#floorLeft + seconds * this.#floor);
    this.#floorAt = Math.max(now, this.#floorAt);
  }
}

const BACKOFF_BASE_MS = 100;
const BACKOFF_MAX_MS = 2000;

/**
 * Exponential backoff with full jitter before another attempt at the same target, so that clients do not retry in step.
 * @param attempt number of the extra attempt, from 1
 * @param random returns [0, 1)
 * @param atLeastMs the upstream's `retry-after`; jitter is added to it. Default 0.
 * @returns milliseconds
 */
export function backoff(attempt: number, random: () => number, atLeastMs = 0): number {
  const longest = Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** Math.max(0, attempt - 1));
  return atLeastMs + random() * longest;
}
