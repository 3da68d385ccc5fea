// LangChain with its OpenAI integration.
import { type BaseMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI, type ChatOpenAIFields, OpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { promptOf, UNKNOWN_MODEL } from '../../types.ts';
import { collect, makeCalls, target } from './calls.ts';
import { CitySchema, WEATHER, WeatherInput } from './requests.ts';

const { baseURL, apiKey, model, embeddingModel } = target;
const configuration = { baseURL };

const chat = (fields: ChatOpenAIFields = {}) =>
  new ChatOpenAI({ model, apiKey, configuration, temperature: 0, maxRetries: 2, ...fields });

const weather = tool(async ({ city }) => `The weather in ${city} is fine.`, {
  name: WEATHER.function.name,
  description: WEATHER.function.description,
  schema: WeatherInput,
});

/** What an application keeps of a message: all but the class. */
const messageOf = (message: BaseMessage): unknown => message.toDict();

const invoke = async (call: string, fields: ChatOpenAIFields = {}) =>
  messageOf(await chat(fields).invoke(promptOf(call)));

async function* messagesOf(stream: AsyncIterable<BaseMessage>): AsyncGenerator<unknown> {
  for await (const message of stream) yield messageOf(message);
}

const stream = async (call: string, fields: ChatOpenAIFields = {}) =>
  collect(messagesOf(await chat(fields).stream(promptOf(call))));

/** The call of a tool, its result, and the answer to that. */
async function useTool(call: string, fields: ChatOpenAIFields = {}): Promise<unknown> {
  const bound = chat(fields).bindTools([weather]);
  const question = new HumanMessage(promptOf(call));
  const asking = await bound.invoke([question]);
  const [wanted] = asking.tool_calls ?? [];
  if (wanted === undefined) return [messageOf(asking)];
  const found = await weather.invoke({ ...wanted, type: 'tool_call' });
  const said = found instanceof ToolMessage ? found : new ToolMessage(String(found), wanted.id ?? '');
  return [asking, await bound.invoke([question, asking, said])].map(messageOf);
}

await makeCalls({
  chat: () => invoke('chat'),
  'chat.stream': () => stream('chat.stream', { streamUsage: false }),
  'chat.stream.usage': () => stream('chat.stream.usage'),
  'chat.tools': () => useTool('chat.tools'),
  'chat.tools.stream': async () =>
    collect(messagesOf(await chat().bindTools([weather]).stream(promptOf('chat.tools.stream')))),
  'chat.json_schema': () =>
    chat()
      .withStructuredOutput(CitySchema, { method: 'jsonSchema', name: 'city', includeRaw: false })
      .invoke(promptOf('chat.json_schema')),
  'chat.n2': async () => {
    const { generations, llmOutput } = await chat({ n: 2 }).generate([
      [new HumanMessage(promptOf('chat.n2'))],
    ]);
    return {
      llmOutput,
      generations: generations.map((each) =>
        each.map(({ text, generationInfo }) => ({ text, generationInfo })),
      ),
    };
  },
  'chat.logprobs': () => invoke('chat.logprobs', { logprobs: true, topLogprobs: 2 }),
  'chat.reasoning': () => invoke('chat.reasoning'),
  'chat.reasoning.stream': () => stream('chat.reasoning.stream'),
  responses: () => invoke('responses', { useResponsesApi: true }),
  'responses.stream': () => stream('responses.stream', { useResponsesApi: true }),
  'responses.tools': () => useTool('responses.tools', { useResponsesApi: true }),
  embeddings: () =>
    new OpenAIEmbeddings({
      model: embeddingModel,
      apiKey,
      configuration,
      encodingFormat: 'float',
    }).embedQuery(promptOf('embeddings')),
  completions: () =>
    new OpenAI({ model, apiKey, configuration, temperature: 0, maxTokens: 16 }).invoke(
      promptOf('completions'),
    ),
  'error.unknown_model': () => invoke('error.unknown_model', { model: UNKNOWN_MODEL }),
  'error.bad_request': () => invoke('error.bad_request'),
  'error.bad_request.stream': () => stream('error.bad_request.stream'),
  'error.final': () => invoke('error.final'),
  'error.cut_stream': () => stream('error.cut_stream'),
  'error.server': () => invoke('error.server'),
  'error.server.stream': () => stream('error.server.stream'),
  'error.rate_limit': () => invoke('error.rate_limit'),
});
