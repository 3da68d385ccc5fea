// The alerts in examples/ on played series, by Prometheus' own `promtool`: each rule fires on one of alert-cases.yaml, stays silent on another,
// and asks for counters that exist from the start.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { z } from 'zod';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { INSTALL_MS, installPackage, onPath } from '../helpers/debian-packages.ts';
import { readPromql, type Selector } from '../helpers/promql.ts';
import { PATIENCE, tempDir } from '../helpers/wait.ts';

const run = promisify(execFile);
const path = (file: string): string => fileURLToPath(new URL(file, import.meta.url));
const RULES = path('../../examples/prometheus/alerts.yaml');

const series = z.record(z.string(), z.union([z.string(), z.number()]).transform(String));
const played = z.strictObject({ at: z.string(), series });
const cases = z
  .record(
    z.string(),
    z.strictObject({
      /** Between two values, and between two evaluations. */
      interval: z.string().default('1m'),
      fires: z
        .array(played.extend({ labels: z.record(z.string(), z.string()), summary: z.string() }))
        .nonempty(),
      silent: z.array(played.extend({ why: z.string() })).nonempty(),
    }),
  )
  .parse(parse(readFileSync(path('alert-cases.yaml'), 'utf8'), { merge: true }));

const rules = z
  .object({
    groups: z.array(
      z.object({
        rules: z.array(
          z.looseObject({
            alert: z.string(),
            expr: z.string(),
            labels: z.record(z.string(), z.string()),
            annotations: z.object({ summary: z.string() }),
          }),
        ),
      }),
    ),
  })
  .parse(parse(readFileSync(RULES, 'utf8')))
  .groups.flatMap((group) => group.rules);

/** One test of promtool. */
interface PlayedTest {
  readonly name: string;
  readonly interval: string;
  readonly series: Readonly<Record<string, string>>;
  readonly alert: string;
  readonly at: string;
  readonly fires: readonly { readonly exp_labels?: unknown; readonly exp_annotations?: unknown }[];
}

function testsOf({ alert, labels: own }: (typeof rules)[number]): PlayedTest[] {
  const { interval, fires, silent } = cases[alert] ?? { interval: '', fires: [], silent: [] };
  const firing = fires.map(({ labels, summary, ...each }, index) => ({
    name: `${alert}: fires ${index}`,
    interval,
    alert,
    ...each,
    fires: [{ exp_labels: { ...labels, ...own }, exp_annotations: { summary } }],
  }));
  return [
    ...firing,
    ...silent.map(({ why, ...each }) => ({ name: `${alert}: ${why}`, interval, alert, ...each, fires: [] })),
  ];
}

/** What promtool says of the tests that failed, by name. */
async function play(tests: readonly PlayedTest[]): Promise<Map<string, string>> {
  await using folder = await tempDir();
  const files: string[] = [];
  // A file for each rule: promtool evaluates all rules of a file in each of its tests.
  for (const [name, some] of Map.groupBy(tests, ({ alert, interval }) => `${alert}-${interval}`)) {
    const [{ alert, interval } = { alert: '', interval: '' }] = some;
    const [file, ruleFile] = [folder.file(`${name}.yaml`), folder.file(`${name}-rules.yaml`)];
    const asked = rules.filter((rule) => rule.alert === alert).map(withSummary);
    await writeFile(ruleFile, stringify({ groups: [{ name: 'tollgate', rules: asked }] }));
    const written = some.map(({ name: test, series: all, at, fires }) => ({
      name: test,
      interval,
      input_series: Object.entries(all).map(([series, values]) => ({ series, values })),
      alert_rule_test: [{ eval_time: at, alertname: alert, exp_alerts: fires }],
    }));
    const content = { rule_files: [ruleFile], evaluation_interval: interval, tests: written };
    await writeFile(file, stringify(content, { aliasDuplicateObjects: false }));
    files.push(file);
  }
  const { stdout, stderr } = await run('promtool', ['test', 'rules', ...files], {
    timeout: 10 * PATIENCE,
  }).catch((error: unknown) => z.object({ stdout: z.string(), stderr: z.string() }).parse(error));
  const verdicts = `${stdout}${stderr}`.match(/^ {2}(SUCCESS|FAILED:)$/gm);
  // A fault of the files themselves names no test.
  const failed = stderr.split(/^ {4}name: /m).slice(1);
  expect([verdicts?.length, stderr !== ''], stderr).toEqual([files.length, failed.length > 0]);
  return new Map(failed.map((text) => [text.slice(0, text.indexOf(',\n')), text]));
}

/** promtool compares all annotations that a rule has. */
function withSummary({ annotations: { summary }, ...rule }: (typeof rules)[number]) {
  return { ...rule, annotations: { summary } };
}

const TESTS = rules.flatMap(testsOf);
let failures = new Map<string, string>();
beforeAll(async () => {
  if ((await onPath('promtool')) === undefined) await installPackage('prometheus', 'command -v promtool');
  failures = await play(TESTS);
}, INSTALL_MS);

test('promtool accepts the rules', async () => {
  const { stdout } = await run('promtool', ['check', 'rules', RULES], { timeout: PATIENCE });
  expect(stdout).toContain('SUCCESS');
});

test('each rule has series with which it fires, and others with which it stays silent', () => {
  expect(Object.keys(cases).sort()).toEqual(rules.map(({ alert }) => alert).sort());
  // Silence of a series that is not there would mean nothing.
  const absent = Object.entries(cases).flatMap(([alert, { fires, silent }]) => {
    const asked = selectorsOf(alert).map(({ metric }) => metric);
    return [...fires, ...silent].flatMap((each) =>
      asked
        .filter((metric) => !Object.keys(each.series).some((name) => name.startsWith(`${metric}{`)))
        .map((metric) => `${alert} at ${each.at}: ${metric}`),
    );
  });
  expect(absent).toEqual([]);
});

test('the counters of each rule exist from the start, because `increase` misses the first count of one that begins later', async () => {
  const { catalogue, registry, addUpstream, addRoute, upstreamTokens } = createMetrics();
  addUpstream('u');
  upstreamTokens.add('u');
  addRoute('/v1/chat/completions');
  const counters = new Set(catalogue.rows.flatMap(({ name, type }) => (type === 'counter' ? name : [])));
  const present = (await registry.metrics()).split('\n');
  const missing = rules.flatMap(({ alert }) =>
    selectorsOf(alert)
      .filter((each) => counters.has(each.metric) && !present.some((line) => isSelected(line, each)))
      .map(({ metric, matchers }) => `${alert}: ${metric} ${JSON.stringify(matchers)}`),
  );
  expect(missing).toEqual([]);
});

function selectorsOf(alert: string): readonly Selector[] {
  return readPromql(rules.find((each) => each.alert === alert)?.expr ?? '').selectors;
}

/** Whether a line of /metrics is a sample that the selector selects. */
function isSelected(line: string, { metric, matchers }: Selector): boolean {
  if (!line.startsWith(`${metric}{`) && !line.startsWith(`${metric} `)) return false;
  return matchers.every(({ label, op, value }) => {
    const given = new RegExp(`[{,]${label}="([^"]*)"`).exec(line)?.[1] ?? '';
    const isEqual = op.includes('~') ? new RegExp(`^(?:${value})$`).test(given) : given === value;
    return isEqual !== op.startsWith('!');
  });
}

describe('played by promtool', () => {
  test.each(TESTS.map(({ name }) => name))('%s', (name) => {
    expect(failures.get(name)).toBeUndefined();
  });

  test('what should fire and does not fails, and what fires with other labels or another summary', async () => {
    const [first, ...others] = TESTS.filter(({ fires }) => fires.length > 0);
    if (first === undefined) throw new Error('no test');
    const [expected] = first.fires;
    const wrong = [
      { ...first, name: 'silent', fires: [] },
      { ...first, name: 'summary', fires: [{ ...expected, exp_annotations: { summary: 'another' } }] },
      { ...first, name: 'labels', fires: [{ ...expected, exp_labels: { severity: 'ticket' } }] },
      { ...first, name: 'right' },
    ];
    expect(others.length).toBeGreaterThan(30);
    expect([...(await play(wrong)).keys()]).toEqual(['silent', 'summary', 'labels']);
  });
});
