// Why a key could not be checked. The caller reads one 503 for all of it; the metric and the log tell them apart.
import { GatewayError } from '../errors.ts';

/**
 * - `store`: the store failed.
 * - `late`: it did not answer in time.
 * - `queue`: too many look-ups wait for it.
 * - `hashing`: no place for Argon2, or it failed.
 * - `contradiction`: the record of the key is damaged.
 * - `changing`: the key changed each time it was looked at.
 */
export type UnavailableReason = 'store' | 'late' | 'queue' | 'hashing' | 'contradiction' | 'changing';

class CheckFailure extends Error {
  override readonly name = 'CheckFailure';
  readonly reason: UnavailableReason;

  constructor(reason: UnavailableReason, message: string, cause: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.reason = reason;
  }
}

/** The error for a key that cannot be checked now. */
export function unavailable(reason: UnavailableReason, message: string, cause?: unknown): GatewayError {
  return new GatewayError('auth_unavailable', undefined, { cause: new CheckFailure(reason, message, cause) });
}

/** The reason in an error of `unavailable`; `other` for any other error. */
export function reasonOf(error: unknown): UnavailableReason | 'other' {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof CheckFailure ? cause.reason : 'other';
}
