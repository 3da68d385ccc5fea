// The queries for owners of objects at upstreams. proxy/objects/object-owners.ts checks access.
import { sql } from 'kysely';
import type { ListedObject, ObjectStore } from '../object-record.ts';
import { rowOf } from './row-names.ts';
import { deleteBefore, queryOfTexts, type SqlDatabase, transact } from './sql-database.ts';

export function sqlObjects(database: SqlDatabase): ObjectStore {
  const { reader, writer, elementsOf } = database;
  return {
    addObjects(objects) {
      return transact(database, async (trx, rollBack) => {
        for (const object of objects) {
          // A single statement decides the owner: the first of two concurrent holders.
          const added = await trx
            .insertInto('objects')
            .values({ ...rowOf(object), ended_at: null })
            .onConflict((conflict) => conflict.columns(['upstream', 'id']).doNothing())
            .returning('seq')
            .executeTakeFirst();
          if (added !== undefined) continue;
          const held = await trx
            .selectFrom('objects')
            .select('holder_id')
            .where((eb) => eb.and({ upstream: object.upstream, id: object.id }))
            .executeTakeFirst();
          if (held?.holder_id !== object.holderId) throw rollBack(false);
        }
        return true;
      });
    },

    async addItems(items) {
      if (items.length === 0) return;
      // A fixed order prevents a deadlock of two writers of the same rows.
      const rows = items
        .map(({ id, upstream, holderId, createdAt }) => [id, upstream, holderId, createdAt])
        .sort(([a = ''], [b = '']) => (a < b ? -1 : 1));
      // One parameter holds all rows. `where true` keeps SQLite from parsing `on` as part of the select.
      const elements = elementsOf(JSON.stringify(rows));
      await sql`
      insert into response_items (id, upstream, holder_id, created_at)
      select e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3 from ${elements} where true
      on conflict (id, upstream) do nothing`.execute(writer);
    },

    forgetItems(before, limit) {
      return deleteBefore(writer, 'response_items', ['id', 'upstream'], 'created_at', before, limit);
    },

    async ownersOf(ids) {
      if (ids.length === 0) return [];
      const wanted = queryOfTexts(database, ids);
      const { rows } = await sql<{ id: string; upstream: string; holder_id: string }>`
      select id, upstream, holder_id from objects where id in (${wanted})
      union all
      select id, upstream, holder_id from response_items where id in (${wanted})`.execute(reader);
      return rows.map(({ id, upstream, holder_id }) => ({ id, upstream, holderId: holder_id }));
    },

    async objectsOf(query) {
      const { upstream, kind, holderId, purpose, order, after, before, limit } = query;
      // A page before the cursor is a page after it in the reverse order.
      const isBackward = after === undefined && before !== undefined;
      const cursor = after ?? before;
      const isAscending = (order === 'asc') !== isBackward;
      const position = sql`(select m.seq from objects as m where m.upstream = ${upstream} and m.id = ${cursor ?? ''}
      and m.kind = ${kind} and m.holder_id = ${holderId})`;
      const conditions = [
        sql`o.holder_id = ${holderId} and o.upstream = ${upstream} and o.kind = ${kind} and o.ended_at is null`,
        ...(purpose === undefined ? [] : [sql`o.purpose = ${purpose}`]),
        ...(cursor === undefined ? [] : [isAscending ? sql`o.seq > ${position}` : sql`o.seq < ${position}`]),
      ];
      const { rows } = await sql<ListedObject>`
      select o.id, o.purpose, o.created_at as "createdAt" from objects as o where ${sql.join(conditions, sql` and `)}
      order by o.seq ${isAscending ? sql`asc` : sql`desc`} limit ${sql.lit(limit)}`.execute(reader);
      return isBackward ? rows.reverse() : rows;
    },

    async endObject(upstream, id, holderId, at) {
      const { numUpdatedRows } = await writer
        .updateTable('objects')
        .set({ ended_at: at })
        .where((eb) => eb.and({ upstream, id, holder_id: holderId }))
        .where('ended_at', 'is', null)
        .executeTakeFirst();
      return numUpdatedRows > 0n;
    },
  };
}
