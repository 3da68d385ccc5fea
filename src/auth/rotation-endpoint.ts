// The endpoint for key rotation, and the JSON form of a new key.

import { formatDuration, readDuration } from '../config/schema/units.ts';
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { answerJson, hasBody } from '../http/exchange/response-writer.ts';
import { readPageForm } from '../http/page-form.ts';
import type { Authenticator } from './authenticator.ts';
import { identify } from './identify.ts';
import type { IssuedKey, KeyIssuer } from './key-issuer.ts';

/**
 * `POST /admin/keys/rotate`, authenticated with the key that it replaces; with `{"overlap": "24h"}` the old key stays valid that long.
 * @param maxOverlap the longest overlap in milliseconds, of the configuration in force
 */
export function rotationEndpoint(authenticator: Authenticator, issuer: KeyIssuer, maxOverlap: () => number) {
  return async (exchange: Exchange): Promise<void> => {
    // Suspended holders may rotate: replacing a leaked key must not wait for a payment.
    const principal = await identify(authenticator, exchange, 'any');
    const overlapMs = await readOverlap(exchange, maxOverlap());
    // Do not replace the key of a client that has disconnected and would not receive the new one.
    exchange.throwIfStopped();
    const { replaces, validUntil, ...rotated } = await issuer.rotate(principal, overlapMs);
    const until = validUntil === null ? {} : { old_key_expires_at: validUntil };
    answerJson(exchange, 200, { ...wireKey(rotated), replaces, ...until }, { 'cache-control': 'no-store' });
  };
}

/** @throws GatewayError invalid_value, and those of `readPageForm` */
async function readOverlap(exchange: Exchange, max: number): Promise<number> {
  const form = hasBody(exchange) ? await readPageForm(exchange) : undefined;
  const names = form?.names ?? [];
  // A rotation cannot be taken back, so nothing that could mean an overlap is passed over.
  if (names.some((name) => name !== 'overlap') || /\?.*overlap/i.test(exchange.target))
    throw new GatewayError(
      'invalid_value',
      "The only parameter of a rotation is 'overlap', such as 24h, in the body.",
      { param: 'overlap' },
    );
  if (form === undefined || names.length === 0) return 0;
  const read = overlapOf(form.get('overlap') ?? '', max);
  if (typeof read === 'number') return read;
  throw new GatewayError('invalid_value', `The parameter 'overlap' ${read}.`, { param: 'overlap' });
}

/** @param max the longest overlap in milliseconds @returns milliseconds; or what is wrong, for the end of a sentence */
export function overlapOf(text: string, max: number): number | string {
  const read = readDuration(text);
  if (!read.ok) return 'must be a duration, such as 30m or 24h';
  if (read.value <= max) return read.value;
  return max === 0
    ? 'is not offered by this gateway: the old key stops at once. Leave it out'
    : `must be at most ${formatDuration(max)} on this gateway`;
}

/** The JSON form of a new key. No other code reveals a key to a client. */
export function wireKey({ key, prefix, tier, createdAt }: IssuedKey): Record<string, string> {
  return { key: key.reveal(), prefix, tier, created_at: createdAt };
}
