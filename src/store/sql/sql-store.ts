// The store's operations as SQL queries for both dialects. auth/key-issuer.ts has the rules for keys.
//
// A transaction in SQLite has exclusive access. In PostgreSQL (read committed) others write between any two statements, so a
// decision is never a read followed by a write: it is in the `where` of an update or in `on conflict`.
import { type Kysely, sql } from 'kysely';
import type { AddResult, RevokeResult, RotateResult } from '../key-record.ts';
import type { Tables } from '../schema/tables.ts';
import type { Store } from '../store.ts';
import { guarded } from '../store-errors.ts';
import type { WriteState } from '../write-state.ts';
import { defer } from './deferred-statements.ts';
import { sqlBilling } from './sql-billing.ts';
import { type SqlDatabase, transact, transactWithKey } from './sql-database.ts';
import { changeHolderIn, lockHolder } from './sql-holders.ts';
import {
  countGrant,
  insertEvent,
  insertKey,
  newHolder,
  newRecord,
  recordOf,
  SUMMARY,
  withHolder,
} from './sql-keys.ts';
import { sqlObjects } from './sql-objects.ts';
import { sqlResponses } from './sql-responses.ts';
import { sqlUsage } from './sql-usage.ts';

const SECRET_CHECK = 'secret_check';

const HEARTBEAT = 'heartbeat';

const CHANGE = ['id', 'prefix', 'kind', 'version', 'at', 'reason'] as const;

interface SqlOptions extends SqlDatabase {
  readonly isNew: boolean;
  /** The results of the writes of `writer`. */
  readonly writable: WriteState;
  /** Closes the connections, including those that Kysely never used and would not close. */
  readonly close: () => Promise<void>;
}

export function sqlStore(database: SqlOptions): Store {
  const { isNew, reader, writable, lockChangeFeed, close } = database;
  return guarded<Store>({
    isNew,
    close,
    usage: guarded(sqlUsage(database)),
    billing: guarded(sqlBilling(database)),
    objects: guarded(sqlObjects(database)),
    responses: guarded(sqlResponses(database)),

    findKey(prefix) {
      return recordOf(reader, prefix);
    },

    addKey(key, holder, reason, grant) {
      return transactWithKey(database, async (trx): Promise<AddResult> => {
        const owner =
          holder.kind === 'new'
            ? newHolder(holder.id, holder.tier, holder.label)
            : await lockHolder(trx, holder).executeTakeFirst();
        if (owner === undefined) return { kind: 'unknown_holder' };
        if (grant !== undefined && !(await countGrant(trx, grant))) return { kind: 'free_limit' };
        const { id, tier, label } = owner;
        if (holder.kind === 'new') {
          await defer(trx, trx.insertInto('holders').values({ id, tier, label, created_at: key.createdAt }));
        }
        await lockChangeFeed(trx);
        await insertKey(trx, key, id, null);
        await insertEvent(trx, key.prefix, 'issued', 1, key.createdAt, reason);
        return { kind: 'added', record: newRecord(key, owner, null) };
      });
    },

    rotateKey(old, successor) {
      return transactWithKey(database, async (trx): Promise<RotateResult> => {
        const locked = await defer(trx, lockHolder(trx, old));
        const ended = await trx
          .updateTable('keys')
          .set((eb) => ({
            state: 'invalidated',
            version: eb('version', '+', 1),
            ended_at: successor.createdAt,
          }))
          .where((eb) => eb.and({ prefix: old.prefix, state: 'active' }))
          .returning('version')
          .executeTakeFirst();
        const [holder] = locked;
        if (holder === undefined || ended === undefined) return { kind: 'not_active' };
        await lockChangeFeed(trx);
        await insertKey(trx, successor, holder.id, old.prefix);
        await insertEvent(trx, old.prefix, 'rotated', ended.version, successor.createdAt, null);
        await insertEvent(trx, successor.prefix, 'issued', 1, successor.createdAt, 'rotation');
        const record = newRecord(successor, holder, old.prefix);
        return { kind: 'rotated', record, endedVersion: ended.version };
      });
    },

    revokeKey(prefix, reason, at) {
      return transact(database, async (trx): Promise<RevokeResult> => {
        const ending = trx
          .updateTable('keys')
          .set((eb) => ({ state: 'revoked', version: eb('version', '+', 1), ended_at: at }))
          .where((eb) => eb.and({ prefix, state: 'active' }))
          .returning('version');
        const ended = await defer(trx, ending);
        const record = await recordOf(trx, prefix);
        if (record === undefined) return { kind: 'unknown' };
        if (ended.length === 0) return { kind: 'already', record };
        await lockChangeFeed(trx);
        await insertEvent(trx, prefix, 'revoked', record.version, at, reason);
        return { kind: 'revoked', record };
      });
    },

    findHolder(holderId) {
      return reader
        .selectFrom('holders')
        .select(['id', 'tier', 'standing', 'label', 'created_at as createdAt'])
        .where('id', '=', holderId)
        .executeTakeFirst();
    },

    changeHolder(holderId, change, reason, at) {
      const request = { holderId, change, reason, at };
      return transact(database, (trx) => changeHolderIn(trx, lockChangeFeed, request));
    },

    listKeys(filter) {
      const { tier, state, after } = filter;
      let query = withHolder(reader).select(SUMMARY);
      if (tier !== undefined) query = query.where('holders.tier', '=', tier);
      if (state !== undefined) query = query.where('keys.state', '=', state);
      if (after !== undefined) {
        const position = reader.selectFrom('keys as k').select('k.id').where('k.prefix', '=', after);
        query = query.where('keys.id', '>', position);
      }
      return query.orderBy('keys.id').limit(filter.limit).execute();
    },

    historyOf(prefix) {
      const query = reader.selectFrom('key_events').select(CHANGE);
      return query.where('prefix', '=', prefix).orderBy('id').execute();
    },

    async freeGrants(day, address) {
      const row = await reader
        .selectFrom('free_key_grants')
        .select('count')
        .where((eb) => eb.and({ day, address }))
        .executeTakeFirst();
      return row?.count ?? 0;
    },

    async lastChange() {
      const query = reader.selectFrom('key_events').select('id').orderBy('id', 'desc').limit(1);
      return (await query.executeTakeFirst())?.id ?? 0;
    },

    changesAfter(after, limit) {
      const query = reader.selectFrom('key_events').select(CHANGE);
      return query.where('id', '>', after).orderBy('id').limit(limit).execute();
    },

    secretCheck() {
      return readSetting(reader, SECRET_CHECK);
    },

    pinSecret(check) {
      return transact(database, async (trx) => {
        const pinning = trx
          .insertInto('settings')
          .values({ name: SECRET_CHECK, value: check })
          .onConflict((conflict) => conflict.column('name').doNothing());
        await defer(trx, pinning);
        const pinned = await readSetting(trx, SECRET_CHECK);
        if (pinned === undefined) throw new Error('a setting is missing directly after its write');
        return pinned;
      });
    },

    async ping() {
      await Promise.all([sql`select 1`.execute(reader), writable.check()]);
    },
  });
}

/** The smallest real write, which commits like any other. */
export async function writeHeartbeat(writer: Kysely<Tables>): Promise<void> {
  const at = new Date().toISOString();
  await writer
    .insertInto('fleet_tasks')
    .values({ name: HEARTBEAT, owner: '', until: at })
    .onConflict((conflict) => conflict.column('name').doUpdateSet({ until: at }))
    .execute();
}

async function readSetting(db: Kysely<Tables>, name: string): Promise<Uint8Array | undefined> {
  const row = await db.selectFrom('settings').select('value').where('name', '=', name).executeTakeFirst();
  return row?.value;
}
