// How many attempts beyond the first the whole process may make. An upstream in trouble must not get a multiple of its
// usual load from those who ask again. It does not count the attempts of one request.

/** A deposit that nobody has used is worth nothing after this time: quiet hours do not pay for a storm. */
const WINDOW_MS = 10_000;
const SLOTS = 10;
const SLOT_MS = WINDOW_MS / SLOTS;

/** Sums of many shares of one (0.1, say) must still reach it. */
const EPSILON = 1e-9;

interface RetryBudgetOptions {
  /** Extra attempts allowed for each first attempt, e.g. 0.2; it may change with the configuration. */
  readonly share: () => number;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** So many extra attempts a second are allowed in any case, for a process with little traffic. Default 3. */
  readonly floor?: number;
}

/**
 * Each first attempt deposits a share of one extra attempt. The floor is not added to that: an extra attempt uses up both,
 * so that over time the larger of the two is what is allowed.
 */
export class RetryBudget {
  readonly #share: () => number;
  readonly #now: () => number;
  readonly #floor: number;
  /** Deposits by the second in which they were made. */
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

  /** A first attempt is made. */
  deposit(): void {
    const slot = this.#turn(this.#now()) % SLOTS;
    this.#deposits[slot] = (this.#deposits[slot] ?? 0) + this.#share();
  }

  /** @returns whether one more attempt may be made; if so, it is paid for */
  withdraw(): boolean {
    const now = this.#now();
    this.#turn(now);
    this.#refill(now);
    const isPaid = this.#pay();
    if (!isPaid && this.#floorLeft < 1 - EPSILON) return false;
    this.#floorLeft = Math.max(0, this.#floorLeft - 1);
    return true;
  }

  /** Extra attempts that could be made now, one after the other. */
  get available(): number {
    const now = this.#now();
    this.#turn(now);
    this.#refill(now);
    return Math.floor(Math.max(this.#balance(), this.#floorLeft) + EPSILON);
  }

  /** Takes one from the deposits, the oldest first. */
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

  /** Empties what is too old. @returns the running number of the slot of this moment */
  #turn(now: number): number {
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
const BACKOFF_MOST_MS = 2000;

/**
 * How long to wait before another attempt at the same target, with full jitter: clients that failed together do not come
 * back together.
 * @param attempt which of the extra attempts it is, from 1
 * @param random from 0 (included) to 1 (excluded)
 * @param atLeastMs what the upstream asked for; chance is added to it and never taken from it. Default 0.
 * @returns milliseconds
 */
export function backoff(attempt: number, random: () => number, atLeastMs = 0): number {
  const longest = Math.min(BACKOFF_MOST_MS, BACKOFF_BASE_MS * 2 ** Math.max(0, attempt - 1));
  return atLeastMs + random() * longest;
}
