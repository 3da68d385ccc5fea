// /metrics of requests: by route, model, upstream and outcome, with the names of the GenAI conventions, and never with client
// input.
import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { ERRORS } from '../../src/errors.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { actionsIn, fillMetrics } from '../../tools/metric-tables.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  completion,
  contentChunk,
  defaultStream,
  frame,
  HostileUpstream,
  head,
  json,
  reset,
  SSE_HEADERS,
  sse,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { until } from '../helpers/wait.ts';

let one: HostileUpstream;
let two: HostileUpstream;
let gateway: Gateway;

beforeAll(async () => {
  [one, two] = [await HostileUpstream.start(), await HostileUpstream.start()];
});
beforeEach(async () => {
  await gateway?.close();
  one.always(json(200, completion()));
  two.always(json(200, completion()));
  gateway = await startGateway({
    upstreams: { one: one.baseUrl, two: two.baseUrl },
    now: fleetingClock(),
    config: {
      models: {
        'test-model': {
          targets: [
            { upstream: 'one', model: 'm', priority: 1 },
            { upstream: 'two', model: 'm', priority: 2 },
          ],
        },
        'any/*': { targets: [{ upstream: 'one', model: 'x-*' }] },
      },
    },
  });
});
afterAll(async () => {
  await gateway.close();
  await Promise.all([one.close(), two.close()]);
});

// Whatever a test did: every sample has the labels that the catalogue gives it, with values that it names.
afterEach(async () => {
  const rows = new Map(createMetrics().catalogue.rows.map((row) => [row.name, row]));
  for (const line of (await gateway.metrics()).split('\n')) {
    const [, name = '', inside = ''] = /^(\w+)(?:\{(.*)\})? /.exec(line) ?? [];
    const row = rows.get(name) ?? rows.get(name.replace(/_(bucket|sum|count)$/, ''));
    if (row === undefined) continue;
    for (const [, label = '', value = ''] of inside.matchAll(/(\w+)="([^"]*)"/g)) {
      if (label === 'le') continue;
      const words = row.labels[label];
      expect(words, line).toBeDefined();
      if (/\bcode\b/.test(words ?? ''))
        expect([...Object.keys(ERRORS), 'ok', 'superseded'], line).toContain(value);
      else if (/^(`[a-z0-9_]+`(, )?)+( \(.*\))?$/.test(words ?? ''))
        expect(words, line).toContain(`\`${value}\``);
    }
  }
});

const ROUTE = '/v1/chat/completions';

/** How many requests ended so. */
function outcomes(model: string, upstream: string, outcome: string, route = ROUTE): Promise<number> {
  const labels = `route="${route}",model="${model}",upstream="${upstream}",outcome="${outcome}"`;
  return gateway.metric(`tollgate_request_outcomes_total{${labels}}`);
}

const genAi = (upstream: string, model = 'test-model'): string =>
  `gen_ai_operation_name="chat",gen_ai_provider_name="${upstream}",gen_ai_request_model="${model}",upstream="${upstream}"`;

describe('a request', () => {
  test('counts once, under the upstream that answered', async () => {
    one.always(json(503, upstreamError('busy')));
    await gateway.accessLine(await gateway.chat(chatRequest()));
    expect(await outcomes('test-model', 'two', 'ok')).toBe(1);
    expect(await gateway.metric(`tollgate_requests_total{route="${ROUTE}",status="200"}`)).toBe(1);
    expect(await gateway.metric(`tollgate_request_duration_seconds_count{route="${ROUTE}"}`)).toBe(1);
    expect(
      await gateway.metric('tollgate_upstream_extra_attempts_total{upstream="two",reason="fallback"}'),
    ).toBe(1);
    for (const [upstream, result] of [
      ['one', 'failed'],
      ['two', 'ok'],
    ]) {
      const sample = `tollgate_upstream_duration_seconds_count{upstream="${upstream}",result="${result}"}`;
      expect(await gateway.metric(sample)).toBe(1);
    }
    expect(await gateway.metric(`gen_ai_server_request_duration_seconds_count{${genAi('two')}}`)).toBe(1);
  });

  test('that fails at all targets counts under the last upstream, with its error', async () => {
    one.always(json(503, upstreamError('busy')));
    two.always(json(401, upstreamError('no')));
    const response = await gateway.chat(chatRequest());
    const line = await gateway.accessLine(response);
    const [code, upstream] = [String(line['outcome']), String(line['upstream'])];
    expect(await outcomes('test-model', upstream, code)).toBe(1);
    const labels = `${genAi(upstream)},error_type="${code}"`;
    expect(await gateway.metric(`gen_ai_server_request_duration_seconds_count{${labels}}`)).toBe(1);
  });

  test('is never labelled with client input', async () => {
    const words = ['any/first-invention', 'any/second-invention', 'unheard-of', 'also-unheard-of'];
    for (const model of words) await gateway.accessLine(await gateway.chat(chatRequest({ model })));
    expect(await outcomes('any/*', 'one', 'ok')).toBe(2);
    expect(await outcomes('unknown', 'none', 'model_not_found')).toBe(2);
    one.always(json(500, upstreamError('no')));
    for (let each = 0; each < 6; each += 1)
      await gateway.accessLine(await gateway.chat(chatRequest({ model: 'any/third-invention' })));
    expect(
      await gateway.metric('tollgate_upstream_breaker_state{upstream="one",model="x-*"}'),
    ).toBeGreaterThan(0);
    using client = await gateway.connect();
    await client.send({ method: 'GET', target: '/an-invention' });
    await gateway.accessLine(await client.response());
    expect(await outcomes('none', 'none', 'unknown_url', 'none')).toBe(1);
    expect(await gateway.metrics()).not.toMatch(/invention|unheard/);
  });

  test('that is rejected before its model is read counts under none', async () => {
    await gateway.accessLine(await gateway.chat('{', { key: null }));
    await gateway.accessLine(await gateway.chat('{'));
    expect(await outcomes('none', 'none', 'missing_api_key')).toBe(1);
    expect(await outcomes('none', 'none', 'invalid_json')).toBe(1);
  });
});

describe('tokens and times', () => {
  test('of a stream with reported usage', async () => {
    one.always(sse(defaultStream({ usage: true, tokens: { prompt: 7, completion: 11 } }), { pause: 5 }));
    await gateway.accessLine(await gateway.chat(chatRequest({ stream: true })));
    const own = genAi('one');
    expect(await gateway.metric(`gen_ai_client_token_usage_sum{${own},gen_ai_token_type="input"}`)).toBe(7);
    expect(await gateway.metric(`gen_ai_client_token_usage_sum{${own},gen_ai_token_type="output"}`)).toBe(11);
    expect(
      await gateway.metric(`gen_ai_client_token_usage_bucket{le="16",${own},gen_ai_token_type="output"}`),
    ).toBe(1);
    for (const name of ['time_to_first_token_seconds', 'time_per_output_token_seconds'])
      expect(await gateway.metric(`gen_ai_server_${name}_count{${own}}`)).toBe(1);
    expect(await gateway.metric(`gen_ai_server_time_per_output_token_seconds_sum{${own}}`)).toBeGreaterThan(
      0,
    );
  });

  test('are not estimated without a report, and a JSON answer has no first token', async () => {
    one.always(sse(defaultStream()));
    await gateway.accessLine(await gateway.chat(chatRequest({ stream: true })));
    one.always(json(200, completion()));
    await gateway.accessLine(await gateway.chat(chatRequest()));
    const own = genAi('one');
    expect(await gateway.metric(`gen_ai_client_token_usage_count{${own},gen_ai_token_type="input"}`)).toBe(1);
    expect(await gateway.metric(`gen_ai_server_time_to_first_token_seconds_count{${own}}`)).toBe(1);
    expect(await gateway.metric(`gen_ai_server_time_per_output_token_seconds_count{${own}}`)).toBe(0);
    expect(await gateway.metric(`gen_ai_server_request_duration_seconds_count{${own}}`)).toBe(2);
  });

  test('of a broken stream count as an error, without a first token', async () => {
    one.always([head(200, SSE_HEADERS), chunk(frame(contentChunk('half'))), reset()]);
    await gateway.accessLine(await gateway.chat(chatRequest({ stream: true })));
    const own = genAi('one');
    const broken = `gen_ai_server_request_duration_seconds_count{${own},error_type="stream_incomplete"}`;
    expect(await gateway.metric(broken)).toBe(1);
    expect(await gateway.metric(`gen_ai_server_time_to_first_token_seconds_count{${own}}`)).toBe(0);
    expect(
      await gateway.metric('tollgate_streams_broken_total{upstream="one",cause="stream_incomplete"}'),
    ).toBe(1);
  });
});

test('the running version and the duration of Argon2 are exported', async () => {
  await gateway.chat(chatRequest());
  const text = await gateway.metrics();
  expect(text).toMatch(/^tollgate_build_info\{version="[^"]+",node="v[^"]+"\} 1$/m);
  expect(await gateway.metric('tollgate_argon2_duration_seconds_count{purpose="hash"}')).toBe(1);
  await until(async () => (await gateway.metrics()).includes('nodejs_eventloop_lag_p99_seconds'));
  // Only where Redis is configured: an alert on it would wake everybody else.
  expect(text).not.toMatch(/^tollgate_redis_up /m);
});

describe('the states of upstreams', () => {
  test('have series from the start, and counters begin at 0', async () => {
    expect(await gateway.metrics()).toMatch(
      /^tollgate_upstream_breaker_state\{upstream="one",model="x-\*"\} 0$/m,
    );
    for (const sample of [
      'tollgate_upstream_breaker_state{upstream="two",model="m"} 0',
      'tollgate_upstream_in_service{upstream="two"} 1',
      'tollgate_upstream_attempts_total{upstream="two",outcome="upstream_auth_error"} 0',
      'tollgate_upstream_attempts_total{upstream="two",outcome="ok"} 0',
      'tollgate_upstream_in_flight{upstream="two"} 0',
      'tollgate_upstream_extra_attempts_total{upstream="two",reason="fallback"} 0',
      'tollgate_requests_total{route="/v1/embeddings",status="502"} 0',
      'tollgate_usage_dropped_total{reason="memory"} 0',
      'tollgate_upstream_unserved_total{outcome="upstream_rate_limited"} 0',
      'tollgate_streams_broken_total{upstream="two",cause="stream_incomplete"} 0',
    ])
      expect((await gateway.metrics()).split('\n')).toContain(sample);
  });

  test('of a pattern share a series, which has the worst', async () => {
    one.always(json(500, upstreamError('no')));
    for (let each = 0; each < 6; each += 1) await gateway.chat(chatRequest({ model: 'any/bad' }));
    one.always(json(200, completion()));
    await gateway.chat(chatRequest({ model: 'any/good' }));
    // The clock of this gateway ends every cool-down at once.
    expect(await gateway.metric('tollgate_upstream_breaker_state{upstream="one",model="x-*"}')).toBe(1);
    expect(await gateway.metrics()).not.toContain('x-bad');
  });
});

describe('the catalogue', () => {
  const { catalogue, registry } = createMetrics();

  test('has every own metric once, named by the conventions of Prometheus', () => {
    const ours = registry
      .getMetricsAsArray()
      .map(({ name }) => name)
      .filter((name) => !/^(process|nodejs)_/.test(name));
    expect(catalogue.rows.map(({ name }) => name).sort()).toEqual(ours.sort());
    for (const { name, type, meaning } of catalogue.rows) {
      expect(name).toMatch(/^(tollgate|gen_ai)_[a-z0-9_]+$/);
      expect(name.endsWith('_total')).toBe(type === 'counter');
      expect(meaning, name).toMatch(/\S.* \S/);
    }
  });

  test('shares the metrics of Node, whose collectors never stop, with others of the process', () => {
    const other = createMetrics().registry;
    const names = registry.getMetricsAsArray().map(({ name }) => name);
    const shared = names.filter((name) => registry.getSingleMetric(name) === other.getSingleMetric(name));
    expect(shared).toContain('nodejs_eventloop_lag_seconds');
    expect(shared.sort()).toEqual(names.filter((name) => /^(process|nodejs)_/.test(name)).sort());
  });

  test('matches docs/metrics.md, which says of each metric what to do', async () => {
    const page = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8');
    expect(await fillMetrics(page)).toBe(page);
    const actions = actionsIn(page);
    expect(catalogue.rows.filter(({ name }) => !/^\S.* \S/.test(actions.get(name) ?? ''))).toEqual([]);
  });
});
