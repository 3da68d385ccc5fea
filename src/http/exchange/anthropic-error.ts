// The error object of Anthropic's API: its types and their statuses, for errors of upstreams and those of the gateway.
import { type GatewayError, isServerFault } from '../../errors.ts';
import { memberOf, parse, readErrorAnswer } from '../../wire/error-answer.ts';

/** Type → status. */
const STATUSES: Readonly<Record<string, number>> = {
  invalid_request_error: 400,
  authentication_error: 401,
  billing_error: 402,
  permission_error: 403,
  not_found_error: 404,
  request_too_large: 413,
  rate_limit_error: 429,
  api_error: 500,
  timeout_error: 504,
  overloaded_error: 529,
};
const TYPES = new Map(Object.entries(STATUSES).map(([type, status]) => [status, type]));
/** For errors without a known type; no upstream status means the same. */
const UNKNOWN_STATUS = 502;

/** The status of an error that arrived without one. @param text an object with the member `error` */
export function statusOfError(text: string): number {
  const type = memberOf(memberOf(parse(text), 'error'), 'type');
  return typeof type === 'string' && Object.hasOwn(STATUSES, type)
    ? (STATUSES[type] ?? UNKNOWN_STATUS)
    : UNKNOWN_STATUS;
}

function typeOf(status: number): string {
  if (status === 503) return 'overloaded_error';
  return TYPES.get(status) ?? (isServerFault(status) ? 'api_error' : 'invalid_request_error');
}

/** The body of an error of the gateway. `code` is that of the error table, which Anthropic does not have. */
export function anthropicErrorBody(
  { status, message, code }: Pick<GatewayError, 'status' | 'message'> & { readonly code?: string },
  requestId: string,
): string {
  const error = { type: typeOf(status), message, code };
  return JSON.stringify({ type: 'error', error, request_id: requestId });
}

/** An upstream's error in Anthropic's shape: its own bytes where they have it, else a new object with its message. */
export function asAnthropicError(status: number, body: Buffer, requestId: string): Buffer | string {
  if (memberOf(parse(body.toString()), 'type') === 'error') return body;
  const { message } = readErrorAnswer(status, body);
  return anthropicErrorBody({ status, message }, requestId);
}
