// The queries for stored responses, one row each. proxy/ checks access.
import type { ResponseStore, StoredResponse } from '../response-record.ts';
import { recordFrom, rowOf } from './row-names.ts';
import { deleteBefore, type SqlDatabase } from './sql-database.ts';

export function sqlResponses({ reader, writer }: SqlDatabase): ResponseStore {
  return {
    async addResponse(response) {
      await writer
        .insertInto('responses')
        .values(rowOf(response))
        .onConflict((conflict) => conflict.column('id').doNothing())
        .execute();
    },

    async findResponse(id) {
      const query = reader.selectFrom('responses').selectAll().where('id', '=', id);
      const row = await query.executeTakeFirst();
      return row && recordFrom<StoredResponse>(row);
    },

    async settleResponse(id) {
      const settled = await writer
        .updateTable('responses')
        .set({ charged: null })
        .where('id', '=', id)
        .where('charged', 'is not', null)
        .returning('id')
        .executeTakeFirst();
      return settled !== undefined;
    },

    async removeResponse(id) {
      await writer.deleteFrom('responses').where('id', '=', id).execute();
    },

    forgetResponses(before, limit) {
      return deleteBefore(writer, 'responses', ['id'], 'created_at', before, limit);
    },
  };
}
