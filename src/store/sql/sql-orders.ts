// Reads, writes and locks of order rows. sql-billing.ts combines them to operations.
import type { Kysely, Transaction } from 'kysely';
import type {
  BillingEvent,
  ClaimResult,
  Order,
  OrderChange,
  OrderState,
  OrderTerms,
} from '../billing-record.ts';
import type { NewKey } from '../key-record.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from './deferred-statements.ts';
import { recordFrom, rowOf } from './row-names.ts';
import type { LockChangeFeed } from './sql-database.ts';
import { insertHolder } from './sql-holders.ts';
import { insertEvent, insertKey, newHolder, newRecord } from './sql-keys.ts';

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
      state,
      standing: 'none',
      is_cancelled: 0,
      is_trusted: 0,
      is_replaced: 0,
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

/** The statement that changes an order. It returns no row when the version has changed. */
export function changeOrder(
  db: Kysely<Tables>,
  { id, version, change, at }: { id: string; version: number; change: OrderChange; at: string },
) {
  return db
    .updateTable('orders')
    .set({ ...rowOf(change), updated_at: at, version: version + 1 })
    .where((eb) => eb.and({ id, version }))
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
  return row && orderFromRow(row);
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

/** Claims an order whose key was not claimed before: stores its holder and its key. */
export async function claimFirst(
  trx: Trx,
  lockChangeFeed: LockChangeFeed,
  { id, tier }: Pick<Order, 'id' | 'tier'>,
  holderId: string,
  key: NewKey,
  reason: string | null,
): Promise<ClaimResult> {
  const { prefix, createdAt: at } = key;
  const holder = newHolder(holderId, tier);
  await insertHolder(trx, holder, at);
  await lockChangeFeed(trx);
  await insertKey(trx, key, holderId, null);
  await insertEvent(trx, prefix, 'issued', 1, { at, reason, actor: 'buyer' });
  const claimed = { state: 'claimed', holder_id: holderId, key_prefix: prefix } as const;
  const claiming = trx
    .updateTable('orders')
    .set((eb) => ({ ...claimed, claimed_at: at, updated_at: at, version: eb('version', '+', 1) }))
    .where('id', '=', id);
  await defer(trx, claiming);
  return { kind: 'claimed', record: newRecord(key, holder), replaced: null };
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
