// Errors of upstreams; a part of the table in errors.ts. Contains no text of an upstream.
import { busy, failed, limited, unrepeated } from './error-rule.ts';

/**
 * Status of errors that the operator or the upstream must resolve and that a client must not retry. Many clients ignore
 * `x-should-retry` and retry 408, 409, 429 and all 5xx; some retry every 4xx without a name of its own, such as 424. 401 to 404
 * would blame the caller's key, balance or model, and programs skip an input after a 400.
 */
export const UNREPEATED_STATUS = 406;

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
