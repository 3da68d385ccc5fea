// Another tier or standing for a holder, and that everybody hears of it. Like a revocation it needs neither the secret nor a
// hash. What is written is store/sql/sql-holders.ts's.
import type { ChangeResult, HolderChange } from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import type { CheckableKey } from './key/principal.ts';
import type { Announcer } from './records/announcer.ts';
import type { KeyListener } from './records/key-cache.ts';
import { storableText } from './stored-text.ts';

/** Who is told of changes. */
interface ChangeNotifiers {
  /** The authenticator of this process, where there is one. */
  readonly listener?: Pick<KeyListener, 'changed'> | undefined;
  /** Where there are other processes that listen. */
  readonly announcer?: Announcer | undefined;
}

/**
 * Changes tier or standing of a holder. When it resolves, this process obeys, and the others have been told.
 *
 * @param reason for support: at most 200 characters, see `keepable`
 * @returns `same` also tells again, because whoever asks again may do so because not everybody was told
 * @throws GatewayError `invalid_value` for a reason that cannot be kept, `store_unavailable`
 */
export async function changeHolder(
  parts: ChangeNotifiers & { readonly store: Pick<Store, 'changeHolder'>; readonly today?: () => Date },
  holderId: string,
  change: HolderChange,
  reason?: string,
): Promise<ChangeResult> {
  const kept = reason === undefined ? null : storableText(reason, 'reason');
  const at = (parts.today?.() ?? new Date()).toISOString();
  const outcome = await parts.store.changeHolder(holderId, change, kept, at);
  if (outcome.kind !== 'unknown') await announceChanged(parts, outcome.records, at);
  return outcome;
}

/**
 * To be called after the commit by whoever wrote the change in a transaction of its own (`changeHolderIn`). If the process
 * ends before, the change feed tells the others. Never rejects.
 *
 * @param records active keys of the holder, as the outcome has them
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
