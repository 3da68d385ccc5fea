// The cookie that identifies the browser that ordered. It has one secret per order, so that a second order does not make the
// first one's key unreachable. The gateway stores only their digests.
import { hash, randomBytes } from 'node:crypto';
import { isSameBytes } from '../auth/hashing/hashing-secret.ts';
import type { Exchange } from '../http/exchange/exchange.ts';

/** Bank transfers may take two weeks. */
const MAX_AGE_S = 30 * 86_400;
/** The newest ones are kept, because a cookie has to fit into a header. */
const MAX_SECRETS = 4;
const SECRET = /^[A-Za-z0-9_-]{43}$/;

/** SHA-256, as it is stored with the order. The secret has 256 random bits, so a slow hash is not needed. */
export function claimDigest(secret: string): Uint8Array {
  return hash('sha256', secret, 'buffer');
}

/** The secrets in a request's cookie, newest first. @param publicUrl public URL of the gateway */
export function claimSecrets({ request }: Exchange, publicUrl: string): readonly string[] {
  const name = cookieName(publicUrl);
  for (const part of (request.headers.cookie ?? '').split(';')) {
    const at = part.indexOf('=');
    if (at === -1 || part.slice(0, at).trim() !== name) continue;
    return part
      .slice(at + 1)
      .trim()
      .split('.')
      .filter((secret) => SECRET.test(secret))
      .slice(0, MAX_SECRETS);
  }
  return [];
}

/** Whether one of the secrets has the digest that is stored with an order. */
export function opens(secrets: readonly string[], claim: Uint8Array | null): boolean {
  if (claim === null) return false;
  const digests = secrets.map((secret) => claimDigest(secret));
  return digests.some((digest) => isSameBytes(digest, claim));
}

/** Adds a secret to the cookie that the answer of this exchange sets. */
export function storeClaimSecret(exchange: Exchange, secret: string, publicUrl: string): void {
  const others = claimSecrets(exchange, publicUrl).filter((each) => each !== secret);
  const value = [secret, ...others].slice(0, MAX_SECRETS).join('.');
  const secure = isHttps(publicUrl) ? '; Secure' : '';
  exchange.headers['set-cookie'] =
    `${cookieName(publicUrl)}=${value}; Path=/; Max-Age=${MAX_AGE_S}; HttpOnly; SameSite=Lax${secure}`;
}

/**
 * With `__Host-`, no other host of the domain and no page without TLS can set it. Browsers accept that prefix only over TLS,
 * which a local gateway does not have.
 */
function cookieName(publicUrl: string): string {
  return isHttps(publicUrl) ? '__Host-claim' : 'claim';
}

function isHttps(url: string): boolean {
  return url.startsWith('https:');
}

/** The nonce of an order form, which makes submitting it idempotent. */
export function newNonce(): string {
  return randomBytes(32).toString('base64url');
}

export function isNonce(text: string): boolean {
  return SECRET.test(text);
}

/** The digest that identifies the order of a form, and the secret of that order. */
interface FormNames {
  readonly nonce: Uint8Array;
  readonly secret: string;
}

/**
 * Both are digests of the nonce, which only this page of this browser has. Both answers to a form that is submitted twice
 * therefore set the same cookie.
 * @param subject what is ordered, and by whom: another subject is another order
 * @param generation raised when the form is submitted again after its order ended
 */
export function formNames(nonce: string, subject: string, generation: number): FormNames {
  const derive = (use: string) => hash('sha256', JSON.stringify([use, subject, generation, nonce]), 'buffer');
  return { nonce: derive('order'), secret: derive('claim').toString('base64url') };
}
