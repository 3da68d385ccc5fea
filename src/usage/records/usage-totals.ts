// Sums of usage rows by their keys, in memory. The caller bounds the number of rows.
import { addSums, type UsageKey, type UsageRow, type UsageSums } from '../../store/usage-record.ts';

interface Entry {
  readonly row: UsageRow;
  /** With those of the later ones; undefined for a single row, as most of many keys are. */
  sums: Record<keyof UsageSums, number> | undefined;
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
    if (entry === undefined) this.#entries.set(name, { row, sums: undefined });
    else {
      entry.sums ??= { ...entry.row.sums };
      addSums(entry.sums, row.sums);
    }
  }

  addAll(rows: Iterable<UsageRow>): void {
    for (const row of rows) this.add(row);
  }

  /** Later additions do not change them. */
  *rows(isWanted: (key: UsageKey) => boolean = () => true): Generator<UsageRow> {
    for (const { row, sums } of this.#entries.values())
      if (isWanted(row)) yield sums === undefined ? row : { ...row, sums: { ...sums } };
  }
}

/** The texts contain no control characters. */
function nameOf({ hour, holderId, prefix, model, upstream, ...then }: UsageKey): string {
  return `${hour}\n${holderId}\n${prefix}\n${model}\n${upstream}\n${then.teamId}\n${then.tier}\n${then.target}\n${then.endpoint}`;
}
