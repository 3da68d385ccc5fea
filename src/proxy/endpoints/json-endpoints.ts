// The endpoints that take a model in JSON, one value each: what is read of a request, how an answer is classified and counted.
// form-endpoints.ts has those that take a form. A new endpoint is a new value here; app.ts serves its path.
import { createdIn } from '../../wire/created-objects.ts';
import { base64Edits } from '../answer/embeddings-form.ts';
import type { Endpoint, RequestFacts } from '../contracts/endpoint.ts';
import { modelsIn } from '../request/other-models.ts';
import { countAt } from '../request/request-counts.ts';
import { type RequestScan, wants } from '../request/request-members.ts';
import { isFalse, isTrue, textAt } from '../request/request-scan.ts';
import { estimateTokens } from '../request/token-estimate.ts';
import { asStream } from './chat-conversion.ts';
import { IMAGES, SPEECH } from './media-endpoints.ts';
import { factsWithoutUsage, MESSAGE_ENDPOINTS } from './message-endpoints.ts';
import { judgeNamed } from './named-errors.ts';
import { responseEvents } from './response-events.ts';
import { type EventKind, EventReader } from './typed-events.ts';

/** SDKs ask for the beta version of the Responses API in the query, and for a version of it in a header. */
const BETA = ['beta'];

/** `POST /v1/chat/completions` */
export const CHAT: Endpoint = {
  name: 'chat',
  path: 'chat/completions',
  wanted: wants([]),
  hasUsageOption: true,
  readFacts: (_, scan) => ({ stream: scan.stream, estimate: estimateTokens(scan) }),
  asStream,
};

/** `POST /v1/completions`: chat's frames, with `text` where chat has `delta`. */
export const COMPLETIONS: Endpoint = {
  ...CHAT,
  name: 'completions',
  path: 'completions',
  wanted: wants(['prompt', 'best_of']),
};

/** `POST /v1/embeddings` */
const EMBEDDINGS: Endpoint = {
  name: 'embeddings',
  path: 'embeddings',
  wanted: wants(['encoding_format']),
  readFacts: (body, scan) => ({
    ...inputOnly(body, scan),
    ...(textAt(body, scan.others.get('encoding_format')) === 'base64' ? { edits: base64Edits } : {}),
  }),
  isEmbeddings: true,
};

/** `POST /v1/moderations` */
const MODERATIONS: Endpoint = {
  name: 'moderations',
  path: 'moderations',
  wanted: wants([], 'omni-moderation-latest'),
  readFacts: inputOnly,
};

/** `POST /v1/rerank`, of Jina, vLLM and Cohere */
const RERANK: Endpoint = {
  name: 'rerank',
  path: 'rerank',
  routes: ['/v1/rerank', '/v2/rerank', '/rerank'],
  wanted: wants(['documents']),
  readFacts: ofDocuments,
};

/** `POST /v1/score`, of vLLM */
const SCORE: Endpoint = {
  name: 'score',
  path: 'score',
  routes: ['/v1/score', '/score'],
  wanted: wants(['documents', 'text_2', 'data_2']),
  readFacts: ofDocuments,
};

/** `POST /v1/classify`, of SGLang, which has another call without the `/v1` */
const CLASSIFY: Endpoint = {
  name: 'score',
  path: 'classify',
  wanted: wants(['input']),
  readFacts: ofDocuments,
};

/** `POST /classify`, of vLLM */
const BARE_CLASSIFY: Endpoint = { ...CLASSIFY, path: '/classify', routes: ['/classify'] };

/** `POST /tokenize`, of vLLM: without usage, and free. */
const TOKENIZE: Endpoint = {
  name: 'tokenize',
  path: '/tokenize',
  routes: ['/tokenize'],
  wanted: wants([]),
  readFacts: factsWithoutUsage,
};

/** `POST /detokenize`, of vLLM */
const DETOKENIZE: Endpoint = { ...TOKENIZE, path: '/detokenize', routes: ['/detokenize'] };
const RESPONSE_MEMBERS = ['max_output_tokens', 'previous_response_id', 'store', 'background', 'tools'];

/** `POST /v1/responses` */
export const RESPONSES: Endpoint = {
  name: 'responses',
  path: 'responses',
  keepsQuery: BETA,
  wanted: wants(RESPONSE_MEMBERS),
  otherModels: (body, scan) => modelsIn(body, scan.others.get('tools')),
  readFacts: (body, scan) => {
    const maxTokens = countAt(body, scan.others.get('max_output_tokens'), 'max_output_tokens');
    const { inputTokens, textTokens } = scan;
    const estimate = estimateTokens({ maxTokens, choices: 1, inputTokens, textTokens });
    // A background response has produced no output yet.
    const isBackground = isTrue(body, scan.others.get('background'));
    return { stream: scan.stream, estimate, ...(isBackground ? { isBackground, outputs: 0 } : {}) };
  },
  frames: (onCreated) => new EventReader(responseEvent, onCreated),
  createdIn,
  namesObjects: true,
  judgeAnswer: judgeNamed,
  asStream: responseEvents,
};

/** `response.create` over a WebSocket: the members of a request, those of the event, and always a stream. */
export const RESPONSES_EVENT: Endpoint = {
  ...RESPONSES,
  keepsQuery: false,
  wanted: wants([...RESPONSE_MEMBERS, 'type', 'stream_id', 'generate']),
  readFacts(body, scan) {
    const { estimate, ...facts } = RESPONSES.readFacts(body, scan);
    // It prepares a later response, and makes no output.
    const isWarmUp = isFalse(body, scan.others.get('generate'));
    const completion = isWarmUp ? { completion: 0, isBounded: true } : {};
    return { ...facts, stream: true, estimate: { ...estimate, ...completion } };
  },
};

/** `POST /v1/responses/compact`: a response that is not streamed and not stored. */
const COMPACT: Endpoint = {
  name: 'responses',
  path: 'responses/compact',
  keepsQuery: BETA,
  wanted: wants(['previous_response_id']),
  namesObjects: true,
  // Its items are whole: only the target that made their encrypted contents is recorded.
  createdIn: () => ({ isStored: false, items: [] }),
  readFacts: (_, scan) => ({ stream: false, estimate: estimateTokens(scan) }),
};

/** `POST /v1/responses/input_tokens`: counts the input of a response, without usage. */
const INPUT_TOKENS: Endpoint = {
  ...COMPACT,
  path: 'responses/input_tokens',
  readFacts: factsWithoutUsage,
};

/** Operations on a stored response: method, and path after its id. */
export const STORED = {
  retrieve: { method: 'GET', suffix: '' },
  delete: { method: 'DELETE', suffix: '' },
  cancel: { method: 'POST', suffix: '/cancel' },
  input_items: { method: 'GET', suffix: '/input_items' },
} as const;
export type StoredAction = keyof typeof STORED;

/** The endpoint of a call about one stored response. @param query the client's query string */
export function storedEndpoint(action: StoredAction, id: string, query: string): Endpoint {
  const { method, suffix } = STORED[action];
  return {
    name: 'responses',
    path: `responses/${id}${suffix}`,
    ...(method === 'POST' ? {} : { method }),
    query,
    wanted: wants([]),
    readFacts: inputOnly,
    // A failed response is a successful answer to this call.
    frames: (onCreated) =>
      new EventReader((type) => (type === 'response.failed' ? 'end' : responseEvent(type)), onCreated),
    // The items of a background response first appear here. Input items are not created by the response.
    ...(action === 'input_items' ? {} : { createdIn }),
    factsOf: (facts) => ({ ...facts, isError: false }),
  };
}

export const JSON_ENDPOINTS: readonly Endpoint[] = [
  CHAT,
  COMPLETIONS,
  EMBEDDINGS,
  RESPONSES,
  COMPACT,
  INPUT_TOKENS,
  MODERATIONS,
  RERANK,
  SCORE,
  CLASSIFY,
  BARE_CLASSIFY,
  TOKENIZE,
  DETOKENIZE,
  IMAGES,
  SPEECH,
  ...MESSAGE_ENDPOINTS,
];

/** For answers without output tokens. */
function inputOnly(_: Buffer, { inputTokens, textTokens }: RequestScan): RequestFacts {
  return {
    stream: false,
    estimate: { prompt: inputTokens, promptText: textTokens, completion: 0, isBounded: true },
    outputs: 0,
  };
}

/** For answers about documents. */
function ofDocuments(body: Buffer, scan: RequestScan): RequestFacts {
  return { ...inputOnly(body, scan), quantities: { requests: 1, documents: Math.max(1, scan.documents) } };
}

/** Kinds of `responses` events: announcements do not commit, so another target can restart the response. */
function responseEvent(type: string): EventKind {
  switch (type) {
    case 'response.completed':
    case 'response.incomplete':
    case 'response.cancelled':
      return 'end';
    case 'response.failed':
      return 'failed';
    case 'response.created':
    case 'response.queued':
    case 'response.in_progress':
      return 'news';
    default:
      return type.startsWith('response.') && !type.endsWith('.added') ? 'output' : 'news';
  }
}
