// Errors that have a code instead of a status: stream events and whole failed responses. error-class.ts judges statuses.
import { type Failure, judgeErrorObject } from '../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import { memberOf, parse } from '../../wire/error-answer.ts';

/** Error code → equivalent HTTP status. */
const STATUSES: Readonly<Record<string, number>> = {
  rate_limit_exceeded: 429,
  insufficient_quota: 429,
  server_error: 500,
  server_is_overloaded: 503,
  vector_store_timeout: 504,
  context_length_exceeded: 400,
  bio_policy: 400,
};
/** For errors without a known code; no upstream status means the same. */
const UNKNOWN_STATUS = 502;

/**
 * Classifies an error that has a code instead of a status: a stream event, or a whole failed response.
 * @param text an object that is the error, or has it in `error` or `response.error`
 */
export function judgeNamed(text: string, headers: ResponseHeaders): Failure {
  const event = parse(text);
  const own = memberOf(event, 'error');
  if (typeof own === 'object' && own !== null) return judgeErrorObject(text, headers, statusNamed(own));
  const reported = memberOf(memberOf(event, 'response'), 'error') ?? event;
  const status = statusNamed(reported);
  const message = memberOf(reported, 'message');
  const isFlat = reported === event && event !== undefined;
  if (isFlat && typeof message !== 'string') return judgeErrorObject(text, headers, status);
  const error = {
    message: typeof message === 'string' && message !== '' ? message : 'The upstream failed.',
    type: status < 500 ? 'invalid_request_error' : 'server_error',
    param: memberOf(reported, 'param') ?? null,
    code: memberOf(reported, 'code') ?? null,
  };
  return judgeErrorObject(JSON.stringify({ error }), headers, status);
}

/** Codes such as `invalid_prompt` and `invalid_image_url` are client errors. */
function statusNamed(error: unknown): number {
  const code = memberOf(error, 'code');
  if (typeof code !== 'string') return UNKNOWN_STATUS;
  if (Object.hasOwn(STATUSES, code)) return STATUSES[code] ?? UNKNOWN_STATUS;
  return /^(invalid|unsupported|empty)_|image_(too|parse|content)|_policy/.test(code) ? 400 : UNKNOWN_STATUS;
}
