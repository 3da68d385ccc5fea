// Metric children export the same as prom-client, as text, and as JSON for the aggregation of processes.
import fc from 'fast-check';
import { AggregatorRegistry, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { expect, test } from 'vitest';
import { BoundCounter, BoundGauge, BoundHistogram } from '../../src/telemetry/metrics/metric-children.ts';

const BUCKETS = [0.1, 1, 2.5];

function metrics() {
  const [ours, theirs] = [new Registry(), new Registry()];
  const about = { name: 'x', help: 'h', labelNames: ['a' as const] };
  return { ours, theirs, about };
}

/** Order of labels and lines means nothing. */
function lines(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.replace(/\{(.*)\}/, (_all, labels: string) => `{${labels.split(',').sort().join()}}`))
    .sort();
}

const observations = fc.array(
  fc.record({
    label: fc.constantFrom('one', 'two "quoted"', 'three\\'),
    // Bounds themselves, too: they belong to their bucket.
    value: fc.oneof(fc.constantFrom(0, 0.1, 1, 2.5), fc.double({ min: 0, max: 10, noNaN: true })),
    /** Somebody scrapes after it. */
    scraped: fc.boolean(),
  }),
  { maxLength: 40 },
);

test('a histogram with children exports like one of prom-client', async () => {
  await fc.assert(
    fc.asyncProperty(observations, async (all) => {
      const { ours, theirs, about } = metrics();
      const cells = new BoundHistogram({ ...about, buckets: BUCKETS, registers: [ours] });
      const plain = new Histogram({ ...about, buckets: BUCKETS, registers: [theirs] });
      for (const { label, value, scraped } of all) {
        cells.child({ a: label }).observe(value);
        plain.observe({ a: label }, value);
        if (scraped) await ours.metrics();
      }
      expect(lines(await ours.metrics())).toEqual(lines(await theirs.metrics()));
      const [mine, other] = [await ours.getMetricsAsJSON(), await theirs.getMetricsAsJSON()];
      // Exemplars are not kept.
      const plainly = (all: unknown): unknown =>
        JSON.parse(JSON.stringify(all, (key, value) => (key === 'exemplar' ? undefined : value)));
      expect(plainly(mine)).toEqual(plainly(other));
    }),
    { numRuns: 50 },
  );
});

test('a counter with children exports like one of prom-client, also beside direct calls', async () => {
  await fc.assert(
    fc.asyncProperty(observations, async (all) => {
      const { ours, theirs, about } = metrics();
      const cells = new BoundCounter({ ...about, registers: [ours] });
      const plain = new Counter({ ...about, registers: [theirs] });
      for (const { label, scraped } of all) {
        if (scraped) {
          await ours.metrics();
          cells.inc({ a: label }, 2);
        } else cells.child({ a: label }).inc(2);
        plain.inc({ a: label }, 2);
      }
      expect(lines(await ours.metrics())).toEqual(lines(await theirs.metrics()));
    }),
    { numRuns: 50 },
  );
});

test('a gauge with children exports the last value', async () => {
  const { ours, theirs, about } = metrics();
  const cells = new BoundGauge({ ...about, registers: [ours] });
  const plain = new Gauge({ ...about, registers: [theirs] });
  for (const value of [3, 0, 7]) {
    cells.child({ a: 'one' }).set(value);
    plain.set({ a: 'one' }, value);
    expect(lines(await ours.metrics())).toEqual(lines(await theirs.metrics()));
  }
});

test('the metrics of several processes can be aggregated', async () => {
  const parts = [];
  for (const value of [0.05, 5]) {
    const { ours, about } = metrics();
    new BoundHistogram({ ...about, buckets: BUCKETS, registers: [ours] }).child({ a: 'one' }).observe(value);
    new BoundCounter({ ...about, name: 'y', registers: [ours] }).child({ a: 'one' }).inc(3);
    parts.push(await ours.getMetricsAsJSON());
  }
  const whole = await AggregatorRegistry.aggregate(parts).metrics();
  expect(lines(whole)).toEqual(
    expect.arrayContaining([
      'x_bucket{a="one",le="0.1"} 1',
      'x_bucket{a="one",le="+Inf"} 2',
      'x_sum{a="one"} 5.05',
      'x_count{a="one"} 2',
      'y{a="one"} 6',
    ]),
  );
});

test('the same labels in any order have the same child', () => {
  const counter = new BoundCounter({ name: 'x', help: 'h', labelNames: ['a', 'b'], registers: [] });
  expect(counter.child({ a: '1', b: '2' })).toBe(counter.child({ b: '2', a: '1' }));
  expect(counter.child({ a: '1', b: '2' })).not.toBe(counter.child({ a: '2', b: '1' }));
});
