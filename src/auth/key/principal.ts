// The authenticated principal of a request.
import type { Tier } from '../../config/schema/config-schema.ts';
import type { Terms } from '../../config/terms.ts';
import type { BillingStatus, KeyRecord, Prefix } from '../../store/key-record.ts';

export interface Principal {
  readonly prefix: Prefix;
  /** As in `KeySummary`: what belongs to a key survives its rotation. */
  readonly lineage: Prefix;
  /** Limits, quota and usage belong to the holder, so they survive a rotation. */
  readonly holderId: string;
  readonly tier: Tier;
  /** Billing status of the holder; always `good` after `authenticate`. */
  readonly standing: BillingStatus;
  /** Version of the key when it was checked. A change of the holder raises it too. */
  readonly version: number;
  readonly teamId: string | null;
  /** What its holder has of its own. */
  readonly holderTerms: Terms;
  /** What the key has of its own. */
  readonly terms: Terms;
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
