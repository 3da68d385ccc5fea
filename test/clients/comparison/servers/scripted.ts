// A scripted server with the answers that other servers of the comparison do not give: several choices, logprobs, events of
// images, members that vendors add, and failures that say how and when to try again. It streams where the request asks for
// it, and answers with another name of the model than it was asked for, as vendors do.
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import {
  chunkOf,
  completion,
  contentChunk,
  DONE,
  finishChunk,
  frame,
  roleChunk,
  toolChunk,
  upstreamError,
  usageOf,
} from '../../../helpers/completions.ts';
import {
  embeddingList,
  eventFrame,
  imageEvents,
  imageList,
  moderation,
  responseEvents,
  responseObject,
  textChunk,
  textCompletion,
} from '../../../helpers/recorded.ts';
import { AZURE } from '../tap.ts';
import { type ComparedServer, promptOf, type RunningServer, UNKNOWN_MODEL } from '../types.ts';

const MODEL = 'vendor-model';
const IMAGE =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const PARTS = ['Grüße aus ', 'Lissabon — “fine” ', '🌤️'];
const TEXT = PARTS.join('');
const CITY = ['{"city":"Lisbon",', '"country":"Portugal"}'];
const PROMPT = new RegExp(`${promptOf('')}([a-z0-9_.]+)`);

const USAGE = {
  ...usageOf(),
  prompt_tokens_details: { cached_tokens: 1, audio_tokens: 0 },
  completion_tokens_details: { reasoning_tokens: 2, accepted_prediction_tokens: 0 },
};

/** What a request asks for. */
interface Asked {
  readonly isStream: boolean;
  readonly hasUsage: boolean;
  /** The conversation ends with the result of a tool. */
  readonly hasToolResult: boolean;
}

export interface Answer {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** A JSON body. */
  readonly json?: object;
  /** The frames of a stream, each sent on its own. */
  readonly frames?: readonly string[];
  /** The connection is cut behind the frames. */
  readonly isCut?: boolean;
  readonly sound?: string;
}

const choice = (index: number, message: object, rest: object = {}) => ({
  index,
  message: { role: 'assistant', content: TEXT, refusal: null, annotations: [], ...message },
  logprobs: null,
  finish_reason: 'stop',
  ...rest,
});

const whole = (...choices: readonly object[]): Answer => ({
  json: {
    ...completion(),
    choices,
    usage: USAGE,
    service_tier: 'default',
    system_fingerprint: 'fp_scripted',
  },
});

const LOGPROBS = {
  content: [
    {
      token: 'Gr',
      logprob: -0.25,
      bytes: [71, 114],
      top_logprobs: [{ token: 'Gr', logprob: -0.25, bytes: [71, 114] }],
    },
  ],
  refusal: null,
};

const toolCall = (id: string, city: string) => ({
  id,
  type: 'function',
  function: { name: 'get_weather', arguments: JSON.stringify({ city }) },
});

/** Frames as a vendor sends them: with a comment, members of its own, and usage on request. */
function streamed({ hasUsage }: Asked, ...chunks: readonly object[]): Answer {
  const own = { service_tier: 'default', obfuscation: 'a1b2c3', ...(hasUsage ? { usage: null } : {}) };
  const frames = chunks.map((each) => frame({ ...each, ...own }));
  const usage = frame({ ...finishChunk(), choices: [], usage: USAGE, service_tier: 'default' });
  return { frames: [': the server thinks\n\n', ...frames, ...(hasUsage ? [usage] : []), DONE] };
}

/** A text, whole or in these parts, with a reasoning before it. */
function text(asked: Asked, parts: readonly string[], reasoning?: object): Answer {
  if (!asked.isStream) return whole(choice(0, { content: parts.join(''), ...reasoning }));
  const thought = reasoning === undefined ? [] : [chunkOf(reasoning)];
  const said = parts.map((part) => contentChunk(part));
  return streamed(asked, roleChunk(), ...thought, ...said, finishChunk());
}

/** Calls of a tool: two in a whole answer, one in parts in a stream. */
function toolCalls(asked: Asked): Answer {
  if (asked.isStream)
    return streamed(
      asked,
      roleChunk(),
      toolChunk({ index: 0, id: 'call_a', name: 'get_weather', arguments: '' }),
      toolChunk({ index: 0, arguments: '{"city":' }),
      toolChunk({ index: 0, arguments: '"Lisbon"}' }),
      finishChunk('tool_calls'),
    );
  const calls = [toolCall('call_a', 'Lisbon'), toolCall('call_b', 'Porto')];
  return whole(choice(0, { content: null, tool_calls: calls }, { finish_reason: 'tool_calls' }));
}

function logprobs(asked: Asked): Answer {
  if (!asked.isStream) return whole(choice(0, {}, { logprobs: LOGPROBS }));
  const withLogprobs = {
    ...contentChunk(TEXT),
    choices: [{ index: 0, delta: { content: TEXT }, logprobs: LOGPROBS, finish_reason: null }],
  };
  return streamed(asked, roleChunk(), withLogprobs, finishChunk());
}

const failed = (status: number, code: string, headers: Readonly<Record<string, string>> = {}): Answer => ({
  status,
  headers,
  json: upstreamError(`The server says ${code}.`, {
    type: status < 500 ? 'invalid_request_error' : 'server_error',
    code,
  }),
});

/** The answer to each call, and to those that begin with it and a dot. */
const ANSWERS: Readonly<Record<string, (asked: Asked) => Answer>> = {
  chat: (asked) => text(asked, PARTS),
  'chat.tools': (asked) => (asked.hasToolResult ? text(asked, PARTS) : toolCalls(asked)),
  'chat.json_schema': (asked) => text(asked, CITY),
  'chat.n2': () => whole(choice(0, {}), choice(1, { content: 'Another text.' }, { finish_reason: 'length' })),
  'chat.logprobs': logprobs,
  'chat.reasoning': (asked) =>
    text(asked, PARTS, { reasoning_content: 'It is sunny.', reasoning: 'It is sunny.' }),
  responses: ({ isStream }) =>
    isStream ? { frames: responseEvents(PARTS).map(eventFrame) } : { json: responseObject({ text: TEXT }) },
  embeddings: () => ({ json: embeddingList([[0.25, -0.5, 1]]) }),
  'embeddings.base64': () => ({ json: embeddingList(['AACAPgAAAL8AAIA/']) }),
  images: ({ isStream }) =>
    isStream ? { frames: imageEvents(IMAGE).map(eventFrame) } : { json: imageList(IMAGE) },
  speech: () => ({ sound: 'sound of a speech' }),
  transcription: () => ({ json: { text: TEXT, usage: { type: 'duration', seconds: 1 } } }),
  moderations: () => ({ json: moderation() }),
  completions: ({ isStream }) =>
    isStream
      ? { frames: [...PARTS.map((part) => frame(textChunk(part))), frame(textChunk('', 'stop')), DONE] }
      : { json: textCompletion(TEXT) },
  'error.unknown_model': () => failed(404, 'model_not_found'),
  'error.bad_request': () => failed(400, 'invalid_value'),
  'error.server': () => failed(503, 'overloaded'),
  'error.rate_limit': () => failed(429, 'rate_limit_exceeded', { 'retry-after-ms': '20' }),
  'error.final': () => failed(500, 'server_error', { 'x-should-retry': 'false' }),
  'error.cut_stream': (asked) => ({
    frames: (text(asked, PARTS).frames ?? []).slice(0, 3),
    isCut: true,
  }),
};

export const scripted: ComparedServer = {
  name: 'scripted',
  version: 'of the checkout',
  start: async (): Promise<RunningServer> => {
    const { url, close } = await startScripted((path, body) =>
      answerTo(path.replace(AZURE, '/v1/').replace(/\?api-version=.*/, ''), body),
    );
    return {
      baseUrl: `${url}/v1`,
      apiKey: 'credential-of-scripted',
      model: MODEL,
      embeddingModel: 'vendor-embedding',
      isParallel: true,
      hasAzurePaths: true,
      lacks: {
        'responses.tools': 'the answers of this script call no tool there',
        'responses.websocket': 'this script has no WebSockets',
      },
      close,
    };
  },
};

function answerTo(path: string, body: string): Answer {
  const model = { id: MODEL, object: 'model', created: 1_700_000_000, owned_by: 'vendor' };
  if (path === '/v1/models')
    return { json: { object: 'list', data: [model, { ...model, id: 'vendor-embedding' }] } };
  if (path.startsWith('/v1/models/'))
    return path.endsWith(UNKNOWN_MODEL) ? failed(404, 'model_not_found') : { json: model };
  for (
    let call = PROMPT.exec(body)?.[1] ?? '';
    call !== '';
    call = call.slice(0, Math.max(0, call.lastIndexOf('.')))
  ) {
    const answer = ANSWERS[call];
    if (answer !== undefined) return answer(askedBy(body));
  }
  return failed(404, 'no_such_call');
}

/** Forms ask for none of it. */
const askedBy = (body: string): Asked => ({
  isStream: /"stream": ?true/.test(body),
  hasUsage: /"include_usage": ?true/.test(body),
  hasToolResult: /"role": ?"tool"/.test(body),
});

/** What a server was sent. */
export interface Sent {
  /** The path, and a query. */
  readonly target: string;
  readonly body: string;
}

/** A server on loopback that gives these answers, and keeps what it was sent. */
export async function startScripted(answer: (target: string, body: string) => Answer): Promise<{
  /** Without a path. */
  readonly url: string;
  readonly sent: readonly Sent[];
  close(): Promise<void>;
}> {
  const sent: Sent[] = [];
  const server = createServer(async (request, response) => {
    const body = (await buffer(request)).toString('utf8');
    const target = request.url ?? '';
    sent.push({ target, body });
    await send(answer(target, body), response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sent,
    close: async () => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function send(
  { status = 200, headers, json, frames, isCut, sound }: Answer,
  response: ServerResponse,
): Promise<void> {
  const type =
    frames !== undefined ? 'text/event-stream' : sound !== undefined ? 'audio/mpeg' : 'application/json';
  response.writeHead(status, { 'content-type': type, 'x-request-id': 'req_scripted', ...headers });
  for (const each of frames ?? [sound ?? JSON.stringify(json)]) {
    response.write(each);
    // Each frame is a segment of its own.
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (isCut === true) response.destroy();
  else response.end();
}
