// Changes of a holder, as a part of any transaction: tier, standing, and what that means to the keys. Who may change whom is
// decided above; that the fleet hears of it is auth/holder-change.ts's.
import type { Transaction } from 'kysely';
import type { ChangeOutcome, Holder, HolderChange } from './record.ts';
import { activeRecordsOf, insertEvent, type TakeTurn } from './sql-keys.ts';
import type { Tables } from './tables.ts';

export interface HolderChangeOrder {
  readonly holderId: string;
  readonly change: HolderChange;
  /** Why, for support; it stands in the events behind what changed. */
  readonly reason: string | null;
  /** RFC 3339, UTC. */
  readonly at: string;
}

/**
 * Keeps a holder as it is until the transaction ends. Whoever writes a key of a holder that exists, or changes a holder, does
 * this first: a key that is made while its holder changes is either changed too, or made with what the holder has become.
 *
 * Locks are taken in one order, which is why none waits for another in a circle: holder, key, turn.
 * @returns the holder, or undefined when there is none
 */
export async function holdHolder(
  trx: Transaction<Tables>,
  holderId: string,
): Promise<Pick<Holder, 'tier' | 'standing'> | undefined> {
  // Writes what is there: the one way to lock a row that both kinds of database have.
  return trx
    .updateTable('holders')
    .set((eb) => ({ tier: eb.ref('tier') }))
    .where('id', '=', holderId)
    .returning(['tier', 'standing'])
    .executeTakeFirst();
}

/**
 * Changes a holder, raises the version of each of its active keys, and writes an event for each, within a transaction of the
 * caller, who may write more in it. Afterwards the caller lets the fleet know: `announceChanged` of the issuer.
 *
 * Rows that the caller locks itself are to be locked before. After this nothing may wait for a lock: the turn is taken.
 */
export async function changeHolderIn(
  trx: Transaction<Tables>,
  takeTurn: TakeTurn,
  { holderId, change, reason, at }: HolderChangeOrder,
): Promise<ChangeOutcome> {
  const before = await holdHolder(trx, holderId);
  if (before === undefined) return { kind: 'unknown' };
  const after = { tier: change.tier ?? before.tier, standing: change.standing ?? before.standing };
  const what = [
    ...(after.tier === before.tier ? [] : [`tier ${before.tier} to ${after.tier}`]),
    ...(after.standing === before.standing ? [] : [`standing ${before.standing} to ${after.standing}`]),
  ].join(', ');
  if (what === '') return { kind: 'same', records: await activeRecordsOf(trx, holderId) };
  await trx.updateTable('holders').set(after).where('id', '=', holderId).execute();
  const raised = await trx
    .updateTable('keys')
    .set((eb) => ({ version: eb('version', '+', 1) }))
    .where('holder_id', '=', holderId)
    .where('state', '=', 'active')
    .returning(['prefix', 'version'])
    .execute();
  if (raised.length > 0) await takeTurn(trx);
  for (const { prefix, version } of raised) {
    await insertEvent(trx, prefix, 'changed', version, at, reason === null ? what : `${what}: ${reason}`);
  }
  return { kind: 'changed', records: await activeRecordsOf(trx, holderId) };
}
