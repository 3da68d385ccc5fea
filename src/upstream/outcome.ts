// What an upstream's refusal means: whose fault it is, whether another target may be asked, and what the client reads if
// none answers. The one place that knows statuses and error bodies of upstreams.
import { GatewayError } from '../errors.ts';
import type { ResponseHeaders } from './transport.ts';

/** An attempt that gave the client nothing. */
export interface Failure {
  /** For the log and, unless `verbatim` is there, for the client. */
  readonly error: GatewayError;
  /** Whether another target may be tried. */
  readonly next: boolean;
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
  for (const name of RELAYED) {
    const value = headers[name];
    if (typeof value === 'string') relayed[name] = value;
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
  const relayed = relayedHeaders(headers);
  return isErrorObject(body)
    ? { error, next, verbatim: { status, body }, headers: relayed }
    : { error, next, headers: relayed };
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

function isErrorObject(body: Buffer): boolean {
  const error = errorIn(body.toString());
  return typeof error === 'object' && error !== null && typeof Reflect.get(error, 'message') === 'string';
}

function statusIn(text: string): number | undefined {
  const error = errorIn(text);
  if (typeof error !== 'object' || error === null) return undefined;
  for (const name of ['status', 'code', 'status_code']) {
    const value: unknown = Reflect.get(error, name);
    const status = typeof value === 'string' && /^\d{3}$/.test(value) ? Number(value) : value;
    if (typeof status === 'number' && Number.isInteger(status) && status >= 400 && status <= 599)
      return status;
  }
  return undefined;
}

function errorIn(text: string): unknown {
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === 'object' && parsed !== null ? Reflect.get(parsed, 'error') : undefined;
  } catch {
    return undefined;
  }
}
