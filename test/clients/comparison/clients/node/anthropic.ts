// Anthropic's official library: each call with what it hands to its user.
import Anthropic from '@anthropic-ai/sdk';
import { promptOf } from '../../types.ts';

const { BASE_URL = '', API_KEY = '', MODEL = '', CALLS = '' } = process.env;
const client = new Anthropic({ baseURL: BASE_URL, apiKey: API_KEY, authToken: null, maxRetries: 0 });

const asking = (call: string) => ({
  model: MODEL,
  max_tokens: 64,
  messages: [{ role: 'user', content: promptOf(call) }],
});
const TOOL = {
  name: 'Bash',
  description: 'Runs a command',
  input_schema: { type: 'object', properties: { command: { type: 'string' } } },
};

/** The events of a stream until it ends or throws, and what it throws. */
async function eventsOf(call: string, more: object = {}): Promise<unknown> {
  const events: unknown[] = [];
  try {
    for await (const event of await client.messages.create({ ...asking(call), ...more, stream: true }))
      events.push(event);
  } catch (error) {
    return { events, thrown: thrownBy(error) };
  }
  return { events };
}

async function helped(call: string, more: object = {}): Promise<unknown> {
  const stream = client.messages.stream({ ...asking(call), ...more });
  const texts: string[] = [];
  stream.on('text', (text: string) => texts.push(text));
  return { final: await stream.finalMessage(), texts };
}

/** A tool call, and its result sent back. */
async function tools(call: string): Promise<unknown> {
  const first = await client.messages.stream({ ...asking(call), tools: [TOOL] }).finalMessage();
  const used = first.content.find(({ type }) => type === 'tool_use');
  const messages = [
    ...asking(call).messages,
    { role: 'assistant', content: first.content },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: used?.id, content: 'from-tool' }] },
  ];
  const last = await client.messages.stream({ ...asking(call), messages, tools: [TOOL] }).finalMessage();
  return { first, last };
}

async function aborted(call: string): Promise<unknown> {
  const stream = await client.messages.create({ ...asking(call), stream: true });
  const types: unknown[] = [];
  for await (const event of stream) {
    types.push(event.type);
    if (event.type === 'content_block_delta') stream.controller.abort();
  }
  return types;
}

async function listed(): Promise<unknown> {
  const all: unknown[] = [];
  for await (const model of client.models.list({ limit: 1 })) all.push(model);
  return all;
}

const create = (call: string) => client.messages.create(asking(call));
const calls: Readonly<Record<string, (call: string) => Promise<unknown>>> = {
  message: create,
  'message.response': async (call) => {
    const { data, response, request_id } = await client.messages.create(asking(call)).withResponse();
    return { data, status: response.status, request_id };
  },
  'message.bearer': (call) =>
    client.withOptions({ apiKey: null, authToken: API_KEY }).messages.create(asking(call)),
  'message.beta': (call) => client.beta.messages.create({ ...asking(call), betas: ['some-beta-2026-01-01'] }),
  stream: eventsOf,
  'stream.helper': helped,
  'stream.thinking': (call) => helped(call, { thinking: { type: 'enabled', budget_tokens: 1024 } }),
  'stream.tools': tools,
  'stream.abort': aborted,
  count_tokens: (call) => {
    const { max_tokens: _, ...rest } = asking(call);
    return client.messages.countTokens(rest);
  },
  'models.list': listed,
  'models.retrieve': () => client.models.retrieve(MODEL),
  'error.bad_request': create,
  'error.too_large': create,
  'error.overloaded': create,
  'error.rate_limit': create,
  'error.once': (call) => client.withOptions({ maxRetries: 1 }).messages.create(asking(call)),
  'error.event': eventsOf,
  'error.cut': eventsOf,
  'error.end': eventsOf,
};

function thrownBy(error: unknown): object {
  if (!(error instanceof Anthropic.APIError)) return { class: String(error) };
  const { status, type, error: body, requestID, message } = error;
  return { class: error.constructor.name, status, type, body, requestID, message };
}

for (const call of CALLS.split(',')) {
  try {
    console.log(JSON.stringify({ call, result: await calls[call]?.(call) }));
  } catch (error) {
    console.log(JSON.stringify({ call, error: thrownBy(error) }));
  }
}
