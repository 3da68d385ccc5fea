// Bytes beside the model's name, on the endpoints beside chat: any body to the upstream, any stream to the client, wherever the
// network cuts it.
import { isUtf8 } from 'node:buffer';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { UpstreamConfig } from '../../src/config/schema/config-schema.ts';
import { GatewayError } from '../../src/errors.ts';
import { JSON_ENDPOINTS, RESPONSES } from '../../src/proxy/endpoints/json-endpoints.ts';
import { type RequestScan, wants } from '../../src/proxy/request/request-members.ts';
import { bodyFor } from '../../src/proxy/request/request-rewrite.ts';
import { scanRequest } from '../../src/proxy/request/request-scan.ts';
import { createMetrics } from '../../src/telemetry/metrics/all-metrics.ts';
import { Upstream } from '../../src/upstream/upstream.ts';
import { cuts, pieces, requestValue, spelled } from '../fuzz/generators.ts';
import { isObject } from '../fuzz/oracles.ts';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  HostileUpstream,
  head,
  json,
  lastChunk,
  SSE_HEADERS,
  type Step,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { eventFrame, responseEvents, responseObject } from '../helpers/recorded.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 100);
let upstream: HostileUpstream;
let gateway: Gateway;

beforeAll(async () => {
  upstream = await HostileUpstream.start();
  gateway = await startGateway({ now: fleetingClock(), upstreams: { up: upstream.baseUrl } });
  await gateway.key();
});
afterAll(async () => {
  await gateway?.close();
  await upstream?.close();
});

async function post(target: string, body: Buffer | object | string): Promise<RawResponse> {
  using client = await gateway.connect();
  const headers = { authorization: `Bearer ${await gateway.key()}` };
  return await client.ask({ target, headers, body });
}

describe.each(JSON_ENDPOINTS)('a request of $path', (endpoint) => {
  const config: UpstreamConfig = {
    kind: 'builtin',
    builtin: 'echo',
    timeouts: { connect: 1, headers: 1, first_token: 1, idle: 1, total: 1 },
    max_concurrency: 1,
    stream_usage: 'off',
  };
  const up = new Upstream('up', config, 'test', createMetrics());
  afterAll(() => up.close());

  test('differs from what the client sent in the name of the model, and in nothing else', () => {
    let named = 0;
    let unnamed = 0;
    let inPieces = 0;
    // A body of some length is not copied, and white space alone makes it as long.
    const space = fc.constantFrom('', ' '.repeat(2 * 1024));
    fc.assert(
      fc.property(spelled(requestValue), space, fc.string(), (json, spaces, model) => {
        const text = json + spaces;
        const body = Buffer.from(text);
        const scan = scanned(body);
        fc.pre(scan !== undefined && isUtf8(body));
        const spliced = bodyFor({ upstream: up, model, entry: model, weight: 1, priority: 1 }, body, scan);
        if (!Buffer.isBuffer(spliced)) inPieces += 1;
        const sent = Buffer.isBuffer(spliced) ? spliced : spliced.toBuffer();
        const before: unknown = JSON.parse(text);
        expect(isObject(before)).toBe(true);
        expect(JSON.parse(sent.toString())).toEqual({ ...Object(before), model });
        if (model === scan.model) return;
        const token = Buffer.from(JSON.stringify(model));
        const at = scan.modelSpan ?? { start: scan.insertAt, end: scan.insertAt };
        const isNamed = scan.modelSpan !== null;
        if (isNamed) named += 1;
        else unnamed += 1;
        const member = `${scan.isEmpty ? '' : ','}"model":`;
        const put = isNamed ? token : Buffer.concat([Buffer.from(member), token]);
        const expected = Buffer.concat([body.subarray(0, at.start), put, body.subarray(at.end)]);
        expect(sent.equals(expected)).toBe(true);
      }),
      { numRuns: RUNS },
    );
    expect(named).toBeGreaterThan(0);
    expect(inPieces).toBeGreaterThan(0);
    if (endpoint.wanted.defaultModel !== undefined) expect(unnamed).toBeGreaterThan(0);
  });

  function scanned(body: Buffer): RequestScan | undefined {
    try {
      return scanRequest(body, endpoint.wanted);
    } catch (error) {
      if (error instanceof GatewayError) return undefined;
      throw error;
    }
  }
});

test.each([
  ['{}', '{"model":"x"}'],
  [' { } ', ' { "model":"x"} '],
  ['{"model":null,"input":1}', '{"model":"x","input":1}'],
  ['{"input":[1e3,-0] }', '{"input":[1e3,-0] ,"model":"x"}'],
])('a default is named where it has another name: %s', (text, expected) => {
  const body = Buffer.from(text);
  const scan = scanRequest(body, wants([], 'd'));
  const target = { upstream: { config: { send_model: true } }, model: 'x' };
  expect(scan.model).toBe('d');
  expect(bodyFor(Object(target), body, scan, false).toString()).toBe(expected);
  expect(bodyFor(Object({ ...target, model: 'd' }), body, scan, false)).toBe(body);
});

test.each([
  '{"model":"m","previous_response_id":"a","previous_response_id":"b"}',
  '{"model":"m","previous_response_id":"a","Previous_Response_Id":"b"}',
  '{"model":"m","store":true,"\\u0073tore":false}',
])('what decides where a request goes may stand in it once: %s', (text) => {
  expect(() => scanRequest(Buffer.from(text), RESPONSES.wanted)).toThrow(
    expect.objectContaining({ code: 'duplicate_parameter' }),
  );
});

test('a body of odd spelling reaches the upstream as it is', async () => {
  const sent =
    '{ "input" : [ {"role":"user","content":"\\u0041\\ud83d\\ude00"} ],\n"seed":9223372036854775807, "x":{"10":1,"2":-0,"y":1.0},\t"model" :"test-model"}';
  upstream.next(json(200, responseObject()));
  expect((await post('/v1/responses', sent)).status).toBe(200);
  const request = await upstream.request(upstream.requests.length - 1);
  expect(request.body.toString()).toBe(sent.replace('test-model', 'upstream-model'));
});

test('a whole answer of odd spelling reaches the client as it is', async () => {
  const sent =
    '\n{ "id":"resp_1", "object":"response","error" : null,"created_at":1.0e9,"model" : "\\u0061-2024", "output":[{"model":"inner","n":12345678901234567890}],"usage":{"input_tokens":1,"output_tokens":1} }\n';
  upstream.next(json(200, sent));
  const answer = await post('/v1/responses', { model: 'test-model', input: 'x' });
  expect(answer.text()).toBe(sent.replace('"\\u0061-2024"', '"test-model"'));
});

test.each(['\n', '\r\n', '\r'])(
  'a stream with line ends %j is the same, however it is cut',
  async (lineEnd) => {
    const odd = { big: '9223372036854775807', text: 'ü😀\u2028' };
    const frames = [
      ': a comment\n\n',
      ...responseEvents(['ü', '😀']).map((event) => eventFrame({ ...event, odd })),
    ];
    const sent = Buffer.from(frames.join('').replaceAll('\n', lineEnd));
    const expected = sent.toString().replaceAll('"upstream-model"', '"test-model"');
    const samples = fc.sample(cuts, { numRuns: 6, seed: 7 });
    for (const places of samples) {
      const stream: Step = async (c) => {
        for (const piece of pieces(sent, places)) if (piece.length > 0) await c.chunk(piece);
      };
      upstream.next([head(200, SSE_HEADERS), stream, lastChunk()]);
      const answer = await post('/v1/responses', { model: 'test-model', input: 'x', stream: true });
      expect([answer.complete, answer.text()]).toEqual([true, expected]);
    }
  },
);

test('what follows the last event is not relayed, and costs the client no waiting', async () => {
  const sent = responseEvents().map(eventFrame).join('');
  upstream.next([head(200, SSE_HEADERS), (c) => c.chunk(`${sent}data: [DONE]\n\n`), (c) => c.silence()]);
  const answer = await post('/v1/responses', { model: 'test-model', input: 'x', stream: true });
  expect([answer.complete, answer.text()]).toEqual([
    true,
    sent.replaceAll('"upstream-model"', '"test-model"'),
  ]);
});
