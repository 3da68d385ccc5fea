// A scripted server with the answers that other servers of the comparison do not give: several choices, logprobs, events of
// images, members that vendors add, and failures that say how and when to try again. In a vendor's way it answers with
// another name of the model than it was asked for.
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
import { type ComparedServer, promptOf, type RunningServer, UNKNOWN_MODEL } from '../types.ts';

const MODEL = 'vendor-model';
const IMAGE =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const TEXT = 'Grüße aus Lissabon — “fine” 🌤️';
const PROMPT = new RegExp(`${promptOf('')}([a-z0-9_.]+)`);

const USAGE = {
  ...usageOf(),
  prompt_tokens_details: { cached_tokens: 1, audio_tokens: 0 },
  completion_tokens_details: { reasoning_tokens: 2, accepted_prediction_tokens: 0 },
};

interface Answer {
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

const chat = (...choices: readonly object[]): Answer => ({
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

const withLogprobs = (chunk: object): object => {
  const [first] = Reflect.get(chunk, 'choices') as object[];
  return { ...chunk, choices: [{ ...first, logprobs: LOGPROBS }] };
};

const isStreamed = (body: string): boolean => /"stream":\s*true/.test(body);

const toolCall = (id: string, city: string) => ({
  id,
  type: 'function',
  function: { name: 'get_weather', arguments: JSON.stringify({ city }) },
});

/** Frames as a vendor sends them: with a comment, members of its own, and usage on request. */
const chatFrames = (body: string, ...middle: readonly object[]): Answer => {
  const hasUsage = body.includes('"include_usage":true');
  const own = { service_tier: 'default', obfuscation: 'a1b2c3', ...(hasUsage ? { usage: null } : {}) };
  const frames = [roleChunk(), ...middle].map((each) => frame({ ...each, ...own }));
  const usage = frame({ ...finishChunk(), choices: [], usage: USAGE, service_tier: 'default' });
  return { frames: [': the server thinks\n\n', ...frames, ...(hasUsage ? [usage] : []), DONE] };
};

const failed = (status: number, code: string, headers: Readonly<Record<string, string>> = {}): Answer => ({
  status,
  headers,
  json: upstreamError(`The server says ${code}.`, {
    type: status < 500 ? 'invalid_request_error' : 'server_error',
    code,
  }),
});

/** The answer to each call, and to those that begin with it and a dot. */
const ANSWERS: Readonly<Record<string, (body: string) => Answer>> = {
  chat: () => chat(choice(0, {})),
  'chat.stream': (body) =>
    chatFrames(body, contentChunk('Grüße aus '), contentChunk('Lissabon 🌤️'), finishChunk()),
  'chat.tools': (body) =>
    body.includes('"role":"tool"')
      ? chat(choice(0, {}))
      : chat(
          choice(
            0,
            { content: null, tool_calls: [toolCall('call_a', 'Lisbon'), toolCall('call_b', 'Porto')] },
            { finish_reason: 'tool_calls' },
          ),
        ),
  'chat.tools.stream': (body) =>
    body.includes('"role":"tool"')
      ? chatFrames(body, contentChunk(TEXT), finishChunk())
      : chatFrames(
          body,
          toolChunk({ index: 0, id: 'call_a', name: 'get_weather', arguments: '' }),
          toolChunk({ index: 0, arguments: '{"city":' }),
          toolChunk({ index: 0, arguments: '"Lisbon"}' }),
          finishChunk('tool_calls'),
        ),
  'chat.json_schema': () => chat(choice(0, { content: '{"city":"Lisbon","country":"Portugal"}' })),
  'chat.json_schema.stream': (body) =>
    chatFrames(body, contentChunk('{"city":"Lisbon",'), contentChunk('"country":"Portugal"}'), finishChunk()),
  'chat.n2': () => chat(choice(0, {}), choice(1, { content: 'Another text.' }, { finish_reason: 'length' })),
  'chat.logprobs': () => chat(choice(0, {}, { logprobs: LOGPROBS })),
  'chat.logprobs.stream': (body) => chatFrames(body, withLogprobs(contentChunk('Gr')), finishChunk()),
  'chat.reasoning': () => chat(choice(0, { reasoning_content: 'It is sunny.', reasoning: 'It is sunny.' })),
  'chat.reasoning.stream': (body) =>
    chatFrames(body, chunkOf({ reasoning_content: 'It is sunny.' }), contentChunk(TEXT), finishChunk()),
  responses: () => ({ json: responseObject({ text: TEXT }) }),
  // One of the libraries streams this call by asking once and taking the answer apart.
  'responses.stream': (body) =>
    isStreamed(body)
      ? { frames: responseEvents(['Grüße ', 'aus Lissabon']).map(eventFrame) }
      : { json: responseObject({ text: TEXT }) },
  embeddings: () => ({ json: embeddingList([[0.25, -0.5, 1]]) }),
  'embeddings.base64': () => ({ json: embeddingList(['AACAPgAAAL8AAIA/']) }),
  images: () => ({ json: imageList(IMAGE) }),
  'images.stream': () => ({ frames: imageEvents(IMAGE).map(eventFrame) }),
  speech: () => ({ sound: 'sound of a speech' }),
  transcription: () => ({ json: { text: TEXT, usage: { type: 'duration', seconds: 1 } } }),
  moderations: () => ({ json: moderation() }),
  completions: () => ({ json: textCompletion(TEXT) }),
  'completions.stream': () => ({
    frames: [
      ...['Grüße ', 'aus Lissabon'].map((text) => frame(textChunk(text, null))),
      frame(textChunk('', 'stop')),
      DONE,
    ],
  }),
  'error.unknown_model': () => failed(404, 'model_not_found'),
  'error.bad_request': () => failed(400, 'invalid_value'),
  'error.server': () => failed(503, 'overloaded'),
  'error.rate_limit': () => failed(429, 'rate_limit_exceeded', { 'retry-after-ms': '20' }),
  'error.final': () => failed(500, 'server_error', { 'x-should-retry': 'false' }),
  'error.cut_stream': (body) => ({
    frames: (chatFrames(body, contentChunk('Grüße')).frames ?? []).slice(0, -1),
    isCut: true,
  }),
};

export const scripted: ComparedServer = {
  name: 'scripted',
  version: 'of the checkout',
  start: async (): Promise<RunningServer> => {
    const server = createServer(async (request, response) => {
      const body = (await buffer(request)).toString('utf8');
      await send(answerTo(request.url ?? '', body), response);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return {
      baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
      apiKey: 'credential-of-scripted',
      model: MODEL,
      embeddingModel: 'vendor-embedding',
      isParallel: true,
      lacks: { 'responses.tools': 'the answers of this script call no tool there' },
      close: async () => {
        const closed = once(server, 'close');
        server.close();
        server.closeAllConnections();
        await closed;
      },
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
    if (answer !== undefined) return answer(body);
  }
  return failed(404, 'no_such_call');
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
