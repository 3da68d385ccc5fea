// The queries for owners of objects at upstreams. proxy/objects/object-owners.ts checks access.
import { type Kysely, sql } from 'kysely';
import type { ItemRecord, ObjectOwner, ObjectQuery, ObjectRecord, ObjectStore } from '../object-record.ts';
import type { Tables } from '../schema/tables.ts';
import { guarded } from '../store-errors.ts';
import type { UsageOptions } from './sql-usage.ts';

/** Thrown inside a transaction to roll it back: another holder owns the object. */
class ForeignObject extends Error {}

export class SqlObjects implements ObjectStore {
  readonly #reader: Kysely<Tables>;
  readonly #writer: Kysely<Tables>;
  readonly #elementsOf: UsageOptions['elementsOf'];

  constructor({ reader, writer, elementsOf }: UsageOptions) {
    this.#reader = reader;
    this.#writer = writer;
    this.#elementsOf = elementsOf;
  }

  addObjects(objects: readonly ObjectRecord[]): Promise<boolean> {
    return guarded(async () => {
      try {
        await this.#writer.transaction().execute(async (trx) => {
          for (const { upstream, id, kind, holderId, purpose, createdAt } of objects) {
            const row = {
              upstream,
              id,
              kind,
              holder_id: holderId,
              purpose,
              created_at: createdAt,
              ended_at: null,
            };
            // A single statement decides the owner: the first of two concurrent holders.
            const added = await trx
              .insertInto('objects')
              .values(row)
              .onConflict((conflict) => conflict.columns(['upstream', 'id']).doNothing())
              .returning('seq')
              .executeTakeFirst();
            if (added !== undefined) continue;
            const held = await trx
              .selectFrom('objects')
              .select('holder_id')
              .where('upstream', '=', upstream)
              .where('id', '=', id)
              .executeTakeFirst();
            if (held?.holder_id !== holderId) throw new ForeignObject();
          }
        });
        return true;
      } catch (error) {
        if (error instanceof ForeignObject) return false;
        throw error;
      }
    });
  }

  addItems(items: readonly ItemRecord[]): Promise<void> {
    return guarded(async () => {
      if (items.length === 0) return;
      // A fixed order prevents a deadlock of two writers of the same rows.
      const rows = items
        .map(({ id, upstream, holderId, createdAt }) => [id, upstream, holderId, createdAt])
        .sort(([a = ''], [b = '']) => (a < b ? -1 : 1));
      // One parameter holds all rows. `where true` keeps SQLite from parsing `on` as part of the select.
      const elements = this.#elementsOf(JSON.stringify(rows));
      await sql`
        insert into response_items (id, upstream, holder_id, created_at)
        select e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3 from ${elements} where true
        on conflict (id, upstream) do nothing`.execute(this.#writer);
    });
  }

  forgetItems(before: string, limit: number): Promise<number> {
    return guarded(async () => {
      const { numAffectedRows } = await sql`
        delete from response_items where (id, upstream) in (
          select id, upstream from response_items where created_at < ${before} order by created_at limit ${sql.lit(limit)}
        )`.execute(this.#writer);
      return Number(numAffectedRows ?? 0);
    });
  }

  ownersOf(ids: readonly string[]): Promise<readonly ObjectOwner[]> {
    return guarded(async () => {
      if (ids.length === 0) return [];
      // One parameter holds all ids, so the statement is the same for any number of them.
      const elements = this.#elementsOf(JSON.stringify(ids.map((id) => ({ id }))));
      const wanted = sql`select cast(e.value ->> 'id' as text) from ${elements}`;
      const { rows } = await sql<{ id: string; upstream: string; holder_id: string }>`
        select id, upstream, holder_id from objects where id in (${wanted})
        union all
        select id, upstream, holder_id from response_items where id in (${wanted})`.execute(this.#reader);
      return rows.map(({ id, upstream, holder_id }) => ({ id, upstream, holderId: holder_id }));
    });
  }

  objectsOf(query: ObjectQuery): Promise<readonly string[]> {
    const { upstream, kind, holderId, purpose, order, after, before, limit } = query;
    return guarded(async () => {
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
      const { rows } = await sql<{ id: string }>`
        select o.id from objects as o where ${sql.join(conditions, sql` and `)}
        order by o.seq ${isAscending ? sql`asc` : sql`desc`} limit ${sql.lit(limit)}`.execute(this.#reader);
      const ids = rows.map(({ id }) => id);
      return isBackward ? ids.reverse() : ids;
    });
  }

  endObject(upstream: string, id: string, holderId: string, at: string): Promise<void> {
    return guarded(async () => {
      await this.#writer
        .updateTable('objects')
        .set({ ended_at: at })
        .where('upstream', '=', upstream)
        .where('id', '=', id)
        .where('holder_id', '=', holderId)
        .where('ended_at', 'is', null)
        .execute();
    });
  }
}
