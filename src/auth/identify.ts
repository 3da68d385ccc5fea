// Authenticates the request of an exchange and notes whose it is, for the log and for the response.
import type { Exchange } from '../http/exchange/exchange.ts';
import type { Authenticator } from './authenticator.ts';
import type { Principal } from './key/principal.ts';

/** How long before its expiry a key is warned about, in milliseconds. */
export const EXPIRY_WARNING_MS = 7 * 86_400_000;

/**
 * @param standing as in `Authenticator.authenticate`
 * @param authorization default: the request's Authorization header
 * @returns as `Authenticator.authenticate`
 * @throws GatewayError as `Authenticator.authenticate`
 */
export function identify(
  authenticator: Pick<Authenticator, 'authenticate'>,
  exchange: Exchange,
  standing: 'good' | 'any' = 'good',
  authorization = exchange.request.headers.authorization,
): Principal | Promise<Principal> {
  const checked = authenticator.authenticate(authorization, exchange.address, standing);
  // Most keys are cached: skip the promise and its microtask.
  return checked instanceof Promise
    ? checked.then((principal) => note(exchange, principal))
    : note(exchange, checked);
}

function note(exchange: Exchange, principal: Principal): Principal {
  exchange.keyPrefix = principal.prefix;
  exchange.access.tier = principal.tier;
  const { expiresAtMs } = principal;
  if (expiresAtMs !== undefined && expiresAtMs - Date.now() < EXPIRY_WARNING_MS)
    exchange.headers['x-tollgate-key-expires'] = new Date(expiresAtMs).toISOString();
  return principal;
}
