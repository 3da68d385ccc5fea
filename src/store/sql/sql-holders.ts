// Changes of a holder, as a part of any transaction: tier, standing, and what that means to the keys. Who may change whom is
// decided above; that the fleet hears of it is auth/holder-change.ts's.
import type { Transaction } from 'kysely';
import type { ChangeResult, HolderChange, Prefix } from '../key-record.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from './deferred-statements.ts';
import { activeRecordsOf, insertEvent, type LockChangeFeed } from './sql-keys.ts';

interface HolderChangeOrder {
  readonly holderId: string;
  readonly change: HolderChange;
  /** Why, for support; it stands in the events behind what changed. */
  readonly reason: string | null;
  /** RFC 3339, UTC. */
  readonly at: string;
}

/**
 * The statement that keeps a holder as it is until the transaction ends, and gives it. Code that writes a key of a holder that
 * exists, or changes a holder, runs it first: a key that is made while its holder changes is either changed too, or made with what the holder has become.
 *
 * Locks are taken in one order, which is why none waits for another in a circle: holder, key, turn.
 */
export function holdHolder(
  trx: Transaction<Tables>,
  whose: { readonly id: string } | { readonly prefix: Prefix },
) {
  // Writes what is there: the one way to lock a row that both kinds of database have.
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
 * Changes a holder, raises the version of each of its active keys, and writes an event for each, within a transaction of the
 * caller, who may write more in it. Afterwards the caller lets the fleet know: `announceChanged` of the issuer.
 *
 * Rows that the caller locks itself are to be locked before. After this nothing may wait for a lock: the turn is taken.
 */
export async function changeHolderIn(
  trx: Transaction<Tables>,
  takeTurn: LockChangeFeed,
  { holderId, change, reason, at }: HolderChangeOrder,
): Promise<ChangeResult> {
  const before = await holdHolder(trx, { id: holderId }).executeTakeFirst();
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
  // Those are they: nobody else can write a key of the holder now.
  const records = await activeRecordsOf(trx, holderId);
  if (records.length > 0) await takeTurn(trx);
  for (const { prefix, version } of records) {
    await insertEvent(trx, prefix, 'changed', version, at, reason === null ? what : `${what}: ${reason}`);
  }
  return { kind: 'changed', records };
}
