// From samples to figures: medians with their spread, ratios and differences within a round, quantiles. No text, no I/O.

/** What one round measured of one subject; a value that is not there was not measured. */
export type Sample = Readonly<Record<string, number | null | undefined>>;

/** Rounds by subject, in the order in which they ran: what compares subjects compares rounds of the same index. */
export type Rounds = ReadonlyMap<string, readonly Sample[]>;

/** The median of the rounds, with the least and the greatest of them. */
export interface Figure {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

export interface Row {
  readonly name: string;
  readonly figures: Readonly<Record<string, Figure>>;
}

export interface Comparisons {
  /** New field → field of which the gateway's is divided by that of the row. */
  readonly gatewayIs?: Readonly<Record<string, string>>;
  /** New field → field of which the value of `direct` is taken away. */
  readonly overDirect?: Readonly<Record<string, string>>;
}

/** A row for each subject, with a figure for each field and each comparison that its samples allow. */
export function rowsOf(rounds: Rounds, { gatewayIs = {}, overDirect = {} }: Comparisons = {}): Row[] {
  const gateway = rounds.get('gateway') ?? [];
  const direct = rounds.get('direct') ?? [];
  return Array.from(rounds, ([name, samples]) => {
    const values: Record<string, number[]> = {};
    const add = (field: string, value: number | null | undefined) => {
      if (typeof value !== 'number' || !Number.isFinite(value)) return;
      values[field] = [...(values[field] ?? []), value];
    };
    for (const [index, sample] of samples.entries()) {
      for (const [field, value] of Object.entries(sample)) add(field, value);
      for (const [field, of] of Object.entries(gatewayIs)) {
        const [above, below] = [gateway[index]?.[of], sample[of]];
        if (name !== 'gateway' && typeof above === 'number' && typeof below === 'number')
          add(field, above / below);
      }
      for (const [field, of] of Object.entries(overDirect)) {
        const [own, bare] = [sample[of], direct[index]?.[of]];
        if (name !== 'direct' && typeof own === 'number' && typeof bare === 'number') add(field, own - bare);
      }
    }
    const figures = Object.entries(values).map(([field, all]) => [field, figureOf(all)]);
    return { name, figures: Object.fromEntries(figures) };
  });
}

export function figureOf(values: readonly number[]): Figure {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (index: number) => sorted[index] ?? Number.NaN;
  const middle = (sorted.length - 1) / 2;
  return {
    median: (at(Math.floor(middle)) + at(Math.ceil(middle))) / 2,
    min: at(0),
    max: at(sorted.length - 1),
  };
}

/** @param share from 0 to 1; NaN where there are no values */
export function quantile(values: readonly number[], share: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
