// The dashboard and the alerts in examples/ name only what exists: metrics, their labels, and the values of those.
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import { faultsOf, labelsOf, METRIC_ROWS } from '../helpers/metric-facts.ts';
import { type Named, readPromql } from '../helpers/promql.ts';

const text = (file: string): string =>
  readFileSync(new URL(`../../examples/${file}`, import.meta.url), 'utf8');

const target = z.object({
  expr: z.string(),
  legendFormat: z.string(),
  datasource: z.object({ uid: z.string() }),
});
const panel = z.object({
  id: z.number(),
  type: z.string(),
  title: z.string().min(1),
  description: z.string().optional(),
  gridPos: z.object({ x: z.number(), y: z.number(), w: z.number(), h: z.number() }),
  targets: z.array(target).optional(),
});
const variable = z.object({ name: z.string(), type: z.string(), definition: z.string().optional() });
const dashboard = z
  .object({
    schemaVersion: z.number(),
    templating: z.object({ list: z.array(variable) }),
    panels: z.array(panel),
  })
  .parse(JSON.parse(text('grafana/tollgate.json')));
const rule = z.strictObject({
  alert: z.string(),
  expr: z.string(),
  for: z
    .string()
    .regex(/^\d+[smh]$/)
    .optional(),
  labels: z.strictObject({ severity: z.enum(['page', 'ticket']) }),
  annotations: z.strictObject({ summary: z.string(), description: z.string(), runbook: z.string() }),
});
const alerts = z
  .strictObject({ groups: z.array(z.strictObject({ name: z.string(), rules: z.array(rule) })) })
  .parse(parse(text('prometheus/alerts.yaml')))
  .groups.flatMap((group) => group.rules);

/** Of ours, what the dashboard leaves out on purpose, each with the reason beside it. None so far. */
const LEFT_OUT: readonly string[] = [];

/** Labels that a text quotes and the result of its expression does not have. */
function missing(quoted: Iterable<RegExpMatchArray>, { selectors, left }: Named): string[] {
  const have = left ?? selectors.flatMap(({ metric }) => labelsOf(metric) ?? []);
  return Array.from(quoted, ([, label]) => label ?? '').filter((label) => !have.includes(label));
}

describe('the expression parser finds faults', () => {
  test.each([
    ['rate(tollgate_no_such_total[5m])', 'there is no tollgate_no_such_total'],
    ['gen_ai_client_token_usage', 'there is no gen_ai_client_token_usage'],
    ['tollgate_connections_bucket', 'there is no tollgate_connections_bucket'],
    ['tollgate_requests_total{model="x"}', 'tollgate_requests_total has no label model'],
    ['sum by (model) (tollgate_requests_total)', 'nothing has the label model'],
    ['tollgate_auth_total{outcome=~"cached|guessed"}', 'tollgate_auth_total: outcome is never guessed'],
    [
      'tollgate_upstream_attempts_total{outcome="upstream_auth"}',
      'tollgate_upstream_attempts_total: outcome is never upstream_auth',
    ],
  ])('in %s', (expression, fault) => {
    expect(faultsOf(expression).faults).toEqual([fault]);
  });

  test.each(['sum(rate(x[5m])', 'x)', 'foo(x)', 'sum x', 'x{a}', '{a="b"}', 'x{a="b"'])(
    'and rejects %s',
    (expression) => {
      expect(() => readPromql(expression)).toThrow();
    },
  );

  test('and accepts valid expressions', () => {
    const right =
      'histogram_quantile(0.95, sum by (le, route) (rate(tollgate_request_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval])))';
    expect(faultsOf(right)).toMatchObject({ faults: [], named: { left: ['route'] } });
  });
});

describe('the dashboard', () => {
  const shown = dashboard.panels.filter(({ type }) => type !== 'row');
  const targets = shown.flatMap(({ title, targets: own = [] }) => own.map((each) => ({ title, ...each })));

  test('names only metrics, labels and values that exist', () => {
    expect(
      targets.flatMap(({ title, expr }) => faultsOf(expr).faults.map((fault) => `${title}: ${fault}`)),
    ).toEqual([]);
  });

  test('names series by existing labels', () => {
    const wrong = targets.flatMap(({ title, expr, legendFormat }) =>
      missing(legendFormat.matchAll(/\{\{(\w+)\}\}/g), readPromql(expr)).map((label) => `${title}: ${label}`),
    );
    expect(wrong).toEqual([]);
  });

  test('has every metric of the gateway', () => {
    const used = new Set(
      targets.flatMap(({ expr }) => readPromql(expr).selectors.map(({ metric }) => metric)),
    );
    const isUsed = (name: string) =>
      ['', '_bucket', '_sum', '_count'].some((suffix) => used.has(`${name}${suffix}`));
    expect([...METRIC_ROWS.keys()].filter((name) => !isUsed(name))).toEqual(LEFT_OUT);
  });

  test('has variables with valid queries, and uses no others', () => {
    const { list } = dashboard.templating;
    for (const { type, definition } of list) {
      if (type !== 'query') continue;
      const [, series = '', label = ''] = /^label_values\((.*), (\w+)\)$/.exec(definition ?? '') ?? [];
      const { faults, named } = faultsOf(series);
      expect(faults).toEqual([]);
      expect(labelsOf(named.selectors[0]?.metric ?? '')).toContain(label);
    }
    const names = new Set([...list.map(({ name }) => name), '__rate_interval']);
    const asked = targets.flatMap(({ expr }) => Array.from(expr.matchAll(/\$(\w+)/g), ([, name]) => name));
    expect(asked.filter((name) => !names.has(name ?? ''))).toEqual([]);
    expect(new Set(targets.map(({ datasource }) => datasource.uid))).toEqual(new Set([`\${datasource}`]));
  });

  test('has panels with descriptions, without overlaps', () => {
    expect(dashboard.schemaVersion).toBeGreaterThanOrEqual(39);
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    for (const { title, description = '' } of shown) expect(description.length, title).toBeGreaterThan(5);
    const taken = new Set<string>();
    for (const { title, gridPos } of dashboard.panels) {
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1)
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          expect(taken.has(`${x} ${y}`), title).toBe(false);
          taken.add(`${x} ${y}`);
        }
    }
  });
});

describe('the alerts', () => {
  test('name only metrics, labels and values that exist', () => {
    expect(
      alerts.flatMap(({ alert, expr }) => faultsOf(expr).faults.map((fault) => `${alert}: ${fault}`)),
    ).toEqual([]);
    expect(alerts.length).toBeGreaterThanOrEqual(10);
    expect(new Set(alerts.map(({ alert }) => alert)).size).toBe(alerts.length);
  });

  test('use labels that their result has', () => {
    const wrong = alerts.flatMap(({ alert, expr, annotations }) =>
      missing(
        `${annotations.summary} ${annotations.description}`.matchAll(/\$labels\.(\w+)/g),
        readPromql(expr),
      ).map((label) => `${alert}: ${label}`),
    );
    expect(wrong).toEqual([]);
  });

  test('are loaded by the Prometheus of the example, which scrapes their metrics', () => {
    const config = z
      .looseObject({
        rule_files: z.array(z.string()),
        scrape_configs: z.array(z.looseObject({ job_name: z.string() })),
      })
      .parse(parse(text('prometheus/prometheus.yaml')));
    expect(config.rule_files).toEqual(['alerts.yaml']);
    expect(config.scrape_configs.map(({ job_name }) => job_name)).toEqual(['tollgate']);
  });
});
