// The error table and the error class of the gateway. http/exchange/response-writer.ts writes error responses. Contains no text of an
// upstream or a payment provider.

/** Retry advice for SDKs: `wait` sends `retry-after`, `no` sends `x-should-retry: false`. */
type RetryAdvice = 'wait' | 'no' | 'default';

export interface ErrorRule {
  /** HTTP status; 499 appears in the access log only. */
  readonly status: number;
  /** `error.type` on the wire, in OpenAI's vocabulary. */
  readonly type: string;
  readonly retry: RetryAdvice;
  /** Default message for the client. */
  readonly message: string;
}

/** @returns a function that makes a rule of this type and retry advice from status and message */
const kind =
  (type: string, retry: RetryAdvice) =>
  (status: number, message: string): ErrorRule => ({ status, type, retry, message });

/** The request is wrong, and stays wrong. */
const invalid = kind('invalid_request_error', 'no');
/** The request may succeed later, unchanged. */
const transient = kind('invalid_request_error', 'default');
/** Not allowed for this client. */
const forbidden = kind('request_forbidden', 'no');
/** A rate limit. */
const limited = kind('requests', 'wait');
/** A failure behind the gateway, or in it. */
const failed = kind('server_error', 'default');
/** A failure that a retry cannot help: the operator has to act, or the work is done already. */
const unrepeated = kind('server_error', 'no');
/** Temporarily unavailable. */
const busy = kind('service_unavailable_error', 'wait');

/**
 * The longest `retry-after` that all SDKs obey, in milliseconds: openai-node ignores a minute and more, openai-python more than a minute.
 * Per-minute limits count over this time, so that their `retry-after` is exact.
 */
export const MAX_RETRY_AFTER_MS = 59_999;

/**
 * Status of errors that the operator or the upstream must resolve and that a client must not retry. Many clients ignore
 * `x-should-retry` and retry 408, 409, 429 and all 5xx; some retry every 4xx without a name of its own, such as 424. 401 to 404
 * would blame the caller's key, balance or model, and programs skip an input after a 400.
 */
const UNREPEATED_STATUS = 406;

/** Errors of upstreams. */
export const UPSTREAM_ERRORS = {
  upstream_rate_limited: limited(429, 'All upstreams for this model are at their rate limits.'),
  upstream_unreachable: failed(502, 'The upstream could not be reached.'),
  upstream_tls: unrepeated(
    UNREPEATED_STATUS,
    'The identity of the upstream could not be verified. The operator has to act.',
  ),
  upstream_proxy_error: failed(
    502,
    'The outbound proxy of the gateway brought about no connection to the upstream.',
  ),
  upstream_proxy_denied: unrepeated(
    UNREPEATED_STATUS,
    'The outbound proxy of the gateway refused a connection to the upstream. The operator has to act.',
  ),
  upstream_auth_error: unrepeated(
    UNREPEATED_STATUS,
    'The upstream rejected the credentials of the gateway. The operator has to act.',
  ),
  upstream_account_error: unrepeated(
    UNREPEATED_STATUS,
    'The upstream does not serve the account of the gateway: balance, quota or billing. The operator has to act.',
  ),
  upstream_unusable_response: unrepeated(
    UNREPEATED_STATUS,
    'The upstream sent a complete answer that cannot be relayed. It may have billed it.',
  ),
  upstream_invalid_response: failed(502, 'The upstream sent an invalid answer.'),
  upstream_error: failed(502, 'The upstream reported an error.'),
  stream_incomplete: failed(502, 'The stream of the upstream broke before it was complete.'),
  upstream_busy: busy(503, 'No upstream for this model can take the request at the moment.'),
  upstream_out_of_service: busy(503, 'No upstream for this model is in service at the moment.'),
  upstream_timeout: failed(504, 'The upstream did not answer in time.'),
};

/** Errors of pages, orders and payments. */
const PAYMENT_ERRORS = {
  cross_origin_form: forbidden(403, 'This form can only be submitted from its own site.'),
  unknown_host: forbidden(421, 'This page is not published under this name.'),
  invalid_event: invalid(400, 'The event is not valid.'),
  invalid_signature: invalid(400, 'The signature of the event is not valid.'),
  claim_forbidden: forbidden(403, 'This browser did not make the order, or the order does not exist.'),
  unknown_order: invalid(404, 'There is no such order.'),
  already_entitled: invalid(409, 'This key has that tier, or a higher one, already.'),
  no_subscription: invalid(404, 'This key has no subscription that is managed at a payment provider.'),
  order_closed: invalid(409, 'A key for this order is no longer available.'),
  order_not_paid: transient(409, 'The order is not paid yet.'),
  order_limit: limited(429, 'Too many orders came from this address. Wait a moment.'),
  payment_unavailable: busy(
    503,
    'The payment provider cannot be reached at the moment. Nothing was charged.',
  ),
};

/** Errors of the console and its API on the admin listener. */
export const OPERATOR_ERRORS = {
  operator_required: invalid(
    401,
    'Sign in, or send the token of an operator as: Authorization: Bearer TOKEN.',
  ),
  invalid_operator: invalid(401, 'The token of the operator is not valid.'),
  no_operators: forbidden(
    403,
    'There is no operator yet. Make the first one: tollgate operators add NAME --role admin.',
  ),
  role_too_low: forbidden(403, 'Your role does not allow this.'),
  forged_request: forbidden(403, 'The request does not come from a page of this console.'),
  record_not_found: invalid(404, 'There is no such record.'),
  record_conflict: invalid(409, 'The record is in a state that does not allow this.'),
  request_unsettled: transient(
    409,
    'A request with this Idempotency-Key is running, or ended without a result.',
  ),
  record_changed: invalid(412, 'The record has changed since you read it.'),
  request_key_reused: invalid(422, 'This Idempotency-Key belongs to another request.'),
  too_many_sign_ins: limited(429, 'Too many attempts to sign in. Wait a minute.'),
};

/**
 * Code → rule. The key is `error.code` on the wire; OpenAI's code where one exists (`invalid_api_key`, `model_not_found`,
 * `rate_limit_exceeded`, `insufficient_quota`, `billing_not_active`, `unknown_url`, `missing_required_parameter`, `invalid_type`).
 */
export const ERRORS = {
  invalid_http: invalid(400, 'The HTTP request is malformed.'),
  invalid_json: invalid(400, 'The request body is not valid JSON.'),
  invalid_body: invalid(400, 'The request body must be a JSON object.'),
  invalid_form: invalid(400, 'The request body is not a valid form.'),
  missing_required_parameter: invalid(400, 'A required parameter is missing.'),
  invalid_type: invalid(400, 'A parameter has the wrong type.'),
  invalid_value: invalid(400, 'A parameter has a value that is not allowed.'),
  duplicate_parameter: invalid(400, 'A parameter is given more than once.'),
  unsupported_parameter: invalid(400, 'A parameter is not allowed with this model.'),
  unsupported_content_type: invalid(400, 'The content-type of this request must be application/json.'),
  corrupt_content_encoding: invalid(400, 'The request body cannot be decoded with its content-encoding.'),
  missing_api_key: invalid(401, 'No API key was given. Send it as: Authorization: Bearer YOUR_KEY.'),
  invalid_api_key: invalid(401, 'The API key is not valid.'),
  api_key_expired: invalid(401, 'The API key has expired. Ask the operator of this gateway for another one.'),
  key_already_rotated: invalid(409, 'This key was rotated already. Rotate its successor instead.'),
  billing_not_active: kind('billing_not_active', 'no')(
    403,
    'This API key is known, but its holder is suspended: a payment failed or was reversed, or the operator suspended it. GET /admin/usage still answers; ask the operator of this gateway.',
  ),
  model_not_found: invalid(404, 'The model does not exist or this key has no access to it.'),
  endpoint_not_offered: invalid(404, 'This endpoint is not available to this key.'),
  model_unpriced: invalid(
    403,
    'This model has no price, so it is not available to a key with a budget. Use another model, or ask the operator of this gateway.',
  ),
  object_not_found: invalid(404, 'The object does not exist.'),
  response_not_found: invalid(404, 'No response with this id exists for this key.'),
  unknown_url: invalid(404, 'Unknown request URL.'),
  method_not_allowed: invalid(405, 'This method is not allowed here.'),
  request_timeout: transient(408, 'The request did not arrive in time.'),
  request_too_large: invalid(413, 'The request body is larger than this gateway accepts.'),
  unsupported_content_encoding: invalid(
    415,
    'The content-encoding of the request is not supported. Use gzip, deflate, br, zstd or none.',
  ),
  expectation_failed: invalid(417, 'The only supported expectation is 100-continue.'),
  upgrade_required: invalid(
    426,
    'This URL only accepts WebSockets: send Upgrade: websocket and Sec-WebSocket-Version: 13.',
  ),
  websocket_not_offered: invalid(426, 'This URL does not support WebSockets. Send plain HTTP requests.'),
  too_many_failed_keys: limited(429, 'Too many requests with invalid keys came from this address.'),
  free_key_limit: kind('requests', 'no')(
    429,
    'This address has received its maximum of free keys for today.',
  ),
  rate_limit_exceeded: limited(429, 'A limit of this key is reached.'),
  insufficient_quota: kind('insufficient_quota', 'no')(429, 'The tokens of this month are used up.'),
  headers_too_large: invalid(431, 'The request headers are too large.'),
  client_closed: transient(499, 'The client closed the connection.'),
  internal_error: failed(500, 'The gateway failed while handling this request.'),
  checkout_not_configured: unrepeated(
    501,
    'Checkout is not configured for this tier. Ask the operator of this gateway for a key.',
  ),
  auth_unavailable: busy(503, 'The key cannot be checked at the moment.'),
  key_hashing_overloaded: busy(503, 'Too many keys are waiting to be hashed at the moment.'),
  store_unavailable: busy(503, 'The gateway cannot reach its store at the moment.'),
  overloaded: busy(503, 'This gateway is overloaded at the moment.'),
  draining: busy(503, 'This gateway is shutting down.'),
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

/** An error about one parameter. @param what the rest of the sentence about it, without the period */
export function parameterError(code: ErrorCode, param: string, what: string): GatewayError {
  return new GatewayError(code, `The parameter '${param}' ${what}.`, { param });
}

/** The body of every error response (OpenAI's error object). */
export function errorBody(error: GatewayError): string {
  return JSON.stringify({
    error: { message: error.message, type: error.type, param: error.param, code: error.code },
  });
}
