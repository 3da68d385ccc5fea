// Retry budget of the whole process: bounds attempts beyond the first, so that retries do not multiply the load of a failing
// upstream. Attempts per request are counted elsewhere.

/** Unused deposits expire after this time: quiet hours do not pay for a retry storm. */
const WINDOW_MS = 10_000;
const SLOTS = 10;
const SLOT_MS = WINDOW_MS / SLOTS;

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
  /** Deposits per one-second slot. */
  readonly #deposits = new Array<number>(SLOTS).fill(0);
  #newest = Number.NEGATIVE_INFINITY;
  #floorLeft: number;
  #floorAt: number;

  constructor({ share, now, floor = 3 }: RetryBudgetOptions) {
    this.#share = share;
    this.#now = now;
    this.#floor = floor;
    this.#floorLeft = floor;
    this.#floorAt = now();
  }

  /** Records a first attempt. */
  deposit(): void {
    const slot = this.#advance(this.#now()) % SLOTS;
    this.#deposits[slot] = (this.#deposits[slot] ?? 0) + this.#share();
  }

  /** @returns whether an extra attempt is allowed; if so, it is charged */
  withdraw(): boolean {
    const now = this.#now();
    this.#advance(now);
    this.#refill(now);
    const isPaid = this.#pay();
    if (!isPaid && this.#floorLeft < 1 - EPSILON) return false;
    this.#floorLeft = Math.max(0, this.#floorLeft - 1);
    return true;
  }

  /** Extra attempts available now. */
  get available(): number {
    const now = this.#now();
    this.#advance(now);
    this.#refill(now);
    return Math.floor(Math.max(this.#balance(), this.#floorLeft) + EPSILON);
  }

  /** Charges one attempt to the deposits, oldest first. */
  #pay(): boolean {
    if (this.#balance() < 1 - EPSILON) return false;
    let due = 1;
    for (let age = SLOTS - 1; age >= 0 && due > 0; age -= 1) {
      const slot = (this.#newest - age + SLOTS) % SLOTS;
      const taken = Math.min(due, this.#deposits[slot] ?? 0);
      this.#deposits[slot] = (this.#deposits[slot] ?? 0) - taken;
      due -= taken;
    }
    return true;
  }

  #balance(): number {
    return this.#deposits.reduce((sum, deposit) => sum + deposit, 0);
  }

  #refill(now: number): void {
    const seconds = Math.max(0, now - this.#floorAt) / 1000;
    this.#floorLeft = Math.min(this.#floor, this.#floorLeft + seconds * this.#floor);
    this.#floorAt = Math.max(now, this.#floorAt);
  }

  /** Clears expired slots. @returns the running number of the current slot */
  #advance(now: number): number {
    const current = Math.max(0, Math.floor(now / SLOT_MS));
    if (current > this.#newest) {
      for (let slot = Math.max(this.#newest + 1, current - SLOTS + 1); slot <= current; slot += 1) {
        this.#deposits[slot % SLOTS] = 0;
      }
      this.#newest = current;
    }
    return this.#newest;
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
