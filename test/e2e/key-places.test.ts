// A key of this gateway, or a credential of the operator's, in places where neither belongs: a client that mixed up its variables, a
// vendor that quotes what it was sent. Nothing of it is in the log, in metrics, in traces, or told to a client.
import { afterEach, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  contentChunk,
  frame,
  HostileUpstream,
  json,
  roleChunk,
  type Script,
  SSE_HEADERS,
} from '../helpers/hostile-upstream.ts';
import { OtlpReceiver } from '../helpers/otlp-receiver.ts';
import type { RequestInput } from '../helpers/raw-client.ts';
import { until } from '../helpers/wait.ts';

const CREDENTIAL = 'sk-AAA/BBB+ccc-dddEEE';

const opened: AsyncDisposable[] = [];
const keep = <T extends AsyncDisposable>(each: T): T => {
  opened.push(each);
  return each;
};
afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

describe('a key that a client puts somewhere', () => {
  test('is in no log, metric, trace and answer', async () => {
    const receiver = keep(await OtlpReceiver.start());
    const upstream = keep(await HostileUpstream.start());
    const gateway = keep(
      await startGateway({
        upstreams: { up: upstream.baseUrl },
        env: { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_BSP_SCHEDULE_DELAY: '10' },
        config: {
          models: { '*': { targets: [{ upstream: 'up', model: '*' }] } },
          cors: { origins: ['*'] },
        },
      }),
    );
    const key = await gateway.key();
    const encoded = key.replace(/./g, (digit) => `%${digit.charCodeAt(0).toString(16)}`);
    const authorization = `Bearer ${key}`;
    const chat = { method: 'POST', target: '/v1/chat/completions', body: chatRequest() };
    const get = { method: 'GET' };
    const requests: (RequestInput & { readonly headers?: Readonly<Record<string, string>> })[] = [
      { ...chat, headers: { 'x-request-id': key } },
      { ...chat, headers: { 'x-request-id': `id-${key.toUpperCase()}.1` } },
      { ...chat, headers: { traceparent: `00-${key}-b7ad6b7169203331-01` } },
      {
        ...chat,
        headers: { traceparent: `00-${'1'.repeat(32)}-b7ad6b7169203331-01`, tracestate: `v=${key}` },
      },
      {
        ...chat,
        headers: { 'user-agent': key, referer: `https://x/${key}`, origin: `https://${key}.example` },
      },
      {
        ...chat,
        headers: { 'x-forwarded-for': key, forwarded: `for=${key}`, cookie: `a=${key}`, [`x-${key}`]: key },
      },
      { ...chat, headers: { 'content-type': `application/json; x=${key}` } },
      { ...chat, headers: { 'content-type': `text/${key}` } },
      { ...chat, headers: { 'content-encoding': key } },
      ...[key, key.toUpperCase(), `a-${key}`, `${key}/${key}`, encoded].flatMap((model) => [
        { ...chat, body: chatRequest({ model }) },
        { ...chat, body: chatRequest({ model, stream: true }) },
      ]),
      { ...chat, body: chatRequest({ user: key, messages: [{ role: 'user', content: key }], [key]: key }) },
      { ...chat, body: chatRequest({ messages: key }) },
      { ...chat, target: `/v1/chat/completions?key=${key}` },
      { ...get, target: `/v1/models/${key}` },
      { ...get, target: `/v1/models/${encoded}` },
      { ...get, target: `/v1/responses/${key}` },
      { ...get, target: `/v1/${key}` },
      { ...get, target: `/${encoded}?${key}=${key}` },
      { ...get, target: `/v1/realtime?model=${key}` },
      { ...get, target: `/v1/usage?days=${key}` },
    ];
    for (const [index, { headers = {}, ...request }] of requests.entries()) {
      using client = await gateway.connect();
      const response = await client.ask({ ...request, headers: { ...headers, authorization } });
      const head = JSON.stringify(response.header('x-request-id') ?? '');
      expect([index, head.toLowerCase().includes(key)]).toEqual([index, false]);
      if (response.status >= 400)
        expect([index, response.text().toLowerCase().includes(key)]).toEqual([index, false]);
      await gateway.accessLine(response);
    }
    // Of each request a span of the gateway's own came, or none will.
    await until(() => receiver.spans.length > 0);
    const metrics = await gateway.metrics();
    await gateway.close();
    const traces = [receiver.bytes.toString('latin1'), receiver.bytes.toString('hex')];
    const seen = [gateway.output, metrics, ...traces].join('\n').toLowerCase();
    expect(seen).toContain('"client_request_id"');
    expect(seen.includes(key)).toBe(false);
    expect(seen.includes(encoded)).toBe(false);
  });

  test('as the name of a model behind a pattern is in no metric and not in the state of the upstreams', async () => {
    const upstream = keep(await HostileUpstream.start(json(500, { error: { message: 'no' } })));
    const gateway = keep(
      await startGateway({
        upstreams: { up: upstream.baseUrl },
        config: { models: { '*': { targets: [{ upstream: 'up', model: '*' }] } } },
      }),
    );
    const key = await gateway.key();
    for (let i = 0; i < 6; i += 1) await gateway.chat(chatRequest({ model: key }));
    const upstreams = await (await fetch(`${gateway.adminUrl}/upstreams`)).text();
    expect(upstreams).toContain(key.slice(0, 8));
    for (const text of [upstreams, await gateway.metrics(), gateway.output])
      expect(text.includes(key)).toBe(false);
  });
});

const escaped = (text: string): string =>
  text.replace(/./g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
const QUOTATIONS: readonly (readonly [string, string])[] = [
  ['as it is', CREDENTIAL],
  ['with an escaped slash', CREDENTIAL.replaceAll('/', '\\/')],
  ['in escapes throughout', escaped(CREDENTIAL)],
  ['in JSON in a string', JSON.stringify(`{"h":"${escaped(CREDENTIAL)}"}`).slice(1, -1)],
  ['percent-encoded', encodeURIComponent(CREDENTIAL)],
  ['in Base64', Buffer.from(`Bearer ${CREDENTIAL}`).toString('base64')],
];

describe('a credential that an upstream quotes', () => {
  async function start(script: Script): Promise<Gateway> {
    const upstream = keep(await HostileUpstream.start(script));
    return keep(
      await startGateway({
        upstreams: { up: upstream.baseUrl },
        config: { upstreams: { up: { api_key: CREDENTIAL } }, retry: { attempts: 1 } },
      }),
    );
  }

  test.each(QUOTATIONS)('in an error is not told: %s', async (_name, quotation) => {
    const text = `{"error":{"message":"Bad key ${quotation}.","type":"x","param":null,"code":null}}`;
    const gateway = await start((c) =>
      c.send(
        `HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
      ),
    );
    const response = await gateway.chat(chatRequest());
    expect([response.status, response.text().includes(quotation)]).toEqual([400, false]);
    expect(response.text()).not.toContain(CREDENTIAL);
  });

  test.each(QUOTATIONS)('in an error within a stream is not told: %s', async (_name, quotation) => {
    const own = { model: 'test-model' };
    const gateway = await start(async (c) => {
      await c.head(200, SSE_HEADERS);
      await c.chunk(frame(roleChunk(own)) + frame(contentChunk('word', own)));
      await c.chunk(`data: {"error":{"message":"Bad key ${quotation}.","type":"x"}}\n\n`);
      await c.lastChunk();
    });
    const response = await gateway.chat(chatRequest({ stream: true }));
    expect(response.text()).toContain('word');
    expect(response.text()).toContain('"error"');
    expect(response.text().includes(quotation)).toBe(false);
  });

  test('in what is logged of its answer is not logged', async () => {
    const gateway = await start((c) =>
      c.send(
        `HTTP/1.1 200 OK\r\nx-request-id: ${CREDENTIAL}\r\ncontent-type: text/${CREDENTIAL}\r\ncontent-length: 2\r\n\r\nok`,
      ),
    );
    const response = await gateway.chat(chatRequest());
    expect(response.status).toBe(502);
    expect(await gateway.accessLine(response)).not.toHaveProperty('upstream_request_id');
    expect(gateway.output.toLowerCase()).not.toContain(CREDENTIAL.toLowerCase());
  });
});
