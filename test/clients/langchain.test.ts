// LangChain's ChatOpenAI, changed in nothing but base URL and key.
import { type AIMessageChunk, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { concat } from '@langchain/core/utils/stream';
import { ChatOpenAI, type ChatOpenAIFields } from '@langchain/openai';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  chunk,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  json,
  lastChunk,
  roleChunk,
  type Step,
  silence,
  sse,
  standardAnswer,
  toolChunk,
  upstreamError,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import {
  accessOf,
  BREAKS,
  CITY_SCHEMA,
  completionWith,
  expectGivenUp,
  helloAndSilence,
  inStep,
  reasoningChunk,
  rejection,
  type Setting,
  startSetting,
  toolCompletion,
  triesUntil,
} from './setting.ts';

let setting: Setting;

beforeAll(async () => {
  setting = await startSetting();
});

beforeEach(() => setting.upstream.always(standardAnswer));

afterAll(() => setting?.close());

/** A model as an application makes it. */
function connect(name = 'scripted', fields: ChatOpenAIFields = {}): ChatOpenAI {
  const { baseURL, key } = setting;
  return new ChatOpenAI({ model: name, apiKey: key, configuration: { baseURL }, ...fields });
}

/** One piece after the other, for as long as anybody listens. */
const talk: Step = async (c) => {
  for (;;) {
    await c.chunk(frame(contentChunk(' again')));
    await c.wait(20);
  }
};

const weather = tool(({ city }: { city: string }) => `snow in ${city}`, {
  name: 'get_weather',
  description: 'The weather somewhere',
  schema: CITY_SCHEMA,
});

/** What a stream gave until it ended, or until it threw. */
async function collect(
  stream: Promise<AsyncIterable<AIMessageChunk>>,
  onText?: (text: string) => void,
): Promise<{ whole: AIMessageChunk | undefined; pieces: AIMessageChunk[]; text: string; thrown: unknown }> {
  const pieces: AIMessageChunk[] = [];
  let whole: AIMessageChunk | undefined;
  let thrown: unknown;
  try {
    for await (const piece of await stream) {
      pieces.push(piece);
      whole = whole === undefined ? piece : concat(whole, piece);
      onText?.(whole.text);
    }
  } catch (error) {
    thrown = error;
  }
  return { whole, pieces, text: whole?.text ?? '', thrown };
}

describe('invoke', () => {
  test('reads a completion: text, reason, usage, the public name of the model', async () => {
    const at = setting.upstream.requests.length;
    const answer = await connect('scripted', { temperature: 0, maxTokens: 50 }).invoke([
      new SystemMessage('Be brief.'),
      new HumanMessage('Say hello'),
    ]);
    expect(answer.text).toBe('Hello world');
    expect(answer.response_metadata).toMatchObject({ finish_reason: 'stop', model_name: 'scripted' });
    expect(answer.usage_metadata).toMatchObject({ input_tokens: 3, output_tokens: 5, total_tokens: 8 });
    const sent = await setting.upstream.request(at);
    expect(sent.json()).toMatchObject({
      model: 'upstream-model',
      temperature: 0,
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'Say hello' },
      ],
    });
    expect(sent.header('authorization')).toBe('Bearer credential-of-up');
    expect(sent.rawHead.toString()).not.toMatch(/langchain|x-stainless/i);
  });

  test('has an answer of the built-in model', async () => {
    const answer = await connect('echo').invoke('Grüße 🚀');
    expect(answer.text).toBe('You said: Grüße 🚀');
    expect(answer.usage_metadata).toMatchObject({ total_tokens: expect.any(Number) });
  });

  test('calls a tool, and goes on with what it gave', async () => {
    const at = setting.answersOnce(
      json(200, toolCompletion({ id: 'call_a', name: 'get_weather', arguments: '{"city":"Zürich"}' })),
      json(200, completionWith({ content: 'It snows.' })),
    );
    const model = connect().bindTools([weather]);
    const question = new HumanMessage('Weather in Zürich?');
    const asking = await model.invoke([question]);
    expect(asking.response_metadata).toMatchObject({ finish_reason: 'tool_calls' });
    const [call] = asking.tool_calls ?? [];
    expect(call).toMatchObject({ id: 'call_a', name: 'get_weather', args: { city: 'Zürich' } });
    if (call === undefined) return;
    const found = new ToolMessage({ tool_call_id: call.id ?? '', content: 'snow in Zürich' });
    expect((await model.invoke([question, asking, found])).text).toBe('It snows.');
    expect((await setting.upstream.request(at)).json()).toMatchObject({
      tools: [{ type: 'function', function: { name: 'get_weather', parameters: CITY_SCHEMA } }],
    });
    expect((await setting.upstream.request(at + 1)).json()).toMatchObject({
      messages: [
        { role: 'user' },
        { role: 'assistant', tool_calls: [{ id: 'call_a' }] },
        { role: 'tool', tool_call_id: 'call_a', content: 'snow in Zürich' },
      ],
    });
  });

  test('has an object in the schema that it asked for', async () => {
    const at = setting.answers(json(200, completionWith({ content: '{"city":"Bern"}' })));
    const model = connect().withStructuredOutput(CITY_SCHEMA, { method: 'jsonSchema', name: 'capital' });
    expect(await model.invoke('The capital?')).toEqual({ city: 'Bern' });
    expect((await setting.upstream.request(at)).json()).toMatchObject({
      response_format: { type: 'json_schema', json_schema: { name: 'capital', schema: CITY_SCHEMA } },
    });
  });

  test('sends what the gateway does not know, and has reasoning that came beside the text', async () => {
    const at = setting.answers(
      json(200, completionWith({ content: 'Two.', reasoning_content: 'One and one …' })),
    );
    const answer = await connect('scripted', {
      modelKwargs: { chat_template_kwargs: { thinking: true } },
    }).invoke('1 + 1?');
    expect(answer.text).toBe('Two.');
    expect(answer.additional_kwargs).toMatchObject({ reasoning_content: 'One and one …' });
    expect((await setting.upstream.request(at)).json()).toMatchObject({
      chat_template_kwargs: { thinking: true },
    });
  });

  test('that is aborted before its answer gives up the upstream', async () => {
    const at = setting.answers(silence());
    const abort = new AbortController();
    const call = rejection(connect().invoke('Say hello', { signal: abort.signal }));
    await setting.upstream.request(at);
    abort.abort();
    expect(await call).toBeInstanceOf(Error);
    await expectGivenUp(setting, at);
  });
});

describe('stream', () => {
  test('reads each piece before the next one is sent', async () => {
    let read = '';
    setting.answers(
      inStep(
        ['One', ' two', ' thrée 🚀'],
        (text) => read === text,
        chunk(frame(finishChunk())),
        chunk(DONE),
        lastChunk(),
      ),
    );
    const { whole, text, thrown } = await collect(connect().stream('Count'), (all) => {
      read = all;
    });
    expect({ text, thrown }).toEqual({ text: 'One two thrée 🚀', thrown: undefined });
    expect(whole?.response_metadata).toMatchObject({ finish_reason: 'stop', model_name: 'scripted' });
  });

  test('has an answer of the built-in model, in several pieces', async () => {
    const { pieces, text, whole } = await collect(connect('echo').stream('Say hello'));
    expect(text).toBe('You said: Say hello');
    expect(pieces.length).toBeGreaterThan(4);
    expect(whole?.usage_metadata).toMatchObject({ total_tokens: expect.any(Number) });
  });

  test('has usage, which it asks for', async () => {
    const { whole, pieces } = await collect(connect().stream('Say hello'));
    expect(whole?.usage_metadata).toMatchObject({ input_tokens: 3, output_tokens: 5, total_tokens: 8 });
    expect(pieces.filter((piece) => piece.usage_metadata !== undefined)).toHaveLength(1);
  });

  test('has none when it is told not to ask, but the gateway has', async () => {
    const at = setting.upstream.requests.length;
    const { whole, text } = await collect(connect('scripted', { streamUsage: false }).stream('Say hello'));
    expect(text).toBe('Hello world');
    expect(whole?.usage_metadata).toBeUndefined();
    const id = (await setting.upstream.request(at)).header('x-request-id');
    expect(await accessOf(setting, id)).toMatchObject({ prompt_tokens: 3, completion_tokens: 5 });
  });

  test('puts parallel tool calls together from fragments', async () => {
    setting.answers(
      sse([
        roleChunk(),
        toolChunk({ index: 0, id: 'call_a', name: 'get_weather', arguments: '' }),
        toolChunk({ index: 1, id: 'call_b', name: 'get_weather', arguments: '{"city":"Zü' }),
        toolChunk({ index: 0, arguments: '{"ci' }),
        toolChunk({ index: 1, arguments: 'rich"}' }),
        toolChunk({ index: 0, arguments: 'ty":"Genève"}' }),
        finishChunk('tool_calls'),
        usageChunk(),
      ]),
    );
    const { whole, thrown } = await collect(connect().bindTools([weather]).stream('Weather?'));
    expect(thrown).toBeUndefined();
    expect(whole?.tool_calls).toMatchObject([
      { id: 'call_a', name: 'get_weather', args: { city: 'Genève' } },
      { id: 'call_b', name: 'get_weather', args: { city: 'Zürich' } },
    ]);
    expect(whole?.response_metadata).toMatchObject({ finish_reason: 'tool_calls' });
  });

  test('has the tool calls and the usage of an upstream without streaming', async () => {
    setting.answers(
      json(
        200,
        toolCompletion(
          { id: 'call_a', name: 'get_weather', arguments: '{"city":"Bern"}' },
          { id: 'call_b', name: 'get_weather', arguments: '{"city":"Basel"}' },
        ),
      ),
    );
    const { whole, thrown } = await collect(connect().bindTools([weather]).stream('Weather?'));
    expect(thrown).toBeUndefined();
    expect(whole?.tool_calls).toMatchObject([
      { id: 'call_a', args: { city: 'Bern' } },
      { id: 'call_b', args: { city: 'Basel' } },
    ]);
    expect(whole?.usage_metadata).toMatchObject({ total_tokens: 8 });
  });

  test('has the text of an upstream without streaming', async () => {
    setting.answers(json(200, completionWith({ content: 'All at once' })));
    const { text, whole } = await collect(connect().stream('Say hello'));
    expect(text).toBe('All at once');
    expect(whole?.response_metadata).toMatchObject({ finish_reason: 'stop' });
  });

  test('has reasoning beside the text', async () => {
    setting.answers(
      sse([
        roleChunk(),
        reasoningChunk('One and'),
        reasoningChunk(' one …'),
        contentChunk('Two.'),
        finishChunk(),
      ]),
    );
    const { whole, text } = await collect(connect().stream('1 + 1?'));
    expect(text).toBe('Two.');
    expect(whole?.additional_kwargs).toMatchObject({ reasoning_content: 'One and one …' });
  });

  test('that is aborted gives up the upstream', async () => {
    const at = setting.answers(helloAndSilence());
    const abort = new AbortController();
    const stream = connect().stream('Say hello', { signal: abort.signal });
    const { text, thrown } = await collect(stream, (all) => {
      if (all !== '') abort.abort();
    });
    expect(text).toBe('Hello');
    expect(thrown).toBeInstanceOf(Error);
    await expectGivenUp(setting, at);
  });

  test('whose loop is left gives up the upstream with the next piece', async () => {
    const at = setting.answers(inStep(['Hello'], () => true, talk));
    for await (const piece of await connect().stream('Say hello')) if (piece.text !== '') break;
    await expectGivenUp(setting, at);
  });
});

describe('a stream that breaks raises', () => {
  test.each(BREAKS)('%s', async (_how, end) => {
    let read = '';
    const at = setting.answers(inStep(['Half', ' of'], (text) => read === text, ...end));
    const { text, thrown } = await collect(connect().stream('Say hello'), (all) => {
      read = all;
    });
    expect(text).toBe('Half of');
    // The frame with the error, or the connection that ended too early if the reader fell behind.
    expect(thrown).toBeInstanceOf(Error);
    if (thrown instanceof Error && 'code' in thrown) expect(thrown.code).toBe('stream_incomplete');
    else expect(thrown).toMatchObject({ message: 'terminated' });
    // What was read cannot be taken back, so it is not asked again.
    expect(setting.upstream.requests.length - at).toBe(1);
  });

  test('also where streaming is hidden behind invoke', async () => {
    setting.answers(sse([roleChunk(), contentChunk('Half of')], { done: false }));
    const model = connect('scripted', { streaming: true, maxRetries: 0 });
    expect(await rejection(model.invoke('Say hello'))).toBeInstanceOf(Error);
  });

  test('with the error of the upstream, as the upstream wrote it', async () => {
    let isRaised = false;
    let read = '';
    setting.answers(
      inStep(
        ['Half of'],
        (text) => read === text,
        chunk(frame(upstreamError('The machine is on fire', { type: 'fire', code: 'fire_alarm' }))),
        (c) => c.waitFor(() => isRaised),
      ),
    );
    const { text, thrown } = await collect(connect().stream('Say hello'), (all) => {
      read = all;
    });
    isRaised = true;
    expect(text).toBe('Half of');
    expect(thrown).toMatchObject({ message: 'The machine is on fire', type: 'fire', code: 'fire_alarm' });
  });
});

describe('refusals', () => {
  const calls: readonly [string, (model: ChatOpenAI) => Promise<unknown>][] = [
    ['invoke', (model) => rejection(model.invoke('Say hello'))],
    ['stream', async (model) => (await collect(model.stream('Say hello'))).thrown],
  ];

  /** How many requests the gateway has refused so, up to this error: each try is one. */
  const refusals = (error: unknown): Promise<number> => {
    const id: unknown = error instanceof Error ? Reflect.get(error, 'requestID') : undefined;
    const status: unknown = error instanceof Error ? Reflect.get(error, 'status') : undefined;
    if (typeof id === 'string' && typeof status === 'number') return triesUntil(setting, id, status);
    throw new Error('the call was not refused', { cause: error });
  };

  test.each(calls)(
    '%s with a key that is not valid: 401, asked once, and the key is not repeated',
    async (_name, call) => {
      const asked = setting.upstream.requests.length;
      const apiKey = 'f'.repeat(32);
      // With its default of six retries.
      const before = await refusals(await call(connect('scripted', { apiKey })));
      const error = await call(connect('scripted', { apiKey }));
      expect(error).toMatchObject({
        status: 401,
        code: 'invalid_api_key',
        lc_error_code: 'MODEL_AUTHENTICATION',
      });
      expect(String(error)).not.toContain(apiKey.slice(0, 12));
      expect((await refusals(error)) - before).toBe(1);
      expect(setting.upstream.requests.length).toBe(asked);
    },
  );

  test.each(calls)('%s of a model that does not exist: 404, asked once', async (_name, call) => {
    const before = await refusals(await call(connect('no-such-model')));
    const error = await call(connect('no-such-model'));
    expect(error).toMatchObject({ status: 404, code: 'model_not_found', lc_error_code: 'MODEL_NOT_FOUND' });
    expect((await refusals(error)) - before).toBe(1);
  });

  test.each(calls)('%s refused by the upstream: what that wrote is read, asked once', async (_name, call) => {
    const at = setting.answers(
      json(400, upstreamError('No such thing', { type: 'invalid_request_error', param: 'n', code: 'bad_n' })),
    );
    expect(await call(connect())).toMatchObject({ status: 400, code: 'bad_n', param: 'n' });
    expect(setting.upstream.requests.length - at).toBe(1);
  });

  test.each(calls)("%s refused because of the operator's credential: asked once", async (_name, call) => {
    setting.answers(json(401, upstreamError('No', { code: 'invalid_api_key' })));
    const name = setting.troubled();
    // With its default of six retries.
    const before = await refusals(await call(connect(name)));
    const error = await call(connect(name));
    expect(error).toMatchObject({ code: 'upstream_auth_error', type: 'server_error' });
    expect((await refusals(error)) - before).toBe(1);
  });

  test('a rate limit of an upstream that does not say how long is tried again, since the gateway says so', async () => {
    const at = setting.answersOnce(json(429, upstreamError('Slow down', { code: 'rate_limit_exceeded' })));
    expect((await connect(setting.troubled()).invoke('Say hello')).text).toBe('Hello world');
    expect(setting.upstream.requests.length - at).toBe(2);
  });

  test('a failure of the upstream is tried as often as it is told to', async () => {
    const at = setting.answers(json(500, upstreamError('Oops', { code: 'oops' })));
    const error = await rejection(connect(setting.troubled(), { maxRetries: 1 }).invoke('Say hello'));
    expect(error).toMatchObject({ status: 500, code: 'oops' });
    // Each of the two may be tried again by the gateway too, within `retry.attempts`.
    const asked = setting.upstream.requests.length - at;
    expect(asked).toBeGreaterThanOrEqual(2);
    expect(asked).toBeLessThanOrEqual(6);
  });

  test('an upstream that is away is 502 without its address', async () => {
    const error = await rejection(connect('down', { maxRetries: 0 }).invoke('Say hello'));
    expect(error).toMatchObject({ status: 502, code: 'upstream_unreachable' });
    expect(String(error)).not.toMatch(/127\.0\.0\.1|:9\b|ECONN/);
  });
});
