// The official OpenAI SDK, changed in nothing but its base URL and key, against a gateway in front of a scripted upstream
// and of the built-in model.
import OpenAI, { type ClientOptions } from 'openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { fleetingClock, type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chunk,
  completion,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  HostileUpstream,
  head,
  json,
  lastChunk,
  reset,
  roleChunk,
  SSE_HEADERS,
  silence,
  sse,
  standardAnswer,
  toolChunk,
  upstreamError,
  usageChunk,
  waitFor,
} from '../helpers/hostile-upstream.ts';
import { until, within } from '../helpers/wait.ts';
import { statusOf } from './holder.ts';

const NAMES = ['org/model', 'hf.co/a/b:Q4_K_M', 'a b', 'a%2Fb', 'über/modell'];

const HELLO = [{ role: 'user' as const, content: 'Say hello' }];

const WEATHER_TOOL = {
  type: 'function' as const,
  function: {
    name: 'get_weather',
    description: 'The weather somewhere',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};

/** What a promise rejects with, as an error of the SDK. */
async function refusal(promise: PromiseLike<unknown>): Promise<InstanceType<typeof OpenAI.APIError>> {
  const error = await Promise.resolve(promise).then(
    () => new Error('it did not fail'),
    (cause: unknown) => cause,
  );
  if (error instanceof OpenAI.APIError) return error;
  throw error;
}

/** The text of a stream, and the error that ended it. */
async function drain(
  stream: AsyncIterable<OpenAI.ChatCompletionChunk>,
): Promise<{ text: string; chunks: OpenAI.ChatCompletionChunk[]; error: unknown }> {
  const chunks: OpenAI.ChatCompletionChunk[] = [];
  let text = '';
  try {
    for await (const each of stream) {
      chunks.push(each);
      text += each.choices[0]?.delta.content ?? '';
    }
    return { text, chunks, error: undefined };
  } catch (error) {
    return { text, chunks, error };
  }
}

describe.each([
  ['in this process', false],
  ['as a process of its own', true],
])('the official SDK and a gateway %s', (_name, process) => {
  let upstream: HostileUpstream;
  let gateway: Gateway;
  let key: string;

  const connect = (options: ClientOptions = {}): OpenAI =>
    new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key, ...options });

  let markers = 0;

  /** How many requests to the API the log has: each try of the SDK is one. All that were answered are in it. */
  const requests = async (): Promise<number> => {
    // A request ends a moment after its client has the answer, and the log arrives in its own time.
    await until(async () => (await gateway.metric('tollgate_requests_in_flight')) === 0);
    const marker = `marker-${++markers}`;
    await fetch(`${gateway.url}/health`, { headers: { 'x-request-id': marker } });
    await gateway.logLine((line) => line['request_id'] === marker);
    return gateway.logs.filter((line) => line['msg'] === 'request' && String(line['route']).startsWith('/v1'))
      .length;
  };

  beforeAll(async () => {
    upstream = await HostileUpstream.start();
    const echo = { upstream: 'builtin', model: 'echo' };
    const scripted = { upstream: 'up', model: 'upstream-model' };
    gateway = await startGateway({
      now: fleetingClock(),
      process,
      config: {
        upstreams: {
          builtin: { builtin: 'echo' },
          up: { base_url: upstream.baseUrl, api_key: 'credential-of-up' },
          nowhere: { base_url: 'http://127.0.0.1:9/v1', api_key: 'credential-of-nowhere' },
        },
        models: {
          scripted: { targets: [scripted] },
          echo: { targets: [echo] },
          ...Object.fromEntries(NAMES.map((name) => [name, { targets: [echo] }])),
          'pro-only': { targets: [echo], tiers: ['Pro'] },
          'vendor/*': { targets: [{ upstream: 'up', model: '*' }] },
          down: { targets: [{ upstream: 'nowhere', model: 'x' }] },
        },
        tiers: { Free: {}, Lite: {}, Pro: {} },
      },
    });
    key = await gateway.key();
    expect(await statusOf(gateway.url, key)).toBe(200);
  });

  beforeEach(() => upstream.always(standardAnswer));

  afterAll(async () => {
    await gateway?.close();
    await upstream?.close();
  });

  describe('a completion', () => {
    test('from the scripted upstream: what the SDK sent arrives, and what came back is read', async () => {
      const at = upstream.requests.length;
      upstream.always(json(200, completion({ content: 'Grüße 🚀', tokens: { prompt: 11, completion: 7 } })));
      const { data, response } = await connect()
        .chat.completions.create({ model: 'scripted', messages: HELLO, seed: 7, temperature: 0 })
        .withResponse();
      expect(data.choices[0]?.message.content).toBe('Grüße 🚀');
      expect(data.model).toBe('scripted');
      expect(data.usage).toMatchObject({ prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 });
      expect(response.status).toBe(200);
      const sent = await upstream.request(at);
      expect(sent.body.toString()).toBe(
        JSON.stringify({ model: 'upstream-model', messages: HELLO, seed: 7, temperature: 0 }),
      );
      expect(sent.header('authorization')).toBe('Bearer credential-of-up');
      expect(sent.rawHead.toString()).not.toMatch(/x-stainless|OpenAI\/JS/i);
    });

    test('from the built-in model, with a long prompt of many scripts', async () => {
      const text = `${'Ελλάδα 日本 🇨🇭 café "quoted" \\ back\n'.repeat(300)}end`;
      const answer = await connect().chat.completions.create({
        model: 'echo',
        messages: [
          { role: 'system', content: 'Be brief.' },
          { role: 'user', content: text },
        ],
        max_completion_tokens: 2000,
      });
      expect(answer.object).toBe('chat.completion');
      expect(answer.choices[0]?.finish_reason).toMatch(/stop|length/);
      expect(`You said: ${text}`.startsWith(answer.choices[0]?.message.content ?? 'nothing')).toBe(true);
      expect(answer.usage?.total_tokens).toBe(
        (answer.usage?.prompt_tokens ?? 0) + (answer.usage?.completion_tokens ?? 0),
      );
    });

    test('carries the request id under which the access log has it', async () => {
      const answer = await connect().chat.completions.create({ model: 'echo', messages: HELLO });
      const id = answer._request_id;
      expect(id).toMatch(/^req_[0-9a-f]{32}$/);
      const line = await gateway.logLine((each) => each['request_id'] === id);
      expect(line).toMatchObject({ msg: 'request', status: 200, model: 'echo', key_prefix: key.slice(0, 8) });
    });

    test('of a model that a pattern matches is asked for by what it matched', async () => {
      const at = upstream.requests.length;
      const answer = await connect().chat.completions.create({
        model: 'vendor/some/model:x',
        messages: HELLO,
      });
      expect((await upstream.request(at)).json()).toMatchObject({ model: 'some/model:x' });
      expect(answer.model).toBe('vendor/some/model:x');
    });
  });

  describe('a stream', () => {
    test('arrives token by token: each is read before the next one is sent', async () => {
      const words = ['One', ' two', ' three', ' four'];
      let read = 0;
      upstream.always([
        head(200, SSE_HEADERS),
        chunk(frame(roleChunk())),
        ...words.flatMap((word, index) => [waitFor(() => read === index), chunk(frame(contentChunk(word)))]),
        waitFor(() => read === words.length),
        chunk(frame(finishChunk())),
        chunk(DONE),
        lastChunk(),
      ]);
      const stream = await connect().chat.completions.create({
        model: 'scripted',
        messages: HELLO,
        stream: true,
      });
      const seen: string[] = [];
      let finish: string | null | undefined;
      for await (const each of stream) {
        expect(each.model).toBe('scripted');
        const content = each.choices[0]?.delta.content;
        finish = each.choices[0]?.finish_reason ?? finish;
        if (content !== undefined && content !== null && content !== '') {
          seen.push(content);
          read += 1;
        }
      }
      expect(seen).toEqual(words);
      expect(finish).toBe('stop');
    });

    test('of the built-in model is the whole answer in several pieces', async () => {
      const stream = await connect().chat.completions.create({
        model: 'echo',
        messages: HELLO,
        stream: true,
      });
      const { text, chunks, error } = await drain(stream);
      expect(error).toBeUndefined();
      expect(text).toBe('You said: Say hello');
      expect(chunks.length).toBeGreaterThan(4);
    });

    test.each(['the loop is left', 'the controller aborts'])(
      'that is given up (%s) closes the upstream at once, and the log says 499',
      async (how) => {
        const at = upstream.requests.length;
        upstream.always([head(200, SSE_HEADERS), chunk(frame(contentChunk('Hello'))), silence()]);
        const stream = await connect().chat.completions.create({
          model: 'scripted',
          messages: HELLO,
          stream: true,
        });
        for await (const each of stream) {
          expect(each.choices[0]?.delta.content).toBe('Hello');
          if (how === 'the loop is left') break;
          stream.controller.abort();
        }
        const request = await upstream.request(at);
        expect(await within(request.closed, 'the end of the upstream connection')).toMatchObject({
          by: 'peer',
        });
        const id = request.header('x-request-id');
        const line = await gateway.logLine((each) => each['msg'] === 'request' && each['request_id'] === id);
        expect(line).toMatchObject({ status: 499, outcome: 'client_closed' });
      },
    );

    test('has usage only when it was asked for; the log has it either way', async () => {
      const at = upstream.requests.length;
      const { data, response } = await connect()
        .chat.completions.create({ model: 'scripted', messages: HELLO, stream: true })
        .withResponse();
      const unasked = await drain(data);
      expect(unasked.text).toBe('Hello world');
      expect(unasked.chunks.filter((each) => each.usage != null)).toEqual([]);
      expect(unasked.chunks.every((each) => each.choices.length === 1)).toBe(true);
      expect((await upstream.request(at)).json()).toMatchObject({ stream_options: { include_usage: true } });
      const line = await gateway.logLine(
        (each) => each['msg'] === 'request' && each['request_id'] === response.headers.get('x-request-id'),
      );
      expect(line).toMatchObject({ prompt_tokens: 3, completion_tokens: 5 });

      const asked = await drain(
        await connect().chat.completions.create({
          model: 'scripted',
          messages: HELLO,
          stream: true,
          stream_options: { include_usage: true },
        }),
      );
      const last = asked.chunks.at(-1);
      expect(last?.choices).toEqual([]);
      expect(last?.usage).toEqual({ prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 });
      expect(asked.chunks.slice(0, -1).every((each) => each.usage === null)).toBe(true);
    });

    test('that breaks raises in the SDK, after all that had come', async () => {
      upstream.always([
        head(200, SSE_HEADERS),
        chunk(frame(roleChunk())),
        chunk(frame(contentChunk('Half of'))),
        waitFor(() => seen === 'Half of'),
        reset(),
      ]);
      let seen = '';
      const stream = await connect().chat.completions.create({
        model: 'scripted',
        messages: HELLO,
        stream: true,
      });
      const reading = async (): Promise<void> => {
        for await (const each of stream) seen += each.choices[0]?.delta.content ?? '';
      };
      const error = await refusal(reading());
      expect(seen).toBe('Half of');
      expect(error.code).toMatch(/^(stream_incomplete|upstream_unreachable)$/);
      expect(error.message).not.toMatch(/127\.0\.0\.1|ECONN/);
    });

    test('that ends early without saying so raises too', async () => {
      upstream.always(sse([roleChunk(), contentChunk('Half of')], { done: false }));
      const stream = await connect().chat.completions.create({
        model: 'scripted',
        messages: HELLO,
        stream: true,
      });
      const { text, error } = await drain(stream);
      expect(text).toBe('Half of');
      expect(error).toBeInstanceOf(OpenAI.APIError);
      expect(error).toMatchObject({ code: 'stream_incomplete' });
    });

    test("an upstream's error frame raises as the upstream wrote it", async () => {
      upstream.always(
        sse([contentChunk('Some'), upstreamError('The machine is on fire', { code: 'fire' })], {
          done: false,
        }),
      );
      const stream = await connect().chat.completions.create({
        model: 'scripted',
        messages: HELLO,
        stream: true,
      });
      const { text, error } = await drain(stream);
      expect(text).toBe('Some');
      expect(error).toMatchObject({
        code: 'fire',
        message: expect.stringContaining('The machine is on fire'),
      });
    });
  });

  describe('the stream runner', () => {
    test('puts a completion together from the pieces', async () => {
      const runner = connect().chat.completions.stream({
        model: 'scripted',
        messages: HELLO,
        stream_options: { include_usage: true },
      });
      const deltas: string[] = [];
      runner.on('content', (delta) => deltas.push(delta));
      const whole = await runner.finalChatCompletion();
      expect(deltas.join('')).toBe('Hello world');
      expect(whole.choices[0]).toMatchObject({
        finish_reason: 'stop',
        message: { role: 'assistant', content: 'Hello world' },
      });
      expect(whole.usage?.total_tokens).toBe(8);
      expect(whole.model).toBe('scripted');
    });

    test('does so with the built-in model', async () => {
      const runner = connect().chat.completions.stream({ model: 'echo', messages: HELLO });
      expect(await runner.finalContent()).toBe('You said: Say hello');
    });

    test('rejects when the stream breaks', async () => {
      upstream.always(sse([roleChunk(), contentChunk('Half')], { done: false }));
      const runner = connect().chat.completions.stream({ model: 'scripted', messages: HELLO });
      expect(await refusal(runner.finalChatCompletion())).toMatchObject({ code: 'stream_incomplete' });
    });

    test('puts parallel tool calls together from fragments', async () => {
      const at = upstream.requests.length;
      upstream.always(
        sse([
          roleChunk(),
          toolChunk({ index: 0, id: 'call_a', name: 'get_weather', arguments: '' }),
          toolChunk({ index: 0, arguments: '{"ci' }),
          toolChunk({ index: 1, id: 'call_b', name: 'get_weather', arguments: '' }),
          toolChunk({ index: 1, arguments: '{"city":"Zü' }),
          toolChunk({ index: 0, arguments: 'ty":"Genève"}' }),
          toolChunk({ index: 1, arguments: 'rich"}' }),
          finishChunk('tool_calls'),
          usageChunk(),
        ]),
      );
      const runner = connect().chat.completions.stream({
        model: 'scripted',
        messages: [{ role: 'user', content: 'Weather in two cities?' }],
        tools: [WEATHER_TOOL],
        parallel_tool_calls: true,
      });
      const whole = await runner.finalChatCompletion();
      const calls = whole.choices[0]?.message.tool_calls ?? [];
      expect(
        calls.map((call) => [call.id, call.type === 'function' && JSON.parse(call.function.arguments)]),
      ).toEqual([
        ['call_a', { city: 'Genève' }],
        ['call_b', { city: 'Zürich' }],
      ]);
      expect(whole.choices[0]?.finish_reason).toBe('tool_calls');
      expect((await upstream.request(at)).json()).toMatchObject({ tools: [WEATHER_TOOL] });
    });

    test('runs a tool and goes on, over as many requests as that takes', async () => {
      const at = upstream.requests.length;
      upstream.next(
        sse([
          roleChunk(),
          toolChunk({ index: 0, id: 'call_a', name: 'get_weather', arguments: '{"city":"Bern"}' }),
          finishChunk('tool_calls'),
        ]),
        sse([roleChunk(), contentChunk('Snow in Bern.'), finishChunk()]),
      );
      const asked: unknown[] = [];
      const runner = connect().chat.completions.runTools({
        model: 'scripted',
        stream: true,
        messages: [{ role: 'user', content: 'Weather in Bern?' }],
        tools: [
          {
            type: 'function',
            function: {
              ...WEATHER_TOOL.function,
              parse: JSON.parse,
              function: (input: unknown) => {
                asked.push(input);
                return 'snow';
              },
            },
          },
        ],
      });
      expect(await runner.finalContent()).toBe('Snow in Bern.');
      expect(asked).toEqual([{ city: 'Bern' }]);
      expect((await upstream.request(at + 1)).json()).toMatchObject({
        messages: [{ role: 'user' }, { role: 'assistant' }, { role: 'tool', content: 'snow' }],
      });
    });
  });

  describe('models', () => {
    test('are listed by the names that can be asked for, patterns left out', async () => {
      const ids: string[] = [];
      for await (const model of connect().models.list()) {
        expect(model).toEqual({
          id: model.id,
          object: 'model',
          created: expect.any(Number),
          owned_by: expect.any(String),
        });
        ids.push(model.id);
      }
      expect(ids).toEqual(['scripted', 'echo', ...NAMES, 'pro-only', 'down']);
    });

    test.each(NAMES)('%s is retrieved by its name, and can be used by it', async (name) => {
      const model = await connect().models.retrieve(name);
      expect(model.id).toBe(name);
      const answer = await connect().chat.completions.create({ model: name, messages: HELLO });
      expect(answer.model).toBe(name);
    });

    test.each(['org/model', 'hf.co/a/b:Q4_K_M'])('%s is also found unencoded in the path', async (name) => {
      const response = await fetch(`${gateway.url}/v1/models/${name}`, {
        headers: { authorization: `Bearer ${key}` },
      });
      expect(await response.json()).toMatchObject({ id: name });
    });

    test('that a pattern matches can be retrieved; the pattern itself is not a model', async () => {
      expect((await connect().models.retrieve('vendor/x')).id).toBe('vendor/x');
      expect(await refusal(connect().models.retrieve('nothing/like/it'))).toMatchObject({
        status: 404,
        code: 'model_not_found',
      });
    });

    test("of another tier are neither listed, nor found, nor told from those that don't exist", async () => {
      const apiKey = await gateway.issueKey('Free');
      expect(await statusOf(gateway.url, apiKey)).toBe(200);
      const free = connect({ apiKey });
      const ids = (await free.models.list()).data.map((model) => model.id);
      expect(ids).not.toContain('pro-only');
      expect(ids).toContain('echo');
      const before = await requests();
      const denied = await refusal(free.chat.completions.create({ model: 'pro-only', messages: HELLO }));
      const unknown = await refusal(free.chat.completions.create({ model: 'no-such', messages: HELLO }));
      for (const error of [denied, unknown]) {
        expect(error).toBeInstanceOf(OpenAI.NotFoundError);
        expect(error).toMatchObject({ status: 404, code: 'model_not_found', type: 'invalid_request_error' });
      }
      expect(denied.message.replace('pro-only', 'NAME')).toBe(unknown.message.replace('no-such', 'NAME'));
      expect(await refusal(free.models.retrieve('pro-only'))).toMatchObject({ code: 'model_not_found' });
      expect((await requests()) - before).toBe(3);
    });
  });

  describe('a key that is not valid', () => {
    const refused = [
      ['unknown', '0123456789abcdef0123456789abcdef'],
      ["another vendor's", `sk-proj-${'x'.repeat(40)}`],
      ['in upper case', 'ABCDEF0123456789ABCDEF0123456789'],
      ['too long', 'abcdef0123456789abcdef01234567890'],
    ] as const;

    test.each(refused)(
      '%s: AuthenticationError, asked once, and the key is not repeated',
      async (_kind, apiKey) => {
        const asked = upstream.requests.length;
        const before = await requests();
        const client = connect({ apiKey, maxRetries: 5 });
        for (const call of [
          () => client.chat.completions.create({ model: 'scripted', messages: HELLO }),
          () => client.chat.completions.create({ model: 'scripted', messages: HELLO, stream: true }),
          () => client.models.list(),
        ]) {
          const error = await refusal(call());
          expect(error).toBeInstanceOf(OpenAI.AuthenticationError);
          expect(error).toMatchObject({
            status: 401,
            code: 'invalid_api_key',
            type: 'invalid_request_error',
            requestID: expect.stringMatching(/^req_/),
          });
          expect(JSON.stringify([error.message, error.error])).not.toContain(apiKey.slice(0, 12));
        }
        expect((await requests()) - before).toBe(3);
        expect(upstream.requests.length).toBe(asked);
      },
    );
  });

  describe('trouble of the upstream', () => {
    test("a caller's fault is passed on as the upstream wrote it, asked once", async () => {
      const at = upstream.requests.length;
      upstream.always(
        json(
          400,
          upstreamError('No such thing', { type: 'invalid_request_error', param: 'n', code: 'bad_n' }),
        ),
      );
      const error = await refusal(
        connect().chat.completions.create({ model: 'scripted', messages: HELLO, n: 99 }),
      );
      expect(error).toBeInstanceOf(OpenAI.BadRequestError);
      expect(error).toMatchObject({ code: 'bad_n', param: 'n', message: '400 No such thing' });
      expect(upstream.requests.length - at).toBe(1);
    });

    test('a failure is InternalServerError, tried as often as the SDK means to, and no more', async () => {
      const at = upstream.requests.length;
      const before = await requests();
      upstream.always(json(500, upstreamError('Oops', { code: 'oops' }), { 'retry-after-ms': '5' }));
      const error = await refusal(
        connect({ maxRetries: 2 }).chat.completions.create({ model: 'scripted', messages: HELLO }),
      );
      expect(error).toBeInstanceOf(OpenAI.InternalServerError);
      expect((await requests()) - before).toBe(3);
      // Each of them may be tried again by the gateway too, within `retry.attempts`.
      expect(upstream.requests.length - at).toBeLessThanOrEqual(9);
    });

    test("a refused credential of the gateway is never the caller's 401, and the SDK does not try again", async () => {
      const before = await requests();
      upstream.always(
        json(401, upstreamError('Incorrect API key provided: cred****f-up', { code: 'invalid_api_key' })),
      );
      const error = await refusal(connect().chat.completions.create({ model: 'scripted', messages: HELLO }));
      expect(error).not.toBeInstanceOf(OpenAI.AuthenticationError);
      expect(error).toMatchObject({ status: 406, code: 'upstream_auth_error' });
      expect(JSON.stringify(error.error)).not.toMatch(/\*|Incorrect/);
      expect((await requests()) - before).toBe(1);
    });

    test('an upstream that is away is 502 without its address', async () => {
      const error = await refusal(
        connect({ maxRetries: 0 }).chat.completions.create({ model: 'down', messages: HELLO }),
      );
      expect(error).toMatchObject({ status: 502, code: 'upstream_unreachable' });
      expect(JSON.stringify(error.error)).not.toMatch(/127\.0\.0\.1|:9\b|ECONN/);
    });

    test("the SDK's own deadline ends the work of the upstream", async () => {
      const at = upstream.requests.length;
      upstream.always(silence());
      const late = connect({ timeout: 500, maxRetries: 0 }).chat.completions.create({
        model: 'scripted',
        messages: HELLO,
      });
      await expect(Promise.resolve(late)).rejects.toBeInstanceOf(OpenAI.APIConnectionTimeoutError);
      const request = await upstream.request(at);
      expect(await within(request.closed, 'the end of the upstream connection')).toMatchObject({
        by: 'peer',
      });
    });

    test('waits as an upstream asks, and then succeeds', async () => {
      upstream.next(
        json(429, upstreamError('Slow down', { code: 'rate_limit_exceeded' }), { 'retry-after-ms': '20' }),
      );
      const answer = await connect().chat.completions.create({ model: 'scripted', messages: HELLO });
      expect(answer.choices[0]?.message.content).toBe('Hello world');
    });
  });
});
