// Metrics with children: a child is bound to its labels once, counts in memory, and passes its value to prom-client at a scrape.
// prom-client's own children look their labels up at every call, which a request would do a dozen times.
import { Counter, type CounterConfiguration, Gauge, type GaugeConfiguration, Histogram } from 'prom-client';

/** Values of the labels; an absent label is not exported. */
export type Labels<L extends string> = Partial<Record<L, string>>;

class CounterChild {
  /** Since the last scrape. */
  pending = 0;

  inc(by = 1): void {
    this.pending += by;
  }
}

export class GaugeChild {
  value: number | undefined;

  set(value: number): void {
    this.value = value;
  }

  /** For several owners that share the child. */
  add(by: number): void {
    this.value = (this.value ?? 0) + by;
  }
}

class HistogramChild {
  readonly counts: number[];
  sum = 0;
  count = 0;
  readonly #bounds: readonly number[];

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    // The last one counts values above all bounds.
    this.counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(value: number): void {
    let at = 0;
    while (value > (this.#bounds[at] ?? Number.POSITIVE_INFINITY)) at += 1;
    this.counts[at] = (this.counts[at] ?? 0) + 1;
    this.sum += value;
    this.count += 1;
  }
}

/** The children of one metric. The same labels have the same child, so reloads add none. */
class Children<L extends string, C> {
  readonly #make: () => C;
  readonly #byKey = new Map<string, { readonly labels: Labels<L>; readonly child: C }>();

  constructor(make: () => C) {
    this.#make = make;
  }

  of(labels: Labels<L>): C {
    const key = keyOf(labels);
    let entry = this.#byKey.get(key);
    if (entry === undefined) {
      entry = { labels, child: this.#make() };
      this.#byKey.set(key, entry);
    }
    return entry.child;
  }

  forget(labels: Labels<L>): void {
    this.#byKey.delete(keyOf(labels));
  }

  all(): Iterable<{ readonly labels: Labels<L>; readonly child: C }> {
    return this.#byKey.values();
  }
}

function keyOf(labels: Labels<string>): string {
  return JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** A counter of prom-client with children. */
export class BoundCounter<L extends string = string> extends Counter<L> {
  readonly #children = new Children<L, CounterChild>(() => new CounterChild());

  constructor(configuration: CounterConfiguration<L>) {
    super({
      ...configuration,
      collect: () => {
        for (const { labels, child } of this.#children.all()) {
          if (child.pending > 0) this.inc(labels, child.pending);
          child.pending = 0;
        }
      },
    });
  }

  /** Call it once per label set, not per request. */
  child(labels: Labels<L>): CounterChild {
    return this.#children.of(labels);
  }
}

/** A gauge of prom-client with children. Do not use `set` for the labels of a child. */
export class BoundGauge<L extends string = string> extends Gauge<L> {
  readonly #children = new Children<L, GaugeChild>(() => new GaugeChild());

  constructor(configuration: GaugeConfiguration<L>) {
    super({
      ...configuration,
      collect: () => {
        for (const { labels, child } of this.#children.all())
          if (child.value !== undefined) this.set(labels, child.value);
      },
    });
  }

  child(labels: Labels<L>): GaugeChild {
    return this.#children.of(labels);
  }

  /** Ends the series; later values of its child are not exported. */
  forget(labels: Labels<L>): void {
    this.#children.forget(labels);
    this.remove(labels);
  }
}

interface BoundHistogramConfiguration<L extends string> {
  readonly name: string;
  readonly help: string;
  readonly labelNames: L[];
  /** Upper bounds, ascending. */
  readonly buckets: number[];
  readonly registers: NonNullable<CounterConfiguration<L>['registers']>;
}

/** A histogram that only its children observe. */
export class BoundHistogram<L extends string = string> extends Histogram<L> {
  readonly #configuration: BoundHistogramConfiguration<L>;
  readonly #children: Children<L, HistogramChild>;

  constructor(configuration: BoundHistogramConfiguration<L>) {
    super(configuration);
    this.#configuration = configuration;
    this.#children = new Children(() => new HistogramChild(configuration.buckets));
  }

  child(labels: Labels<L>): HistogramChild {
    return this.#children.of(labels);
  }

  /** The registry and `get` read this, for text and for JSON. */
  async getForPromString() {
    const { name, help, buckets } = this.#configuration;
    const values = [];
    for (const { labels, child } of this.#children.all()) {
      let below = 0;
      for (const [index, bound] of buckets.entries()) {
        below += child.counts[index] ?? 0;
        values.push(sample(`${name}_bucket`, { le: bound, ...labels }, below));
      }
      values.push(
        sample(`${name}_bucket`, { le: '+Inf', ...labels }, child.count),
        sample(`${name}_sum`, labels, child.sum),
        sample(`${name}_count`, labels, child.count),
      );
    }
    return { name, help, type: 'histogram', values, aggregator: 'sum' };
  }
}

function sample(metricName: string, labels: object, value: number) {
  return { metricName, labels: { ...labels }, sharedLabels: {}, value };
}

/** Children by the value of one more label, created when the value first occurs. */
export class ByLabel<C> {
  readonly #make: (value: string) => C;
  readonly #children = new Map<string, C>();

  constructor(make: (value: string) => C) {
    this.#make = make;
  }

  of(value: string): C {
    let child = this.#children.get(value);
    if (child === undefined) {
      child = this.#make(value);
      this.#children.set(value, child);
    }
    return child;
  }
}
