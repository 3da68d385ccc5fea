// What an upstream's refusal means: whose fault it is, whether another target may be asked, and what the client reads if
// none answers. The one place that knows statuses and error bodies of upstreams.
import { type ErrorCode, GatewayError } from '../errors.ts';
import type { Outcome } from './breaker.ts';
import { connectionNames } from './header-names.ts';
import type { ResponseHeaders } from './transport.ts';

/** An attempt that gave the client nothing. */
export interface Failure {
  /** For the log and, unless `verbatim` is there, for the client. */
  readonly error: GatewayError;
  /** Whether another target may be tried. */
  readonly next: boolean;
  /** What it says about the target, and for how long that asked to be left alone. */
  readonly blame: Outcome;
  /** The same target may do better after a wait. Default false. */
  readonly retry?: boolean;
  /** The upstream never heard of it, so that another attempt is no further load. Default false. */
  readonly free?: boolean;
  /** The upstream may have begun to work, so that `next` repeats it. Default false. */
  readonly risky?: boolean;
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

/** A failure of the gateway's own finding: a deadline, a broken connection, an answer that cannot be used. */
export function failure(error: GatewayError, next: boolean): Failure {
  return { error, next, blame: blameFor(error.code), headers: {} };
}

/** What an outcome of the gateway's own finding says about the target. */
export function blameFor(outcome: 'ok' | ErrorCode): Outcome {
  switch (outcome) {
    case 'ok':
      return { kind: 'success' };
    // The client's and the gateway's own doing.
    case 'client_closed':
    case 'draining':
    case 'invalid_api_key':
    case 'upstream_busy':
    case 'invalid_form':
    case 'request_timeout':
    case 'request_too_large':
    case 'internal_error':
      return { kind: 'neutral' };
    default:
      return { kind: 'failure' };
  }
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
  const told = relayedHeaders(headers);
  const shown = errorObject(status, body);
  const retryAfterMs = retryAfter(told);
  return {
    error,
    next,
    blame: blameForStatus(status, retryAfterMs),
    // A limit that names no time is not waited for here: who knows how long it lasts.
    retry: next && told['x-should-retry'] !== 'false' && (status !== 429 || retryAfterMs !== undefined),
    ...(shown === undefined ? {} : { verbatim: { status, body: shown } }),
    headers: retryHeaders(status, told),
  };
}

/** 429 is a limit and no failure; 408 and 5xx are the target's fault, other 4xx the caller's. */
function blameForStatus(status: number, retryAfterMs: number | undefined): Outcome {
  if (status !== 429 && status !== 408 && status < 500) return { kind: 'neutral' };
  const kind = status === 429 ? 'limited' : 'failure';
  return retryAfterMs === undefined ? { kind } : { kind, retryAfterMs };
}

/**
 * How long the upstream asked to be left alone: `retry-after-ms`, or `retry-after` in seconds or as a date (RFC 9110,
 * 10.2.3).
 * @returns milliseconds above 0; undefined when it did not say, or nothing that can be used
 */
export function retryAfter(headers: ResponseHeaders, now: () => number = Date.now): number | undefined {
  const { 'retry-after-ms': inMs, 'retry-after': after } = headers;
  for (const ms of [number(inMs), number(after) * 1000, date(after) - now()]) {
    if (ms > 0 && Number.isFinite(ms)) return ms;
  }
  return undefined;
}

/** NaN for what is no plain decimal number. */
function number(value: unknown): number {
  return typeof value === 'string' && /^\d+(\.\d+)?$/.test(value) ? Number(value) : Number.NaN;
}

/** NaN for what is no date; a bare number is none. */
function date(value: unknown): number {
  return typeof value === 'string' && /[a-z]/i.test(value) ? Date.parse(value) : Number.NaN;
}

/**
 * Judges an error object that came with status 200, as the whole answer or as the first frame of a stream. It takes the
 * status that it names in `code` or `status`, if that is one of an error.
 * @param text the JSON text, which has a truthy `error` at its top level
 * @param otherwise the status where it names none
 */
export function judgeErrorObject(text: string, headers: ResponseHeaders, otherwise = 502): Failure {
  const named = statusIn(text) ?? otherwise;
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

/** A member of its own of whatever was parsed; undefined where there is none. */
export function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined;
}

/** What the text says as JSON; undefined where it is none. */
export function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
