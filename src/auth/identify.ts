// Authenticates the request of an exchange and notes whose it is, for the log and for the response.
import type { IncomingHttpHeaders } from 'node:http';
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import type { Authenticator } from './authenticator.ts';
import type { Principal } from './key/principal.ts';

/** How long before its expiry a key is warned about, in milliseconds. */
export const EXPIRY_WARNING_MS = 7 * 86_400_000;

/**
 * The key that a request offers: in `authorization`, or bare in `api-key` (Azure's clients) or `x-api-key` (Anthropic's).
 * @returns it as the value of an Authorization header; undefined without a key
 * @throws GatewayError missing_api_key for headers with different keys
 */
export function offeredKey(headers: IncomingHttpHeaders): string | undefined {
  const { authorization, 'api-key': azure, 'x-api-key': anthropic } = headers;
  if (azure === undefined && anthropic === undefined) return authorization;
  const bare = [azure, anthropic].flatMap((key) => (key ? [`Bearer ${key}`] : []));
  // Without a key of their own, SDKs send an empty one beside a header of their user.
  const isEmpty = authorization === undefined || /^(?:bearer)? *$/i.test(authorization);
  if (isEmpty && bare.length === 0) return authorization;
  const offered = isEmpty ? bare : [authorization.replace(/^bearer +/i, 'Bearer '), ...bare];
  if (new Set(offered).size > 1)
    throw new GatewayError('missing_api_key', 'Several API keys were given. Send one.');
  return offered[0];
}

/**
 * @param standing as in `Authenticator.authenticate`
 * @param authorization default: the key that the headers offer
 * @returns as `Authenticator.authenticate`
 * @throws GatewayError as `offeredKey` and `Authenticator.authenticate`
 */
export function identify(
  authenticator: Pick<Authenticator, 'authenticate'>,
  exchange: Exchange,
  standing: 'good' | 'any' = 'good',
  authorization = offeredKey(exchange.request.headers),
): Principal | Promise<Principal> {
  const checked = authenticator.authenticate(authorization, exchange.address, standing);
  // Most keys are cached: skip the promise and its microtask.
  return checked instanceof Promise
    ? checked.then((principal) => noteHolder(exchange, principal))
    : noteHolder(exchange, checked);
}

/**
 * Checks the key again where it may have ended while the body arrived: a body may take hours.
 * @throws (or rejects with) GatewayError as `identify`
 */
export function recheck(
  authenticator: Pick<Authenticator, 'authenticate'>,
  exchange: Exchange,
): Principal | Promise<Principal> | undefined {
  return exchange.hasLateBody ? identify(authenticator, exchange) : undefined;
}

/** Notes whose request it is. */
export function noteHolder(exchange: Exchange, principal: Principal): Principal {
  exchange.keyPrefix = principal.prefix;
  exchange.access.tier = principal.tier;
  const { expiresAtMs } = principal;
  if (expiresAtMs !== undefined && expiresAtMs - Date.now() < EXPIRY_WARNING_MS)
    exchange.headers['x-tollgate-key-expires'] = new Date(expiresAtMs).toISOString();
  return principal;
}
