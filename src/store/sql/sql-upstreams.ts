// Drains of upstreams and changes of their states, as queries.
import type { Transaction } from 'kysely';
import type { Tables } from '../schema/tables.ts';
import type { UpstreamDrain, UpstreamEvent, UpstreamStore } from '../upstream-record.ts';
import { defer } from './deferred-statements.ts';
import { type SqlDatabase, transact } from './sql-database.ts';

const MAX_EVENTS = 10_000;

export function sqlUpstreams(database: SqlDatabase): UpstreamStore {
  const { reader, writer } = database;

  function note(
    trx: Transaction<Tables>,
    event: Pick<UpstreamEvent, 'upstream' | 'what' | 'at' | 'actor' | 'reason'>,
  ) {
    return defer(trx, trx.insertInto('upstream_events').values({ ...event, model: null, replica: null }));
  }

  return {
    drains: () => reader.selectFrom('upstream_drains').selectAll().orderBy('upstream').execute(),

    drain(drain) {
      const { upstream, at, until, actor, reason } = drain;
      return transact(database, async (trx) => {
        const change = { at, until, actor, reason };
        const insert = trx.insertInto('upstream_drains').values({ upstream, ...change });
        await defer(
          trx,
          insert.onConflict((conflict) => conflict.column('upstream').doUpdateSet(change)),
        );
        await note(trx, {
          upstream,
          what: until === null ? 'drained' : `drained until ${until}`,
          at,
          actor,
          reason,
        });
      });
    },

    resume(upstream, { at, actor, reason }) {
      return transact(database, async (trx): Promise<UpstreamDrain | undefined> => {
        const ended = await trx
          .deleteFrom('upstream_drains')
          .where('upstream', '=', upstream)
          .returningAll()
          .executeTakeFirst();
        if (ended !== undefined) await note(trx, { upstream, what: 'resumed', at, actor, reason });
        return ended;
      });
    },

    expire({ upstream, until }) {
      return transact(database, async (trx) => {
        const ended = await trx
          .deleteFrom('upstream_drains')
          .where((eb) => eb.and({ upstream, until }))
          .returning('upstream')
          .executeTakeFirst();
        const about = { upstream, what: 'resumed', at: new Date().toISOString(), actor: null };
        if (ended !== undefined) await note(trx, { ...about, reason: 'the time of the drain is over' });
      });
    },

    async addEvents(events) {
      await writer
        .insertInto('upstream_events')
        .values([...events])
        .execute();
      const last = reader.selectFrom('upstream_events').select((eb) => eb.fn.max('id').as('id'));
      const { id = null } = (await last.executeTakeFirst()) ?? {};
      if (id !== null && id > MAX_EVENTS)
        await writer
          .deleteFrom('upstream_events')
          .where('id', '<=', id - MAX_EVENTS)
          .execute();
    },

    events({ upstream, before, limit }) {
      let query = reader.selectFrom('upstream_events').selectAll().orderBy('id', 'desc').limit(limit);
      if (upstream !== undefined) query = query.where('upstream', '=', upstream);
      if (before !== undefined) query = query.where('id', '<', before);
      return query.execute();
    },
  };
}
