// A bounded map that evicts the entry set longest ago.

/** Setting an entry again makes it the newest. Iteration starts at the oldest. */
export class RecentMap<K, V> extends Map<K, V> {
  readonly #maxEntries: number;
  readonly #onEvict: ((key: K, value: V) => void) | undefined;

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
    for (const [oldest, evicted] of this) {
      this.delete(oldest);
      this.#onEvict?.(oldest, evicted);
      break;
    }
    return this;
  }
}
