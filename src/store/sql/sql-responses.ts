// The queries for stored responses, one row each. proxy/ checks access.
import type { Kysely } from 'kysely';
import type { ResponseStore, StoredResponse } from '../response-record.ts';
import type { Tables } from '../schema/tables.ts';
import { guarded } from '../store-errors.ts';

interface ResponseOptions {
  readonly reader: Kysely<Tables>;
  readonly writer: Kysely<Tables>;
}

export class SqlResponses implements ResponseStore {
  readonly #reader: Kysely<Tables>;
  readonly #writer: Kysely<Tables>;

  constructor({ reader, writer }: ResponseOptions) {
    this.#reader = reader;
    this.#writer = writer;
  }

  addResponse(response: StoredResponse): Promise<void> {
    const { id, holderId, model, upstream, upstreamModel, createdAt, charged } = response;
    return guarded(async () => {
      await this.#writer
        .insertInto('responses')
        .values({
          id,
          holder_id: holderId,
          model,
          upstream,
          upstream_model: upstreamModel,
          created_at: createdAt,
          charged,
        })
        .onConflict((conflict) => conflict.column('id').doNothing())
        .execute();
    });
  }

  findResponse(id: string): Promise<StoredResponse | undefined> {
    return guarded(async () => {
      const row = await this.#reader
        .selectFrom('responses')
        .selectAll()
        .where('id', '=', id)
        .executeTakeFirst();
      if (row === undefined) return undefined;
      return {
        id: row.id,
        holderId: row.holder_id,
        model: row.model,
        upstream: row.upstream,
        upstreamModel: row.upstream_model,
        createdAt: row.created_at,
        charged: row.charged === null ? null : Number(row.charged),
      };
    });
  }

  settleResponse(id: string): Promise<boolean> {
    return guarded(async () => {
      const settled = await this.#writer
        .updateTable('responses')
        .set({ charged: null })
        .where('id', '=', id)
        .where('charged', 'is not', null)
        .returning('id')
        .executeTakeFirst();
      return settled !== undefined;
    });
  }

  removeResponse(id: string): Promise<void> {
    return guarded(async () => {
      await this.#writer.deleteFrom('responses').where('id', '=', id).execute();
    });
  }

  forgetResponses(before: string, limit: number): Promise<number> {
    return guarded(async () => {
      const { numDeletedRows } = await this.#writer
        .deleteFrom('responses')
        .where('id', 'in', (eb) =>
          eb
            .selectFrom('responses')
            .select('id')
            .where('created_at', '<', before)
            .orderBy('created_at')
            .limit(limit),
        )
        .executeTakeFirst();
      return Number(numDeletedRows);
    });
  }
}
