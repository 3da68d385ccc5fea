// Operators, their sessions and what they do, as queries.
import { type ExpressionBuilder, type Kysely, sql, type Transaction } from 'kysely';
import type {
  NewOperatorEvent,
  OperatorEvent,
  OperatorRecord,
  OperatorSession,
  OperatorStore,
} from '../operator-record.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from './deferred-statements.ts';
import { recordFrom, rowOf } from './row-names.ts';
import { deleteBefore, type SqlDatabase, transact } from './sql-database.ts';

const EVENTS_MS = 400 * 86_400_000;
const FORGOTTEN_AT_ONCE = 100;

export function sqlOperators(database: SqlDatabase): OperatorStore {
  const { reader, writer } = database;

  const note = async (trx: Transaction<Tables>, event: NewOperatorEvent | null) => {
    if (event !== null) await defer(trx, trx.insertInto('operator_events').values(rowOf(event)));
  };

  const named = (db: Kysely<Tables>, name: string) =>
    db
      .selectFrom('operators')
      .selectAll()
      .where(sql`lower(name)`, '=', sql`lower(${name})`)
      .executeTakeFirst();

  const eventOf = ({ actor, requestKey }: NewOperatorEvent) =>
    reader
      .selectFrom('operator_events')
      .selectAll()
      .where((eb) => eb.and([eb('actor', '=', actor), eb('request_key', '=', requestKey)]))
      .executeTakeFirst();

  return {
    addOperator(operator, event) {
      return transact<'added' | 'name_taken' | 'prefix_taken'>(database, async (trx, rollBack) => {
        const added = await trx
          .insertInto('operators')
          .values(rowOf(operator))
          .onConflict((conflict) => conflict.doNothing())
          .returning('id')
          .executeTakeFirst();
        if (added === undefined)
          throw rollBack((await named(trx, operator.name)) === undefined ? 'prefix_taken' : 'name_taken');
        await note(trx, event);
        return 'added';
      });
    },

    replaceToken(id, { prefix, argon2, hmac, expiresAt }, event) {
      return transact(database, async (trx) => {
        const taken = trx.selectFrom('operators').select('id').where('prefix', '=', prefix);
        if ((await taken.executeTakeFirst()) !== undefined) return 'prefix_taken';
        await defer(trx, trx.deleteFrom('operator_sessions').where('operator_id', '=', id));
        const changed = await trx
          .updateTable('operators')
          .set({ prefix, argon2, hmac, expires_at: expiresAt })
          .where('id', '=', id)
          .returning('id')
          .executeTakeFirst();
        if (changed === undefined) return 'unknown';
        await note(trx, event);
        return 'replaced';
      });
    },

    removeOperator(id, event) {
      return transact(database, async (trx) => {
        await defer(trx, trx.deleteFrom('operator_sessions').where('operator_id', '=', id));
        const removed = await trx
          .deleteFrom('operators')
          .where('id', '=', id)
          .returning('id')
          .executeTakeFirst();
        if (removed === undefined) return 'unknown';
        await note(trx, event);
        return 'removed';
      });
    },

    async listOperators(limit) {
      const query = reader.selectFrom('operators').selectAll().orderBy(sql`lower(name)`).limit(limit);
      return (await query.execute()).map((row) => recordFrom<OperatorRecord>(row));
    },

    async findOperator(whose) {
      const row =
        'name' in whose
          ? await named(reader, whose.name)
          : await reader
              .selectFrom('operators')
              .selectAll()
              .where(sql<string>`prefix`, '=', whose.prefix)
              .executeTakeFirst();
      return row && recordFrom<OperatorRecord>(row);
    },

    async recordUse(id, used_at) {
      await writer.updateTable('operators').set({ used_at }).where('id', '=', id).execute();
    },

    addSession(session, idleBefore, begunBefore) {
      return transact(database, async (trx) => {
        const isOver = (eb: ExpressionBuilder<Tables, 'operator_sessions'>) =>
          eb.or([eb('used_at', '<', idleBefore), eb('created_at', '<', begunBefore)]);
        await defer(trx, trx.deleteFrom('operator_sessions').where(isOver));
        await trx.insertInto('operator_sessions').values(rowOf(session)).execute();
      });
    },

    async findSession(hash) {
      const row = await reader
        .selectFrom('operator_sessions')
        .selectAll()
        .where((eb) => eb.or([eb('hash', '=', hash), eb('previous', '=', hash)]))
        .executeTakeFirst();
      if (row === undefined) return undefined;
      const operator = await reader
        .selectFrom('operators')
        .selectAll()
        .where('id', '=', row.operator_id)
        .executeTakeFirst();
      return (
        operator && {
          session: recordFrom<OperatorSession>(row),
          operator: recordFrom<OperatorRecord>(operator),
        }
      );
    },

    async rotateSession(id, from, to, at) {
      const rotated = await writer
        .updateTable('operator_sessions')
        .set({ hash: to, previous: from, rotated_at: at, used_at: at })
        .where((eb) => eb.and([eb('id', '=', id), eb('hash', '=', from)]))
        .returning('id')
        .executeTakeFirst();
      return rotated !== undefined;
    },

    async touchSession(id, used_at) {
      await writer.updateTable('operator_sessions').set({ used_at }).where('id', '=', id).execute();
    },

    async endSession(id) {
      await writer.deleteFrom('operator_sessions').where('id', '=', id).execute();
    },

    async addEvent(event) {
      const oldest = new Date(Date.parse(event.at) - EVENTS_MS).toISOString();
      await deleteBefore(writer, 'operator_events', ['id'], 'at', oldest, FORGOTTEN_AT_ONCE);
      const added = await writer
        .insertInto('operator_events')
        .values(rowOf(event))
        .onConflict((conflict) => conflict.columns(['actor', 'request_key']).doNothing())
        .returning('id')
        .executeTakeFirst();
      if (added !== undefined) return { id: Number(added.id) };
      const known = await eventOf(event);
      if (known === undefined) throw new Error('an event disappeared while it was read');
      return { known: recordFrom<OperatorEvent>(known) };
    },

    async settleEvent(id, { status, after }) {
      await writer.updateTable('operator_events').set({ status, after }).where('id', '=', id).execute();
    },

    async dropEvent(id) {
      await writer.deleteFrom('operator_events').where('id', '=', id).execute();
    },

    async events({ actor, what, target, before, limit }) {
      let query = reader.selectFrom('operator_events').selectAll().orderBy('id', 'desc').limit(limit);
      if (actor !== undefined) query = query.where('actor', '=', actor);
      if (what !== undefined) query = query.where('what', '=', what);
      if (target !== undefined) query = query.where('target', '=', target);
      if (before !== undefined) query = query.where('id', '<', before);
      return (await query.execute()).map((row) => recordFrom<OperatorEvent>(row));
    },
  };
}
