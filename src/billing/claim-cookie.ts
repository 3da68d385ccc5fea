// The cookie by which the browser that ordered is known again, and the secrets in it: one for each order, as another order must
// not make the first one's key unreachable. The gateway keeps their digests only.
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Exchange } from '../http/exchange/exchange.ts';

/** Payments by bank transfer may take two weeks. */
const MAX_AGE_S = 30 * 86_400;
/** The newest ones; a cookie has to fit into a header. */
const MAX_SECRETS = 4;
const SECRET = /^[A-Za-z0-9_-]{43}$/;

/** SHA-256, as it stands with the order. The secret has 256 bits of chance, so nothing slower is needed. */
export function claimDigest(secret: string): Uint8Array {
  return createHash('sha256').update(secret).digest();
}

/**
 * The secrets that a request brings, newest first.
 * @param publicUrl where people reach the gateway
 */
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

/** Whether one of the secrets is that of an order. */
export function opens(secrets: readonly string[], claim: Uint8Array | null): boolean {
  if (claim === null) return false;
  const digests = secrets.map((secret) => claimDigest(secret));
  return digests.some((digest) => digest.byteLength === claim.byteLength && timingSafeEqual(digest, claim));
}

/** The answer of this exchange, whichever it is, will give the browser a further secret. */
export function storeClaimSecret(exchange: Exchange, secret: string, publicUrl: string): void {
  const others = claimSecrets(exchange, publicUrl).filter((each) => each !== secret);
  const value = [secret, ...others].slice(0, MAX_SECRETS).join('.');
  const secure = isHttps(publicUrl) ? '; Secure' : '';
  exchange.headers['set-cookie'] =
    `${cookieName(publicUrl)}=${value}; Path=/; Max-Age=${MAX_AGE_S}; HttpOnly; SameSite=Lax${secure}`;
}

/**
 * `__Host-`: no other host of the domain, and no page without TLS, can set it. Browsers take that name only with TLS, which a
 * gateway on the own machine need not have.
 */
function cookieName(publicUrl: string): string {
  return isHttps(publicUrl) ? '__Host-claim' : 'claim';
}

function isHttps(url: string): boolean {
  return url.startsWith('https:');
}

/** What a form brings so that sending it twice is one order. */
export function newNonce(): string {
  return randomBytes(32).toString('base64url');
}

export function isNonce(text: string): boolean {
  return SECRET.test(text);
}

/** What follows from a form: the digest under which its order is found, and the secret of that order. */
interface FormNames {
  readonly nonce: Uint8Array;
  readonly secret: string;
}

/**
 * Both are digests of the nonce, which only this page of this browser has. So of two answers to one form sent twice each sets the
 * same cookie, whichever the browser takes last.
 * @param subject what is ordered, and by whom: another subject is another order
 * @param generation grows where the order of the form is over, and its button is pressed again
 */
export function formNames(nonce: string, subject: string, generation: number): FormNames {
  const derive = (use: string) =>
    createHash('sha256')
      .update(JSON.stringify([use, subject, generation, nonce]))
      .digest();
  return { nonce: derive('order'), secret: derive('claim').toString('base64url') };
}
