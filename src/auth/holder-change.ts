// Changes a holder and announces it to the fleet. Like a revocation it needs neither the secret nor a
// hash. store/sql/sql-holders.ts writes the change.
import type { ChangeResult, HolderChange } from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import type { CheckableKey } from './key/principal.ts';
import type { KeyAnnouncer } from './records/key-broadcast.ts';
import type { Announcement, KeyListener } from './records/key-cache.ts';
import { storableText } from './stored-text.ts';

/** Who learns of changes by this process. */
export interface ChangeNotifiers {
  /** The authenticator of this process, if any. */
  readonly listener?: KeyListener | undefined;
  /** Set in a fleet: announces to the other replicas. */
  readonly announcer?: KeyAnnouncer | undefined;
}

/** Announces one change, to this process at once. Never rejects. @param record of an issued key */
export async function announce(
  { listener, announcer }: ChangeNotifiers,
  change: Announcement,
  record?: CheckableKey,
): Promise<void> {
  listener?.changed(change);
  await announcer?.announce(change, record);
}

/**
 * Changes a holder. When it resolves, this process applies the change, and it has been announced to the others.
 *
 * @param reason for support: at most 200 characters, see `storableText`
 * @param actor who makes the change, for its event
 * @returns the result; `same` is announced too, because a repeat may follow a failed announcement
 * @throws GatewayError `invalid_value` for a reason that cannot be stored, `store_unavailable`
 */
export async function changeHolder(
  parts: ChangeNotifiers & { readonly store: Pick<Store, 'changeHolder'>; readonly today?: () => Date },
  holderId: string,
  change: HolderChange,
  reason?: string,
  actor?: string,
): Promise<ChangeResult> {
  const storedReason = reason === undefined ? null : storableText(reason, 'reason');
  const at = (parts.today?.() ?? new Date()).toISOString();
  const outcome = await parts.store.changeHolder(holderId, change, storedReason, at, actor);
  if (outcome.kind !== 'unknown') await announceChanged(parts, outcome.records, at);
  return outcome;
}

/**
 * Announces a change. Callers that write the change in a transaction of their own (`changeHolderIn`) call it after the
 * commit. If the process ends before, the others read the change feed. Never rejects.
 *
 * @param records active keys of the holder, from the result
 * @param at RFC 3339, UTC
 */
export async function announceChanged(
  { listener, announcer }: ChangeNotifiers,
  records: readonly CheckableKey[],
  at: string,
): Promise<void> {
  for (const { prefix, version } of records) listener?.changed({ prefix, kind: 'changed', version });
  if (records.length > 0) await announcer?.announceChanged(records, at);
}
