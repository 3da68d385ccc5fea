// The AI SDK with its provider for OpenAI-compatible services: completions, streams, tools, usage, and giving up.
import { generateText, isStepCount, jsonSchema, type LanguageModel, Output, streamText, tool } from 'ai';
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
  silence,
  sse,
  standardAnswer,
  toolChunk,
  usageChunk,
} from '../helpers/hostile-upstream.ts';
import { collect, modelOf, type ProviderSettings } from './ai-sdk.ts';
import {
  accessOf,
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
} from './setting.ts';

let setting: Setting;

beforeAll(async () => {
  setting = await startSetting();
});

beforeEach(() => setting.upstream.always(standardAnswer));

afterAll(() => setting?.close());

const model = (name = 'scripted', settings?: ProviderSettings): LanguageModel =>
  modelOf(setting, name, settings);

/** A tool, and the inputs with which it was called. */
function weather(): { tools: { get_weather: ReturnType<typeof weatherTool> }; asked: string[] } {
  const asked: string[] = [];
  return { tools: { get_weather: weatherTool(asked) }, asked };
}

function weatherTool(asked: string[]) {
  return tool({
    description: 'The weather somewhere',
    inputSchema: jsonSchema<{ city: string }>(CITY_SCHEMA),
    execute: ({ city }) => {
      asked.push(city);
      return `snow in ${city}`;
    },
  });
}

describe('generateText', () => {
  test('reads a completion: text, reason, usage, the public name of the model, the request id', async () => {
    const at = setting.upstream.requests.length;
    const result = await generateText({
      model: model(),
      instructions: 'Be brief.',
      prompt: 'Say hello',
      maxOutputTokens: 50,
      temperature: 0,
    });
    expect(result.text).toBe('Hello world');
    expect(result.finishReason).toBe('stop');
    expect(result.usage).toMatchObject({ inputTokens: 3, outputTokens: 5, totalTokens: 8 });
    const { response } = result.finalStep;
    expect(response.modelId).toBe('scripted');
    expect(await accessOf(setting, response.headers?.['x-request-id'])).toMatchObject({
      status: 200,
      model: 'scripted',
      prompt_tokens: 3,
      completion_tokens: 5,
    });
    const sent = await setting.upstream.request(at);
    expect(sent.json()).toEqual({
      model: 'upstream-model',
      max_tokens: 50,
      temperature: 0,
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'Say hello' },
      ],
    });
    expect(sent.header('authorization')).toBe('Bearer credential-of-up');
    expect(sent.header('user-agent')).not.toMatch(/ai-sdk/);
  });

  test('has an answer of the built-in model', async () => {
    const result = await generateText({ model: model('echo'), prompt: 'Grüße 🚀' });
    expect(result.text).toBe('You said: Grüße 🚀');
    expect(result.usage.totalTokens).toBeGreaterThan(0);
  });

  test('sends what the gateway does not know, and reads what it does not know', async () => {
    const at = setting.answers(
      json(200, {
        ...completionWith({ content: 'Yes' }),
        system_fingerprint: 'fp_1',
        x_own: { n: '12345678901234567890' },
      }),
    );
    const result = await generateText({
      model: model(),
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'What is this?' },
            { type: 'file', mediaType: 'image/png', data: new Uint8Array([137, 80, 78, 71]) },
          ],
        },
      ],
      include: { responseBody: true },
      providerOptions: { tollgate: { chat_template_kwargs: { thinking: true }, reasoningEffort: 'high' } },
    });
    expect((await setting.upstream.request(at)).json()).toMatchObject({
      chat_template_kwargs: { thinking: true },
      reasoning_effort: 'high',
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'What is this?' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw==' } },
          ],
        },
      ],
    });
    expect(result.finalStep.response.body).toMatchObject({
      system_fingerprint: 'fp_1',
      x_own: { n: '12345678901234567890' },
    });
  });

  test('runs a tool and goes on', async () => {
    const { tools, asked } = weather();
    const at = setting.answersOnce(
      json(200, toolCompletion({ id: 'call_a', name: 'get_weather', arguments: '{"city":"Zürich"}' })),
      json(200, completionWith({ content: 'It snows.' })),
    );
    const result = await generateText({
      model: model(),
      prompt: 'Weather?',
      tools,
      stopWhen: isStepCount(3),
    });
    expect(asked).toEqual(['Zürich']);
    expect(result.text).toBe('It snows.');
    expect(result.steps.map((step) => step.finishReason)).toEqual(['tool-calls', 'stop']);
    expect((await setting.upstream.request(at)).json()).toMatchObject({
      tools: [{ type: 'function', function: { name: 'get_weather', parameters: CITY_SCHEMA } }],
      tool_choice: 'auto',
    });
    expect((await setting.upstream.request(at + 1)).json()).toMatchObject({
      messages: [
        { role: 'user' },
        {
          role: 'assistant',
          tool_calls: [{ id: 'call_a', function: { name: 'get_weather', arguments: '{"city":"Zürich"}' } }],
        },
        { role: 'tool', tool_call_id: 'call_a', content: 'snow in Zürich' },
      ],
    });
  });

  test('has reasoning beside the text', async () => {
    setting.answers(json(200, completionWith({ content: 'Two.', reasoning_content: 'One and one …' })));
    const result = await generateText({ model: model(), prompt: '1 + 1?' });
    expect(result.text).toBe('Two.');
    expect(result.finalStep.reasoningText).toBe('One and one …');
  });

  test('has an object in the schema that it asked for', async () => {
    const at = setting.answers(json(200, completionWith({ content: '{"city":"Bern"}' })));
    const result = await generateText({
      model: model('scripted', { supportsStructuredOutputs: true }),
      prompt: 'The capital?',
      output: Output.object({ schema: jsonSchema<{ city: string }>(CITY_SCHEMA) }),
    });
    expect(result.output).toEqual({ city: 'Bern' });
    expect((await setting.upstream.request(at)).json()).toMatchObject({
      response_format: { type: 'json_schema', json_schema: { strict: true, schema: CITY_SCHEMA } },
    });
  });

  test('that is aborted before its answer gives up the upstream', async () => {
    const at = setting.answers(silence());
    const abort = new AbortController();
    const call = rejection(generateText({ model: model(), prompt: 'Say hello', abortSignal: abort.signal }));
    await setting.upstream.request(at);
    abort.abort();
    expect(await call).toMatchObject({ name: 'AbortError' });
    await expectGivenUp(setting, at);
  });
});

describe('streamText', () => {
  test('reads each piece before the next one is sent', async () => {
    let read = '';
    const at = setting.answers(
      inStep(
        ['One', ' two', ' thrée 🚀'],
        (text) => read === text,
        chunk(frame(finishChunk())),
        chunk(DONE),
        lastChunk(),
      ),
    );
    const result = streamText({ model: model(), prompt: 'Count' });
    const { text, errors, thrown } = await collect(result.stream, (all) => {
      read = all;
    });
    expect({ text, errors, thrown }).toEqual({ text: 'One two thrée 🚀', errors: [], thrown: undefined });
    expect(await result.text).toBe(text);
    expect(await result.finishReason).toBe('stop');
    expect((await result.finalStep).response.modelId).toBe('scripted');
    expect((await setting.upstream.request(at)).json()).toMatchObject({
      model: 'upstream-model',
      stream: true,
    });
  });

  test('has an answer of the built-in model, in several pieces', async () => {
    const result = streamText({ model: model('echo'), prompt: 'Say hello' });
    const pieces: string[] = [];
    for await (const piece of result.textStream) pieces.push(piece);
    expect(pieces.join('')).toBe('You said: Say hello');
    expect(pieces.length).toBeGreaterThan(2);
  });

  test('has usage when the provider asks for it', async () => {
    const at = setting.upstream.requests.length;
    const result = streamText({ model: model('scripted', { includeUsage: true }), prompt: 'Say hello' });
    await result.consumeStream();
    expect(await result.usage).toMatchObject({ inputTokens: 3, outputTokens: 5, totalTokens: 8 });
    expect((await setting.upstream.request(at)).json()).toMatchObject({
      stream_options: { include_usage: true },
    });
  });

  test('has none when it does not, but the gateway has', async () => {
    const at = setting.upstream.requests.length;
    const result = streamText({ model: model(), prompt: 'Say hello' });
    const { errors } = await collect(result.stream);
    expect(errors).toEqual([]);
    expect((await result.usage).totalTokens).toBeUndefined();
    const request = await setting.upstream.request(at);
    expect(request.json()).toMatchObject({ stream_options: { include_usage: true } });
    expect(await accessOf(setting, request.header('x-request-id'))).toMatchObject({
      prompt_tokens: 3,
      completion_tokens: 5,
    });
  });

  test('runs parallel tools whose arguments come in fragments, and goes on', async () => {
    const { tools, asked } = weather();
    const at = setting.answersOnce(
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
      sse([roleChunk(), contentChunk('It snows'), contentChunk(' in both.'), finishChunk()]),
    );
    const result = streamText({ model: model(), prompt: 'Weather?', tools, stopWhen: isStepCount(3) });
    const { text, errors } = await collect(result.stream);
    expect(errors).toEqual([]);
    expect(text).toBe('It snows in both.');
    expect(asked.toSorted()).toEqual(['Genève', 'Zürich']);
    expect((await result.steps).map((step) => step.finishReason)).toEqual(['tool-calls', 'stop']);
    expect((await setting.upstream.request(at + 1)).json()).toMatchObject({
      messages: [
        { role: 'user' },
        { role: 'assistant', tool_calls: [{ id: 'call_a' }, { id: 'call_b' }] },
        { role: 'tool', tool_call_id: 'call_a', content: 'snow in Genève' },
        { role: 'tool', tool_call_id: 'call_b', content: 'snow in Zürich' },
      ],
    });
  });

  test('runs a tool that an upstream without streaming called', async () => {
    const { tools, asked } = weather();
    setting.answersOnce(
      json(
        200,
        toolCompletion(
          { id: 'call_a', name: 'get_weather', arguments: '{"city":"Bern"}' },
          { id: 'call_b', name: 'get_weather', arguments: '{"city":"Basel"}' },
        ),
      ),
      json(200, completionWith({ content: 'It snows.' })),
    );
    const result = streamText({
      model: model('scripted', { includeUsage: true }),
      prompt: 'Weather?',
      tools,
      stopWhen: isStepCount(3),
    });
    const { text, errors } = await collect(result.stream);
    expect(errors).toEqual([]);
    expect(text).toBe('It snows.');
    expect(asked.toSorted()).toEqual(['Basel', 'Bern']);
    expect(await result.usage).toMatchObject({ inputTokens: 6, outputTokens: 10 });
  });

  test('has reasoning before the text', async () => {
    setting.answers(
      sse([
        roleChunk(),
        reasoningChunk('One and'),
        reasoningChunk(' one …'),
        contentChunk('Two.'),
        finishChunk(),
      ]),
    );
    const result = streamText({ model: model(), prompt: '1 + 1?' });
    const { types, text, errors } = await collect(result.stream);
    expect(errors).toEqual([]);
    expect(text).toBe('Two.');
    expect((await result.finalStep).reasoningText).toBe('One and one …');
    expect(types.indexOf('reasoning-end')).toBeLessThan(types.indexOf('text-start'));
  });

  test('that is aborted gives up the upstream, and keeps what it has', async () => {
    const at = setting.answers(helloAndSilence());
    const abort = new AbortController();
    const result = streamText({ model: model(), prompt: 'Say hello', abortSignal: abort.signal });
    const { text, types } = await collect(result.stream, () => abort.abort());
    expect(text).toBe('Hello');
    expect(types).toContain('abort');
    expect(types).not.toContain('finish');
    await expectGivenUp(setting, at);
  });
});
