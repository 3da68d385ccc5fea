// The dashboard and the alerts in examples/, asked of a real Prometheus about a played hour with an outage of one vendor: each query returns data,
// and the panels and alerts about it show it.
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import { INSTALL_MS } from '../helpers/debian-packages.ts';
import { Prometheus } from '../helpers/prometheus.ts';
import { playHour } from './played-hour.ts';

const read = (file: string): string =>
  readFileSync(new URL(`../../examples/${file}`, import.meta.url), 'utf8');
const { panels, templating } = z
  .object({
    templating: z.object({
      list: z.array(z.object({ name: z.string(), definition: z.string().optional() })),
    }),
    panels: z.array(
      z.object({ title: z.string(), targets: z.array(z.object({ expr: z.string() })).default([]) }),
    ),
  })
  .parse(JSON.parse(read('grafana/tollgate.json')));
const queries = panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ title, expr })));
const rules = z
  .object({
    groups: z.array(z.object({ rules: z.array(z.object({ alert: z.string(), expr: z.string() })) })),
  })
  .parse(parse(read('prometheus/alerts.yaml')))
  .groups.flatMap((group) => group.rules);

let prometheus: Prometheus;
let cost: number;
beforeAll(async () => {
  const played = await playHour();
  cost = played.cost;
  prometheus = await Prometheus.start(played.pages, 60);
}, INSTALL_MS);
afterAll(() => prometheus?.[Symbol.asyncDispose]());

/** As Grafana does it, with a scrape each minute and all values of the variables. */
const substituted = (expr: string): string =>
  expr.replaceAll('$__rate_interval', '4m').replaceAll(/\$\w+/g, '.*');

/** The highest value of the hour by the labels of the series, of the first query of a panel. */
async function shownBy(title: string): Promise<Record<string, number>> {
  const panel = queries.find((each) => each.title === title);
  const found = await prometheus.query(substituted(panel?.expr ?? ''));
  return Object.fromEntries(
    found
      .filter(({ values }) => values.length > 0)
      .map(({ labels, values }) => [Object.values(labels).join(' '), Math.max(...values)]),
  );
}

describe('the dashboard of a played hour', () => {
  test('has data for each query', async () => {
    expect(queries.length).toBeGreaterThan(100);
    const empty: string[] = [];
    for (const { title, expr } of queries) {
      const found = await prometheus.query(substituted(expr));
      if (!found.some(({ values }) => values.length > 0)) empty.push(`${title}: ${expr}`);
    }
    expect(empty).toEqual([]);
  });

  test('has values for its variables', async () => {
    const values = new Map<string, readonly string[]>();
    for (const { name, definition } of templating.list) {
      const [, series, label] = /^label_values\((.*), (\w+)\)$/.exec(definition ?? '') ?? [];
      if (series !== undefined && label !== undefined)
        values.set(name, await prometheus.labelValues(substituted(series), label));
    }
    expect(Object.fromEntries(values)).toEqual({
      instance: ['a', 'b'],
      model: ['chat'],
      upstream: ['a', 'b', 'c', 'echo'],
    });
  });

  test("shows the vendor's outage", async () => {
    // Open, and all drained later.
    expect(await shownBy('State of each upstream')).toMatchObject({ a: 5, b: 5, echo: 0 });
    expect(await shownBy('Failed requests to each upstream')).toMatchObject({ a: 1, b: 0 });
    const answered = await shownBy('Where answers come from');
    expect(answered['b']).toBeGreaterThan(0);
    const unserved = await shownBy('No upstream to ask');
    expect(unserved['upstream_out_of_service']).toBeGreaterThan(0);
    expect(unserved['upstream_rate_limited']).toBe(0);
  });

  test('shows what it cost, and that a budget is spent', async () => {
    const [total] = await prometheus.query('sum(tollgate_cost_total)');
    expect(total?.values.at(-1)).toBeCloseTo(cost, 6);
    const hourly = await shownBy('Cost of an hour, by upstream');
    expect(Object.keys(hourly).sort()).toEqual(['a', 'b']);
    expect((await shownBy('Refused because a budget is spent'))['holder Lite']).toBeGreaterThan(0);
    expect((await shownBy('Budgets: thresholds reached, and spent'))['holder spent']).toBeGreaterThan(0);
  });
});

test('the alerts see the outage, the drain and the budget, and nothing that was not', async () => {
  const seen: string[] = [];
  for (const { alert, expr } of rules) {
    const found = await prometheus.query(expr);
    if (found.some(({ values }) => values.length > 0)) seen.push(alert);
  }
  expect(seen).toEqual(
    expect.arrayContaining([
      'TollgateBreakerOpen',
      'TollgateUpstreamUnhealthy',
      'TollgateErrorsBurnFast',
      'TollgateModelOutOfService',
      'TollgateUpstreamLeftDrained',
      'TollgateBudgetSpent',
    ]),
  );
  const unseen = rules.map(({ alert }) => alert).filter((alert) => !seen.includes(alert));
  expect(unseen).toEqual(
    expect.arrayContaining([
      'TollgateDown',
      'TollgateUsageLost',
      'TollgateStoreAway',
      'TollgateUpstreamMixesAnswers',
      'TollgateUpstreamRefusesCredential',
      'TollgateAllUpstreamsRateLimited',
      'TollgateBadReload',
    ]),
  );
});
