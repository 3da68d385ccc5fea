// Successes and failures of the last seconds, for a circuit breaker.
const SLOTS = 10;

/** Sliding window of results in ten time slots: bounded, and exact to a tenth of its length. */
export class ResultWindow {
  readonly #slotMs: number;
  readonly #successes = new Array<number>(SLOTS).fill(0);
  readonly #failures = new Array<number>(SLOTS).fill(0);
  /** Running number of the newest slot. */
  #newest = Number.NEGATIVE_INFINITY;

  constructor(lengthMs: number) {
    this.#slotMs = lengthMs / SLOTS;
  }

  add(now: number, succeeded: boolean): void {
    this.#advance(now);
    const slots = succeeded ? this.#successes : this.#failures;
    const slot = this.#newest % SLOTS;
    slots[slot] = (slots[slot] ?? 0) + 1;
  }

  sum(now: number): { successes: number; failures: number } {
    this.#advance(now);
    const all = (slots: readonly number[]) => slots.reduce((sum, count) => sum + count, 0);
    return { successes: all(this.#successes), failures: all(this.#failures) };
  }

  clear(): void {
    this.#successes.fill(0);
    this.#failures.fill(0);
  }

  /** Clears expired slots. */
  #advance(now: number): void {
    const current = Math.max(0, Math.floor(now / this.#slotMs));
    if (current <= this.#newest) return;
    for (let slot = Math.max(this.#newest + 1, current - SLOTS + 1); slot <= current; slot += 1) {
      this.#successes[slot % SLOTS] = 0;
      this.#failures[slot % SLOTS] = 0;
    }
    this.#newest = current;
  }
}
