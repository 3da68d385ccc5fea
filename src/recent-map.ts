// A bounded map that evicts the entry set longest ago.

/** Entries that one `set` spares: more would hold the event loop. */
const MAX_SPARED = 32;

/** Setting an entry again makes it the newest. Iteration starts at the oldest. */
export class RecentMap<K, V> extends Map<K, V> {
  readonly #maxEntries: number;
  readonly #onEvict: ((key: K, value: V) => void) | undefined;
  readonly #isSpared: ((value: V) => boolean) | undefined;
  /** Stays at the oldest entry: a new iterator would step over all entries that were deleted since the map was last rehashed. */
  #oldest: MapIterator<[K, V]> | undefined;

  /**
   * @param onEvict called after an entry was evicted
   * @param isSpared called for the entry to be evicted; true makes it the newest in place of that, so entries that change in place
   *   can have a second chance
   */
  constructor(maxEntries: number, onEvict?: (key: K, value: V) => void, isSpared?: (value: V) => boolean) {
    super();
    this.#maxEntries = maxEntries;
    this.#onEvict = onEvict;
    this.#isSpared = isSpared;
  }

  override set(key: K, value: V): this {
    this.delete(key);
    super.set(key, value);
    for (let spared = 0; this.size > this.#maxEntries; spared += 1) {
      const [oldest, candidate] = this.#nextOldest();
      this.delete(oldest);
      if (spared < MAX_SPARED && this.#isSpared?.(candidate) === true) super.set(oldest, candidate);
      else this.#onEvict?.(oldest, candidate);
    }
    return this;
  }

  #nextOldest(): [K, V] {
    for (;;) {
      this.#oldest ??= this.entries();
      const { done, value } = this.#oldest.next();
      if (done !== true) return value;
      // It ended when the map was empty.
      this.#oldest = undefined;
    }
  }
}
