// What an upstream's refusal means for the request: whether another target may be asked, and what the client reads if none
// answers. Whose fault it is says error-class.ts, what its body says error-answer.ts.
import { type ErrorCode, GatewayError } from '../errors.ts';
import { type ErrorAnswer, readErrorAnswer } from '../wire/error-answer.ts';
import type { ResultClass } from './circuit-breaker.ts';
import { ANSWER_CLASSES, type AnswerClass, classify } from './error-class.ts';
import { connectionNames } from './http/header-names.ts';
import type { ResponseHeaders } from './transport.ts';

export { memberOf, parse } from '../wire/error-answer.ts';

/** An attempt that gave the client nothing. */
export interface Failure {
  /** For the log and, unless `verbatim` is there, for the client. */
  readonly error: GatewayError;
  /** Whether another target may be tried. */
  readonly tryNextTarget: boolean;
  /** What it says about the target, and for how long that asked to be left alone. */
  readonly blame: ResultClass;
  /** The same target may do better after a wait. Default false. */
  readonly retry?: boolean;
  /** The upstream never heard of it, so that another attempt is no further load. Default false. */
  readonly skipsRetryBudget?: boolean;
  /** The upstream may have begun to work, so that `next` repeats it. Default false. */
  readonly mayHaveExecuted?: boolean;
  /** The same target may be asked once more, on a new connection: a kept one turned out to be closed. Default false. */
  readonly staleConnection?: boolean;
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
  return { error, tryNextTarget: next, blame: blameFor(error.code), headers: {} };
}

/** No connection: nothing was sent, so that another target costs nothing, and to be late counts as well. */
export function unconnected(error: GatewayError): Failure {
  return { ...failure(error, true), blame: certainBlame(error.code), skipsRetryBudget: true };
}

/** `blameFor`, where the target had nothing to think about when its time passed: a connection, a handshake, an upload. */
export function certainBlame(outcome: ErrorCode): ResultClass {
  return outcome === 'upstream_timeout' ? { kind: 'failure' } : blameFor(outcome);
}

/** What an outcome of the gateway's own finding says about the target. */
export function blameFor(outcome: 'ok' | ErrorCode): ResultClass {
  switch (outcome) {
    case 'ok':
      return { kind: 'success' };
    // The client's and the gateway's own doing, and what proves nothing.
    case 'client_closed':
    case 'draining':
    case 'invalid_api_key':
    case 'upstream_busy':
    // A target that thinks for long cannot be told from one that hangs.
    case 'upstream_timeout':
    // It did the work, only not in the form that was asked for.
    case 'upstream_unusable_response':
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
 * Judges an answer that is not a 200, by the table of error-class.ts. Redirects are not followed: they could carry the prompt
 * to another host.
 * @param body as far as it came; what is not the whole JSON text is not shown
 */
export function judgeErrorResponse(status: number, headers: ResponseHeaders, body: Buffer): Failure {
  const answer = readErrorAnswer(status, body);
  return judge(status, headers, answer);
}

function judge(status: number, headers: ResponseHeaders, answer: ErrorAnswer): Failure {
  const { code, isShown, triesNextTarget, vote } = ANSWER_CLASSES[classify(status, answer)];
  const cause = new Error(`the upstream answered ${status}`);
  const told = isShown ? relayedHeaders(headers) : {};
  const retryAfterMs = retryAfter(told);
  return {
    error: new GatewayError(code, undefined, isShown ? { cause, status } : { cause }),
    tryNextTarget: triesNextTarget,
    blame: outcomeOf(vote, retryAfterMs),
    // A limit that names no time is not waited for: it may last for hours.
    retry:
      vote !== 'none' &&
      isShown &&
      told['x-should-retry'] !== 'false' &&
      (vote !== 'limited' || retryAfterMs !== undefined),
    ...(isShown && answer.body !== undefined ? { verbatim: { status, body: answer.body } } : {}),
    headers: isShown ? retryHeaders(status, told) : {},
  };
}

function outcomeOf(vote: AnswerClass['vote'], retryAfterMs: number | undefined): ResultClass {
  if (vote === 'none') return { kind: 'neutral' };
  return retryAfterMs === undefined ? { kind: vote } : { kind: vote, retryAfterMs };
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
 * status that it names in `code`, `status` or `status_code`, if that is one of an error.
 * @param otherwise the status where it names none
 */
export function judgeErrorObject(text: string, headers: ResponseHeaders, otherwise = 502): Failure {
  const bytes = Buffer.from(text);
  const status = readErrorAnswer(otherwise, bytes).status ?? otherwise;
  return judge(status, headers, readErrorAnswer(status, bytes));
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
