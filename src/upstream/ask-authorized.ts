// The repetition of a request with a new token. Requests for models repeat within their attempts (proxy/attempts).
import type { Exchange } from '../http/exchange/exchange.ts';
import type { Upstream } from './upstream.ts';

/**
 * Calls `ask` with a valid credential, and once more with a new token if the upstream rejects the current one.
 * @throws GatewayError upstream_auth_error, or the stop reason of the exchange; what `ask` throws
 */
export async function askAuthorized<T>(
  upstream: Upstream,
  exchange: Exchange,
  ask: () => Promise<T>,
  isTokenRejected: (result: T) => boolean,
): Promise<T> {
  const pending = upstream.authorize();
  if (pending !== undefined) await exchange.orStopped(pending);
  const { token } = upstream;
  const result = await ask();
  if (token === undefined || !isTokenRejected(result) || !(await upstream.replaceToken(token))) return result;
  return exchange.stopReason === undefined ? ask() : result;
}
