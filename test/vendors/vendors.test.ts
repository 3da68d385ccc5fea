// Every recipe of examples/vendors in front of an upstream that answers as its vendor does: whole answers, streams, each error, rate
// limits. What the client reads, in bytes and by the official SDK, and what the gateway counts.
import OpenAI from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { HostileUpstream, json, type Script, sse } from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { CREDENTIAL, recipeFor } from './recipe.ts';
import type { Seen, VendorError, VendorFixture } from './vendor-fixture.ts';
import { errorsOf, VENDORS } from './vendors.ts';

/** Of the vendor's headers, those that reach a client. */
const RELAYED = ['retry-after', 'retry-after-ms', 'x-should-retry', 'openai-processing-ms', 'openai-version'];

describe.each(VENDORS)('$recipe', (vendor) => {
  let upstream: HostileUpstream;
  let gateway: Gateway;
  let client: OpenAI;
  let now = Date.now();

  beforeAll(async () => {
    upstream = await HostileUpstream.start();
    gateway = await startGateway({ yaml: recipeFor(vendor.recipe, upstream.url), now: () => now });
    client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.key(), maxRetries: 0 });
  });
  afterAll(async () => {
    await gateway?.close();
    await upstream?.close();
  });
  beforeEach(() => {
    // No cool-down of an earlier test is left.
    now += 3_600_000;
  });

  const request = (extra: object = {}) => ({
    model: vendor.model,
    messages: [{ role: 'user' as const, content: 'Say hello' }],
    ...extra,
  });
  const whole: Script = json(200, vendor.answer.body, { ...vendor.answer.headers });
  const streamed: Script = sse(vendor.stream.frames, {
    done: false,
    headers: chunked(vendor.stream.headers),
  });

  describe('a whole answer', () => {
    test('reaches the client byte for byte, with the public name of the model', async () => {
      upstream.always(whole);
      const answer = await gateway.chat(request());
      expect([answer.status, answer.header('content-type')]).toEqual([200, 'application/json']);
      expect(answer.text()).toBe(renamed(vendor.answer.body, vendor));
      expectHeaders(answer, vendor.answer.headers);
      const line = await gateway.accessLine(answer);
      expect([line['prompt_tokens'], line['completion_tokens']]).toEqual([...vendor.answer.usage]);
      expect(line['estimated']).not.toBe(true);
      expect(line['upstream_request_id']).toBe(vendor.requestId?.[1]);
    });

    test('was asked for where and as the vendor expects it', async () => {
      upstream.always(whole);
      const at = upstream.requests.length;
      const [model, upstreamModel] = vendor.members.model ?? [vendor.model, vendor.upstreamModel];
      const { headers = {} } = vendor.members;
      const others = { 'x-title': 'App', 'api-key': await gateway.key(), cookie: 'a=b' };
      const sent = request({ ...vendor.members.sent, model });
      const answer = await gateway.chat(sent, { headers: { ...others, ...headers } });
      expect([answer.status, answer.text()]).toEqual([200, renamed(vendor.answer.body, { model })]);
      const asked = await upstream.request(at);
      expect(asked.target).toBe(vendor.target);
      expect(asked.header('authorization')).toBe(CREDENTIAL);
      for (const name of Object.keys({ ...others, ...headers }))
        expect([name, asked.header(name)]).toEqual([name, headers[name]]);
      expect(asked.json()).toEqual(request({ ...vendor.members.received, model: upstreamModel }));
    });

    test.each(Object.entries(vendor.members.refused ?? {}))(
      'is not asked for with %s',
      async (name, value) => {
        const at = upstream.requests.length;
        const answer = await gateway.chat(request({ [name]: value }));
        expect([answer.status, errorOf(answer)]).toMatchObject([
          400,
          { code: 'unsupported_parameter', param: name },
        ]);
        expect(upstream.requests).toHaveLength(at);
      },
    );
  });

  describe('a stream', () => {
    test('for a client that asked for usage: byte for byte, with the public name of the model', async () => {
      upstream.always(streamed);
      const at = upstream.requests.length;
      const answer = await gateway.chat(request({ stream: true, stream_options: { include_usage: true } }));
      const asked = await upstream.request(at);
      expect(asked.body.includes('stream_options')).toBe(vendor.stream.asksForUsage);
      expect([answer.status, answer.complete]).toEqual([200, true]);
      expect(answer.header('content-type')).toMatch(/^text\/event-stream/);
      expect(answer.text()).toBe(renamed(vendor.stream.frames.join(''), vendor));
      expectHeaders(answer, vendor.stream.headers);
      await expectUsage(answer, vendor.stream.usage);
    });

    test('for a client that did not: its usage is counted, and shown only where it comes unasked', async () => {
      upstream.always(streamed);
      const at = upstream.requests.length;
      const answer = await gateway.chat(request({ stream: true }));
      const asked = await upstream.request(at);
      expect(asked.json()).toEqual({
        ...request({ stream: true }),
        model: vendor.upstreamModel,
        ...(vendor.stream.asksForUsage ? { stream_options: { include_usage: true } } : {}),
      });
      const chunks = chunksOf(answer);
      expect(textOf(chunks)).toBe(vendor.stream.text);
      expect(chunks.some(({ usage }) => Boolean(usage))).toBe(!vendor.stream.asksForUsage);
      expect(answer.text()).toMatch(/data: \[DONE\]\n\n$/);
      await expectUsage(answer, vendor.stream.usage);
    });
  });

  const { responses } = vendor;
  if (responses !== undefined)
    test('a stream of responses: byte for byte, with the public name of the model', async () => {
      upstream.next(sse(responses.frames, { done: false }));
      const at = upstream.requests.length;
      using connection = await gateway.connect();
      const answer = await connection.ask({
        target: '/v1/responses',
        headers: { authorization: `Bearer ${await gateway.key()}` },
        body: { model: responses.model, input: 'Say hello', stream: true, store: false },
      });
      expect((await upstream.request(at)).target).toBe(responses.target);
      expect([answer.status, answer.complete]).toEqual([200, true]);
      expect(answer.text()).toBe(renamed(responses.frames.join(''), responses));
      await expectUsage(answer, responses.usage);
      expect((await gateway.accessLine(answer))['outcome']).toBe('ok');
    });

  describe('the official SDK', () => {
    test('reads a whole answer', async () => {
      upstream.always(whole);
      const answer = await client.chat.completions.create(request());
      expect(answer.choices[0]?.message.content).toBe(vendor.answer.text);
      expect(answer.model).toBe(vendor.model);
      expect(answer.usage?.prompt_tokens).toBe(vendor.answer.usage[0]);
    });

    test('reads a stream, chunk by chunk and by its helper', async () => {
      upstream.always(streamed);
      let text = '';
      const chunks = await client.chat.completions.create({ ...request(), stream: true });
      for await (const chunk of chunks) {
        const content: unknown = chunk.choices[0]?.delta.content;
        if (typeof content === 'string') text += content;
      }
      expect(text).toBe(vendor.stream.text);
      const final = await client.chat.completions.stream(request()).finalChatCompletion();
      expect(final.choices[0]?.message.content).toContain(vendor.stream.text.slice(-4));
    });
  });

  describe.each(errorsOf(vendor))('$status, $kind: $source', (error) => {
    test.each([false, true])('is answered as promised (stream: %s)', async (stream) => {
      upstream.always(scriptOf(error));
      const answer = await gateway.chat(request({ stream }));
      expectSeen(answer, error.seen, error);
      if (typeof error.seen === 'object')
        expect(errorOf(answer)).toMatchObject({
          type: expect.stringMatching(/_error$/),
          param: null,
          code: null,
        });
      expect(answer.header('content-type')).toBe('application/json');
      if (error.seen === 'verbatim' || typeof error.seen === 'object') {
        const waits = error.status === 429 || error.status === 503;
        expect(answer.header('retry-after')).toBe(
          waits ? (error.retryAfter ?? '1') : error.headers?.['retry-after'],
        );
        expectHeaders(answer, error.headers ?? {});
      } else {
        expect(answer.header('x-should-retry')).toBe('false');
        expect(answer.header('retry-after')).toBeUndefined();
      }
      await expectUsage(answer, [0, 0]);
    });

    test('has the right class in the official SDK', async () => {
      upstream.always(scriptOf(error));
      const thrown = await client.chat.completions.create(request()).catch((reason: unknown) => reason);
      expect(thrown).toBeInstanceOf(OpenAI.APIError);
      if (!(thrown instanceof OpenAI.APIError)) return;
      expect(thrown.status).toBe(
        typeof error.seen === 'string' && error.seen !== 'verbatim' ? 406 : error.status,
      );
      expect(thrown.constructor).toBe(classOf(thrown.status));
      expect(thrown.message).not.toContain('no body');
    });

    if (error.kind === 'rate limit') {
      const { coolDown } = error;
      test(`leaves the target alone for ${coolDown ?? 0} s`, async () => {
        upstream.always(scriptOf(error));
        await gateway.chat(request());
        const at = upstream.requests.length;
        upstream.always(whole);
        if (coolDown !== undefined) {
          now += coolDown * 1000 - 1;
          const early = await gateway.chat(request());
          expect([early.status, errorOf(early)]).toMatchObject([429, { code: 'upstream_rate_limited' }]);
          expect(upstream.requests).toHaveLength(at);
          now += 1;
        }
        expect((await gateway.chat(request())).status).toBe(200);
        expect(upstream.requests).toHaveLength(at + 1);
      });
    }
  });

  describe.each(vendor.breaks ?? [])('$what: $source', (broken) => {
    const isWhole = broken.frames.length === 1 && broken.frames[0]?.startsWith('{') === true;
    const script: Script = isWhole
      ? json(200, broken.frames[0] ?? '')
      : sse(broken.frames, { done: false, headers: chunked(vendor.stream.headers) });

    test('is told as promised', async () => {
      upstream.always(script);
      const answer = await gateway.chat(request({ stream: !isWhole }));
      const frames = dataOf(renamed(broken.frames.join(''), vendor));
      if (broken.seen === 'frames') {
        expect([answer.status, answer.complete]).toEqual([200, true]);
        expect(dataOf(answer.text())).toEqual(frames);
      } else if (broken.seen === 'cut') {
        expect([answer.status, answer.complete]).toEqual([200, false]);
        expect(dataOf(answer.text())).toEqual([
          ...frames,
          expect.stringContaining('"code":"stream_incomplete"'),
        ]);
      } else expectSeen(answer, broken.seen, { status: 200, body: broken.frames.join('') });
      expect((await gateway.accessLine(answer))['outcome']).not.toBe('ok');
      await expectUsage(answer, broken.usage ?? [0, 0]);
    });

    test('raises in the official SDK', async () => {
      upstream.always(script);
      const call = async (): Promise<void> => {
        if (isWhole) await client.chat.completions.create(request());
        else for await (const _ of await client.chat.completions.create({ ...request(), stream: true }));
      };
      await expect(call()).rejects.toBeInstanceOf(OpenAI.APIError);
    });
  });

  async function expectUsage(answer: RawResponse, [prompt, completion]: readonly [number, number]) {
    const line = await gateway.accessLine(answer);
    expect([line['prompt_tokens'] ?? 0, line['completion_tokens'] ?? 0]).toEqual([prompt, completion]);
  }
});

function chunked(headers: Readonly<Record<string, string>>): Record<string, string> {
  return { ...headers, 'transfer-encoding': 'chunked' };
}

function scriptOf({ status, body, headers, contentType }: VendorError): Script {
  return json(status, body, {
    ...(contentType === undefined ? {} : { 'content-type': contentType }),
    ...headers,
  });
}

/** With the public name of the model, wherever the vendor writes its own. */
function renamed(text: string, { model }: Pick<VendorFixture, 'model'>): string {
  return text.replaceAll(/"model":( ?)"[^"]*"/g, `"model":$1"${model}"`);
}

/** None of the vendor's headers but those of the list, and these unchanged. */
function expectHeaders(answer: RawResponse, sent: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(sent)) {
    if (['content-type', 'cache-control', 'vary', 'x-accel-buffering'].includes(name)) continue;
    if (name.startsWith('access-control-')) continue;
    if (RELAYED.includes(name)) expect([name, answer.header(name)]).toEqual([name, value]);
    else expect([name, answer.header(name)]).not.toEqual([name, value]);
  }
}

function expectSeen(
  answer: RawResponse,
  seen: Seen,
  sent: { readonly status: number; readonly body: string },
): void {
  if (seen === 'verbatim') expect([answer.status, answer.text()]).toEqual([sent.status, sent.body]);
  else if (typeof seen === 'object') {
    expect(answer.status).toBe(seen.status ?? sent.status);
    const message = seen.text === '' ? expect.stringMatching(/./) : seen.text;
    expect(errorOf(answer)).toMatchObject({ message });
  } else {
    expect([answer.status, errorOf(answer)]).toMatchObject([
      406,
      { code: seen, type: 'server_error', param: null },
    ]);
  }
}

function errorOf(answer: RawResponse): unknown {
  const body = answer.json();
  return typeof body === 'object' && body !== null && 'error' in body ? body.error : undefined;
}

interface Chunk {
  readonly usage?: unknown;
  readonly choices: readonly { readonly delta?: { readonly content?: unknown } }[];
}

function dataOf(text: string): string[] {
  return [...text.matchAll(/^data: (.*)$/gm)].map(([, data = '']) => data);
}

function chunksOf(answer: RawResponse): Chunk[] {
  return dataOf(answer.text())
    .filter((data) => data !== '[DONE]')
    .map((data): Chunk => JSON.parse(data));
}

function textOf(chunks: readonly Chunk[]): string {
  return chunks
    .map(({ choices }) => choices[0]?.delta?.content)
    .filter((content) => typeof content === 'string')
    .join('');
}

/** The class of the SDK for a status. */
function classOf(status: number | undefined): unknown {
  switch (status) {
    case 400:
      return OpenAI.BadRequestError;
    case 403:
      return OpenAI.PermissionDeniedError;
    case 404:
      return OpenAI.NotFoundError;
    case 422:
      return OpenAI.UnprocessableEntityError;
    case 429:
      return OpenAI.RateLimitError;
    default:
      return status !== undefined && status >= 500 ? OpenAI.InternalServerError : OpenAI.APIError;
  }
}
