// The table of metrics, from which docs/metrics.md is generated: name, meaning and labels. It registers the metrics with prom-client and
// measures nothing.
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { BoundCounter, BoundGauge, BoundHistogram, type GaugeChild } from './metric-children.ts';

export interface MetricRow {
  readonly area: string;
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly meaning: string;
  /** Label → its possible values, as text. */
  readonly labels: Readonly<Record<string, string>>;
}

interface Definition<L extends string> {
  /** One or two sentences; also the help text in Prometheus. */
  readonly meaning: string;
  /** The values of each label are bounded: never text of a client. Default: no labels. */
  readonly labels?: Readonly<Record<L, string>>;
}

interface GaugeDefinition<L extends string> extends Definition<L> {
  /** How the values of several processes are aggregated. Default `sum`. */
  readonly across?: 'sum' | 'max' | 'min' | 'first';
}

interface HistogramDefinition<L extends string> extends Definition<L> {
  /** Upper bounds, ascending. */
  readonly buckets: readonly number[];
}

const MAX_INITIAL_SERIES = 40;

/** The values of a label where its text lists all of them; else none. */
function listedValues(text = ''): string[] {
  const words = text.replaceAll(/ ?\([^)]*\)/g, '').split(', ');
  return words.every((word) => /^`\w+`$/.test(word)) ? words.map((word) => word.slice(1, -1)) : [];
}

/** The metrics of one gateway. */
export class MetricCatalogue {
  readonly registry = new Registry();
  readonly rows: MetricRow[] = [];
  #area = '';

  /** Sets the section of the docs for the metrics that follow. */
  area(title: string): void {
    this.#area = title;
  }

  /**
   * A counter whose series begin at 0 where the definition lists the values of all labels: PromQL's `increase` misses the first
   * count of a series that does not.
   */
  counter<L extends string = never>(name: string, definition: Definition<L>): BoundCounter<L> {
    const begun = this.#begin('counter', name, definition);
    const counter = new BoundCounter<L>(begun);
    const listed = begun.labelNames.map((label) => ({
      label,
      values: listedValues(definition.labels?.[label]),
    }));
    const combinations = listed.reduce<Partial<Record<L, string>>[]>(
      (before, { label, values }) =>
        before.flatMap((labels) => values.map((value) => ({ ...labels, [label]: value }))),
      [{}],
    );
    if (begun.labelNames.length > 0 && combinations.length <= MAX_INITIAL_SERIES)
      for (const labels of combinations) counter.inc(labels, 0);
    return counter;
  }

  /** A counter whose value is read at each scrape. */
  readCounter(name: string, read: () => number, definition: Definition<never>): void {
    new Counter({
      ...this.#begin('counter', name, definition),
      collect() {
        const total = read();
        this.reset();
        this.inc(total);
      },
    });
  }

  gauge<L extends string = never>(name: string, definition: GaugeDefinition<L>): BoundGauge<L> {
    const aggregator = definition.across ?? 'sum';
    return new BoundGauge<L>({ ...this.#begin('gauge', name, definition), aggregator });
  }

  /** A gauge whose series are read at each scrape; those that are not read end. */
  readGauge<L extends string>(
    name: string,
    definition: GaugeDefinition<L> & {
      readonly read: () => Iterable<{ readonly labels: Record<L, string>; readonly value: number }>;
    },
  ): void {
    const { read, across: aggregator = 'sum' } = definition;
    new Gauge<L>({
      ...this.#begin('gauge', name, definition),
      aggregator,
      collect() {
        this.reset();
        for (const { labels, value } of read()) this.set(labels, value);
      },
    });
  }

  /** A gauge without labels that changes with requests. */
  gaugeChild(name: string, definition: GaugeDefinition<never>): GaugeChild {
    return this.gauge(name, definition).child({});
  }

  /** For rare events. */
  histogram<L extends string = never>(name: string, definition: HistogramDefinition<L>): Histogram<L> {
    const buckets = [...definition.buckets];
    return new Histogram<L>({ ...this.#begin('histogram', name, definition), buckets });
  }

  /** For events of each request. */
  childHistogram<L extends string>(name: string, definition: HistogramDefinition<L>): BoundHistogram<L> {
    const buckets = [...definition.buckets];
    return new BoundHistogram<L>({ ...this.#begin('histogram', name, definition), buckets });
  }

  #begin<L extends string>(type: MetricRow['type'], name: string, definition: Definition<L>) {
    const { meaning, labels = {} } = definition;
    this.rows.push({ area: this.#area, name, type, meaning, labels });
    const labelNames: L[] = [];
    for (const label in definition.labels) labelNames.push(label);
    return { name, help: meaning, labelNames, registers: [this.registry] };
  }
}

/** Label values that several metrics share, as text. */
export const VALUES = {
  upstream: 'a name of `upstreams`',
  upstreamOrNone: 'a name of `upstreams`; `none` without an upstream request',
  model: 'a name or pattern of `models`',
  modelOrNone:
    'a name or pattern of `models`; `unknown` without a matching entry; `none` if no model was read',
  outcome: '`ok` or a code of [errors.md](errors.md)',
  route: 'a path of the gateway; `none` for other paths; `malformed` for bytes that are not HTTP',
} as const;
