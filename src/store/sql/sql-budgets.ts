// Budget notices as queries.
import type { BudgetStore } from '../budget-record.ts';
import { deleteBefore, type SqlDatabase } from './sql-database.ts';

export function sqlBudgets({ reader, writer }: SqlDatabase): BudgetStore {
  return {
    async addNotice(notice, at, body) {
      const added = await writer
        .insertInto('budget_notices')
        .values({ ...notice, at, body, due_at: body === null ? null : at })
        .onConflict((conflict) => conflict.columns(['scope', 'period', 'budget', 'threshold']).doNothing())
        .returning('id')
        .executeTakeFirst();
      return added !== undefined;
    },

    latestNotices(since, periods, limit) {
      const query = reader.selectFrom('budget_notices').select(['scope', 'period']).where('at', '>=', since);
      return query.where('period', 'in', periods).orderBy('at', 'desc').limit(limit).execute();
    },

    async takeNotices(since, now, until, limit) {
      const rows = await writer
        .updateTable('budget_notices')
        .set((eb) => ({ due_at: until, attempts: eb('attempts', '+', 1) }))
        .where('id', 'in', (eb) =>
          eb
            .selectFrom('budget_notices as due')
            .select('due.id')
            .where('due.due_at', '>', since)
            .where('due.due_at', '<=', now)
            .orderBy('due.due_at')
            .limit(limit),
        )
        // Again for the row as it is once another caller has let go of it.
        .where('due_at', '<=', now)
        .returning(['id', 'body', 'attempts'])
        .execute();
      return rows.flatMap(({ id, body, attempts }) => (body === null ? [] : [{ id, body, attempts }]));
    },

    async settleNotice(id, due_at) {
      await writer.updateTable('budget_notices').set({ due_at }).where('id', '=', id).execute();
    },

    async countDueNotices(since) {
      const row = await reader
        .selectFrom('budget_notices')
        .select((eb) => eb.fn.countAll<number>().as('n'))
        .where('due_at', '>', since)
        .executeTakeFirst();
      return Number(row?.n ?? 0);
    },

    forgetNotices: (before, limit) => deleteBefore(writer, 'budget_notices', ['id'], 'at', before, limit),
  };
}
