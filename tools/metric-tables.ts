// The tables of docs/metrics.md, from the catalogue: every metric with its type, its labels and their values, and what it means.
// What to do about it is written in the page and kept. `node tools/metric-tables.ts docs/metrics.md` writes the tables into the page.
import { readFileSync, writeFileSync } from 'node:fs';
import { createMetrics } from '../src/telemetry/metrics/all-metrics.ts';
import type { MetricRow } from '../src/telemetry/metrics/metric-catalogue.ts';

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('\n', ' ');
}

function labelsOf({ labels }: MetricRow): string {
  const lines = Object.entries(labels).map(([label, values]) => `\`${label}\`: ${values}`);
  return lines.length === 0 ? '–' : lines.join('<br>');
}

/** Metric → the last cell of its row in the page: what to do. */
export function actionsIn(page: string): ReadonlyMap<string, string> {
  const rows = page.matchAll(/^\| `([a-z0-9_]+)` \|.* \| ((?:[^|]|\\\|)*) \|$/gm);
  return new Map(Array.from(rows, ([, name = '', action = '']) => [name, action]));
}

function table(rows: readonly MetricRow[], actions: ReadonlyMap<string, string>): string {
  return [
    '| Metric | Type | Labels | Meaning | What to do |',
    '|---|---|---|---|---|',
    ...rows.map((row) => {
      const cells = [`\`${row.name}\``, row.type, labelsOf(row), row.meaning].map(cell);
      return `| ${[...cells, actions.get(row.name) ?? ''].join(' | ')} |`;
    }),
  ].join('\n');
}

/** Those that prom-client collects by itself. */
async function foreignTable(known: ReadonlySet<string>): Promise<string> {
  const all = await createMetrics().registry.getMetricsAsJSON();
  const foreign = all.filter(({ name }) => !known.has(name));
  return [
    '| Metric | Type | Meaning |',
    '|---|---|---|',
    ...foreign.map(({ name, type, help }) => `| \`${name}\` | ${String(type)} | ${cell(help)} |`),
  ].join('\n');
}

/** @returns the page with what stands between its markers (`<!-- metrics -->` … `<!-- end -->`) made new */
export async function fillMetrics(page: string): Promise<string> {
  const { rows } = createMetrics().catalogue;
  const areas = [...new Set(rows.map(({ area }) => area))];
  const actions = actionsIn(page);
  const sections = areas.map((area) => {
    const own = rows.filter((each) => each.area === area);
    return `### ${area}\n\n${table(own, actions)}`;
  });
  const foreign = await foreignTable(new Set(rows.map(({ name }) => name)));
  const text = [...sections, `### Node and the process\n\n${foreign}`].join('\n\n');
  const begin = '<!-- metrics -->';
  const from = page.indexOf(begin);
  const to = page.indexOf('<!-- end -->', from);
  if (from === -1 || to === -1) throw new Error('the page has no markers for the metrics');
  return `${page.slice(0, from)}${begin}\n\n${text}\n\n${page.slice(to)}`;
}

if (import.meta.main) {
  const [, , page] = process.argv;
  if (page === undefined) throw new Error('usage: node tools/metric-tables.ts docs/metrics.md');
  writeFileSync(page, await fillMetrics(readFileSync(page, 'utf8')));
}
