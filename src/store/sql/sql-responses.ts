// The queries for stored responses, one row each. proxy/ checks access.
import type { ResponseStore, StoredResponse } from '../response-record.ts';
import { recordFrom, rowOf } from './row-names.ts';
import type { SqlDatabase } from './sql-database.ts';

export class SqlResponses implements ResponseStore {
  readonly #db: SqlDatabase;

  constructor(database: SqlDatabase) {
    this.#db = database;
  }

  async addResponse(response: StoredResponse): Promise<void> {
    await this.#db.writer
      .insertInto('responses')
      .values(rowOf(response))
      .onConflict((conflict) => conflict.column('id').doNothing())
      .execute();
  }

  async findResponse(id: string): Promise<StoredResponse | undefined> {
    const query = this.#db.reader.selectFrom('responses').selectAll().where('id', '=', id);
    const row = await query.executeTakeFirst();
    return row && recordFrom<StoredResponse>(row);
  }

  async settleResponse(id: string): Promise<boolean> {
    const settled = await this.#db.writer
      .updateTable('responses')
      .set({ charged: null })
      .where('id', '=', id)
      .where('charged', 'is not', null)
      .returning('id')
      .executeTakeFirst();
    return settled !== undefined;
  }

  async removeResponse(id: string): Promise<void> {
    await this.#db.writer.deleteFrom('responses').where('id', '=', id).execute();
  }

  async forgetResponses(before: string, limit: number): Promise<number> {
    const { numDeletedRows } = await this.#db.writer
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
  }
}
