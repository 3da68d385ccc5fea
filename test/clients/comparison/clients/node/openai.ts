// The official SDK for Node, in whichever major version `openai` resolves to.
import OpenAI, { AzureOpenAI } from 'openai';
import { promptOf, UNKNOWN_MODEL } from '../../types.ts';
import { collect, itemsOf, makeCalls, target } from './calls.ts';
import { CITY_FORMAT, messagesOf, recording, WEATHER, WEATHER_PARAMETERS } from './requests.ts';

const { apiKey, baseURL } = target;
const client =
  process.env['KIND'] === 'azure'
    ? new AzureOpenAI({ apiKey, endpoint: new URL(baseURL).origin, apiVersion: '2025-04-01-preview' })
    : new OpenAI({ baseURL, apiKey });
const { model, embeddingModel } = target;

type Extra = Partial<OpenAI.ChatCompletionCreateParamsNonStreaming>;

const chat = (call: string, extra: Extra = {}) =>
  client.chat.completions.create({ model, messages: messagesOf(call), temperature: 0, seed: 1, ...extra });

const chatStream = async (call: string, extra: Omit<Extra, 'stream'> = {}) =>
  collect(
    await client.chat.completions.create({
      model,
      messages: messagesOf(call),
      temperature: 0,
      seed: 1,
      ...extra,
      stream: true,
    }),
  );

/** As an object, with the headers of the answer that the API documents for users. */
const withResponse = async (call: string) => {
  const { data, response, request_id } = await chat(call).withResponse();
  return { data, request_id, status: response.status, headers: response.headers };
};

const RESPONSES_TOOL = {
  type: 'function' as const,
  name: WEATHER.function.name,
  description: WEATHER.function.description,
  parameters: WEATHER_PARAMETERS,
  strict: true,
};

await makeCalls({
  'models.list': async () => itemsOf(client.models.list()),
  'models.retrieve': () => client.models.retrieve(model),
  chat: () => chat('chat'),
  'chat.with_response': () => withResponse('chat.with_response'),
  'chat.stream': () => chatStream('chat.stream'),
  'chat.stream.usage': () => chatStream('chat.stream.usage', { stream_options: { include_usage: true } }),
  'chat.tools': () => chat('chat.tools', { tools: [WEATHER], tool_choice: 'required' }),
  'chat.tools.stream': () => chatStream('chat.tools.stream', { tools: [WEATHER], tool_choice: 'required' }),
  'chat.json_schema': () => chat('chat.json_schema', { response_format: CITY_FORMAT }),
  'chat.n2': () => chat('chat.n2', { n: 2 }),
  'chat.logprobs': () => chat('chat.logprobs', { logprobs: true, top_logprobs: 2 }),
  'chat.reasoning': () => chat('chat.reasoning'),
  'chat.reasoning.stream': () => chatStream('chat.reasoning.stream'),
  responses: () => client.responses.create({ model, input: promptOf('responses') }),
  'responses.stream': async () =>
    collect(await client.responses.create({ model, input: promptOf('responses.stream'), stream: true })),
  'responses.tools': () =>
    client.responses.create({ model, input: promptOf('responses.tools'), tools: [RESPONSES_TOOL] }),
  'responses.tools.stream': async () =>
    collect(
      await client.responses.create({
        model,
        input: promptOf('responses.tools.stream'),
        tools: [RESPONSES_TOOL],
        stream: true,
      }),
    ),
  embeddings: () =>
    client.embeddings.create({
      model: embeddingModel,
      input: promptOf('embeddings'),
      encoding_format: 'float',
    }),
  // Without a format the SDK asks for base64 and decodes it.
  'embeddings.base64': () =>
    client.embeddings.create({ model: embeddingModel, input: promptOf('embeddings.base64') }),
  images: () => client.images.generate({ model, prompt: promptOf('images') }),
  'images.stream': async () =>
    collect(await client.images.generate({ model, prompt: promptOf('images.stream'), stream: true })),
  speech: async () => {
    const response = await client.audio.speech.create({ model, voice: 'alloy', input: promptOf('speech') });
    return { type: response.headers.get('content-type'), sound: await response.arrayBuffer() };
  },
  transcription: () =>
    client.audio.transcriptions.create({ model, file: recording(), prompt: promptOf('transcription') }),
  moderations: () => client.moderations.create({ model, input: promptOf('moderations') }),
  completions: () =>
    client.completions.create({ model, prompt: promptOf('completions'), temperature: 0, max_tokens: 16 }),
  'error.unknown_model': () => chat('error.unknown_model', { model: UNKNOWN_MODEL }),
  'error.unknown_model.stream': () => chatStream('error.unknown_model.stream', { model: UNKNOWN_MODEL }),
  'error.unknown_model.retrieve': () => client.models.retrieve(UNKNOWN_MODEL),
  'error.bad_request': () => chat('error.bad_request'),
  'error.bad_request.stream': () => chatStream('error.bad_request.stream'),
  'error.bad_request.responses': () =>
    client.responses.create({ model, input: promptOf('error.bad_request.responses') }),
  'error.bad_request.embeddings': () =>
    client.embeddings.create({ model: embeddingModel, input: promptOf('error.bad_request.embeddings') }),
  'error.final': () => chat('error.final'),
  'error.cut_stream': () => chatStream('error.cut_stream'),
  'error.server': () => chat('error.server'),
  'error.server.stream': () => chatStream('error.server.stream'),
  'error.rate_limit': () => chat('error.rate_limit'),
});
