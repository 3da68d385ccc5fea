// Where the access tokens of an upstream come from: the contract of all kinds, and the checks that every token passes.

/** A usable token. */
export interface AccessToken {
  /** Valid in a header. */
  readonly value: string;
  /** Unix time in milliseconds. */
  readonly fetchedAt: number;
  /** Unix time in milliseconds. */
  readonly expiresAt: number;
}

/** Fetches a new token. @param signal aborts at the deadline @throws TokenError, or the error of a library */
export type TokenSource = (signal: AbortSignal) => Promise<AccessToken>;

/** Why there is no token. The message is for the operator and quotes no credential. */
export class TokenError extends Error {
  override readonly name = 'TokenError';
}

/** Loads the package of a source. An upgrade in place may have taken its files away. @throws TokenError */
export async function loadPackage<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (cause) {
    throw new TokenError('the package that fetches it cannot be loaded; restart the gateway', { cause });
  }
}

/** Life of a token whose issuer names none, in milliseconds. */
const UNKNOWN_LIFE_MS = 5 * 60_000;
/** Longest life that is believed: an issuer that claims more is wrong, or its token outlives every rotation of keys. */
const MAX_LIFE_MS = 24 * 3_600_000;
/** RFC 6750, 2.1: `b64token`; wider, because vendors' tokens hold other visible characters. */
const TOKEN = /^[\x21-\x7e]{1,16384}$/;

/**
 * Checks a token and its expiry.
 * @param value as the issuer sent it
 * @param life how long it lives from now in milliseconds; undefined when the issuer does not say
 * @throws TokenError
 */
export function accessToken(value: unknown, life: number | undefined, now = Date.now()): AccessToken {
  if (typeof value !== 'string' || value === '') throw new TokenError('the answer has no token');
  if (!TOKEN.test(value)) {
    throw new TokenError('the token has a character that no header may have, or is longer than 16 KiB');
  }
  const ms = life ?? UNKNOWN_LIFE_MS;
  if (Number.isNaN(ms)) throw new TokenError('the expiry of the token is neither a number nor a date');
  if (ms <= 0) throw new TokenError('the token has expired already; compare the clocks of both machines');
  return { value, fetchedAt: now, expiresAt: now + Math.min(ms, MAX_LIFE_MS) };
}

/** The first line of a library error: it names the issuer's code (`AADSTS7000215`) and quotes no credential. */
export function firstLineOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return (message.split('\n')[0] ?? '').slice(0, 300);
}

/** @param seconds `expires_in` of RFC 6749, also as text; @returns milliseconds, NaN if it is none, undefined if absent */
export function lifeFromSeconds(seconds: unknown): number | undefined {
  if (seconds === undefined || seconds === null) return undefined;
  const isNumber =
    typeof seconds === 'number' || (typeof seconds === 'string' && /^-?\d+(\.\d+)?$/.test(seconds));
  return isNumber ? Number(seconds) * 1000 : Number.NaN;
}

/** @param time a date as text, or Unix seconds or milliseconds; @returns as `lifeFromSeconds` */
export function lifeUntil(time: unknown, now = Date.now()): number | undefined {
  if (time === undefined || time === null || time === '') return undefined;
  if (typeof time === 'string' && !/^-?\d+(\.\d+)?$/.test(time)) return Date.parse(time) - now;
  if (typeof time !== 'number' && typeof time !== 'string') return Number.NaN;
  const number = Number(time);
  return (number > 1e11 ? number : number * 1000) - now;
}
