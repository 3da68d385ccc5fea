// The endpoint for key rotation, and the JSON form of a new key.

import type { Exchange } from '../http/exchange/exchange.ts';
import { answerJson } from '../http/exchange/response-writer.ts';
import type { Authenticator } from './authenticator.ts';
import type { IssuedKey, KeyIssuer } from './key-issuer.ts';

/** `POST /admin/keys/rotate`, authenticated with the key that it replaces. */
export function rotationEndpoint(authenticator: Authenticator, issuer: KeyIssuer) {
  return async (exchange: Exchange): Promise<void> => {
    const { authorization } = exchange.request.headers;
    // Suspended holders may rotate: replacing a leaked key must not wait for a payment.
    const principal = await authenticator.authenticate(authorization, exchange.address, 'any');
    exchange.keyPrefix = principal.prefix;
    exchange.access.tier = principal.tier;
    // Do not replace the key of a client that has disconnected and would not receive the new one.
    exchange.throwIfStopped();
    const rotated = await issuer.rotate(principal);
    const body = { ...wireKey(rotated), replaces: rotated.replaces };
    answerJson(exchange, 200, body, { 'cache-control': 'no-store' });
  };
}

/** The JSON form of a new key. No other code reveals a key to a client. */
export function wireKey({ key, prefix, tier, createdAt }: IssuedKey): Record<string, string> {
  return { key: key.reveal(), prefix, tier, created_at: createdAt };
}
