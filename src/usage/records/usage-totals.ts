// Sums of usage rows by their keys, in memory. The caller bounds the number of rows.
import { addSums, type UsageKey, type UsageRow, type UsageSums } from '../../store/usage-record.ts';

interface Entry {
  /** Its sums are those of the first. */
  readonly row: UsageRow;
  readonly sums: Record<keyof UsageSums, number>;
}

export class UsageTotals {
  readonly #entries = new Map<string, Entry>();
  #requests = 0;

  /** Number of rows. */
  get size(): number {
    return this.#entries.size;
  }

  get requests(): number {
    return this.#requests;
  }

  has(key: UsageKey): boolean {
    return this.#entries.has(nameOf(key));
  }

  add(row: UsageRow): void {
    this.#requests += row.sums.requests;
    const name = nameOf(row);
    const entry = this.#entries.get(name);
    if (entry !== undefined) {
      addSums(entry.sums, row.sums);
      return;
    }
    this.#entries.set(name, { row, sums: { ...row.sums } });
  }

  addAll(rows: Iterable<UsageRow>): void {
    for (const row of rows) this.add(row);
  }

  /** Copies of the rows; later additions do not change them. */
  *rows(): Generator<UsageRow> {
    for (const { row, sums } of this.#entries.values()) yield { ...row, sums: { ...sums } };
  }
}

/** The texts contain no control characters. */
function nameOf({ hour, holderId, prefix, model, upstream, ...then }: UsageKey): string {
  return `${hour}\n${holderId}\n${prefix}\n${model}\n${upstream}\n${then.teamId}\n${then.tier}\n${then.target}\n${then.endpoint}`;
}
