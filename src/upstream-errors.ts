// Errors of upstreams; a part of the table in errors.ts. Contains no text of an upstream.
import { busy, failed, limited, unrepeated } from './error-rule.ts';

/**
 * Status of errors that the operator or the upstream must resolve and that a client must not retry. Many clients ignore
 * `x-should-retry` and retry 408, 409, 429 and all 5xx; some retry every 4xx without a name of its own, such as 424. 401 to 404
 * would blame the caller's key, balance or model, and programs skip an input after a 400.
 */
export const UNREPEATED_STATUS = 406;

export const UPSTREAM_ERRORS = {
  upstream_rate_limited: limited(
    429,
    'All upstreams for this model are at their rate limits.',
    'Every target has recently answered 429 and is paused; `retry-after` is when the first one can be tried again.',
  ),
  upstream_unreachable: failed(
    502,
    'The upstream could not be reached.',
    'Name resolution or connecting failed, or the connection broke before a response.',
  ),
  upstream_tls: unrepeated(
    UNREPEATED_STATUS,
    'The identity of the upstream could not be verified. The operator has to act.',
    'The certificate is expired, for another host or from an unknown issuer, or the TLS handshake failed otherwise; or the upstream rejected the handshake, for example because it demands another client certificate, which the message then says. Nothing was sent.',
  ),
  upstream_proxy_error: failed(
    502,
    'The outbound proxy of the gateway brought about no connection to the upstream.',
    'The proxy on the way to the upstream cannot be reached, answered a 5xx or no HTTP, or closed the tunnel. The log names the proxy. Nothing was sent.',
  ),
  upstream_proxy_denied: unrepeated(
    UNREPEATED_STATUS,
    'The outbound proxy of the gateway refused a connection to the upstream. The operator has to act.',
    'The proxy on the way to the upstream demands other credentials (407), forbids the upstream (403 and other 4xx), or its certificate cannot be verified. The log says which. Nothing was sent.',
  ),
  upstream_auth_error: unrepeated(
    UNREPEATED_STATUS,
    'The upstream rejected the credentials of the gateway. The operator has to act.',
    "The upstream rejected the operator's key, or the key lacks a permission there. The caller's key is not the cause.",
  ),
  upstream_account_error: unrepeated(
    UNREPEATED_STATUS,
    'The upstream does not serve the account of the gateway: balance, quota or billing. The operator has to act.',
    "The operator's account at the upstream is out of credit or quota, unpaid or suspended. The caller's own limits are not the cause.",
  ),
  upstream_unusable_response: unrepeated(
    UNREPEATED_STATUS,
    'The upstream sent a complete answer that cannot be relayed. It may have billed it.',
    'The upstream did the work, but its answer exceeds a bound of `max_answer`, is a stream that was not requested, or cannot be converted to the requested stream. The message says which. A retry may be billed again.',
  ),
  upstream_invalid_response: failed(
    502,
    'The upstream sent an invalid answer.',
    'Malformed HTTP, a wrong content type, a redirect, an empty answer or a truncated body, before anything was relayed.',
  ),
  upstream_error: failed(
    502,
    'The upstream reported an error.',
    'An upstream error whose body is not in the OpenAI shape; the status is the upstream’s if it is 400 to 599.',
  ),
  stream_incomplete: failed(
    502,
    'The stream of the upstream broke before it was complete.',
    'Sent as a frame of a stream that had begun: the output so far is valid but incomplete.',
  ),
  upstream_busy: busy(
    503,
    'No upstream for this model can take the request at the moment.',
    'All targets are at `max_concurrency`, or paused after failures.',
  ),
  upstream_out_of_service: busy(
    503,
    'No upstream for this model is in service at the moment.',
    'Every target is drained (`tollgate upstreams drain`), disabled (`enabled: false`) or has weight 0; or the one upstream that stores the object is. An operator has to put one back.',
  ),
  upstream_timeout: failed(
    504,
    'The upstream did not answer in time.',
    'A deadline passed: headers, first token, silence or the whole request.',
  ),
};
