// The error table and the error class of the gateway. http/exchange/response-writer.ts writes error responses. Contains no text of an
// upstream.
import { PAYMENT_ERRORS } from './payment-errors.ts';
import { UNREPEATED_STATUS, UPSTREAM_ERRORS } from './upstream-errors.ts';

/**
 * The longest `retry-after` that all SDKs obey, in milliseconds: openai-node ignores a minute and more, openai-python more than a minute.
 * Per-minute limits count over this time, so that their `retry-after` is exact.
 */
export const MAX_RETRY_AFTER_MS = 59_999;

/** Retry advice for SDKs: `wait` sends `retry-after`, `no` sends `x-should-retry: false`. */
type RetryAdvice = 'wait' | 'no' | 'default';

interface ErrorRule {
  /** HTTP status; 499 appears in the access log only. */
  readonly status: number;
  /** `error.type` on the wire, in OpenAI's vocabulary. */
  readonly type: string;
  readonly retry: RetryAdvice;
  /** Default message for the client. */
  readonly message: string;
  /** For docs/errors.md: when it occurs and what to do. */
  readonly meaning: string;
}

const BAD = 'invalid_request_error';
const SERVER = 'server_error';
const BUSY = 'service_unavailable_error';

/**
 * Code → rule. The key is `error.code` on the wire; OpenAI's code where one exists (`invalid_api_key`, `model_not_found`,
 * `rate_limit_exceeded`, `insufficient_quota`, `billing_not_active`, `unknown_url`, `missing_required_parameter`, `invalid_type`).
 */
export const ERRORS = {
  invalid_http: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The HTTP request is malformed.',
    meaning: 'The request violates HTTP/1.1 or a rule of the gateway: target, header, framing or Host.',
  },
  invalid_json: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The request body is not valid JSON.',
    meaning:
      'The body is empty, not UTF-8, nested too deeply or violates RFC 8259; the message gives the byte offset.',
  },
  invalid_body: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The request body must be a JSON object.',
    meaning: 'The body is valid JSON but not an object, or lacks the form that this path requires.',
  },
  invalid_form: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The request body is not a valid form.',
    meaning:
      'A `multipart/form-data` body is truncated, violates RFC 7578, or is ambiguous between parsers; the message gives the reason and the byte offset.',
  },
  missing_required_parameter: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'A required parameter is missing.',
    meaning: 'A field that the gateway needs is absent; `param` names it.',
  },
  invalid_type: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'A parameter has the wrong type.',
    meaning:
      'A field that the gateway reads (`model`, `stream`, `n`) has a type that it does not support; `param` names it.',
  },
  invalid_value: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'A parameter has a value that is not allowed.',
    meaning:
      'A field that the gateway reads has a value outside its set, or a misspelled name; `param` names it.',
  },
  duplicate_parameter: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'A parameter is given more than once.',
    meaning:
      '`model`, `stream` or another field that the gateway reads occurs twice; gateway and upstream could read different ones.',
  },
  unsupported_parameter: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'A parameter is not allowed with this model.',
    meaning: 'The operator rejects this field for the model or one of its upstreams; `param` names it.',
  },
  unsupported_content_type: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The content-type of this request must be application/json.',
    meaning: 'The content-type is missing or is not what the path takes (JSON or a form).',
  },
  corrupt_content_encoding: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The request body cannot be decoded with its content-encoding.',
    meaning: 'A gzip, deflate, br or zstd body is corrupt or truncated.',
  },
  missing_api_key: {
    status: 401,
    type: BAD,
    retry: 'no',
    message: 'No API key was given. Send it as: Authorization: Bearer YOUR_KEY.',
    meaning: 'The Authorization header is missing, has another scheme than Bearer, or has no key.',
  },
  invalid_api_key: {
    status: 401,
    type: BAD,
    retry: 'no',
    message: 'The API key is not valid.',
    meaning:
      'The key is malformed, unknown, rotated away or revoked. Never sent for a fault of the gateway itself.',
  },
  billing_not_active: {
    status: 403,
    type: 'billing_not_active',
    retry: 'no',
    message:
      'This API key is known, but its holder is suspended: a payment failed or was reversed, or the operator suspended it. GET /admin/usage still answers; ask the operator of this gateway.',
    meaning:
      'The key is valid, but its holder is suspended. The same key works again after the suspension. Until then it can only read its usage and be rotated.',
  },
  model_not_found: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'The model does not exist or this key has no access to it.',
    meaning:
      'No route serves the model name, or the tier of the key has no access to it; the two cases are not distinguished.',
  },
  endpoint_not_offered: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'This endpoint is not available to this key.',
    meaning:
      'The `endpoints` of the model or tier do not include this endpoint; the message lists those that are.',
  },
  object_not_found: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'The object does not exist.',
    meaning:
      'A file, item or other object in the request does not belong to this holder and is not shared with all.',
  },
  response_not_found: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'No response with this id exists for this key.',
    meaning:
      'A stored response is unknown, belongs to another holder, was forgotten after 30 days, or is at an upstream without a route from this model.',
  },
  unknown_url: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'Unknown request URL.',
    meaning: 'The gateway does not serve this path.',
  },
  method_not_allowed: {
    status: 405,
    type: BAD,
    retry: 'no',
    message: 'This method is not allowed here.',
    meaning: 'The path exists with another method; `allow` lists the methods.',
  },
  request_timeout: {
    status: 408,
    type: BAD,
    retry: 'default',
    message: 'The request did not arrive in time.',
    meaning: 'Headers or body did not arrive before the deadline.',
  },
  request_too_large: {
    status: 413,
    type: BAD,
    retry: 'no',
    message: 'The request body is larger than this gateway accepts.',
    meaning: 'The body, or its decoded form, exceeds `max_body`.',
  },
  unsupported_content_encoding: {
    status: 415,
    type: BAD,
    retry: 'no',
    message: 'The content-encoding of the request is not supported. Use gzip, deflate, br, zstd or none.',
    meaning: 'The content coding is unknown, or there is more than one.',
  },
  expectation_failed: {
    status: 417,
    type: BAD,
    retry: 'no',
    message: 'The only supported expectation is 100-continue.',
    meaning: 'The Expect header asks for something that the gateway does not support (RFC 9110, 10.1.1).',
  },
  upgrade_required: {
    status: 426,
    type: BAD,
    retry: 'no',
    message: 'This URL only accepts WebSockets: send Upgrade: websocket and Sec-WebSocket-Version: 13.',
    meaning: 'A plain request or another handshake was sent to a WebSocket URL.',
  },
  websocket_not_offered: {
    status: 426,
    type: BAD,
    retry: 'no',
    message: 'This URL does not support WebSockets. Send plain HTTP requests.',
    meaning: 'A WebSocket handshake was sent to a path that only answers plain HTTP requests.',
  },
  too_many_failed_keys: {
    status: 429,
    type: 'requests',
    retry: 'wait',
    message: 'Too many requests with invalid keys came from this address.',
    meaning:
      'More invalid keys in a minute than `auth.failures_per_minute`. Keys that were verified before are never affected.',
  },
  free_key_limit: {
    status: 429,
    type: 'requests',
    retry: 'no',
    message: 'This address has received its maximum of free keys for today.',
    meaning: '`free_keys.per_ip_per_day` is used up until midnight UTC.',
  },
  rate_limit_exceeded: {
    status: 429,
    type: 'requests',
    retry: 'wait',
    message: 'A limit of this key is reached.',
    meaning:
      'A limit of the tier is reached; the message and the `x-ratelimit` headers name it. The type is `tokens` for token limits. `retry-after` is sent if waiting less than a minute helps, else `x-should-retry: false`.',
  },
  insufficient_quota: {
    status: 429,
    type: 'insufficient_quota',
    retry: 'no',
    message: 'The tokens of this month are used up.',
    meaning:
      '`tokens_per_month` of the tier is used up until the next month (UTC), or until the tier changes.',
  },
  headers_too_large: {
    status: 431,
    type: BAD,
    retry: 'no',
    message: 'The request headers are too large.',
    meaning: 'The headers exceed 16 KiB or 100 fields.',
  },
  client_closed: {
    status: 499,
    type: BAD,
    retry: 'default',
    message: 'The client closed the connection.',
    meaning: 'In the access log only: the client left before the answer was complete.',
  },
  internal_error: {
    status: 500,
    type: SERVER,
    retry: 'default',
    message: 'The gateway failed while handling this request.',
    meaning: 'A bug or fault of the gateway; find it in the log by the request id.',
  },
  checkout_not_configured: {
    status: 501,
    type: SERVER,
    retry: 'no',
    message: 'Checkout is not configured for this tier. Ask the operator of this gateway for a key.',
    meaning: 'A paid tier was chosen, but no payment provider is configured, or the tier is not for sale.',
  },
  auth_unavailable: {
    status: 503,
    type: BUSY,
    retry: 'wait',
    message: 'The key cannot be checked at the moment.',
    meaning:
      'The store did not answer in time, too many keys wait for it, or the record of the key is damaged. Says nothing about the key.',
  },
  key_hashing_overloaded: {
    status: 503,
    type: BUSY,
    retry: 'wait',
    message: 'Too many keys are waiting to be hashed at the moment.',
    meaning:
      'More keys that this process has not verified yet arrive than Argon2 can hash, as after a cold start. `retry-after` grows with the queue, up to 30 s. Says nothing about the key.',
  },
  store_unavailable: {
    status: 503,
    type: BUSY,
    retry: 'wait',
    message: 'The gateway cannot reach its store at the moment.',
    meaning: 'Issuing, rotating or listing keys needs the store, which did not answer in time.',
  },
  overloaded: {
    status: 503,
    type: BUSY,
    retry: 'wait',
    message: 'This gateway is overloaded at the moment.',
    meaning:
      'The event loop or the heap exceeds its limit in `overload`, new connections wait too long, or the space for uploads is used up. Running requests continue.',
  },
  draining: {
    status: 503,
    type: BUSY,
    retry: 'wait',
    message: 'This gateway is shutting down.',
    meaning: 'The process received SIGTERM; another replica, or this one after its restart, will answer.',
  },
  ...UPSTREAM_ERRORS,
  ...PAYMENT_ERRORS,
} as const satisfies Record<string, ErrorRule>;

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
