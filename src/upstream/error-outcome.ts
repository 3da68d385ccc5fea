// What an upstream error means for the request: whether to try the next target, and what the client receives if none answers.
// error-class.ts decides whose fault it is, error-answer.ts parses its body.
import type { FallbackReason } from '../config/schema/model-schema.ts';
import { type ErrorCode, GatewayError, wrapError } from '../errors.ts';
import { type ErrorAnswer, readErrorAnswer } from '../wire/error-answer.ts';
import type { ResultClass } from './breaker/permit.ts';
import { ANSWER_CLASSES, type AnswerClass, classify, isAboutRequest, refusalReason } from './error-class.ts';
import { connectionNames } from './http/header-names.ts';
import type { ResponseHeaders } from './transport.ts';

/** A failed attempt that relayed nothing to the client. */
export interface Failure {
  /** For the log and, without `verbatim`, for the client. */
  readonly error: GatewayError;
  /** Whether another target may be tried. */
  readonly tryNextTarget: boolean;
  /** Evidence for the circuit breaker, with the pause that the target asked for. */
  readonly blame: ResultClass;
  /** The same target may succeed after a wait. Default false. */
  readonly retry?: boolean;
  /** Nothing reached the upstream, so another attempt adds no load. Default false. */
  readonly skipsRetryBudget?: boolean;
  /** The upstream may have started the work, so another attempt may repeat it. Default false. */
  readonly mayHaveExecuted?: boolean;
  /** A stale keep-alive connection: retry the same target once on a new connection. Default false. */
  readonly staleConnection?: boolean;
  /** The upstream rejected the credential: a new token may help. Default false. */
  readonly isTokenRejected?: boolean;
  /** Why the upstream rejected the request, where `fallback_on` can name it. */
  readonly reason?: FallbackReason;
  /** The upstream's response, relayed unchanged if no other target answers. */
  readonly verbatim?: {
    readonly status: number;
    readonly body: Buffer;
    /** Default: JSON. */
    readonly type?: string;
  };
  /** The upstream's headers for the client, with or without `verbatim`. */
  readonly headers: Readonly<Record<string, string>>;
}

/** Allow-list of response headers for the client; cookies, server and organization names are removed. */
const RELAYED = [
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'openai-processing-ms',
  'openai-version',
] as const;

/** The upstream's response headers for the client, without the content type. */
export function relayedHeaders(headers: ResponseHeaders): Record<string, string> {
  const relayed: Record<string, string> = {};
  const hopByHop = connectionNames(headers);
  for (const name of RELAYED) {
    const value = headers[name];
    if (typeof value === 'string' && hopByHop?.has(name) !== true) relayed[name] = value;
  }
  return relayed;
}

/** A failure that the gateway detects: a deadline, a broken connection, an unusable response. */
export function failure(error: GatewayError, next: boolean): Failure {
  return { error, tryNextTarget: next, blame: blameFor(error.code), headers: {} };
}

/** No connection: nothing was sent, so another target costs nothing, and a timeout is a failure too. */
export function unconnected(error: GatewayError): Failure {
  return { ...failure(error, true), blame: certainBlame(error.code), skipsRetryBudget: true };
}

/** There is no valid token for the upstream: nothing was sent, and the upstream is not the cause. */
export function unauthorized(error: unknown): Failure {
  const blame = { kind: 'neutral' } as const;
  return { ...failure(wrapError(error, 'upstream_auth_error'), true), blame, skipsRetryBudget: true };
}

/** `blameFor` for phases without computation (connection, handshake, upload), in which a timeout is a failure. */
export function certainBlame(outcome: ErrorCode): ResultClass {
  return outcome === 'upstream_timeout' ? { kind: 'failure', code: outcome } : blameFor(outcome);
}

/** The evidence that a result found by the gateway gives about the target. */
export function blameFor(outcome: 'ok' | ErrorCode): ResultClass {
  switch (outcome) {
    case 'ok':
      return { kind: 'success' };
    // Caused by the client or the gateway, or no evidence.
    case 'client_closed':
    case 'draining':
    case 'invalid_api_key':
    case 'upstream_busy':
    case 'upstream_out_of_service':
    // A slow model cannot be relayed from a hanging one.
    case 'upstream_timeout':
    // The work was done, in another form than requested.
    case 'upstream_unusable_response':
    case 'invalid_form':
    case 'request_timeout':
    case 'request_too_large':
    case 'internal_error':
      return { kind: 'neutral' };
    default:
      return { kind: 'failure', code: outcome };
  }
}

/**
 * Judges a response other than 200 by the table of error-class.ts. Redirects are not followed: they could send the prompt to
 * another host.
 * @param body as far as it was received; shown only if it is a complete JSON text
 */
export function judgeErrorResponse(status: number, headers: ResponseHeaders, body: Buffer): Failure {
  const answer = readErrorAnswer(status, body);
  return judge(status, headers, answer);
}

function judge(status: number, headers: ResponseHeaders, answer: ErrorAnswer): Failure {
  const named = classify(status, answer);
  const { code, isShown, triesNextTarget, vote: counted } = ANSWER_CLASSES[named];
  const reason = refusalReason(answer, named, headers['x-amzn-errortype']);
  // The request would fail at a healthy target too.
  const vote = isAboutRequest(reason) ? 'none' : counted;
  const cause = new Error(`the upstream answered ${status}`);
  const relayed = isShown ? relayedHeaders(headers) : {};
  const retryAfterMs = retryAfter(relayed);
  return {
    error: new GatewayError(code, undefined, isShown ? { cause, status } : { cause }),
    tryNextTarget: triesNextTarget,
    blame: outcomeOf(vote, vote === 'limited' ? 'upstream_rate_limited' : code, retryAfterMs),
    // A limit that names no time is not waited for: it may last for hours.
    retry:
      vote !== 'none' &&
      isShown &&
      relayed['x-should-retry'] !== 'false' &&
      (vote !== 'limited' || retryAfterMs !== undefined),
    ...(reason === undefined ? {} : { reason }),
    ...(isShown && answer.body !== undefined ? { verbatim: { status, body: answer.body } } : {}),
    ...(status === 401 ? { isTokenRejected: true } : {}),
    headers: isShown ? retryHeaders(status, relayed) : {},
  };
}

/**
 * A complete answer without output, because the upstream's content filter removed all of it. Another target may answer; if none
 * does, the client receives this answer.
 * @param body as the client would receive it
 * @param type its content type
 */
export function filteredAnswer(headers: ResponseHeaders, body: Buffer, type: string): Failure {
  return {
    error: new GatewayError('upstream_error', undefined, { cause: 'the content filter left no output' }),
    tryNextTarget: false,
    blame: { kind: 'success' },
    reason: 'content_filter',
    verbatim: { status: 200, body, type },
    headers: {
      ...relayedHeaders(headers),
      ...(type === 'application/json' ? {} : { 'cache-control': 'no-cache, no-transform' }),
    },
  };
}

function outcomeOf(
  vote: AnswerClass['vote'],
  code: ErrorCode,
  retryAfterMs: number | undefined,
): ResultClass {
  if (vote === 'none') return { kind: 'neutral' };
  return retryAfterMs === undefined ? { kind: vote, code } : { kind: vote, code, retryAfterMs };
}

/**
 * The wait that the upstream asks for: `retry-after-ms`, or `retry-after` in seconds or as a date (RFC 9110, 10.2.3).
 * @returns milliseconds above 0; undefined if absent or invalid
 */
export function retryAfter(headers: ResponseHeaders, now: () => number = Date.now): number | undefined {
  const { 'retry-after-ms': inMs, 'retry-after': after } = headers;
  for (const ms of [number(inMs), number(after) * 1000, date(after) - now()]) {
    if (ms > 0 && Number.isFinite(ms)) return ms;
  }
  return undefined;
}

/** NaN unless the value is a plain decimal number. */
function number(value: unknown): number {
  return typeof value === 'string' && /^\d+(\.\d+)?$/.test(value) ? Number(value) : Number.NaN;
}

/** NaN unless the value is a date; a bare number is not. */
function date(value: unknown): number {
  return typeof value === 'string' && /[a-z]/i.test(value) ? Date.parse(value) : Number.NaN;
}

/**
 * Judges an error object that arrived with status 200, as the whole response or as the first frame of a stream. `code`, `status`
 * or `status_code` give its status if they hold an error status.
 * @param otherwise status if the object names none
 */
export function judgeErrorObject(text: string, headers: ResponseHeaders, otherwise = 502): Failure {
  const bytes = Buffer.from(text);
  const status = readErrorAnswer(otherwise, bytes).status ?? otherwise;
  return judge(status, headers, readErrorAnswer(status, bytes));
}

/**
 * Ensures a usable `retry-after` on 429 and 503: some SDKs retry at once on zero, words or a time that is over, others do not retry
 * without a hint.
 * Usable values of the upstream stay unchanged.
 */
function retryHeaders(status: number, headers: Record<string, string>): Record<string, string> {
  const { 'retry-after': after, 'retry-after-ms': ms, ...usable } = headers;
  if (after !== undefined && (number(after) > 0 || date(after) > Date.now())) usable['retry-after'] = after;
  if (ms !== undefined && number(ms) > 0) usable['retry-after-ms'] = ms;
  const waits = (status === 429 || status === 503) && headers['x-should-retry'] !== 'false';
  if (waits && usable['retry-after'] === undefined) {
    usable['retry-after'] = String(number(ms) > 0 ? Math.ceil(number(ms) / 1000) : 1);
  }
  return usable;
}
