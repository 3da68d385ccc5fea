// The error table and the error class of the gateway. http/exchange/response-writer.ts writes error responses. Contains no text of an
// upstream.
import {
  busy,
  type ErrorRule,
  failed,
  invalid,
  kind,
  limited,
  type RetryAdvice,
  transient,
  unrepeated,
} from './error-rule.ts';
import { OPERATOR_ERRORS } from './operator-errors.ts';
import { PAYMENT_ERRORS } from './payment-errors.ts';
import { UNREPEATED_STATUS, UPSTREAM_ERRORS } from './upstream-errors.ts';

/**
 * The longest `retry-after` that all SDKs obey, in milliseconds: openai-node ignores a minute and more, openai-python more than a minute.
 * Per-minute limits count over this time, so that their `retry-after` is exact.
 */
export const MAX_RETRY_AFTER_MS = 59_999;

/**
 * Code → rule. The key is `error.code` on the wire; OpenAI's code where one exists (`invalid_api_key`, `model_not_found`,
 * `rate_limit_exceeded`, `insufficient_quota`, `billing_not_active`, `unknown_url`, `missing_required_parameter`, `invalid_type`).
 */
export const ERRORS = {
  invalid_http: invalid(
    400,
    'The HTTP request is malformed.',
    'The request violates HTTP/1.1 or a rule of the gateway: target, header, framing or Host.',
  ),
  invalid_json: invalid(
    400,
    'The request body is not valid JSON.',
    'The body is empty, not UTF-8, nested too deeply or violates RFC 8259; the message gives the byte offset.',
  ),
  invalid_body: invalid(
    400,
    'The request body must be a JSON object.',
    'The body is valid JSON but not an object, or lacks the form that this path requires.',
  ),
  invalid_form: invalid(
    400,
    'The request body is not a valid form.',
    'A `multipart/form-data` body is truncated, violates RFC 7578, or is ambiguous between parsers; the message gives the reason and the byte offset.',
  ),
  missing_required_parameter: invalid(
    400,
    'A required parameter is missing.',
    'A field that the gateway needs is absent; `param` names it.',
  ),
  invalid_type: invalid(
    400,
    'A parameter has the wrong type.',
    'A field that the gateway reads (`model`, `stream`, `n`) has a type that it does not support, or a field is no object where rules of the operator need one; `param` names it.',
  ),
  invalid_value: invalid(
    400,
    'A parameter has a value that is not allowed.',
    'A field that the gateway reads has a value outside its set, or a misspelled name; `param` names it.',
  ),
  duplicate_parameter: invalid(
    400,
    'A parameter is given more than once.',
    '`model`, `stream` or another field that the gateway reads or changes occurs twice, or under two names that are the same for this model; gateway and upstream could read different ones.',
  ),
  unsupported_parameter: invalid(
    400,
    'A parameter is not allowed with this model.',
    'The operator rejects this field for the model or one of its upstreams; `param` names it.',
  ),
  unsupported_content_type: invalid(
    400,
    'The content-type of this request must be application/json.',
    'The content-type is missing or is not what the path takes (JSON or a form).',
  ),
  corrupt_content_encoding: invalid(
    400,
    'The request body cannot be decoded with its content-encoding.',
    'A gzip, deflate, br or zstd body is corrupt or truncated.',
  ),
  missing_api_key: invalid(
    401,
    'No API key was given. Send it as: Authorization: Bearer YOUR_KEY.',
    'The Authorization header is missing, has another scheme than Bearer, or has no key; or headers have different keys.',
  ),
  invalid_api_key: invalid(
    401,
    'The API key is not valid.',
    'The key is malformed, unknown, rotated away or revoked. Never sent for a fault of the gateway itself.',
  ),
  api_key_expired: invalid(
    401,
    'The API key has expired. Ask the operator of this gateway for another one.',
    'The key was valid and is past the expiry that was set for it; the message names the time.',
  ),
  key_already_rotated: invalid(
    409,
    'This key was rotated already. Rotate its successor instead.',
    'The key is valid for the rest of an overlap, and its successor exists. A successor that got lost is replaced by support.',
  ),
  billing_not_active: kind('billing_not_active', 'no')(
    403,
    'This API key is known, but its holder is suspended: a payment failed or was reversed, or the operator suspended it. GET /admin/usage still answers; ask the operator of this gateway.',
    'The key is valid, but its holder is suspended. The same key works again after the suspension. Until then it can only read its usage and be rotated.',
  ),
  model_not_found: invalid(
    404,
    'The model does not exist or this key has no access to it.',
    'No route serves the model name, or the tier of the key has no access to it; the two cases are not distinguished.',
  ),
  endpoint_not_offered: invalid(
    404,
    'This endpoint is not available to this key.',
    'The `endpoints` of the model or tier do not include this endpoint; the message lists those that are.',
  ),
  model_unpriced: invalid(
    403,
    'This model has no price, so it is not available to a key with a budget. Use another model, or ask the operator of this gateway.',
    '`budgets.unpriced` is `refuse`, a budget applies to the request, and a target of the model has no price in force.',
  ),
  object_not_found: invalid(
    404,
    'The object does not exist.',
    'A file, item or other object in the request does not belong to this holder and is not shared with all.',
  ),
  response_not_found: invalid(
    404,
    'No response with this id exists for this key.',
    'A stored response is unknown, belongs to another holder, was forgotten after 30 days, or is at an upstream without a route from this model.',
  ),
  unknown_url: invalid(404, 'Unknown request URL.', 'The gateway does not serve this path.'),
  method_not_allowed: invalid(
    405,
    'This method is not allowed here.',
    'The path exists with another method; `allow` lists the methods.',
  ),
  request_timeout: transient(
    408,
    'The request did not arrive in time.',
    'Headers or body did not arrive before the deadline.',
  ),
  request_too_large: invalid(
    413,
    'The request body is larger than this gateway accepts.',
    'The body, or its decoded form, exceeds `max_body`.',
  ),
  unsupported_content_encoding: invalid(
    415,
    'The content-encoding of the request is not supported. Use gzip, deflate, br, zstd or none.',
    'The content coding is unknown, or there is more than one.',
  ),
  expectation_failed: invalid(
    417,
    'The only supported expectation is 100-continue.',
    'The Expect header asks for something that the gateway does not support (RFC 9110, 10.1.1).',
  ),
  upgrade_required: invalid(
    426,
    'This URL only accepts WebSockets: send Upgrade: websocket and Sec-WebSocket-Version: 13.',
    'A plain request or another handshake was sent to a WebSocket URL.',
  ),
  websocket_not_offered: invalid(
    426,
    'This URL does not support WebSockets. Send plain HTTP requests.',
    'A WebSocket handshake was sent to a path that only answers plain HTTP requests, or no upstream of the models of this key has `websocket`. Over a WebSocket: no upstream of the model has it.',
  ),
  too_many_failed_keys: limited(
    429,
    'Too many requests with invalid keys came from this address.',
    'More invalid keys in a minute than `auth.failures_per_minute`. Keys that were verified before are never affected.',
  ),
  free_key_limit: kind('requests', 'no')(
    429,
    'This address has received its maximum of free keys for today.',
    '`free_keys.per_ip_per_day` is used up until midnight UTC.',
  ),
  rate_limit_exceeded: limited(
    429,
    'A limit of this key is reached.',
    'A limit of the holder, its key, its team or its model is reached; the message and the `x-ratelimit` headers name it. The type is `tokens` for token limits. `retry-after` is sent if waiting less than a minute helps, else `x-should-retry: false`.',
  ),
  insufficient_quota: kind('insufficient_quota', 'no')(
    429,
    'The tokens of this month are used up.',
    '`tokens_per_month` or a budget is used up until the next month or day (UTC), or until it is raised; the message says whose it is.',
  ),
  headers_too_large: invalid(
    431,
    'The request headers are too large.',
    'The headers exceed 16 KiB or 100 fields.',
  ),
  client_closed: transient(
    499,
    'The client closed the connection.',
    'In the access log only: the client left before the answer was complete.',
  ),
  internal_error: failed(
    500,
    'The gateway failed while handling this request.',
    'A bug or fault of the gateway; find it in the log by the request id.',
  ),
  checkout_not_configured: unrepeated(
    501,
    'Checkout is not configured for this tier. Ask the operator of this gateway for a key.',
    'A paid tier was chosen, but no payment provider is configured, or the tier is not for sale.',
  ),
  auth_unavailable: busy(
    503,
    'The key cannot be checked at the moment.',
    'The store did not answer in time, too many keys wait for it, or the record of the key is damaged. Says nothing about the key.',
  ),
  key_hashing_overloaded: busy(
    503,
    'Too many keys are waiting to be hashed at the moment.',
    'More keys that this process has not verified yet arrive than Argon2 can hash, as after a cold start. `retry-after` grows with the queue, up to 30 s. Says nothing about the key.',
  ),
  store_unavailable: busy(
    503,
    'The gateway cannot reach its store at the moment.',
    'Issuing, rotating or listing keys needs the store, which did not answer in time.',
  ),
  overloaded: busy(
    503,
    'This gateway is overloaded at the moment.',
    'The event loop or the heap exceeds its limit in `overload`, new connections wait too long, or the space for uploads is used up. Running requests continue.',
  ),
  draining: busy(
    503,
    'This gateway is shutting down.',
    'The process received SIGTERM; another replica, or this one after its restart, will answer.',
  ),
  ...UPSTREAM_ERRORS,
  ...PAYMENT_ERRORS,
  ...OPERATOR_ERRORS,
};

export type ErrorCode = keyof typeof ERRORS;

interface GatewayErrorOptions {
  /** The wrapped error. Logged, never sent. */
  readonly cause?: unknown;
  /** `error.param` on the wire: the invalid field. */
  readonly param?: string;
  /** Wait before a retry, in milliseconds; sent if the advice is `wait`. Default 1000. */
  readonly retryAfterMs?: number;
  /** Overrides `error.type`; for `rate_limit_exceeded` only. */
  readonly type?: 'tokens';
  /** Overrides the advice, for errors that are only sometimes transient. */
  readonly retry?: RetryAdvice;
  /** Overrides the status; for `upstream_error` only. */
  readonly status?: number;
}

/** The only error class that crosses module boundaries. `message` is for the client: no secret, host or path in it. */
export class GatewayError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly param: string | null;
  readonly retryAfterMs: number;
  /** `error.type` on the wire. */
  readonly type: string;
  readonly retry: RetryAdvice;

  constructor(code: ErrorCode, message?: string, options: GatewayErrorOptions = {}) {
    super(
      message ?? ERRORS[code].message,
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.name = 'GatewayError';
    this.code = code;
    this.status = options.status ?? ERRORS[code].status;
    this.param = options.param ?? null;
    this.retryAfterMs = options.retryAfterMs ?? 1000;
    this.type = options.type ?? ERRORS[code].type;
    this.retry = options.retry ?? ERRORS[code].retry;
  }

  get rule(): ErrorRule {
    return ERRORS[this.code];
  }
}

/** Whether a status means a failure of the gateway or an upstream, as opposed to the request. */
export function isServerFault(status: number): boolean {
  return status >= 500 || status === UNREPEATED_STATUS;
}

/** Returns a GatewayError unchanged; wraps anything else as `code` with the original as `cause`. */
export function wrapError(error: unknown, code: ErrorCode): GatewayError {
  return error instanceof GatewayError ? error : new GatewayError(code, undefined, { cause: error });
}

/** The body of every error response (OpenAI's error object). */
export function errorBody(error: GatewayError): string {
  return JSON.stringify({
    error: { message: error.message, type: error.type, param: error.param, code: error.code },
  });
}
