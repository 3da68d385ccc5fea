// The queries for whose an object at an upstream is. What may be done with one is proxy/objects.ts's.
import { type Kysely, sql } from 'kysely';
import { guarded } from './guarded.ts';
import type { ObjectQuery, ObjectRecord, ObjectStore } from './object-record.ts';
import type { UsageParts } from './sql-usage.ts';
import type { Tables } from './tables.ts';

/** Thrown inside a transaction: takes back what it wrote. */
class Foreign extends Error {}

export class SqlObjects implements ObjectStore {
  readonly #reader: Kysely<Tables>;
  readonly #writer: Kysely<Tables>;
  readonly #elementsOf: UsageParts['elementsOf'];

  constructor({ reader, writer, elementsOf }: UsageParts) {
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
            // The one statement decides whose it is; of two holders the first.
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
            if (held?.holder_id !== holderId) throw new Foreign();
          }
        });
        return true;
      } catch (error) {
        if (error instanceof Foreign) return false;
        throw error;
      }
    });
  }

  ownersOf(upstream: string, ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
    return guarded(async () => {
      if (ids.length === 0) return new Map();
      // One parameter holds all ids, so that there is one statement for every number of them.
      const elements = this.#elementsOf(JSON.stringify(ids.map((id) => ({ id }))));
      const { rows } = await sql<{ id: string; holder_id: string }>`
        select id, holder_id from objects
        where upstream = ${upstream} and id in (select cast(e.value ->> 'id' as text) from ${elements})`.execute(
        this.#reader,
      );
      return new Map(rows.map(({ id, holder_id }) => [id, holder_id]));
    });
  }

  objectsOf(query: ObjectQuery): Promise<readonly string[]> {
    const { upstream, kind, holderId, purpose, order, after, before, limit } = query;
    return guarded(async () => {
      // In front of one is behind it in the other order.
      const isBackward = after === undefined && before !== undefined;
      const mark = after ?? before;
      const isAscending = (order === 'asc') !== isBackward;
      const place = sql`(select m.seq from objects as m where m.upstream = ${upstream} and m.id = ${mark ?? ''}
        and m.kind = ${kind} and m.holder_id = ${holderId})`;
      const conditions = [
        sql`o.holder_id = ${holderId} and o.upstream = ${upstream} and o.kind = ${kind} and o.ended_at is null`,
        ...(purpose === undefined ? [] : [sql`o.purpose = ${purpose}`]),
        ...(mark === undefined ? [] : [isAscending ? sql`o.seq > ${place}` : sql`o.seq < ${place}`]),
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
