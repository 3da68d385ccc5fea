// Traces end to end: a gateway, scripted upstreams and an OTLP receiver. The contents and parents of spans, the context that
// upstreams get, and that nothing secret is exported and nothing waits.
import { once } from 'node:events';
import * as conventions from '@opentelemetry/semantic-conventions/incubating';
import { afterEach, describe, expect, test } from 'vitest';
import { closedPort } from '../helpers/closed-port.ts';
import { type Gateway, type GatewayOptions, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  chunk,
  contentChunk,
  defaultStream,
  frame,
  HostileUpstream,
  head,
  json,
  reset,
  SSE_HEADERS,
  silence,
  sse,
  upstreamError,
} from '../helpers/hostile-upstream.ts';
import { OtlpReceiver, type ReceivedSpan } from '../helpers/otlp-receiver.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import type { RecordedRequest } from '../helpers/upstream-connection.ts';
import { until, within } from '../helpers/wait.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const PARENT = 'b7ad6b7169203331';
const SAMPLED = `00-${TRACE}-${PARENT}-01`;
const PROMPT = 'a-prompt-that-nobody-else-may-read';

const SERVER = 2;
const CLIENT = 3;

const opened: AsyncDisposable[] = [];
const keep = <T extends AsyncDisposable>(each: T): T => {
  opened.push(each);
  return each;
};
afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

/** One gateway, two upstreams, one receiver that hears of a span within milliseconds. */
async function start(env: Record<string, string> = {}, options: GatewayOptions = {}) {
  const receiver = keep(await OtlpReceiver.start());
  const [one, two] = [keep(await HostileUpstream.start()), keep(await HostileUpstream.start())];
  const gateway = keep(
    await startGateway({
      upstreams: { one: one.baseUrl, two: two.baseUrl },
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_BSP_SCHEDULE_DELAY: '10', ...env },
      ...options,
    }),
  );
  return { receiver, one, two, gateway };
}

const body = (extra: object = {}): object =>
  chatRequest({ messages: [{ role: 'user', content: PROMPT }], ...extra });

async function traceOf(gateway: Gateway, response: RawResponse): Promise<string> {
  return String((await gateway.accessLine(response))['trace_id']);
}

function of(spans: readonly ReceivedSpan[], kind: number): ReceivedSpan[] {
  return spans.filter((span) => span.kind === kind);
}

function headerOf(request: RecordedRequest | undefined, name: string): string | undefined {
  return new RegExp(`^${name}: (.*)\r$`, 'im').exec(request?.rawHead.toString('latin1') ?? '')?.[1];
}

describe('a request with a fallback', () => {
  test('is one server span with a client span per attempt, whose context each upstream gets', async () => {
    const { receiver, one, two, gateway } = await start();
    one.always(json(503, upstreamError('busy')));
    const response = await gateway.chat(body({ stream: true }), {
      headers: { traceparent: SAMPLED, tracestate: 'vendor=1,other=2' },
    });
    expect(response.status).toBe(200);
    expect(await traceOf(gateway, response)).toBe(TRACE);

    const spans = await receiver.trace(TRACE, 3);
    const [server] = of(spans, SERVER);
    expect(server).toMatchObject({
      parentId: PARENT,
      traceState: 'vendor=1,other=2',
      name: 'POST /v1/chat/completions',
      status: 0,
      attributes: {
        'http.request.method': 'POST',
        'http.route': '/v1/chat/completions',
        'http.response.status_code': 200,
        'url.scheme': 'http',
        'network.protocol.version': '1.1',
        'tollgate.request_id': response.header('x-request-id'),
        'tollgate.outcome': 'ok',
      },
      resource: { 'service.name': 'tollgate' },
    });
    const [first, second] = ['one', 'two'].map((name) =>
      of(spans, CLIENT).find((span) => span.attributes['tollgate.upstream'] === name),
    );
    expect(first).toMatchObject({
      parentId: server?.spanId,
      name: 'chat upstream-model',
      status: 2,
      events: [],
      attributes: {
        'gen_ai.operation.name': 'chat',
        'gen_ai.provider.name': 'one',
        'gen_ai.request.model': 'upstream-model',
        'gen_ai.request.stream': true,
        'server.address': '127.0.0.1',
        'server.port': one.port,
        'http.response.status_code': 503,
        'tollgate.outcome': 'upstream_error',
        'error.type': 'upstream_error',
      },
    });
    expect(second).toMatchObject({
      parentId: server?.spanId,
      status: 0,
      events: ['first_token'],
      attributes: {
        'http.request.resend_count': 1,
        'http.response.status_code': 200,
        'gen_ai.usage.input_tokens': 3,
        'gen_ai.usage.output_tokens': 5,
        'tollgate.outcome': 'ok',
      },
    });
    expect(second?.attributes['gen_ai.response.time_to_first_chunk']).toBeGreaterThan(0);
    expect(second?.attributes['error.type']).toBeUndefined();
    for (const [upstream, span] of [[one, first] as const, [two, second] as const]) {
      expect(headerOf(upstream.requests[0], 'traceparent')).toBe(`00-${TRACE}-${span?.spanId}-01`);
      expect(headerOf(upstream.requests[0], 'tracestate')).toBe('vendor=1,other=2');
    }
  });

  test('has only attributes of the conventions and its own', async () => {
    const { receiver, one, gateway } = await start();
    one.always(json(503, upstreamError('busy')));
    const trace = await traceOf(gateway, await gateway.chat(body({ stream: true })));
    const names = (await receiver.trace(trace, 3)).flatMap((span) => Object.keys(span.attributes));
    const known = new Set<unknown>(Object.values(conventions));
    // In the repository of the GenAI conventions since they moved there; the package is older.
    const moved = /^gen_ai\.(request\.stream|response\.time_to_first_chunk|usage\.reasoning\.output_tokens)$/;
    expect(
      names.filter((name) => !known.has(name) && !/^tollgate\./.test(name) && !moved.test(name)),
    ).toEqual([]);
  });
});

describe('the client’s trace', () => {
  test.each([
    ['too long', `${SAMPLED}-00`],
    ['all zero', `00-${'0'.repeat(32)}-${PARENT}-01`],
    ['of the version that is none', `ff-${TRACE}-${PARENT}-01`],
    ['in capitals', SAMPLED.toUpperCase()],
    ['empty', ''],
    ['no such thing', 'hello'],
  ])('is ignored with its state when it is %s', async (_what, traceparent) => {
    const { receiver, one, gateway } = await start();
    const headers = { traceparent, tracestate: 'vendor=1' };
    const response = await gateway.chat(body(), { headers });
    const trace = await traceOf(gateway, response);
    expect(trace).toMatch(/^[0-9a-f]{32}$/);
    expect(trace).not.toBe(TRACE);
    const [server] = of(await receiver.trace(trace, 2), SERVER);
    expect(server?.parentId).toBe('');
    expect(headerOf(one.requests[0], 'traceparent')).toContain(trace);
    expect(headerOf(one.requests[0], 'tracestate')).toBeUndefined();
  });

  test('is forwarded unchanged without tracing', async () => {
    const { one, gateway, receiver } = await start({ OTEL_SDK_DISABLED: 'true' });
    const response = await gateway.chat(body(), {
      headers: { traceparent: SAMPLED, tracestate: 'vendor=1' },
    });
    expect(headerOf(one.requests[0], 'traceparent')).toBe(SAMPLED);
    expect(headerOf(one.requests[0], 'tracestate')).toBe('vendor=1');
    expect(await gateway.accessLine(response)).not.toHaveProperty('trace_id');
    expect(receiver.requests).toEqual([]);
  });

  test('that is not sampled stays unsampled, here and at the upstream', async () => {
    const { receiver, one, gateway } = await start();
    await gateway.chat(body(), { headers: { traceparent: `00-${TRACE}-${PARENT}-00` } });
    const told = headerOf(one.requests[0], 'traceparent');
    expect(told).toMatch(new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`));
    expect(told).not.toContain(PARENT);
    const other = await traceOf(gateway, await gateway.chat(body()));
    await receiver.trace(other, 2);
    expect(receiver.spans.filter((span) => span.traceId === TRACE)).toEqual([]);
  });
});

test('a broken answer is an error on both spans, and a client that disconnects is none', async () => {
  const { receiver, one, gateway } = await start();
  one.next([head(200, SSE_HEADERS), chunk(frame(contentChunk('half'))), reset()]);
  const trace = await traceOf(gateway, await gateway.chat(body({ stream: true })));
  const broken = await receiver.trace(trace, 2);
  for (const span of broken)
    expect(span).toMatchObject({ status: 2, attributes: { 'error.type': 'stream_incomplete' } });
  expect(of(broken, CLIENT)[0]?.events).toEqual(['first_token']);

  one.next(sse(defaultStream(), { pause: 60_000 }));
  const client = await gateway.open(body({ stream: true }), { headers: { traceparent: SAMPLED } });
  await one.request(1);
  client[Symbol.dispose]();
  const left = await receiver.trace(TRACE, 2);
  for (const span of left) {
    expect(span).toMatchObject({ status: 0, attributes: { 'tollgate.outcome': 'client_closed' } });
    expect(span.attributes).not.toHaveProperty('error.type');
  }
});

test('of two concurrent attempts the slower one ends without an error', async () => {
  const targets = ['one', 'two'].map((upstream, index) => ({ upstream, model: 'm', priority: index + 1 }));
  const models = { 'test-model': { targets, hedge: { after: '10ms' } } };
  const { receiver, one, gateway } = await start({}, { config: { models } });
  one.always([head(200, SSE_HEADERS), silence()]);
  const trace = await traceOf(gateway, await gateway.chat(body({ stream: true })));
  const spans = await receiver.trace(trace, 3);
  const ends = of(spans, CLIENT).map(({ status, attributes }) => [
    attributes['tollgate.upstream'],
    attributes['tollgate.outcome'],
    status,
  ]);
  expect(ends.sort()).toEqual([
    ['one', 'superseded', 0],
    ['two', 'ok', 0],
  ]);
  expect(new Set(of(spans, CLIENT).map((span) => span.parentId)).size).toBe(1);
});

test('a rejection is a server span alone, without an error and without client input', async () => {
  const { receiver, gateway } = await start();
  const response = await gateway.chat(body(), { key: null });
  expect(response.status).toBe(401);
  const [span] = await receiver.trace(await traceOf(gateway, response), 1);
  expect(span).toMatchObject({
    kind: SERVER,
    status: 0,
    attributes: { 'http.response.status_code': 401, 'tollgate.outcome': 'missing_api_key' },
  });
  using client = await gateway.connect();
  await client.send({ method: 'GET', target: '/somewhere/secret-in-a-path?key=secret-in-a-query' });
  const lost = await client.response();
  const [unknown] = await receiver.trace(await traceOf(gateway, lost), 1);
  expect(unknown?.name).toBe('GET');
  expect(receiver.bytes.includes('secret-in-a')).toBe(false);
});

test('no secret is exported', async () => {
  const models = { 'any/*': { targets: [{ upstream: 'one', model: '*' }] } };
  const { receiver, one, gateway } = await start({}, { config: { models } });
  const key = await gateway.key();
  one.always(json(400, upstreamError(`no: credential-of-one ${PROMPT}`)));
  const response = await gateway.chat(body({ model: `any/${key}` }), { headers: { 'user-agent': 'words' } });
  const trace = await traceOf(gateway, response);
  const spans = await receiver.trace(trace, 2);
  expect(of(spans, CLIENT)[0]?.name).toMatch(/^chat /);
  for (const secret of [PROMPT, key, key.slice(8), 'credential-of-one', 'words', 'Say hello'])
    expect(receiver.bytes.includes(secret), secret).toBe(false);
});

describe('settings', () => {
  test('set the service name, its attributes, the path and the credential of the collector', async () => {
    const receiver = keep(await OtlpReceiver.start());
    const { gateway } = await start({
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${receiver.url}/own/path`,
      OTEL_EXPORTER_OTLP_HEADERS: 'x-token=a%20b',
      OTEL_SERVICE_NAME: 'front',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test,service.name=ignored',
    });
    await gateway.chat(body(), { headers: { traceparent: SAMPLED } });
    const [span] = await receiver.trace(TRACE, 2);
    expect(span?.resource).toMatchObject({
      'service.name': 'front',
      'deployment.environment.name': 'test',
    });
    expect(receiver.requests[0]).toMatchObject({ path: '/own/path', headers: { 'x-token': 'a b' } });
    expect(gateway.output).not.toContain('a b');
  });

  test('sample none, and follow the client’s decision when parent-based', async () => {
    const { receiver, gateway } = await start({ OTEL_TRACES_SAMPLER: 'parentbased_always_off' });
    await gateway.chat(body());
    await gateway.chat(body(), { headers: { traceparent: SAMPLED } });
    await receiver.trace(TRACE, 2);
    expect(new Set(receiver.spans.map((span) => span.traceId))).toEqual(new Set([TRACE]));
  });

  test('that are invalid cause warnings, and the gateway starts', async () => {
    const { gateway } = await start({ OTEL_EXPORTER_OTLP_ENDPOINT: 'nowhere', OTEL_TRACES_SAMPLER: 'some' });
    expect((await gateway.chat(body())).status).toBe(200);
    expect(gateway.logs.map((line) => line['msg'])).toContain(
      'OTEL_EXPORTER_OTLP_ENDPOINT is not an http or https URL; tracing is off',
    );
  });
});

describe('an unavailable collector', () => {
  test('loses spans, which are counted and logged once, and fails no request', async () => {
    const { gateway } = await start({
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${await closedPort()}`,
      OTEL_EXPORTER_OTLP_TIMEOUT: '200',
    });
    for (let each = 0; each < 5; each += 1) expect((await gateway.chat(body())).status).toBe(200);
    const failed = () => gateway.metric('tollgate_trace_spans_total{result="failed"}');
    await until(async () => (await failed()) === 10, 'the spans to be given up');
    expect(
      gateway.logs.filter((line) => String(line['msg']).startsWith('failed to export spans')),
    ).toHaveLength(1);
  });

  test('that is silent fills a bounded queue, and does not delay shutdown', async () => {
    const { receiver, gateway } = await start({
      OTEL_BSP_MAX_QUEUE_SIZE: '4',
      OTEL_EXPORTER_OTLP_TIMEOUT: '60000',
    });
    receiver.answer = () => undefined;
    await gateway.chat(body());
    await until(() => receiver.requests.length > 0, 'the first export');
    for (let each = 0; each < 5; each += 1) expect((await gateway.chat(body())).status).toBe(200);
    const dropped = () => gateway.metric('tollgate_trace_spans_total{result="dropped"}');
    await until(async () => (await dropped()) === 8, 'the spans beyond the bound to be dropped');
    const since = performance.now();
    await gateway.close();
    expect(performance.now() - since).toBeLessThan(20_000);
  });
});

test('a silent collector does not keep a process from exiting', async () => {
  const receiver = keep(await OtlpReceiver.start());
  receiver.answer = () => undefined;
  const gateway = keep(
    await startGateway({
      process: true,
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_EXPORTER_OTLP_TIMEOUT: '1000' },
    }),
  );
  expect((await gateway.chat(body())).status).toBe(200);
  const exit = once(gateway.child, 'exit');
  gateway.child.kill('SIGTERM');
  expect((await within(exit, 'the end of the process'))[0]).toBe(0);
  expect(receiver.requests).toHaveLength(1);
});

test('queued spans are exported at shutdown', async () => {
  const { receiver, gateway } = await start({ OTEL_BSP_SCHEDULE_DELAY: '600000' });
  await gateway.chat(body(), { headers: { traceparent: SAMPLED } });
  expect(receiver.spans).toEqual([]);
  await gateway.close();
  expect(receiver.spans.filter((span) => span.traceId === TRACE)).toHaveLength(2);
});
