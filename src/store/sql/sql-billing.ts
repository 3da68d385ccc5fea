// The queries for orders: settled with optimistic locking by version, claimed under a row lock. billing/ decides the results
// through callbacks within the transaction.
import type {
  BillingStore,
  ClaimRejection,
  ClaimResult,
  FreeOrderResult,
  SettleResult,
  StoredPayment,
} from '../billing-record.ts';
import { defer } from './deferred-statements.ts';
import { recordFrom, rowOf } from './row-names.ts';
import { deleteBefore, type SqlDatabase, transact, transactWithKey } from './sql-database.ts';
import { changeHolderIn, holderFrom, lockHolder } from './sql-holders.ts';
import { countGrant, insertEvent, insertKey, newRecord } from './sql-keys.ts';
import {
  changeOrder,
  claimFirst,
  insertBillingEvent,
  insertOrder,
  lockOrder,
  mustFindNonce,
  orderFromRow,
  ordersOf,
} from './sql-orders.ts';

export function sqlBilling(database: SqlDatabase): BillingStore {
  const { reader, writer, lockChangeFeed } = database;
  return {
    async addOrder(terms, holderId) {
      const insertion = insertOrder(writer, terms, { state: 'pending', holder_id: holderId });
      const row = await insertion.executeTakeFirst();
      if (row !== undefined) return { kind: 'added', order: orderFromRow(row) };
      return { kind: 'known', order: await mustFindNonce(writer, terms) };
    },

    addFreeOrder(terms, holderId, key, grant) {
      return transactWithKey<FreeOrderResult>(database, async (trx, rollBack) => {
        const added = await defer(trx, insertOrder(trx, terms, { state: 'pending' }));
        const isCounted = await countGrant(trx, grant);
        const [order] = added;
        if (order === undefined) throw rollBack({ kind: 'known', order: await mustFindNonce(trx, terms) });
        if (!isCounted) throw rollBack({ kind: 'free_limit' });
        return await claimFirst(trx, lockChangeFeed, terms, holderId, key, null);
      });
    },

    async findOrder(name) {
      const query = reader.selectFrom('orders').selectAll();
      const row = await query.where((eb) => eb.and(name)).executeTakeFirst();
      return row && orderFromRow(row);
    },

    ordersOf: (holderId) => ordersOf(reader, holderId),

    async listOrders(filter) {
      let query = reader.selectFrom('orders').selectAll().where('mode', '<>', 'free');
      if (filter.state !== undefined) query = query.where('state', '=', filter.state);
      if (filter.after !== undefined) {
        const { createdAt, id } = filter.after;
        query = query.where((eb) =>
          eb.or([
            eb('created_at', '>', createdAt),
            eb.and([eb('created_at', '=', createdAt), eb('id', '>', id)]),
          ]),
        );
      }
      return (await query.orderBy('created_at').orderBy('id').limit(filter.limit).execute()).map(
        orderFromRow,
      );
    },

    async dueOrders(at, limit) {
      const query = reader.selectFrom('orders').selectAll().where('due_at', '<=', at);
      return (await query.orderBy('due_at').limit(limit).execute()).map(orderFromRow);
    },

    async countOrders() {
      const rows = await reader
        .selectFrom('orders')
        .select(['state', (eb) => eb.fn.countAll<number>().as('count')])
        .where('mode', '<>', 'free')
        .groupBy('state')
        .execute();
      return new Map(rows.map(({ state, count }) => [state, Number(count)]));
    },

    async isEventKnown(id) {
      const query = reader.selectFrom('billing_events').select('id').where('id', '=', id);
      return (await query.executeTakeFirst()) !== undefined;
    },

    async addEvent(event) {
      await insertBillingEvent(writer, event, null).execute();
    },

    async changeOrder(id, version, change, at) {
      const row = await changeOrder(writer, { id, version, change, at }).executeTakeFirst();
      return row && orderFromRow(row);
    },

    settle(request) {
      const { before, change, events, at, targetOf, replacedBy } = request;
      const { id, version } = before;
      return transact<SettleResult>(database, async (trx, rollBack) => {
        // A fixed order prevents a deadlock of two settlements that share events.
        const sorted = [...events].sort((a, b) => (a.id < b.id ? -1 : 1));
        const added: (readonly unknown[])[] = [];
        for (const event of sorted) added.push(await defer(trx, insertBillingEvent(trx, event, id)));
        const { holderId } = before;
        const writing = changeOrder(trx, { id, version, change, at });
        const written = holderId === null ? await writing.execute() : await defer(trx, writing);
        // Lock the holder: concurrent settlements of two of its orders have to see each other's writes.
        if (holderId !== null) await defer(trx, lockHolder(trx, { id: holderId }));
        const orders = holderId === null ? [] : await ordersOf(trx, holderId);
        if (events.length > 0 && added.every(({ length }) => length === 0)) throw rollBack({ kind: 'known' });
        const [row] = written;
        if (row === undefined) throw rollBack({ kind: 'stale' });
        const order = orderFromRow(row);
        if (holderId === null) return { kind: 'settled', order, changed: [] };
        const replaced = replacedBy(order, orders);
        if (replaced.length > 0) {
          const replacing = trx
            .updateTable('orders')
            .set((eb) => ({ is_replaced: 1, due_at: at, updated_at: at, version: eb('version', '+', 1) }))
            .where('id', 'in', replaced)
            .where('is_replaced', '=', 0);
          await defer(trx, replacing);
        }
        const target = targetOf(
          orders.map((each) => (each.id === id ? before : each)),
          orders,
        );
        if (target === undefined) return { kind: 'settled', order, changed: [] };
        const outcome = await changeHolderIn(trx, lockChangeFeed, {
          holderId,
          change: target,
          reason: `order ${order.id}`,
          actor: 'payment',
          at,
        });
        return { kind: 'settled', order, changed: outcome.kind === 'changed' ? outcome.records : [] };
      });
    },

    claimOrder({ id, rejectionOf, key, holderId, at }) {
      return transactWithKey<ClaimResult>(database, async (trx, rollBack) => {
        const rejection = (why: ClaimRejection) => rollBack({ kind: 'refused', why });
        const order = await lockOrder(trx, id);
        if (order === undefined) throw rejection('unknown');
        const why = rejectionOf(order);
        if (why !== undefined) throw rejection(why);
        if (order.state === 'paid')
          return await claimFirst(trx, lockChangeFeed, order, holderId, key, `order ${id}`);
        const { keyPrefix, holderId: owner } = order;
        if (keyPrefix === null || owner === null) throw rejection('claimed');
        const locked = await defer(trx, lockHolder(trx, { id: owner }));
        // Version 1: the key has not changed since it was issued.
        const ended = await trx
          .updateTable('keys')
          .set({ state: 'revoked', version: 2, ended_at: at })
          .where((eb) => eb.and({ prefix: keyPrefix, state: 'active', version: 1 }))
          .returning('prefix')
          .executeTakeFirst();
        const holder = locked[0] && holderFrom(locked[0]);
        if (holder === undefined || ended === undefined) throw rejection('claimed');
        await lockChangeFeed(trx);
        await insertKey(trx, key, owner, null);
        await insertEvent(trx, keyPrefix, 'revoked', 2, {
          at,
          reason: 'claimed again before its first use',
          actor: 'buyer',
        });
        await insertEvent(trx, key.prefix, 'issued', 1, {
          at,
          reason: `order ${id}, claimed again`,
          actor: 'buyer',
        });
        const replacing = trx
          .updateTable('orders')
          .set((eb) => ({ key_prefix: key.prefix, updated_at: at, version: eb('version', '+', 1) }))
          .where('id', '=', id);
        await defer(trx, replacing);
        return { kind: 'claimed', record: newRecord(key, holder), replaced: keyPrefix };
      });
    },

    async markFirstUse(prefix, at) {
      // Fast path: nearly always there is nothing to mark, and a read does not wait for writers.
      const unused = await reader
        .selectFrom('orders')
        .select('id')
        .where('key_prefix', '=', prefix)
        .where('key_used_at', 'is', null)
        .executeTakeFirst();
      if (unused === undefined) return;
      await writer
        .updateTable('orders')
        .set((eb) => ({ key_used_at: at, updated_at: at, version: eb('version', '+', 1) }))
        .where('key_prefix', '=', prefix)
        .where('key_used_at', 'is', null)
        .execute();
    },

    async forget(eventsBefore, ordersBefore, limit) {
      await deleteBefore(writer, 'billing_events', ['id'], 'at', eventsBefore, limit);
      const unpaid = writer
        .selectFrom('orders')
        .select('id')
        .where('state', '=', 'void')
        .where('paid_at', 'is', null)
        .where('provider', '<>', 'test')
        .where('updated_at', '<', ordersBefore)
        .orderBy('id')
        .limit(limit);
      // An order by invoice has a payment in the store, which refers to it.
      await writer.deleteFrom('test_payments').where('order_id', 'in', unpaid).execute();
      await writer
        .deleteFrom('orders')
        .where('id', 'in', unpaid)
        .where('id', 'not in', writer.selectFrom('test_payments').select('order_id'))
        .execute();
    },

    async takeTask(name, owner, now, until) {
      const taken = await writer
        .insertInto('fleet_tasks')
        .values({ name, owner, until })
        .onConflict((conflict) =>
          conflict
            .column('name')
            .doUpdateSet({ owner, until })
            .where((eb) => eb.or([eb('fleet_tasks.until', '<=', now), eb('fleet_tasks.owner', '=', owner)])),
        )
        .returning('owner')
        .executeTakeFirst();
      return taken !== undefined;
    },

    async storedPayment(name) {
      const query = reader.selectFrom('test_payments').selectAll();
      const row = await query.where((eb) => eb.and(rowOf(name))).executeTakeFirst();
      return row && recordFrom<StoredPayment>(row);
    },

    async writeStoredPayment(payment) {
      const { session, ...change } = rowOf(payment);
      await writer
        .insertInto('test_payments')
        .values({ session, ...change })
        .onConflict((conflict) => conflict.column('session').doUpdateSet(change))
        .execute();
    },
  };
}
