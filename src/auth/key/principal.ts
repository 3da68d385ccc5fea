// The authenticated principal of a request.
import { TIERS } from '../../config/schema/config-schema.ts';
import { GatewayError } from '../../errors.ts';
import { BILLING_STATUSES, type KeyRecord, type KeySummary } from '../../store/key-record.ts';

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

/** Why a valid key is not served; undefined where it is. @param required `any`: suspended holders are served, too */
export function rejectionOfKey(
  { standing, expiresAtMs }: Pick<Principal, 'standing' | 'expiresAtMs'>,
  required: 'good' | 'any' = 'good',
): GatewayError | undefined {
  if (expiresAtMs !== undefined && Date.now() >= expiresAtMs)
    return new GatewayError(
      'api_key_expired',
      `The API key expired on ${new Date(expiresAtMs).toISOString()}.`,
    );
  return required === 'good' && standing !== 'good' ? new GatewayError('billing_not_active') : undefined;
}

export function principalOf(record: CheckableKey): Principal {
  const { prefix, holderId, version, teamId, holderTerms, terms, expiresAt } = record;
  // A process keeps many principals, and texts from the store or Redis are copies: share those that are the same.
  const lineage = record.lineage === prefix ? prefix : record.lineage;
  const tier = TIERS.find((each) => each === record.tier) ?? record.tier;
  const standing = BILLING_STATUSES.find((each) => each === record.standing) ?? record.standing;
  const expiresAtMs = expiresAt === null ? undefined : Date.parse(expiresAt);
  return { prefix, lineage, holderId, tier, standing, version, teamId, holderTerms, terms, expiresAtMs };
}
