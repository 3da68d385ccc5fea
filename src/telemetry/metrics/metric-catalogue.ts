// The table of metrics: what each is called, means and is good for, said where it is made. docs/metrics.md is written from
// it. It registers with prom-client and measures nothing.
import { Counter, Histogram, Registry } from 'prom-client';
import { BoundCounter, BoundGauge, BoundHistogram } from './metric-children.ts';

export interface MetricRow {
  readonly area: string;
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly meaning: string;
  /** Label → its possible values, in words. */
  readonly labels: Readonly<Record<string, string>>;
  /** What to do about it: when it is high, or whatever value is bad. */
  readonly action: string;
}

interface Definition<L extends string> {
  readonly name: string;
  /** One sentence or two; also the help text that Prometheus shows. */
  readonly meaning: string;
  /** Every label has an end to its values: never what a client wrote. */
  readonly labels: Readonly<Record<L, string>>;
  readonly action: string;
}

interface GaugeDefinition<L extends string> extends Definition<L> {
  /** What several processes come to that answer as one. Default `sum`. */
  readonly across?: 'sum' | 'max' | 'min' | 'first';
}

interface HistogramDefinition<L extends string> extends Definition<L> {
  /** Upper bounds, ascending. */
  readonly buckets: readonly number[];
}

/** The metrics of one process, or of one gateway among several in a process. */
export class MetricCatalogue {
  readonly registry = new Registry();
  readonly rows: MetricRow[] = [];
  #area = '';

  /** What follows belongs to this part of the page. */
  area(title: string): void {
    this.#area = title;
  }

  counter<L extends string>(definition: Definition<L>): BoundCounter<L> {
    return new BoundCounter<L>(this.#begin('counter', definition));
  }

  /** A counter whose value somebody else keeps. */
  readCounter(definition: Definition<never>, read: () => number): void {
    new Counter({
      ...this.#begin('counter', definition),
      collect() {
        const known = read();
        this.reset();
        this.inc(known);
      },
    });
  }

  gauge<L extends string>(definition: GaugeDefinition<L>): BoundGauge<L> {
    const aggregator = definition.across ?? 'sum';
    return new BoundGauge<L>({ ...this.#begin('gauge', definition), aggregator });
  }

  /** For what happens now and then. */
  histogram<L extends string>(definition: HistogramDefinition<L>): Histogram<L> {
    return new Histogram<L>({
      ...this.#begin('histogram', definition),
      buckets: [...definition.buckets],
    });
  }

  /** For what happens with every request. */
  cellHistogram<L extends string>(definition: HistogramDefinition<L>): BoundHistogram<L> {
    return new BoundHistogram<L>({
      ...this.#begin('histogram', definition),
      buckets: [...definition.buckets],
    });
  }

  #begin<L extends string>(type: MetricRow['type'], { name, meaning, labels, action }: Definition<L>) {
    this.rows.push({ area: this.#area, name, type, meaning, labels, action });
    const labelNames: L[] = [];
    for (const label in labels) labelNames.push(label);
    return { name, help: meaning, labelNames, registers: [this.registry] };
  }
}

/** Values that several metrics share, in words. */
export const VALUES = {
  upstream: 'a name of `upstreams`',
  upstreamOrNone: 'a name of `upstreams`; `none` when none was asked',
  model: 'a name or pattern of `models`',
  modelOrNone:
    'a name or pattern of `models`; `unknown` where no entry serves; `none` where no model was read',
  outcome: '`ok` or a code of [errors.md](errors.md)',
  route: 'a path of the gateway; `none` for others; `malformed` for what is no HTTP',
} as const;
