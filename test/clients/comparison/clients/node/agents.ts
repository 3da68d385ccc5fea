// The OpenAI Agents SDK, with Chat Completions and with Responses.
import { Agent, run, setDefaultOpenAIClient, setOpenAIAPI, setTracingDisabled, tool } from '@openai/agents';
import OpenAI from 'openai';
import type { z } from 'zod';
import { promptOf, UNKNOWN_MODEL } from '../../types.ts';
import { collect, makeCalls, target } from './calls.ts';
import { CitySchema, WEATHER, WeatherInput } from './requests.ts';

setTracingDisabled(true);
setDefaultOpenAIClient(new OpenAI({ baseURL: target.baseURL, apiKey: target.apiKey }));

const weather = tool({
  name: WEATHER.function.name,
  description: WEATHER.function.description,
  parameters: WeatherInput,
  execute: async ({ city }) => `The weather in ${city} is fine.`,
});

interface Wish {
  readonly model?: string;
  readonly tools?: readonly unknown[];
  readonly outputType?: z.ZodType;
}

function agent(call: string, { model = target.model, ...wish }: Wish): Agent {
  setOpenAIAPI(call.startsWith('responses') ? 'responses' : 'chat_completions');
  return new Agent({ name: 'assistant', instructions: 'Be brief.', model, ...wish });
}

async function ask(call: string, wish: Wish = {}): Promise<unknown> {
  const { finalOutput, history, rawResponses } = await run(agent(call, wish), promptOf(call));
  return { finalOutput, history, rawResponses };
}

async function stream(call: string, wish: Wish = {}): Promise<unknown> {
  const result = await run(agent(call, wish), promptOf(call), { stream: true });
  const collected = await collect(eventsOf(result));
  await result.completed.catch(() => undefined);
  return { ...collected, finalOutput: result.finalOutput, history: result.history };
}

/** Items of a run refer to the agent; what came from the model is in their raw item. */
async function* eventsOf(events: AsyncIterable<unknown>): AsyncGenerator<unknown> {
  for await (const event of events) {
    const { type, name, data, item } = Object(event);
    yield { type, name, data, item: item?.rawItem };
  }
}

const tools = [weather];

await makeCalls({
  chat: () => ask('chat'),
  'chat.stream': () => stream('chat.stream'),
  'chat.tools': () => ask('chat.tools', { tools }),
  'chat.tools.stream': () => stream('chat.tools.stream', { tools }),
  'chat.json_schema': () => ask('chat.json_schema', { outputType: CitySchema }),
  'chat.reasoning': () => ask('chat.reasoning'),
  'chat.reasoning.stream': () => stream('chat.reasoning.stream'),
  responses: () => ask('responses'),
  'responses.stream': () => stream('responses.stream'),
  'responses.tools': () => ask('responses.tools', { tools }),
  'responses.tools.stream': () => stream('responses.tools.stream', { tools }),
  'error.unknown_model': () => ask('error.unknown_model', { model: UNKNOWN_MODEL }),
  'error.bad_request': () => ask('error.bad_request'),
  'error.bad_request.stream': () => stream('error.bad_request.stream'),
  'error.final': () => ask('error.final'),
  'error.cut_stream': () => stream('error.cut_stream'),
  'error.server': () => ask('error.server'),
  'error.rate_limit': () => ask('error.rate_limit'),
});
