// `GET /admin/keys/current`: what the holder of a key may know of it.
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { answerJson } from '../http/exchange/response-writer.ts';
import type { Store } from '../store/store.ts';
import type { Authenticator } from './authenticator.ts';
import { identify } from './identify.ts';

/** @returns the handler: 200 with prefix, name, and the times of issue, expiry and last use of the key of the request */
export function keyEndpoint(authenticator: Authenticator, store: Pick<Store, 'listKeys'>) {
  return async (exchange: Exchange): Promise<void> => {
    const { prefix, holderId } = await identify(authenticator, exchange, 'any');
    exchange.throwIfStopped();
    const {
      items: [key],
    } = await store.listKeys({ prefix, holderId, limit: 1 });
    if (key === undefined) throw new GatewayError('invalid_api_key');
    const { name, createdAt, expiresAt, lastUsed } = key;
    const body = { prefix, name, created_at: createdAt, expires_at: expiresAt, last_used: lastUsed };
    answerJson(exchange, 200, body, { 'cache-control': 'no-store' });
  };
}
