// The alerts in examples/ on played series, by Prometheus' own `promtool`: a first burst fires, probes do not dilute a rate, and what is well
// stays silent.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { z } from 'zod';
import { INSTALL_MS, installPackage, onPath } from '../helpers/debian-packages.ts';
import { PATIENCE, tempDir } from '../helpers/wait.ts';

const run = promisify(execFile);
const RULES = fileURLToPath(new URL('../../examples/prometheus/alerts.yaml', import.meta.url));

beforeAll(async () => {
  if ((await onPath('promtool')) === undefined) await installPackage('prometheus', 'command -v promtool');
}, INSTALL_MS);

/** A series by interval, in promtool's notation: `0x3` repeats, `0+5x3` grows. */
type Series = Readonly<Record<string, string>>;

/** The labels with which an alert fires at that time. */
interface Expected {
  readonly alert: string;
  readonly at: string;
  readonly fires: readonly Readonly<Record<string, string>>[];
}

/** The rules without annotations, which promtool would compare. */
const GROUPS = z
  .object({ groups: z.array(z.looseObject({ rules: z.array(z.looseObject({ annotations: z.unknown() })) })) })
  .parse(parse(readFileSync(RULES, 'utf8')))
  .groups.map((group) => ({
    ...group,
    rules: group.rules.map(({ annotations: _, ...rule }) => rule),
  }));

/** Plays the series against the rules. @param interval between two values, and between two evaluations */
async function play(series: Series, expected: readonly Expected[], interval = '1m'): Promise<void> {
  await using folder = await tempDir();
  const input_series = Object.entries(series).map(([name, values]) => ({ series: name, values }));
  const alert_rule_test = expected.map(({ alert, at, fires }) => ({
    eval_time: at,
    alertname: alert,
    exp_alerts: fires.map((exp_labels) => ({ exp_labels })),
  }));
  const tests = [{ interval, input_series, alert_rule_test }];
  const [rules, file] = [folder.file('rules.yaml'), folder.file('test.yaml')];
  await writeFile(rules, stringify({ groups: GROUPS }));
  await writeFile(file, stringify({ rule_files: [rules], evaluation_interval: interval, tests }));
  const { stderr, stdout } = await run('promtool', ['test', 'rules', file], { timeout: PATIENCE }).catch(
    (error: unknown) => ({ stdout: '', stderr: String(Reflect.get(Object(error), 'stderr')), error }),
  );
  expect(stderr).toBe('');
  expect(stdout).toContain('SUCCESS');
}

const PAGE = { severity: 'page' };
const TICKET = { severity: 'ticket' };

test('promtool accepts the rules', async () => {
  const { stdout } = await run('promtool', ['check', 'rules', RULES], { timeout: PATIENCE });
  expect(stdout).toContain('SUCCESS');
});

describe('a first burst fires, because its series begins at 0', () => {
  test.each([
    [
      'TollgateUsageLost',
      'tollgate_usage_dropped_total{instance="a",reason="memory"}',
      { ...PAGE, instance: 'a', reason: 'memory' },
    ],
    [
      'TollgateModelOutOfService',
      'tollgate_upstream_unserved_total{outcome="upstream_out_of_service"}',
      PAGE,
    ],
    ['TollgateOrdersRefused', 'tollgate_billing_transitions_total{state="refused",standing="none"}', TICKET],
    [
      'TollgateUpstreamMixesAnswers',
      'tollgate_upstream_unsolicited_bytes_total{upstream="u",kind="unsent"}',
      { ...PAGE, upstream: 'u', kind: 'unsent' },
    ],
  ])('of %s', async (alert, series, labels) => {
    await play({ [series]: '0x3 5x10' }, [
      { alert, at: '3m', fires: [] },
      { alert, at: '5m', fires: [labels] },
    ]);
  });

  test('of a refused credential and of exhausted rate limits', async () => {
    await play(
      {
        'tollgate_upstream_attempts_total{upstream="u",outcome="upstream_auth_error"}': '0x3 7x20',
        'tollgate_upstream_attempts_total{upstream="u",outcome="ok"}': '0+50x23',
        'tollgate_upstream_unserved_total{outcome="upstream_rate_limited"}': '0x3 7x20',
        'tollgate_upstream_unserved_total{outcome="upstream_busy"}': '0+9x23',
      },
      [
        {
          alert: 'TollgateUpstreamRefusesCredential',
          at: '6m',
          fires: [{ ...PAGE, upstream: 'u', outcome: 'upstream_auth_error' }],
        },
        { alert: 'TollgateUpstreamsRateLimited', at: '7m', fires: [TICKET] },
        { alert: 'TollgateUpstreamsRateLimited', at: '15m', fires: [] },
        { alert: 'TollgateModelOutOfService', at: '7m', fires: [] },
      ],
    );
  });
});

describe('the rate of errors', () => {
  const chat = (status: number) => `tollgate_requests_total{route="/v1/chat/completions",status="${status}"}`;
  const around = {
    'tollgate_requests_total{route="/health",status="200"}': '0+6000x90',
    'tollgate_requests_total{route="/pricing",status="200"}': '0+6000x90',
  };

  test('is that of the API: probes and pages do not dilute it', async () => {
    await play({ ...around, [chat(200)]: '0+90x90', [chat(502)]: '0+10x90' }, [
      { alert: 'TollgateErrorsBurnFast', at: '70m', fires: [PAGE] },
    ]);
  });

  test('counts no failed probes', async () => {
    const series = {
      ...around,
      [chat(200)]: '0+90x90',
      'tollgate_requests_total{route="/health",status="503"}': '0+90x90',
    };
    await play(series, [{ alert: 'TollgateErrorsBurnFast', at: '70m', fires: [] }]);
  });
});

describe('the state of an upstream', () => {
  test('fires when its health check fails for long, or its breaker stays open, also half open in between', async () => {
    await play(
      {
        'tollgate_upstream_healthy{upstream="u",instance="a"}': '1x2 0x20',
        'tollgate_upstream_healthy{upstream="v",instance="a"}': '1x2 0x3 1x20',
        'tollgate_upstream_breaker_state{upstream="u",model="m"}': '0 2 1 2 2 1 2 2 1 2 2 2',
        'tollgate_upstream_breaker_state{upstream="v",model="m"}': '0 2 1 2 0 0 0 2 1 2 0 0',
      },
      [
        { alert: 'TollgateUpstreamUnhealthy', at: '10m', fires: [{ ...TICKET, upstream: 'u' }] },
        { alert: 'TollgateBreakerOpen', at: '10m', fires: [{ ...TICKET, upstream: 'u', model: 'm' }] },
      ],
    );
  });

  test('fires when it is out of service for a day', async () => {
    const alert = 'TollgateUpstreamLeftDrained';
    await play(
      { 'tollgate_upstream_in_service{upstream="u"}': '1x1 0x60' },
      [
        { alert, at: '20h', fires: [] },
        { alert, at: '26h', fires: [{ ...TICKET, upstream: 'u' }] },
      ],
      '30m',
    );
  });
});
