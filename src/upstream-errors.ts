// The errors of upstreams, as a part of the table in errors.ts. It holds no text of an upstream's.

/**
 * The status of errors that lie with the operator or an upstream and that a client must not repeat. Many clients ignore
 * `x-should-retry` and repeat 408, 409, 429 and every 5xx; some repeat every 4xx that they have no name for, such as 424.
 * 401 to 404 would blame the caller's key, balance or model, and programs skip an input that is answered with 400.
 */
export const UNREPEATED_STATUS = 406;

const SERVER = 'server_error';
const BUSY = 'service_unavailable_error';

export const UPSTREAM_ERRORS = {
  upstream_rate_limited: {
    status: 429,
    type: 'requests',
    retry: 'wait',
    message: 'All upstreams for this model are at their rate limits.',
    meaning:
      'Every target has answered 429 of late and asked to be left alone; `retry-after` is when the first may be asked again.',
  },
  upstream_unreachable: {
    status: 502,
    type: SERVER,
    retry: 'default',
    message: 'The upstream could not be reached.',
    meaning: 'Name resolution or connection failed, or the connection broke before an answer.',
  },
  upstream_tls: {
    status: UNREPEATED_STATUS,
    type: SERVER,
    retry: 'no',
    message: 'The identity of the upstream could not be verified. The operator has to act.',
    meaning:
      'The certificate is expired, for another host or of an unknown issuer, or TLS failed otherwise. Nothing was sent.',
  },
  upstream_auth_error: {
    status: UNREPEATED_STATUS,
    type: SERVER,
    retry: 'no',
    message: 'The upstream refused the credentials of the gateway. The operator has to act.',
    meaning:
      "The upstream refused the operator's key for it, or what the key may do. The caller's key is not the cause.",
  },
  upstream_account_error: {
    status: UNREPEATED_STATUS,
    type: SERVER,
    retry: 'no',
    message:
      'The upstream does not serve the account of the gateway: balance, quota or billing. The operator has to act.',
    meaning:
      "The upstream said that the operator's account there is out of credit or quota, unpaid or suspended. The caller's own limits are not the cause.",
  },
  upstream_unusable_response: {
    status: UNREPEATED_STATUS,
    type: SERVER,
    retry: 'no',
    message: 'The upstream sent a whole answer that cannot be relayed. It may have billed it.',
    meaning:
      'The upstream did the work, and its answer is over a bound of `max_answer`, is a stream that was not asked for, or cannot be the stream that was. The message says which. Another try may be billed again.',
  },
  upstream_invalid_response: {
    status: 502,
    type: SERVER,
    retry: 'default',
    message: 'The upstream sent an answer that cannot be used.',
    meaning:
      'Malformed HTTP, a wrong content type, a redirect, an empty answer or a body cut short before anything was relayed.',
  },
  upstream_error: {
    status: 502,
    type: SERVER,
    retry: 'default',
    message: 'The upstream reported an error.',
    meaning:
      'An upstream error whose own body is not in the OpenAI shape; the status is the upstream’s where it is 400 to 599.',
  },
  stream_incomplete: {
    status: 502,
    type: SERVER,
    retry: 'default',
    message: 'The stream of the upstream broke before it was complete.',
    meaning: 'In a frame of a stream that had begun: what came before is valid but not the whole answer.',
  },
  upstream_busy: {
    status: 503,
    type: BUSY,
    retry: 'wait',
    message: 'No upstream for this model can take the request at the moment.',
    meaning: 'All targets are at `max_concurrency`, or left alone for a while because they failed.',
  },
  upstream_timeout: {
    status: 504,
    type: SERVER,
    retry: 'default',
    message: 'The upstream did not answer in time.',
    meaning: 'The deadline for headers, first token, silence or the whole request passed.',
  },
} as const;
