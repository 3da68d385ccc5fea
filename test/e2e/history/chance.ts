// Chance that can be repeated: the same seed gives the same draws.

export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** From 0 (included) to 1 (excluded): mulberry32. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  }

  /** From `low` (included) to `high` (excluded). */
  between(low: number, high: number): number {
    return low + this.next() * (high - low);
  }

  /** An integer from `low` to `high`, both included. */
  integer(low: number, high: number): number {
    return Math.floor(this.between(low, high + 1));
  }

  is(probability: number): boolean {
    return this.next() < probability;
  }

  /** Undefined when there is nothing to choose from. */
  one<T>(items: readonly T[]): T | undefined {
    return items[Math.floor(this.next() * items.length)];
  }

  /** One of the names, each as often as its weight says. Undefined when no weight is above 0. */
  weighted<T extends string>(weights: Readonly<Partial<Record<T, number>>>): T | undefined {
    let rest =
      this.next() * Object.values<number | undefined>(weights).reduce<number>((a, b) => a + (b ?? 0), 0);
    for (const name in weights) {
      rest -= weights[name] ?? 0;
      if (rest < 0) return name;
    }
    return undefined;
  }

  /** A generator of its own, which does not depend on how many draws others make from now on. */
  fork(): Chance {
    return new Chance(Math.floor(this.next() * 0x1_0000_0000));
  }
}
