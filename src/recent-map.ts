// A map whose size has an end: the entry that was set longest ago makes room.

/** Setting an entry again makes it the newest. It is iterated from the oldest. */
export class RecentMap<K, V> extends Map<K, V> {
  readonly #most: number;
  readonly #onForget: ((key: K, value: V) => void) | undefined;

  /**
   * @param most entries
   * @param onForget hears of an entry that made room, after it has gone
   */
  constructor(most: number, onForget?: (key: K, value: V) => void) {
    super();
    this.#most = most;
    this.#onForget = onForget;
  }

  override set(key: K, value: V): this {
    this.delete(key);
    super.set(key, value);
    if (this.size <= this.#most) return this;
    for (const [oldest, forgotten] of this) {
      this.delete(oldest);
      this.#onForget?.(oldest, forgotten);
      break;
    }
    return this;
  }
}
