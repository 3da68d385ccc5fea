// The authenticated principal of a request.
import type { KeyRecord, KeySummary } from '../../store/key-record.ts';

/**
 * What a request needs of its key, as it was when it was checked. Limits, quota and usage belong to the holder, so they survive a
 * rotation. `standing` is always `good` after `authenticate`.
 */
export interface Principal
  extends Pick<KeySummary, 'prefix' | 'lineage' | 'version' | 'terms' | 'holderId' | 'tier' | 'standing'>,
    Pick<KeySummary, 'teamId' | 'holderTerms'> {
  /** When the key expires, in milliseconds since 1970; undefined: it does not. */
  readonly expiresAtMs: number | undefined;
}

/** The fields of a key record that authentication needs. */
export type CheckableKey = Pick<
  KeyRecord,
  Exclude<keyof Principal, 'expiresAtMs'> | 'state' | 'argon2' | 'hmac' | 'expiresAt'
>;

export function principalOf(record: CheckableKey): Principal {
  const { prefix, lineage, holderId, tier, standing, version, teamId, holderTerms, terms, expiresAt } =
    record;
  const expiresAtMs = expiresAt === null ? undefined : Date.parse(expiresAt);
  return { prefix, lineage, holderId, tier, standing, version, teamId, holderTerms, terms, expiresAtMs };
}
