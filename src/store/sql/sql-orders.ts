// Reads, writes and locks of order rows. sql-billing.ts combines them to operations.
import type { Kysely, Transaction } from 'kysely';
import type { Tier } from '../../config/schema/config-schema.ts';
import type { BillingEvent, Order, OrderChange, OrderState, OrderTerms } from '../billing-record.ts';
import type { NewKey } from '../key-record.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from './deferred-statements.ts';
import { recordFrom, rowOf } from './row-names.ts';

type Trx = Transaction<Tables>;

const MAX_OF_HOLDER = 1000;

export const orderFromRow = recordFrom<Order>;

/** The statement that inserts an order. It returns no row when its nonce exists. */
export function insertOrder(
  db: Kysely<Tables>,
  terms: OrderTerms,
  { state, holder_id = null }: { readonly state: OrderState; readonly holder_id?: string | null },
) {
  return db
    .insertInto('orders')
    .values({
      ...rowOf(terms),
      ...{ state, standing: 'none', is_cancelled: 0, is_trusted: 0, is_replaced: 0 },
      holder_id,
      updated_at: terms.createdAt,
      version: 1,
    })
    .onConflict((conflict) => conflict.column('nonce').doNothing())
    .returningAll();
}

/** The existing order with the nonce of `terms`. */
export async function mustFindNonce(db: Kysely<Tables>, { nonce }: OrderTerms): Promise<Order> {
  const row = await db.selectFrom('orders').selectAll().where('nonce', '=', nonce).executeTakeFirstOrThrow();
  return orderFromRow(row);
}

/** @returns undefined when the version has changed */
export async function writeOrder(
  db: Kysely<Tables>,
  id: string,
  version: number,
  change: OrderChange,
  at: string,
): Promise<Order | undefined> {
  const row = await changeOrder(db, { id, version, change, at }).executeTakeFirst();
  return row === undefined ? undefined : orderFromRow(row);
}

/** The statement that changes an order. It returns no row when the version has changed. */
export function changeOrder(
  db: Kysely<Tables>,
  { id, version, change, at }: { id: string; version: number; change: OrderChange; at: string },
) {
  return db
    .updateTable('orders')
    .set({ ...rowOf(change), updated_at: at, version: version + 1 })
    .where('id', '=', id)
    .where('version', '=', version)
    .returningAll();
}

/** Locks an order until the transaction ends, and returns it. */
export async function lockOrder(trx: Trx, id: string): Promise<Order | undefined> {
  const row = await trx
    .updateTable('orders')
    .set((eb) => ({ version: eb('version', '+', 1) }))
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirst();
  return row === undefined ? undefined : orderFromRow(row);
}

export async function insertHolder(trx: Trx, id: string, tier: Tier, created_at: string): Promise<void> {
  await defer(trx, trx.insertInto('holders').values({ id, tier, label: null, created_at }));
}

export async function ordersOf(db: Kysely<Tables>, holderId: string): Promise<readonly Order[]> {
  const rows = await db
    .selectFrom('orders')
    .selectAll()
    .where('holder_id', '=', holderId)
    .where('mode', '<>', 'free')
    .orderBy('created_at')
    .orderBy('id')
    .limit(MAX_OF_HOLDER)
    .execute();
  return rows.map(orderFromRow);
}

export async function markClaimed(trx: Trx, id: string, holderId: string, key: NewKey): Promise<void> {
  const claiming = trx
    .updateTable('orders')
    .set((eb) => ({
      state: 'claimed',
      holder_id: holderId,
      key_prefix: key.prefix,
      claimed_at: key.createdAt,
      updated_at: key.createdAt,
      version: eb('version', '+', 1),
    }))
    .where('id', '=', id);
  await defer(trx, claiming);
}

/** The statement that records an event. It returns no row when the event is known. */
export function insertBillingEvent(
  db: Kysely<Tables>,
  { id, type, at }: BillingEvent,
  order_id: string | null,
) {
  return db
    .insertInto('billing_events')
    .values({ id, type, order_id, at })
    .onConflict((conflict) => conflict.column('id').doNothing())
    .returning('id');
}
