// Sums by hour, holder, key, model and upstream, in memory. How many rows there may be is for whoever adds.
import { USAGE_SUMS, type UsageKey, type UsageRow, type UsageSums } from '../store/usage-record.ts';

interface Entry {
  readonly key: UsageKey;
  readonly sums: Record<keyof UsageSums, number>;
}

export class Totals {
  readonly #entries = new Map<string, Entry>();
  #requests = 0;

  /** Different rows. */
  get size(): number {
    return this.#entries.size;
  }

  get requests(): number {
    return this.#requests;
  }

  has(key: UsageKey): boolean {
    return this.#entries.has(nameOf(key));
  }

  add({ sums, ...key }: UsageRow): void {
    this.#requests += sums.requests;
    const name = nameOf(key);
    const entry = this.#entries.get(name);
    if (entry === undefined) {
      this.#entries.set(name, { key, sums: { ...sums } });
      return;
    }
    for (const column of USAGE_SUMS) {
      entry.sums[column] = Math.min(entry.sums[column] + sums[column], Number.MAX_SAFE_INTEGER);
    }
  }

  addAll(rows: Iterable<UsageRow>): void {
    for (const row of rows) this.add(row);
  }

  /** As they are now: what is added later does not change them. */
  *rows(): Generator<UsageRow> {
    for (const { key, sums } of this.#entries.values()) yield { ...key, sums: { ...sums } };
  }
}

/** None of the texts holds a control character. */
function nameOf({ hour, holderId, prefix, model, upstream }: UsageKey): string {
  return `${hour}\n${holderId}\n${prefix}\n${model}\n${upstream}`;
}
