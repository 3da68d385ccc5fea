// A bounded map that evicts the entry set longest ago.

/** Setting an entry again makes it the newest. Iteration starts at the oldest. */
export class RecentMap<K, V> extends Map<K, V> {
  readonly #maxEntries: number;
  readonly #onEvict: ((key: K, value: V) => void) | undefined;
  /** Stays at the oldest entry: a new iterator would step over all entries that were deleted since the map was last rehashed. */
  #oldest: MapIterator<[K, V]> | undefined;

  /** @param onEvict called after an entry was evicted */
  constructor(maxEntries: number, onEvict?: (key: K, value: V) => void) {
    super();
    this.#maxEntries = maxEntries;
    this.#onEvict = onEvict;
  }

  override set(key: K, value: V): this {
    this.delete(key);
    super.set(key, value);
    if (this.size <= this.#maxEntries) return this;
    const [oldest, evicted] = this.#nextOldest();
    this.delete(oldest);
    this.#onEvict?.(oldest, evicted);
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
