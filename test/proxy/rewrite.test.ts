// A request in the words of a target, as bytes.
import { afterAll, describe, expect, test } from 'vitest';
import type { UpstreamConfig } from '../../src/config/schema/config-schema.ts';
import { bodyFor, requestsUsage } from '../../src/proxy/request/request-rewrite.ts';
import { scanRequest } from '../../src/proxy/request/request-scan.ts';
import type { Target } from '../../src/proxy/routes/route-table.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { Upstream } from '../../src/upstream/upstream.ts';

const opened: Upstream[] = [];

function target(
  model: string,
  stream_usage: UpstreamConfig['stream_usage'] = 'inject',
  send_model = true,
): Target {
  const timeouts = { connect: 1, headers: 1, first_token: 1, idle: 1, total: 1 };
  const config: UpstreamConfig = {
    kind: 'builtin',
    builtin: 'echo',
    timeouts,
    max_concurrency: 1,
    stream_usage,
    send_model,
  };
  const upstream = new Upstream('up', config, 'test', createMetrics());
  opened.push(upstream);
  return { upstream, model, entry: model, weight: 1, priority: 1 };
}

afterAll(async () => {
  await Promise.all(opened.map((upstream) => upstream.close()));
});

function rewritten(body: string, to: Target): string {
  const bytes = Buffer.from(body);
  return bodyFor(to, bytes, scanRequest(bytes)).toString();
}

test('the same model is the same buffer, without a copy', () => {
  const bytes = Buffer.from('{"model":"m"}');
  expect(bodyFor(target('m'), bytes, scanRequest(bytes))).toBe(bytes);
});

test.each([
  ['{"model":"m"}', '{}'],
  ['{ "model" : "m" , "a":1}', '{  "a":1}'],
  ['{"a":":\\"",\n "model":\t"m"}', '{"a":":\\""}'],
  ['{"a":{"model":"x"},"model":"m","b":[]}', '{"a":{"model":"x"},"b":[]}'],
  ['{"\\u006dodel":"m:\\"","b":2}', '{"b":2}'],
])('an upstream whose URL names the model gets a body without: %s', (body, expected) => {
  expect(rewritten(body, target('other', 'inject', false))).toBe(expected);
});

test('a model that reads the same keeps its spelling', () => {
  expect(rewritten('{"model":"\\u006d"}', target('m'))).toBe('{"model":"\\u006d"}');
});

test.each([
  ['{"model":"a"}', 'b', '{"model":"b"}'],
  [' { "x" : 1 , "model" : "a" } ', 'say "é" \\', ' { "x" : 1 , "model" : "say \\"é\\" \\\\" } '],
  ['{"model":"a","stream":false}', 'b', '{"model":"b","stream":false}'],
  ['{"model":"a","stream":null}', 'b', '{"model":"b","stream":null}'],
])('%s for %s', (body, model, expected) => {
  expect(rewritten(body, target(model))).toBe(expected);
});

describe('usage', () => {
  test.each([
    ['{"model":"a","stream":true}', '{"model":"b","stream":true,"stream_options":{"include_usage":true}}'],
    [
      '{"stream":true,"model":"a" \n}',
      '{"stream":true,"model":"b" \n,"stream_options":{"include_usage":true}}',
    ],
    [
      '{"stream_options":{},"stream":true,"model":"a"}',
      '{"stream_options":{"include_usage":true},"stream":true,"model":"b"}',
    ],
    [
      '{"stream_options":{"x":{"y":1}},"stream":true,"model":"a"}',
      '{"stream_options":{"include_usage":true,"x":{"y":1}},"stream":true,"model":"b"}',
    ],
    [
      '{"stream_options":null,"stream":true,"model":"a"}',
      '{"stream_options":{"include_usage":true},"stream":true,"model":"b"}',
    ],
    [
      '{"stream_options":{"include_usage":null},"stream":true,"model":"a"}',
      '{"stream_options":{"include_usage":true},"stream":true,"model":"b"}',
    ],
    [
      '{"stream_options":{"x":1,"include_usage":false},"stream":true,"model":"a"}',
      '{"stream_options":{"x":1,"include_usage":true},"stream":true,"model":"b"}',
    ],
  ])('is asked for in %s', (body, expected) => {
    expect(rewritten(body, target('b'))).toBe(expected);
    expect(JSON.parse(expected)).toMatchObject({ stream_options: { include_usage: true } });
    expect(requestsUsage(target('b'), scanRequest(Buffer.from(body)))).toBe(true);
  });

  test.each([
    [
      'the client did itself',
      '{"model":"a","stream":true,"stream_options":{"include_usage":true}}',
      'inject',
    ],
    ['there is no stream', '{"model":"a","stream_options":{"include_usage":false}}', 'inject'],
    ['the upstream is set to off', '{"model":"a","stream":true}', 'off'],
  ] as const)('is not asked for where %s', (_name, body, setting) => {
    expect(rewritten(body, target('a', setting))).toBe(body);
    expect(requestsUsage(target('a', setting), scanRequest(Buffer.from(body)))).toBe(false);
  });
});
