// The differences that the gateway makes on purpose. Each has a name, a reason, and the narrowest place that holds it.
import type { Difference } from './compare.ts';

/** A difference that is right, and why. */
export interface Explanation {
  readonly name: string;
  readonly why: string;
  matches(difference: Difference, where: Where): boolean;
}

/** The pair that shows a difference: names with versions. */
export interface Where {
  readonly client: string;
  readonly server: string;
}

/** Which models there are, what a model object says of its owner, and what vendors add to it. */
const isOwnModelField = ({ path, through }: Difference): boolean =>
  path.startsWith('result') &&
  (/\.(?:id|created|owned_by|ownedBy|length)$/.test(path) || through === undefined);

/** The server gets no request, where it gets some from the client itself. */
const isAnsweredByGateway = ({ path, direct, through }: Difference): boolean =>
  path === 'requests' && String(direct) !== '' && String(through) === '';

const isMessage = ({ path }: Difference): boolean => /(?:^|\.)(?:message|responseBody)$/.test(path);

const HEADER = /\.(?:headers|responseHeaders|(?:litellm_)?response_headers)\.([\w-]+)$/i;

/** Headers that the gateway writes itself: they belong to its own connection to the client, or are about its own limits. */
const OWN_HEADERS =
  /^(?:connection|keep-alive|transfer-encoding|content-length|date|cache-control|x-accel-buffering|x-ratelimit-.*)$/;
/** Headers of the server that reach the client: to lose one of them is a fault. */
const PASSED_HEADERS =
  /^(?:content-type|retry-after|retry-after-ms|x-should-retry|openai-processing-ms|openai-version)$/;

/** `text/event-stream` of `text/event-stream; charset=utf-8`. */
const mediaTypeOf = (value: unknown): string => String(value).split(';')[0] ?? '';

function isOwnHeader({ path, direct, through }: Difference): boolean {
  const name = HEADER.exec(path)?.[1]?.toLowerCase();
  if (name === undefined) return false;
  if (name === 'content-type') return mediaTypeOf(direct) === mediaTypeOf(through);
  return OWN_HEADERS.test(name) || (through === undefined && !PASSED_HEADERS.test(name));
}

/** The same request, but directly more often. */
const isRepeated = (direct: unknown, through: unknown): boolean =>
  Array.isArray(direct) &&
  Array.isArray(through) &&
  direct.length > through.length &&
  new Set([...direct, ...through]).size === 1;

const isAddedWait = ({ path, direct, through }: Difference): boolean =>
  (/^retry-after(?:-ms)?$/.test(HEADER.exec(path)?.[1] ?? '') && direct === undefined) ||
  // LiteLLM's name for the header.
  (path.endsWith('.retry_after') && direct === null && typeof through === 'number');

/** LangChain has classes of its own for a 429 with and without a time to wait, and repeats only the former. */
const isLimitOfLangChain = ({ call, path }: Difference): boolean =>
  call === 'error.rate_limit' &&
  /^(?:requests|error\.(?:name|retryAfterMs|rateLimit(?:Type|Reason)))$/.test(path);

export const EXPLANATIONS: readonly Explanation[] = [
  {
    name: 'headers of the connection and of the server',
    why: 'the gateway frames its own answers, tells its own limits, and passes the headers of an allow-list (docs/relay.md)',
    matches: isOwnHeader,
  },
  {
    name: 'models of the routing table',
    why: 'the gateway lists the models that it routes, from its configuration, and asks no server',
    matches: (difference) =>
      difference.call.startsWith('models.') &&
      (difference.path === 'requests' || isOwnModelField(difference)),
  },
  {
    name: 'unknown model',
    why: 'the gateway knows its models, so it answers without asking a server, in its own words; status, type, code and class are the same',
    matches: (difference) =>
      difference.call.startsWith('error.unknown_model') &&
      (isAnsweredByGateway(difference) || isMessage(difference)),
  },
  {
    name: 'name of the model',
    why: 'the vendor answers with a name of its own, and the gateway with the name that was asked for (`response_model: alias`, the default)',
    matches: ({ path, through }, { server }) =>
      server.startsWith('scripted') &&
      /\.(?:model|modelId|model_name|providerData\.model)$/.test(path) &&
      /^vendor-/.test(String(through)),
  },
  {
    name: 'usage of chunks',
    why: 'the gateway asks for usage to count it; the vendor then writes `usage: null` into each chunk, which SDKs take for no usage, and the chunk with the usage is left out',
    matches: ({ call, path, direct, through }) =>
      /(?:^|\.)(?:stream|cut_stream)(?:\.|$)/.test(call) &&
      /\.usage$/.test(path) &&
      direct === undefined &&
      through === null,
  },
  {
    name: 'time to wait in seconds',
    why: 'each 429 and 503 tells how long to wait, in seconds too where the vendor names only milliseconds or nothing (docs/relay.md); LangChain therefore takes a 429 for a limit that passes, and asks again',
    matches: (difference, { client, server }) =>
      server.startsWith('scripted') &&
      /^error\.(?:server|rate_limit)/.test(difference.call) &&
      (isAddedWait(difference) || (client.startsWith('LangChain') && isLimitOfLangChain(difference))),
  },
  {
    name: 'broken stream',
    why: 'a stream that breaks ends with an error of the API, which SDKs raise as theirs, before the connection is cut (docs/relay.md)',
    matches: ({ call, path, direct, through }) =>
      call === 'error.cut_stream' &&
      (path.startsWith('result.thrown') ||
        // The error is an item of some streams.
        (path === 'result.items.length' && Number(through) === Number(direct) + 1)),
  },
  {
    name: 'embeddings in the encoding that was asked for',
    why: 'aimock answers with numbers where base64 was asked for, and some SDKs decode them as if they were text; the gateway makes base64 of them',
    matches: ({ call, path }, { server }) =>
      call === 'embeddings.base64' &&
      /^result\.(?:body\.)?data\[0\]\.embedding/.test(path) &&
      server.startsWith('aimock'),
  },
  {
    name: 'request sent again on a fresh connection',
    why: 'aimock closes a connection that was idle for 5 s, which a JVM that is slow to start meets; the gateway keeps it for 75 s',
    matches: ({ path, direct, through }, { client, server }) =>
      path === 'requests' &&
      client.startsWith('openai-java') &&
      server.startsWith('aimock') &&
      isRepeated(direct, through),
  },
  {
    name: 'Codex goes on by HTTP',
    why: 'the gateway has no WebSocket for responses, and its 426 makes Codex send plain requests at once; aimock takes the WebSocket, and a server that answers 404 makes Codex ask seven times',
    matches: ({ path, direct, through }, { client, server }) =>
      client.startsWith('Codex CLI (WebSocket first)') &&
      (server.startsWith('aimock')
        ? (path === 'requests' && String(direct) === '') || path === 'result.requests.length'
        : (path === 'result' && direct === undefined) ||
          (path === 'error' && through === undefined && JSON.stringify(direct).includes('"reconnected"'))),
  },
  {
    name: 'connection closed after a stream',
    why: 'llama.cpp closes the connection after a stream without saying so: net/http does not send a POST again, SDKs repeat the request; the gateway finds out itself, and its client sends one request',
    matches: ({ path, direct, through }, { client, server }) =>
      server.startsWith('llama.cpp') &&
      ((path === 'requests' && isRepeated(direct, through)) ||
        (client.startsWith('net/http (Go)') &&
          ((path === 'error' && through === undefined && /: EOF"/.test(JSON.stringify(direct))) ||
            (path === 'result' && direct === null)))),
  },
  {
    name: 'an id for each request',
    why: 'the gateway gives an id to an answer whose server has none, and writes it into its log',
    matches: ({ path, direct, through }) =>
      /\.(?:_?request_id|requestId|requestID|x-request-id)$/.test(path) &&
      (direct === undefined || direct === null) &&
      typeof through === 'string' &&
      through.startsWith('req_'),
  },
  {
    name: 'usage in the last chunk of completions',
    why: 'llama.cpp reports usage in each stream of completions; the gateway shows usage in streams to clients that ask for it',
    matches: ({ call, path, through }, { server }) =>
      server.startsWith('llama.cpp') &&
      call === 'completions.stream' &&
      /\.usage$|\.additional_kwargs\.\w+_tokens$/.test(path) &&
      through === undefined,
  },
];

/** The explanation of a difference, if there is one. */
export function explanationOf(difference: Difference, where: Where): Explanation | undefined {
  return EXPLANATIONS.find((each) => each.matches(difference, where));
}
