// The endpoint by which a holder replaces the own key, and the form in which a new key goes over the wire.

import type { Exchange } from '../http/exchange/exchange.ts';
import { answerJson } from '../http/exchange/response-writer.ts';
import type { Authenticator } from './authenticator.ts';
import type { IssuedKey, KeyIssuer } from './key-issuer.ts';

export class RotationEndpoint {
  readonly #authenticator: Authenticator;
  readonly #issuer: KeyIssuer;

  constructor(authenticator: Authenticator, issuer: KeyIssuer) {
    this.#authenticator = authenticator;
    this.#issuer = issuer;
  }

  /** `POST /admin/keys/rotate`, authenticated with the key that it ends. */
  async answer(exchange: Exchange): Promise<void> {
    // A suspended holder may, too: a key that leaked must not wait for a payment to be replaced.
    const principal = await this.#authenticator.identify(
      exchange.request.headers.authorization,
      exchange.address,
    );
    exchange.keyPrefix = principal.prefix;
    exchange.access.tier = principal.tier;
    // Once it is done the old key is gone, so it is not done for someone who has left.
    exchange.throwIfStopped();
    const rotated = await this.#issuer.rotate(principal);
    answerJson(
      exchange,
      200,
      { ...wireKey(rotated), replaces: rotated.replaces },
      { 'cache-control': 'no-store' },
    );
  }
}

/** A new key as its holder reads it: the one place where it is written out. */
export function wireKey({ key, prefix, tier, createdAt }: IssuedKey): Record<string, string> {
  return { key: key.reveal(), prefix, tier, created_at: createdAt };
}
