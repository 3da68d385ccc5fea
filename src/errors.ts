// Every error the gateway can answer with: one table, one class. It does not write responses (http/exchange/response-writer.ts)
// and it holds no text of an upstream's.
import { PAYMENT_ERRORS } from './payment-errors.ts';
import { UNREPEATED_STATUS, UPSTREAM_ERRORS } from './upstream-errors.ts';

/**
 * The longest wait that all SDKs obey, in milliseconds: openai-node ignores a minute and more, openai-python more than a minute.
 * What is counted by the minute is counted for so long, so that the wait in `retry-after` is the true one.
 */
export const MAX_RETRY_AFTER_MS = 59_999;

/** What an SDK should do with an error: `wait` sends `retry-after`, `no` sends `x-should-retry: false`. */
type RetryAdvice = 'wait' | 'no' | 'default';

interface ErrorRule {
  /** HTTP status; 499 is for the access log only, nobody is left to read it. */
  readonly status: number;
  /** `error.type` on the wire, in OpenAI's vocabulary. */
  readonly type: string;
  readonly retry: RetryAdvice;
  /** The text a client reads when the place that throws has nothing more exact to say. */
  readonly message: string;
  /** For docs/errors.md: when it happens and what to do. */
  readonly meaning: string;
}

const BAD = 'invalid_request_error';
const SERVER = 'server_error';
const BUSY = 'service_unavailable_error';

/**
 * Code → rule. The key is `error.code` on the wire. Names are OpenAI's where OpenAI has one (`invalid_api_key`,
 * `model_not_found`, `rate_limit_exceeded`, `insufficient_quota`, `billing_not_active`, `unknown_url`, `missing_required_parameter`, `invalid_type`).
 */
export const ERRORS = {
  invalid_http: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The HTTP request is malformed.',
    meaning: 'The request breaks a rule of HTTP/1.1 or of the edge: target, header, framing or Host.',
  },
  invalid_json: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The request body is not valid JSON.',
    meaning:
      'The body is empty, is not UTF-8, is nested too deeply or breaks RFC 8259; the message says at which byte.',
  },
  invalid_body: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The request body must be a JSON object.',
    meaning: 'The body is valid JSON but not an object, or not in the form that this path takes.',
  },
  invalid_form: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The request body is not a valid form.',
    meaning:
      'A `multipart/form-data` body is cut short, breaks RFC 7578, or has something that two readers could understand differently; the message says what and at which byte.',
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
      'A field that the gateway reads (`model`, `stream`, `n`) has a type it cannot act on; `param` names it.',
  },
  invalid_value: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'A parameter has a value that is not allowed.',
    meaning:
      'A field that the gateway reads has a value outside its set or a name that is spelled otherwise; `param` names it.',
  },
  duplicate_parameter: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'A parameter is given more than once.',
    meaning:
      '`model`, `stream` or another field that the gateway reads stands twice in the body; gateway and upstream could read different ones.',
  },
  unsupported_parameter: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'A parameter is not allowed with this model.',
    meaning: 'The operator refuses this field for the model or one of its upstreams; `param` names it.',
  },
  unsupported_content_type: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The content-type of this request must be application/json.',
    meaning:
      'The body is labelled as something else than what the path takes (JSON, or a form), or not labelled.',
  },
  corrupt_content_encoding: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The request body does not decode as its content-encoding says.',
    meaning: 'A gzip, deflate, br or zstd body is damaged or cut short.',
  },
  missing_api_key: {
    status: 401,
    type: BAD,
    retry: 'no',
    message: 'No API key was given. Send it as: Authorization: Bearer YOUR_KEY.',
    meaning: 'There is no Authorization header, or it has another scheme than Bearer, or no key.',
  },
  invalid_api_key: {
    status: 401,
    type: BAD,
    retry: 'no',
    message: 'The API key is not valid.',
    meaning:
      'The key is malformed, unknown, rotated away or revoked. Never sent for trouble of the gateway itself.',
  },
  billing_not_active: {
    status: 403,
    type: 'billing_not_active',
    retry: 'no',
    message:
      'This API key is known, but its holder is suspended: a payment failed or was taken back, or the operator suspended it. GET /admin/usage still answers; ask the operator of this gateway.',
    meaning:
      'The key is good and its holder is suspended. The same key works again when that ends. Until then it reads its usage and can be rotated, and nothing else.',
  },
  model_not_found: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'The model does not exist or this key has no access to it.',
    meaning:
      'No route serves the model name, or the tier of the key may not use it; the two are not told apart.',
  },
  endpoint_not_offered: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'This is not offered to this key.',
    meaning:
      '`endpoints` of the model, or of the tier, does not have this endpoint; the message says which are offered.',
  },
  object_not_found: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'There is no such object.',
    meaning:
      'A file, item or other object that the request refers to is not of this holder, and not shared with all.',
  },
  response_not_found: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'There is no response with this id for this key.',
    meaning:
      'A stored response is unknown, another holder’s, forgotten after 30 days, or at an upstream that this model has no route to.',
  },
  unknown_url: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'Unknown request URL.',
    meaning: 'The path is not one of the gateway.',
  },
  method_not_allowed: {
    status: 405,
    type: BAD,
    retry: 'no',
    message: 'This method is not allowed here.',
    meaning: 'The path exists with another method; `allow` lists which.',
  },
  request_timeout: {
    status: 408,
    type: BAD,
    retry: 'default',
    message: 'The request did not arrive in time.',
    meaning: 'Headers or body came slower than the deadline allows.',
  },
  request_too_large: {
    status: 413,
    type: BAD,
    retry: 'no',
    message: 'The request body is larger than this gateway accepts.',
    meaning: 'The body, or what it decodes to, is over `max_body`.',
  },
  unsupported_content_encoding: {
    status: 415,
    type: BAD,
    retry: 'no',
    message: 'The content-encoding of the request is not supported. Use gzip, deflate, br, zstd or none.',
    meaning: 'The body has an unknown coding, or more than one.',
  },
  expectation_failed: {
    status: 417,
    type: BAD,
    retry: 'no',
    message: 'The only supported expectation is 100-continue.',
    meaning: 'The Expect header asks for something the gateway does not do (RFC 9110, 10.1.1).',
  },
  upgrade_required: {
    status: 426,
    type: BAD,
    retry: 'no',
    message: 'This URL is for WebSockets: ask for one with Upgrade: websocket and version 13.',
    meaning: 'A plain request, or another handshake, came where only a WebSocket is of use.',
  },
  websocket_not_offered: {
    status: 426,
    type: BAD,
    retry: 'no',
    message: 'There is no WebSocket on this URL. Send plain HTTP requests.',
    meaning: 'A WebSocket handshake came on a path that answers plain HTTP requests alone.',
  },
  too_many_failed_keys: {
    status: 429,
    type: 'requests',
    retry: 'wait',
    message: 'Too many requests with keys that are not valid came from this address.',
    meaning:
      'More bad keys in a minute than `auth.failures_per_minute`; a key that was verified before is never refused by this.',
  },
  free_key_limit: {
    status: 429,
    type: 'requests',
    retry: 'no',
    message: 'This address has received as many free keys today as it may.',
    meaning: '`free_keys.per_ip_per_day` is used up until midnight UTC.',
  },
  rate_limit_exceeded: {
    status: 429,
    type: 'requests',
    retry: 'wait',
    message: 'A limit of this key is reached.',
    meaning:
      'A limit of the tier is reached; the message and the `x-ratelimit` headers say which. The type is `tokens` for limits of tokens. Where waiting for less than a minute helps there is `retry-after`, else `x-should-retry: false`.',
  },
  insufficient_quota: {
    status: 429,
    type: 'insufficient_quota',
    retry: 'no',
    message: 'The tokens of this month are used up.',
    meaning:
      '`tokens_per_month` of the tier is spent. It begins anew with the next month (UTC), or with another tier.',
  },
  headers_too_large: {
    status: 431,
    type: BAD,
    retry: 'no',
    message: 'The request headers are too large.',
    meaning: 'More than 16 KiB or more than 100 header fields.',
  },
  client_closed: {
    status: 499,
    type: BAD,
    retry: 'default',
    message: 'The client closed the connection.',
    meaning: 'Only in the access log: the client left before the answer was complete.',
  },
  internal_error: {
    status: 500,
    type: SERVER,
    retry: 'default',
    message: 'The gateway failed while handling this request.',
    meaning: 'A fault of the gateway; the log has it under the request id.',
  },
  checkout_not_configured: {
    status: 501,
    type: SERVER,
    retry: 'no',
    message: 'Checkout is not configured for this tier. Ask the operator of this gateway for a key.',
    meaning: 'A paid tier was chosen and the gateway has no payment provider, or the tier is not offered.',
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
    message: 'More keys wait to be hashed than this gateway can hash at the moment.',
    meaning:
      'More keys that this process does not know yet come at once than Argon2 can check or make, as after a cold start. `retry-after` grows with what waits, up to 30 s. Says nothing about the key.',
  },
  store_unavailable: {
    status: 503,
    type: BUSY,
    retry: 'wait',
    message: 'The gateway cannot reach its store at the moment.',
    meaning: 'Issuing, rotating or listing needs the store and it did not answer in time.',
  },
  overloaded: {
    status: 503,
    type: BUSY,
    retry: 'wait',
    message: 'This gateway has more to do than it can at the moment.',
    meaning:
      'The event loop or the heap is over its limit in `overload`, new connections wait too long, or no more uploads can be kept; what was begun before goes on.',
  },
  draining: {
    status: 503,
    type: BUSY,
    retry: 'wait',
    message: 'This gateway is shutting down.',
    meaning: 'The process received SIGTERM; another replica, or the same one restarted, will answer.',
  },
  ...UPSTREAM_ERRORS,
  ...PAYMENT_ERRORS,
} as const satisfies Record<string, ErrorRule>;

export type ErrorCode = keyof typeof ERRORS;

interface GatewayErrorOptions {
  /** The error that this one wraps. It is logged, never sent. */
  readonly cause?: unknown;
  /** `error.param` on the wire: the field at fault. */
  readonly param?: string;
  /** How long to wait before another try, in milliseconds; sent where the rule says `wait`. Default 1000. */
  readonly retryAfterMs?: number;
  /** `error.type` instead of the table's, for `rate_limit_exceeded` alone. */
  readonly type?: 'tokens';
  /** Advice instead of the table's, where the same error may or may not pass. */
  readonly retry?: RetryAdvice;
  /** Status instead of the table's, for `upstream_error` alone. */
  readonly status?: number;
}

/** The one error class that crosses module borders. `message` is written for the client: no secret, host or path in it. */
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

/** Whether a status says that the gateway or an upstream failed, and not that the request was at fault. */
export function isServerFault(status: number): boolean {
  return status >= 500 || status === UNREPEATED_STATUS;
}

/** A GatewayError as it is; anything else wrapped as `code` with the original as `cause`. */
export function wrapError(error: unknown, code: ErrorCode): GatewayError {
  return error instanceof GatewayError ? error : new GatewayError(code, undefined, { cause: error });
}

/** The body every error answer has (OpenAI's error object). */
export function errorBody(error: GatewayError): string {
  return JSON.stringify({
    error: { message: error.message, type: error.type, param: error.param, code: error.code },
  });
}
