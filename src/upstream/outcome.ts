// What an upstream's refusal means: whose fault it is, whether another target may be asked, and what the client reads if
// none answers. The one place that knows statuses and error bodies of upstreams.
import { GatewayError } from '../errors.ts';
import { connectionNames } from './header-names.ts';
import type { ResponseHeaders } from './transport.ts';

/** An attempt that gave the client nothing. */
export interface Failure {
  /** For the log and, unless `verbatim` is there, for the client. */
  readonly error: GatewayError;
  /** Whether another target may be tried. */
  readonly next: boolean;
  /** The same target may be asked once more, on a new connection: a kept one turned out to be closed. Default false. */
  readonly again?: boolean;
  /** The upstream's own answer, relayed unchanged when no other target answers. */
  readonly verbatim?: { readonly status: number; readonly body: Buffer };
  /** Headers of the upstream that go with the answer, verbatim or not. */
  readonly headers: Readonly<Record<string, string>>;
}

/** From an upstream's answer the client gets these and no others; cookies, servers and organisations stay behind. */
const RELAYED = [
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'openai-processing-ms',
  'openai-version',
] as const;

/** The headers of an upstream's answer that the client may see, besides its content type. */
export function relayedHeaders(headers: ResponseHeaders): Record<string, string> {
  const relayed: Record<string, string> = {};
  const named = connectionNames(headers);
  for (const name of RELAYED) {
    const value = headers[name];
    if (typeof value === 'string' && named?.has(name) !== true) relayed[name] = value;
  }
  return relayed;
}

/** The media type of an answer, without parameters, in lower case. */
export function mediaType(headers: ResponseHeaders): string {
  const value = headers['content-type'];
  return typeof value === 'string' ? (value.split(';', 1)[0] ?? '').trim().toLowerCase() : '';
}

/** A failure of the gateway's own finding: a deadline, a broken connection, an answer that cannot be used. */
export function failure(error: GatewayError, next: boolean): Failure {
  return { error, next, headers: {} };
}

/**
 * Judges an answer that is not a 200.
 * - 401 and 403 are about the operator's credential, and their text may quote it: never shown, next target.
 * - 408, 429 and 5xx may go better elsewhere.
 * - All other 4xx are the caller's: the same request would fail anywhere.
 * - Redirects are not followed (they could carry the prompt to another host); other 2xx are no completion.
 * @param body as far as it came; what is not the whole JSON text is not shown
 */
export function judgeRefusal(status: number, headers: ResponseHeaders, body: Buffer): Failure {
  const cause = new Error(`the upstream answered ${status}`);
  if (status === 401 || status === 403)
    return failure(new GatewayError('upstream_auth_error', undefined, { cause }), true);
  if (status < 400 || status > 599) {
    return failure(new GatewayError('upstream_invalid_response', undefined, { cause }), true);
  }
  const next = status === 408 || status === 429 || status >= 500;
  const error = new GatewayError('upstream_error', undefined, { cause, status });
  const relayed = retryHeaders(status, relayedHeaders(headers));
  const shown = errorObject(status, body);
  return shown === undefined
    ? { error, next, headers: relayed }
    : { error, next, verbatim: { status, body: shown }, headers: relayed };
}

/**
 * Judges an error object that came with status 200, as the whole answer or as the first frame of a stream. It takes the
 * status that it names in `code` or `status`, if that is one of an error.
 * @param text the JSON text, which has a truthy `error` at its top level
 */
export function judgeErrorObject(text: string, headers: ResponseHeaders): Failure {
  const named = statusIn(text) ?? 502;
  return judgeRefusal(named, headers, Buffer.from(text));
}

/**
 * 429 and 503 say how long to wait, in a way that SDKs can use: zero or words make some of them ask again at once, and
 * without any hint others do not ask again at all. What the upstream said stays as it is where it can be used.
 */
function retryHeaders(status: number, headers: Record<string, string>): Record<string, string> {
  const { 'retry-after': after, 'retry-after-ms': ms, ...others } = headers;
  const isDelay = (value: string | undefined) =>
    value !== undefined && /^\d+(\.\d+)?$/.test(value) && Number(value) > 0;
  const isDate = after !== undefined && /[a-z]/i.test(after) && !Number.isNaN(Date.parse(after));
  const usable: Record<string, string> = others;
  if (after !== undefined && (isDelay(after) || isDate)) usable['retry-after'] = after;
  if (ms !== undefined && isDelay(ms)) usable['retry-after-ms'] = ms;
  const waits = (status === 429 || status === 503) && headers['x-should-retry'] !== 'false';
  if (waits && usable['retry-after'] === undefined) {
    const seconds = ms !== undefined && isDelay(ms) ? Math.ceil(Number(ms) / 1000) : 1;
    usable['retry-after'] = String(seconds);
  }
  return usable;
}

/**
 * The error object to show: the upstream's own bytes when they are one (OpenAI's shape, whatever else is in it); a new one
 * with its text when that is in a shape that SDKs do not read (bare text in `error`, flat, in an array); else undefined.
 */
function errorObject(status: number, body: Buffer): Buffer | undefined {
  const parsed = parse(body.toString());
  const error = memberOf(parsed, 'error');
  if (typeof memberOf(error, 'message') === 'string') return body;
  const inner = Array.isArray(parsed) ? memberOf(parsed[0], 'error') : parsed;
  const message = [error, memberOf(inner, 'message'), memberOf(inner, 'detail')].find(
    (text) => typeof text === 'string' && text !== '',
  );
  if (message === undefined) return undefined;
  const type = status < 500 ? 'invalid_request_error' : 'server_error';
  return Buffer.from(JSON.stringify({ error: { message, type, param: null, code: null } }));
}

function statusIn(text: string): number | undefined {
  const error = memberOf(parse(text), 'error');
  for (const name of ['status', 'code', 'status_code']) {
    const value = memberOf(error, name);
    const status = typeof value === 'string' && /^\d{3}$/.test(value) ? Number(value) : value;
    if (typeof status === 'number' && Number.isInteger(status) && status >= 400 && status <= 599)
      return status;
  }
  return undefined;
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
