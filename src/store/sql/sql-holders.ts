// Changes of a holder's tier and standing, and of the versions of its keys, within any transaction. auth/holder-change.ts
// announces them to the fleet.
import type { Transaction } from 'kysely';
import type { ChangeResult, HolderChange, Prefix } from '../key-record.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from './deferred-statements.ts';
import type { LockChangeFeed } from './sql-database.ts';
import { activeRecordsOf, insertEvent } from './sql-keys.ts';

interface HolderChangeRequest {
  readonly holderId: string;
  readonly change: HolderChange;
  /** Reason for support; the events have it after the description of the change. */
  readonly reason: string | null;
  /** RFC 3339, UTC. */
  readonly at: string;
}

/**
 * The statement that locks and returns a holder. Transactions that change a holder or write a key of an existing one run it
 * first, so that a new key cannot miss a concurrent change of its holder.
 *
 * Lock order, to prevent deadlocks: holder, key, change feed.
 */
export function lockHolder(
  trx: Transaction<Tables>,
  whose: { readonly id: string } | { readonly prefix: Prefix },
) {
  // An update without effect: the only row lock that both databases support.
  const query = trx
    .updateTable('holders')
    .set((eb) => ({ tier: eb.ref('tier') }))
    .returning(['id', 'tier', 'standing', 'label']);
  if ('id' in whose) return query.where('id', '=', whose.id);
  return query.where('id', '=', (eb) =>
    eb.selectFrom('keys').select('holder_id').where('prefix', '=', whose.prefix),
  );
}

/**
 * Changes a holder, raises the version of each of its active keys, and writes an event for each, within the caller's
 * transaction. After the commit the caller announces the change: `announceChanged` of the issuer.
 *
 * The caller has to take its own row locks before this call, because it takes the change feed's lock, which is the last.
 */
export async function changeHolderIn(
  trx: Transaction<Tables>,
  lockChangeFeed: LockChangeFeed,
  { holderId, change, reason, at }: HolderChangeRequest,
): Promise<ChangeResult> {
  const before = await lockHolder(trx, { id: holderId }).executeTakeFirst();
  if (before === undefined) return { kind: 'unknown' };
  const after = { tier: change.tier ?? before.tier, standing: change.standing ?? before.standing };
  const what = [
    ...(after.tier === before.tier ? [] : [`tier ${before.tier} to ${after.tier}`]),
    ...(after.standing === before.standing ? [] : [`standing ${before.standing} to ${after.standing}`]),
  ].join(', ');
  if (what === '') return { kind: 'same', records: await activeRecordsOf(trx, holderId) };
  await defer(trx, trx.updateTable('holders').set(after).where('id', '=', holderId));
  const raising = trx
    .updateTable('keys')
    .set((eb) => ({ version: eb('version', '+', 1) }))
    .where('holder_id', '=', holderId)
    .where('state', '=', 'active');
  await defer(trx, raising);
  // The holder is locked, so the set of its keys cannot change.
  const records = await activeRecordsOf(trx, holderId);
  if (records.length > 0) await lockChangeFeed(trx);
  for (const { prefix, version } of records) {
    await insertEvent(trx, prefix, 'changed', version, at, reason === null ? what : `${what}: ${reason}`);
  }
  return { kind: 'changed', records };
}
