// The differences that the gateway makes on purpose. Each has a name, a reason, and the places where it holds, as narrow as
// they can be, so that another difference at the same call is still found.
import type { Difference } from './compare.ts';
import {
  ANY,
  base64Embedding,
  change,
  header,
  headerPlace,
  isAbsent,
  isAnsweredByGateway,
  isAt,
  isRepeated,
  isRequestId,
  isSameErrorInOtherWords,
  limitOfLangChain,
  MODELS,
  modelField,
  NO_WEBSOCKET,
  netHttpOnLlama,
  ownHeader,
  type Place,
  thrown,
  UNKNOWN,
  type Where,
  websocketFirst,
} from './places.ts';

/** A difference that is right, and why. */
export interface Explanation {
  readonly name: string;
  readonly why: string;
  readonly places: readonly Place[];
}

export const EXPLANATIONS: readonly Explanation[] = [
  {
    name: 'headers of the connection and of the server',
    why: 'the gateway frames its own answers, tells its own limits, and passes the headers of an allow-list (docs/relay.md)',
    places: [
      ownHeader('connection', /^(?:keep-alive|close)$/),
      ownHeader('keep-alive', /^timeout=75$/),
      ownHeader('content-length', /^\d+$/),
      ownHeader('cache-control', /^no-cache, no-transform$/),
      ownHeader('x-accel-buffering', /^no$/),
      headerPlace('transfer-encoding', change('chunked', undefined)),
      headerPlace('x-ratelimit-(?:limit|remaining|reset)-(?:requests|tokens)', change(/^/, undefined)),
      headerPlace('date', change(undefined, / GMT$/)),
      headerPlace('(?:server|access-control-[a-z-]+)', change(/^/, undefined)),
      headerPlace('content-type', change('text/event-stream', 'text/event-stream; charset=utf-8')),
      headerPlace('content-type', change('application/json; charset=utf-8', 'application/json')),
    ],
  },
  {
    name: 'models of the routing table',
    why: 'the gateway lists the models that it routes, from its configuration, and asks no server',
    places: [
      { ...MODELS, path: /^requests$/, hasValues: isAnsweredByGateway },
      modelField('owned_by|ownedBy', change(/^(?:aimock|vendor|llamacpp)$/, 'tollgate')),
      modelField('created', (direct, through) => typeof direct === 'number' && through === 1_704_067_200),
      // The order is that of the configuration.
      {
        ...modelField(
          'id',
          change(/^(?:gpt-4o-mini|text-embedding-3-small)$/, /^(?:gpt-4o-mini|text-embedding-3-small)$/),
        ),
        server: /^aimock /,
      },
      {
        ...modelField(
          'aliases|architecture|meta|tags',
          (direct, through) => typeof direct === 'object' && through === undefined,
        ),
        server: /^llama\.cpp /,
      },
      // llama.cpp answers in the way of Ollama too.
      {
        ...MODELS,
        server: /^llama\.cpp /,
        path: /^result\.(?:body\.)?models$/,
        hasValues: (direct, through) => Array.isArray(direct) && through === undefined,
      },
    ],
  },
  {
    name: 'unknown model',
    why: 'the gateway knows its models, so it answers without asking a server, in its own words; status, type, code and class are the same',
    places: [
      {
        client: ANY,
        server: ANY,
        call: /^error\.unknown_model(?:\.stream|\.retrieve)?$/,
        path: /^requests$/,
        hasValues: isAnsweredByGateway,
      },
      {
        client: ANY,
        server: ANY,
        call: /^error\.unknown_model(?:\.stream|\.retrieve)?$/,
        path: /^(?:error|result\.thrown|result\.items\[\d+\])(?:\.\w+)*\.message$/,
        hasValues: (_direct, through) => String(through).includes(UNKNOWN),
      },
      {
        client: /^AI SDK /,
        server: ANY,
        call: /^error\.unknown_model(?:\.stream)?$/,
        path: /^(?:error|result\.thrown|result\.items\[\d+\]\.error)\.responseBody$/,
        hasValues: isSameErrorInOtherWords,
      },
    ],
  },
  {
    name: 'name of the model',
    why: 'the vendor answers with a name of its own, and the gateway with the name that was asked for (`response_model: alias`, the default)',
    places: [
      {
        client: ANY,
        server: /^scripted /,
        call: ANY,
        path: /^result.*\.(?:model|modelId|model_name)$/,
        hasValues: change('upstream-model', /^vendor-(?:model|embedding)$/),
      },
    ],
  },
  {
    name: 'usage of chunks',
    why: 'the gateway asks for usage to count it; the vendor then writes `usage: null` into each chunk, which SDKs take for no usage, and the chunk with the usage is left out',
    places: [
      {
        client: /^(?:openai|llama-index|net\/http|HttpClient|curl)/,
        server: /^scripted /,
        call: /^(?:chat(?:\.\w+)*\.stream(?:\.(?!usage)\w+)?|error\.cut_stream)$/,
        path: /^result(?:\.items|\.chunks|\.lines|\.body\.lines)?\[\d+\](?:\.data|\.chunk|\.snapshot|\.raw)?\.usage$/,
        hasValues: change(undefined, null),
      },
    ],
  },
  {
    name: 'time to wait in seconds',
    why: 'each 429 and 503 tells how long to wait, in seconds too where the vendor names only milliseconds or nothing (docs/relay.md)',
    places: [
      {
        client: ANY,
        server: /^scripted /,
        call: /^error\.(?:server|rate_limit)(?:\.stream)?$/,
        path: header('retry-after'),
        hasValues: change(undefined, '1'),
      },
      {
        client: /^pydantic-ai /,
        server: /^scripted /,
        call: /^error\.server$/,
        path: /^error\.retry_after$/,
        hasValues: change(null, 1),
      },
    ],
  },
  {
    name: 'a limit that passes',
    why: 'LangChain waits and asks again after a 429 that names a time in seconds, and gives up after one that names none; the gateway names it',
    places: [
      limitOfLangChain('requests', (direct, through) => isRepeated(through, direct)),
      limitOfLangChain('error.name', change('RateLimitCapacityError', 'Error')),
      limitOfLangChain('error.rateLimitReason', change('headerless_429', 'retry_after_hint')),
      limitOfLangChain('error.rateLimitType', change('capacity', 'wait')),
      limitOfLangChain('error.retryAfterMs', change(undefined, 1000)),
    ],
  },
  {
    name: 'broken stream',
    why: 'a stream that breaks ends with an error of the API, which SDKs raise as theirs, before the connection is cut (docs/relay.md)',
    places: [
      {
        // The error is an item of the stream.
        client: /^AI SDK /,
        server: /^scripted /,
        call: /^error\.cut_stream$/,
        path: /^result\.items\.length$/,
        hasValues: (direct, through) => through === Number(direct) + 1,
      },
      thrown('class', change(/^(?:Type)?Error$/, 'APIError')),
      thrown('name', change('TypeError', 'Error')),
      thrown('message', change(/^(?:terminated|Premature close)$/, /^The stream of the upstream broke /)),
      thrown('code', (_direct, through) => through === 'stream_incomplete'),
      thrown('type', change(undefined, 'server_error')),
      thrown('param', change(undefined, null)),
      thrown('request(?:_id|ID)', (direct, through) => direct === undefined && isRequestId(through)),
      thrown('(?:error|headers)', (direct, through) => direct === undefined && typeof through === 'object'),
      thrown('(?:cause|errno)', (_direct, through) => through === undefined),
    ],
  },
  {
    name: 'embeddings in the encoding that was asked for',
    why: 'aimock answers with numbers where base64 was asked for, and some SDKs decode them as if they were text; the gateway makes base64 of them',
    places: [
      base64Embedding(
        '',
        (direct, through) => Array.isArray(direct) && through === 'AACAPgAAAL8AAIA/AAAAPA==',
      ),
      base64Embedding('\\.length', change(1, 4)),
      base64Embedding('\\[\\d+\\]', (_direct, through) =>
        [0.25, -0.5, 1, 0.0078125].includes(Number(through)),
      ),
    ],
  },
  {
    name: 'request sent again on a fresh connection',
    why: 'aimock closes a connection that was idle for 5 s, which a JVM that is slow to start meets; the gateway keeps it for 75 s',
    places: [
      { client: /^openai-java /, server: /^aimock /, call: ANY, path: /^requests$/, hasValues: isRepeated },
    ],
  },
  {
    name: 'connection closed after a stream',
    why: 'llama.cpp closes the connection after a stream without saying so; openai 4 for Node, openai for Python and openai-go spend one of their retries on that, and net/http does not send a POST again; the gateway does, on a fresh connection',
    places: [
      {
        client: /^openai \((?:Node\) 4\.|Python, )|^openai-go /,
        server: /^llama\.cpp /,
        call: ANY,
        path: /^requests$/,
        hasValues: isRepeated,
      },
      // Some of these requests never reach the server.
      netHttpOnLlama(
        'requests',
        (direct, through) => String(direct) === '' && /^POST [^,]+$/.test(String(through)),
      ),
      netHttpOnLlama(
        'error',
        (direct, through) => through === undefined && /: EOF"/.test(JSON.stringify(direct)),
      ),
      netHttpOnLlama('result', (direct, through) => direct === null && typeof through === 'object'),
    ],
  },
  {
    name: 'Codex goes on by HTTP',
    why: 'without WebSockets at the server, the 426 of the gateway makes Codex send plain requests at once, and a server that answers 404 makes Codex ask seven times',
    places: [
      websocketFirst(
        'result',
        NO_WEBSOCKET,
        (direct, through) => direct === undefined && typeof through === 'object',
      ),
      websocketFirst(
        'error',
        NO_WEBSOCKET,
        (direct, through) => through === undefined && JSON.stringify(direct).includes('"reconnected"'),
      ),
    ],
  },
  {
    name: 'an id for each request',
    why: 'the gateway gives an id to an answer whose server has none, and writes it into its log',
    places: [
      {
        client: ANY,
        server: /^(?:aimock|llama\.cpp) /,
        call: ANY,
        path: /\.(?:_?request_id|requestId|requestID|x-request-id)$/,
        hasValues: (direct, through) => isAbsent(direct) && isRequestId(through),
      },
    ],
  },
  {
    name: 'usage in the last chunk of completions',
    why: 'llama.cpp reports usage in each stream of completions; the gateway shows usage in streams to clients that ask for it',
    places: [
      {
        client: ANY,
        server: /^llama\.cpp /,
        call: /^completions\.stream$/,
        path: /\.(?:usage|additional_kwargs\.\w+_tokens)$/,
        hasValues: (direct, through) => !isAbsent(direct) && through === undefined,
      },
    ],
  },
];

/** The explanation of a difference, if there is one. */
export function explanationOf(difference: Difference, where: Where): Explanation | undefined {
  return EXPLANATIONS.find(({ places }) => places.some((place) => isAt(place, difference, where)));
}
