// What is known of the metrics of the gateway, for tests of texts that name them: dashboards, alerts, the runbook.
import { ERRORS } from '../../src/errors.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import type { MetricRow } from '../../src/telemetry/metrics/metric-catalogue.ts';
import { type Named, readPromql } from './promql.ts';

const { catalogue, registry } = createMetrics();
/** The metrics of the gateway by name. */
export const METRIC_ROWS = new Map(catalogue.rows.map((row) => [row.name, row]));
/** What Prometheus itself adds. */
const ADDED = ['instance', 'job'];

/** The labels that a series of this name may have; undefined when there is no such series. */
export function labelsOf(name: string): readonly string[] | undefined {
  if (name === 'up') return ADDED;
  const [, base, part] = /^(.*?)(_bucket|_sum|_count)?$/.exec(name) ?? [];
  const histogram = part === undefined ? undefined : METRIC_ROWS.get(base ?? '');
  if (histogram?.type === 'histogram') {
    return [...Object.keys(histogram.labels), ...ADDED, ...(part === '_bucket' ? ['le'] : [])];
  }
  const row = METRIC_ROWS.get(name);
  // A histogram itself has no series of its name.
  if (row !== undefined) return row.type === 'histogram' ? undefined : [...Object.keys(row.labels), ...ADDED];
  return registry.getSingleMetric(name) === undefined ? undefined : ADDED;
}

const CODES = Object.keys(ERRORS);

/** The values that a label may have where the catalogue lists all of them; undefined where it cannot. */
function valuesOf(row: MetricRow, label: string): readonly string[] | undefined {
  const words = row.labels[label] ?? '';
  const listed = Array.from(words.matchAll(/`([a-z0-9_]+)`/g), ([, value]) => value ?? '');
  if (/code/.test(words)) return [...listed, ...CODES, ''];
  return /^(`[a-z0-9_]+`(, )?)+( \(.*\))?$/.test(words) ? listed : undefined;
}

/** What an expression says that is not so. */
export function faultsOf(expression: string): { readonly faults: string[]; readonly named: Named } {
  const named = readPromql(expression);
  const faults: string[] = [];
  const present = new Set<string>();
  for (const { metric, matchers } of named.selectors) {
    const labels = labelsOf(metric);
    if (labels === undefined) faults.push(`there is no ${metric}`);
    for (const label of labels ?? []) present.add(label);
    const row = METRIC_ROWS.get(metric.replace(/_(bucket|sum|count)$/, '')) ?? METRIC_ROWS.get(metric);
    for (const { label, value } of matchers) {
      if (labels !== undefined && !labels.includes(label)) faults.push(`${metric} has no label ${label}`);
      const known = row && valuesOf(row, label);
      const given = value.includes('$') ? [] : value.split('|');
      for (const each of given)
        if (known !== undefined && !known.includes(each)) faults.push(`${metric}: ${label} is never ${each}`);
    }
  }
  for (const label of named.labels) if (!present.has(label)) faults.push(`nothing has the label ${label}`);
  return { faults, named };
}
