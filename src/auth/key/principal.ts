// Who makes a request, once the key is known to be good.
import type { Tier } from '../../config/schema/config-schema.ts';
import type { BillingStatus, KeyRecord, Prefix } from '../../store/key-record.ts';

export interface Principal {
  readonly prefix: Prefix;
  /** Limits, quota and usage belong to the holder, so that they outlive a rotation. */
  readonly holderId: string;
  readonly tier: Tier;
  /** The holder's. Of callers that are not asked for otherwise it is `good`. */
  readonly standing: BillingStatus;
  /** Version of the key when it was checked; it grows when the holder changes, too. */
  readonly version: number;
}

/** What a presented key is checked by. */
export type CheckableKey = Pick<
  KeyRecord,
  'prefix' | 'holderId' | 'tier' | 'standing' | 'state' | 'version' | 'argon2' | 'hmac'
>;

export function principalOf(record: CheckableKey): Principal {
  const { prefix, holderId, tier, standing, version } = record;
  return { prefix, holderId, tier, standing, version };
}
