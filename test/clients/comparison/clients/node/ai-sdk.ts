// The AI SDK with one of its providers: `PROVIDER` is `openai` or `openai-compatible`.
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import * as ai from 'ai';
import { promptOf, UNKNOWN_MODEL } from '../../types.ts';
import { collect, makeCalls, target } from './calls.ts';
import { CitySchema, recording, WEATHER, WeatherInput } from './requests.ts';

const { baseURL, apiKey, model, embeddingModel } = target;
const openai = createOpenAI({ baseURL, apiKey });
const compatible = (settings: { readonly includeUsage?: boolean } = {}) =>
  createOpenAICompatible({ name: 'server', baseURL, apiKey, supportsStructuredOutputs: true, ...settings });

const isOpenAI = process.env['PROVIDER'] === 'openai';
const chatModel = (name = model) => (isOpenAI ? openai.chat(name) : compatible()(name));

const weather = ai.tool({
  description: WEATHER.function.description,
  inputSchema: WeatherInput,
  execute: async ({ city }) => `The weather in ${city} is fine.`,
});

const common = { temperature: 0, seed: 1 };
type Options = Omit<Parameters<typeof ai.generateText>[0], 'prompt' | 'messages'>;
/** The call of a tool and, with its result, the answer. */
const withTools = { tools: { get_weather: weather }, stopWhen: ai.stepCountIs(2) };

/** Fields of results that are getters, so that they do not enumerate. */
const GENERATED = [
  'text',
  'content',
  'reasoningText',
  'toolCalls',
  'toolResults',
  'finishReason',
  'usage',
  'totalUsage',
  'warnings',
  'sources',
  'files',
  'providerMetadata',
  'response',
] as const;

function pick(result: object, names: readonly string[]): object {
  return Object.fromEntries(names.map((name) => [name, Reflect.get(result, name)]));
}

async function generate(call: string, options: Partial<Options> = {}): Promise<unknown> {
  const result = await ai.generateText({
    model: chatModel(),
    ...common,
    ...options,
    prompt: promptOf(call),
  });
  return { ...pick(result, GENERATED), steps: result.steps.map((step) => pick(step, GENERATED)) };
}

function stream(call: string, options: Partial<Options> = {}): Promise<unknown> {
  const result = ai.streamText({
    model: chatModel(),
    ...common,
    ...options,
    prompt: promptOf(call),
    onError: () => undefined,
  });
  return collect(partsOf(result.fullStream));
}

/** The parts without what the SDK measured of its own time. An `error` part ends the stream as an exception would. */
async function* partsOf(parts: AsyncIterable<{ readonly type: string }>): AsyncGenerator<object> {
  const errors: unknown[] = [];
  for await (const part of parts) {
    yield 'performance' in part ? { ...part, performance: undefined } : part;
    if ('error' in part) errors.push(part.error);
  }
  if (errors.length > 0) throw errors[0];
}

/** Version 7 has it under its final name. */
const generateImage: typeof ai.generateImage =
  ai.generateImage ?? Reflect.get(ai, 'experimental_generateImage');

await makeCalls({
  chat: () => generate('chat'),
  'chat.stream': () => stream('chat.stream'),
  'chat.stream.usage': () =>
    stream('chat.stream.usage', isOpenAI ? {} : { model: compatible({ includeUsage: true })(model) }),
  'chat.tools': () => generate('chat.tools', withTools),
  'chat.tools.stream': () => stream('chat.tools.stream', withTools),
  'chat.json_schema': async () =>
    pick(
      await ai.generateObject({
        model: chatModel(),
        ...common,
        schema: CitySchema,
        prompt: promptOf('chat.json_schema'),
      }),
      ['object', 'finishReason', 'usage', 'warnings', 'providerMetadata', 'response'],
    ),
  'chat.reasoning': () => generate('chat.reasoning'),
  'chat.reasoning.stream': () => stream('chat.reasoning.stream'),
  responses: () => generate('responses', { model: openai.responses(model) }),
  'responses.stream': () => stream('responses.stream', { model: openai.responses(model) }),
  'responses.tools': () => generate('responses.tools', { ...withTools, model: openai.responses(model) }),
  'responses.tools.stream': () =>
    stream('responses.tools.stream', { ...withTools, model: openai.responses(model) }),
  embeddings: () =>
    ai.embedMany({
      model: isOpenAI
        ? openai.textEmbeddingModel(embeddingModel)
        : compatible().textEmbeddingModel(embeddingModel),
      values: [promptOf('embeddings')],
    }),
  images: async () =>
    pick(
      await generateImage({
        model: isOpenAI ? openai.image(model) : compatible().imageModel(model),
        prompt: promptOf('images'),
      }),
      ['images', 'warnings', 'responses', 'providerMetadata'],
    ),
  speech: async () =>
    pick(await ai.experimental_generateSpeech({ model: openai.speech(model), text: promptOf('speech') }), [
      'audio',
      'warnings',
      'responses',
    ]),
  transcription: async () =>
    pick(
      await ai.experimental_transcribe({
        model: openai.transcription(model),
        audio: new Uint8Array(await recording().arrayBuffer()),
        providerOptions: { openai: { prompt: promptOf('transcription') } },
      }),
      ['text', 'segments', 'language', 'durationInSeconds', 'warnings', 'responses'],
    ),
  completions: () =>
    generate('completions', {
      model: isOpenAI ? openai.completion(model) : compatible().completionModel(model),
      maxOutputTokens: 16,
    }),
  'error.unknown_model': () => generate('error.unknown_model', { model: chatModel(UNKNOWN_MODEL) }),
  'error.unknown_model.stream': () =>
    stream('error.unknown_model.stream', { model: chatModel(UNKNOWN_MODEL) }),
  'error.bad_request': () => generate('error.bad_request'),
  'error.bad_request.stream': () => stream('error.bad_request.stream'),
  'error.bad_request.responses': () =>
    generate('error.bad_request.responses', { model: openai.responses(model) }),
  'error.final': () => generate('error.final'),
  'error.cut_stream': () => stream('error.cut_stream'),
  'error.server': () => generate('error.server'),
  'error.server.stream': () => stream('error.server.stream'),
  'error.rate_limit': () => generate('error.rate_limit'),
});
