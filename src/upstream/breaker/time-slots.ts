// A sum over the last seconds.
const SLOTS = 10;

/** Sliding window in ten time slots: bounded, and exact to a tenth of its length. */
export class TimeSlots {
  readonly #slotMs: number;
  readonly #sums = new Array<number>(SLOTS).fill(0);
  /** Running number of the newest slot. */
  #newest = Number.NEGATIVE_INFINITY;

  constructor(lengthMs: number) {
    this.#slotMs = lengthMs / SLOTS;
  }

  /** @param now monotonic milliseconds, as in all methods */
  add(now: number, amount: number): void {
    this.#advance(now);
    const slot = this.#newest % SLOTS;
    this.#sums[slot] = (this.#sums[slot] ?? 0) + amount;
  }

  sum(now: number): number {
    this.#advance(now);
    return this.#sums.reduce((all, each) => all + each, 0);
  }

  /** Takes an amount out of the slots, oldest first. */
  take(now: number, amount: number): void {
    this.#advance(now);
    let due = amount;
    for (let age = SLOTS - 1; age >= 0 && due > 0; age -= 1) {
      const slot = (this.#newest - age + SLOTS) % SLOTS;
      const taken = Math.min(due, this.#sums[slot] ?? 0);
      this.#sums[slot] = (this.#sums[slot] ?? 0) - taken;
      due -= taken;
    }
  }

  clear(): void {
    this.#sums.fill(0);
  }

  /** Clears expired slots. */
  #advance(now: number): void {
    const current = Math.max(0, Math.floor(now / this.#slotMs));
    for (let slot = Math.max(this.#newest + 1, current - SLOTS + 1); slot <= current; slot += 1)
      this.#sums[slot % SLOTS] = 0;
    this.#newest = Math.max(this.#newest, current);
  }
}
