// Errors for keys that cannot be checked. Clients get a 503: `auth_unavailable`, or `key_hashing_overloaded` when too many
// keys arrive at once. The metric and the log have the reason.
import { GatewayError } from '../../errors.ts';

/**
 * - `store`: the store failed.
 * - `late`: the store did not answer in time.
 * - `queue`: the queue of look-ups is full.
 * - `hashing`: no slot for Argon2, or Argon2 failed.
 * - `contradiction`: the record of the key is damaged.
 * - `changing`: the key changed during each check.
 */
type AuthUnavailableReason = 'store' | 'late' | 'queue' | 'hashing' | 'contradiction' | 'changing';

class CheckFailure extends Error {
  override readonly name = 'CheckFailure';
  readonly reason: AuthUnavailableReason;

  constructor(reason: AuthUnavailableReason, message: string, cause: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.reason = reason;
  }
}

/** The error for a key that cannot be checked now. @param retryAfterMs milliseconds; replaces the default */
export function unavailable(
  reason: AuthUnavailableReason,
  message: string,
  cause?: unknown,
  retryAfterMs?: number,
): GatewayError {
  return new GatewayError('auth_unavailable', undefined, {
    cause: new CheckFailure(reason, message, cause),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
}

/** The error for a key that is not hashed because the queue is full or memory is short. @param message for the client */
export function overloaded(
  message: string,
  retryAfterMs: number,
  why: string,
  cause?: unknown,
): GatewayError {
  return new GatewayError('key_hashing_overloaded', message, {
    cause: new CheckFailure('hashing', why, cause),
    retryAfterMs,
  });
}

/** The reason in an error of `unavailable` or `overloaded`; `other` for any other error. */
export function reasonOf(error: unknown): AuthUnavailableReason | 'other' {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof CheckFailure ? cause.reason : 'other';
}
