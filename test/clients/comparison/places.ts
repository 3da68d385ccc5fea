// Where an explained difference may be: the client, the server, the call, the field and its values. The explanations are in
// `explained.ts`.
import type { Difference } from './compare.ts';

/** The pair that shows a difference: names with versions. */
export interface Where {
  readonly client: string;
  readonly server: string;
}

/** A difference is at a place when all of this matches. */
export interface Place {
  readonly client: RegExp;
  readonly server: RegExp;
  readonly call: RegExp;
  readonly path: RegExp;
  readonly hasValues: (direct: unknown, through: unknown) => boolean;
}

/** The gateway alone makes the difference, whatever the client or the server is. */
export const ANY = /^/;

export const isAbsent = (value: unknown): boolean => value === undefined || value === null;
export const isRequestId = (value: unknown): boolean => typeof value === 'string' && value.startsWith('req_');

/** From this value to that one; a regular expression is for texts. */
export function change(from: unknown, to: unknown): Place['hasValues'] {
  const is = (wanted: unknown, value: unknown): boolean =>
    wanted instanceof RegExp ? typeof value === 'string' && wanted.test(value) : Object.is(wanted, value);
  return (direct, through) => is(from, direct) && is(to, through);
}

/** The server gets no request, where it gets some from the client itself. */
export const isAnsweredByGateway = (direct: unknown, through: unknown): boolean =>
  String(direct) !== '' && String(through) === '';

/** The same request, but directly more often. */
export const isRepeated = (direct: unknown, through: unknown): boolean =>
  Array.isArray(direct) &&
  Array.isArray(through) &&
  direct.length > through.length &&
  through.length > 0 &&
  new Set([...direct, ...through]).size === 1;

/** The field of a header, in whichever of the client's objects for headers. */
export const header = (name: string): RegExp =>
  new RegExp(
    `\\.(?:headers|responseHeaders|(?:litellm_)?response_headers)\\.(?:llm_provider-)?${name}$`,
    'i',
  );

export const headerPlace = (name: string, hasValues: Place['hasValues']): Place => ({
  client: ANY,
  server: ANY,
  call: ANY,
  path: header(name),
  hasValues,
});

/** A header that the gateway writes itself. */
export const ownHeader = (name: string, value: RegExp): Place =>
  headerPlace(name, (_direct, through) => typeof through === 'string' && value.test(through));

export const MODELS = {
  client: /^(?:openai|net\/http|HttpClient|curl)/,
  server: ANY,
  call: /^models\.(?:list|retrieve)$/,
};

/** A field of the models, in whichever of the client's objects. */
export const modelField = (names: string, hasValues: Place['hasValues']): Place => ({
  ...MODELS,
  path: new RegExp(`^result(?:\\.body)?(?:(?:\\.data)?\\[\\d+\\])?\\.(?:${names})$`),
  hasValues,
});

/** The gateway's words for a model that it does not have. */
export const UNKNOWN = 'The model "no-such-model" does not exist or this key has no access to it.';

/** Errors as text, the same but for the words. */
export function isSameErrorInOtherWords(direct: unknown, through: unknown): boolean {
  const [first, second] = [direct, through].map((text) => JSON.parse(String(text)).error);
  return (
    second.message === UNKNOWN && JSON.stringify({ ...first, message: UNKNOWN }) === JSON.stringify(second)
  );
}

/** The embedding of aimock, or a part of it. */
export const base64Embedding = (rest: string, hasValues: Place['hasValues']): Place => ({
  client: ANY,
  server: /^aimock /,
  call: /^embeddings\.base64$/,
  path: new RegExp(`^result\\.(?:body\\.)?data\\[0\\]\\.embedding${rest}$`),
  hasValues,
});

/** A server that answers a WebSocket for responses with an error. */
export const NO_WEBSOCKET = /^scripted /;

/** A field of the result of Codex where it tries a WebSocket first. */
export const websocketFirst = (field: string, server: RegExp, hasValues: Place['hasValues']): Place => ({
  client: /^Codex CLI \(WebSocket first\) /,
  server,
  call: /^responses\.(?:stream\.codex|tools\.exec_command)$/,
  path: fieldOf(field),
  hasValues,
});

/** A field of a call of net/http, which llama.cpp may have closed the connection of. */
export const netHttpOnLlama = (field: string, hasValues: Place['hasValues']): Place => ({
  client: /^net\/http \(Go\) /,
  server: /^llama\.cpp /,
  call: ANY,
  path: fieldOf(field),
  hasValues,
});

/** Exactly this path. */
const fieldOf = (path: string): RegExp => new RegExp(`^${path.replaceAll('.', '\\.')}$`);

/** A field of what SDKs throw when the scripted stream breaks. */
export const thrown = (field: string, hasValues: Place['hasValues']): Place => ({
  client: /^(?:openai|LangChain|OpenAI Agents) /,
  server: /^scripted /,
  call: /^error\.cut_stream$/,
  path: new RegExp(`^result\\.thrown\\.${field}$`),
  hasValues,
});

/** A field of LangChain's error for the scripted 429. */
export const limitOfLangChain = (field: string, hasValues: Place['hasValues']): Place => ({
  client: /^LangChain \(Node\) /,
  server: /^scripted /,
  call: /^error\.rate_limit$/,
  path: fieldOf(field),
  hasValues,
});

/** Whether the place has this difference. */
export function isAt(place: Place, { call, path, direct, through }: Difference, where: Where): boolean {
  return (
    place.client.test(where.client) &&
    place.server.test(where.server) &&
    place.call.test(call) &&
    place.path.test(path) &&
    place.hasValues(direct, through)
  );
}
