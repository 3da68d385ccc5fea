// The store's operations as SQL queries for both dialects. auth/key-issuer.ts has the rules for keys.
//
// A transaction in SQLite has exclusive access. In PostgreSQL (read committed) others write between any two statements, so a
// decision is never a read followed by a write: it is in the `where` of an update or in `on conflict`.
import { type Kysely, sql } from 'kysely';
import type { Tier } from '../../config/schema/config-schema.ts';
import { readTerms } from '../../config/terms.ts';
import type { AddResult, RevokeResult, RotateResult } from '../key-record.ts';
import type { Tables } from '../schema/tables.ts';
import type { PinName, Pins, Store, Trial } from '../store.ts';
import { guarded } from '../store-errors.ts';
import type { WriteState } from '../write-state.ts';
import { defer } from './deferred-statements.ts';
import { listKeys } from './search/key-search.ts';
import { sqlBilling } from './sql-billing.ts';
import { sqlBudgets } from './sql-budgets.ts';
import { type SqlDatabase, transact, transactWithKey } from './sql-database.ts';
import {
  announceIn,
  changeHolderIn,
  changeKeyIn,
  holderFrom,
  insertHolder,
  joinTeam,
  lockHolder,
  readHolder,
} from './sql-holders.ts';
import {
  countGrant,
  insertEvent,
  insertKey,
  LINEAGE,
  newHolder,
  newRecord,
  ownOf,
  recordOf,
  recordReader,
} from './sql-keys.ts';
import { sqlObjects } from './sql-objects.ts';
import { sqlOperators } from './sql-operators.ts';
import { countHolders, sqlOrganisation } from './sql-organisation.ts';
import { sqlResponses } from './sql-responses.ts';
import { sqlUpstreams } from './sql-upstreams.ts';
import { sqlUsage } from './usage/sql-usage.ts';

const PIN_NAMES: readonly PinName[] = ['secret_check', 'currency'];

const BY_HOLDER = { actor: 'holder', reason: null };

const HEARTBEAT = 'heartbeat';

const CHANGE = ['id', 'prefix', 'kind', 'version', 'at', 'reason', 'actor'] as const;

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
    budgets: guarded(sqlBudgets(database)),
    objects: guarded(sqlObjects(database)),
    operators: guarded(sqlOperators(database)),
    organisation: guarded(sqlOrganisation(database)),
    responses: guarded(sqlResponses(database)),
    upstreams: guarded(sqlUpstreams(database)),

    findKey: recordReader(reader),

    addKey(key, holder, reason, grant, actor = null) {
      return transactWithKey(database, async (trx): Promise<AddResult> => {
        if (holder.kind === 'new' && holder.teamId) await joinTeam(trx, holder.teamId);
        const locked = holder.kind === 'new' ? undefined : await lockHolder(trx, holder).executeTakeFirst();
        const owner =
          holder.kind === 'new' ? newHolder(holder.id, holder.tier, holder) : locked && holderFrom(locked);
        if (owner === undefined) return { kind: 'unknown_holder' };
        if (grant !== undefined && !(await countGrant(trx, grant))) return { kind: 'free_limit' };
        if (holder.kind === 'new') await insertHolder(trx, owner, key.createdAt, holder.labels);
        await lockChangeFeed(trx);
        await insertKey(trx, key, owner.id, null);
        await insertEvent(trx, key.prefix, 'issued', 1, { at: key.createdAt, reason, actor });
        return { kind: 'added', record: newRecord(key, owner) };
      });
    },

    rotateKey(old, successor, keepUntil, { actor, reason } = BY_HOLDER) {
      return transactWithKey(database, async (trx): Promise<RotateResult> => {
        const { createdAt: at } = successor;
        const locked = await defer(trx, lockHolder(trx, old));
        // Under the lock, because a change of the key may have come since its caller read it.
        const inherited = await defer(trx, ownOf(trx, old.prefix));
        const ending =
          keepUntil === undefined
            ? ({ state: 'invalidated', ended_at: at } as const)
            : {
                expires_at: sql<string>`case when expires_at < ${keepUntil} then expires_at else ${keepUntil} end`,
              };
        const ended = await trx
          .updateTable('keys')
          .set((eb) => ({ ...ending, version: eb('version', '+', 1) }))
          .where('prefix', '=', old.prefix)
          .where('state', '=', 'active')
          // During an overlap it has a successor already.
          .where(({ not, exists, selectFrom }) =>
            not(
              exists(selectFrom('keys as later').select('later.id').where('later.replaces', '=', old.prefix)),
            ),
          )
          .returning(['version', 'expires_at as expiresAt', LINEAGE.as('lineage')])
          .executeTakeFirst();
        const holder = locked[0] && holderFrom(locked[0]);
        const [own] = inherited;
        if (holder === undefined || own === undefined || ended === undefined) return { kind: 'not_active' };
        const key = { ...successor, ...own, terms: readTerms(own.terms) };
        await lockChangeFeed(trx);
        await insertKey(trx, key, holder.id, old.prefix);
        const why = (what: string) => (reason === null ? what : `${what}: ${reason}`);
        await insertEvent(trx, old.prefix, keepUntil === undefined ? 'rotated' : 'changed', ended.version, {
          at,
          actor,
          reason: keepUntil === undefined ? reason : why(`rotated, valid until ${ended.expiresAt}`),
        });
        await insertEvent(trx, successor.prefix, 'issued', 1, { at, actor, reason: why('rotation') });
        const record = newRecord(key, holder, { prefix: old.prefix, lineage: ended.lineage });
        const kept = keepUntil === undefined ? undefined : await recordOf(trx, old.prefix);
        const { version: endedVersion, expiresAt } = ended;
        return {
          kind: 'rotated',
          record,
          endedVersion,
          ...(kept === undefined ? { validUntil: null } : { validUntil: expiresAt, kept }),
        };
      });
    },

    revokeKey(prefix, reason, at, actor = null) {
      return transact(database, async (trx): Promise<RevokeResult> => {
        await defer(trx, lockHolder(trx, { prefix }));
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
        await insertEvent(trx, prefix, 'revoked', record.version, { at, reason, actor });
        return { kind: 'revoked', record };
      });
    },

    findHolder: (holderId) => readHolder(reader, holderId),

    changeHolder(holderId, change, reason, at, actor = null) {
      const request = { holderId, change, reason, at, actor };
      return transact(database, (trx) => changeHolderIn(trx, lockChangeFeed, request));
    },

    changeKey(prefix, change, by) {
      return transact(database, (trx) => changeKeyIn(trx, lockChangeFeed, prefix, change, by));
    },

    listKeys: (filter) => listKeys(database, filter),

    historyOf(prefix) {
      const query = reader.selectFrom('key_events').select(CHANGE);
      return query.where('prefix', '=', prefix).orderBy('id').execute();
    },

    holderHistory(holderId, limit) {
      const keys = reader.selectFrom('keys').select('prefix').where('holder_id', '=', holderId);
      const query = reader.selectFrom('key_events').select(CHANGE).where('prefix', 'in', keys);
      return query.orderBy('id', 'desc').limit(limit).execute();
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

    async announceChanges(at, limit) {
      const query = reader.selectFrom('keys_unannounced').select('prefix').orderBy('prefix').limit(limit);
      const found = await query.execute();
      if (found.length > 0) await transact(database, (trx) => announceIn(trx, lockChangeFeed, found, at));
      return found.length;
    },

    pinned: async (name) => (await readPins(reader))[name],

    pin(name, value) {
      return transact(database, async (trx) => {
        const pinning = trx
          .insertInto('settings')
          .values({ name, value })
          .onConflict((conflict) => conflict.column('name').doNothing());
        await defer(trx, pinning);
        const pinned = (await readPins(trx))[name];
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

/** What a trial start needs to know. @param tiers whose holders are counted */
export async function readTrial(db: Kysely<Tables>, tiers: readonly Tier[]): Promise<Trial> {
  return { pins: await readPins(db), holders: await countHolders(db, tiers) };
}

async function readPins(db: Kysely<Tables>): Promise<Pins> {
  const query = db.selectFrom('settings').select(['name', 'value']).where('name', 'in', PIN_NAMES);
  return Object.fromEntries((await query.execute()).map(({ name, value }) => [name, value]));
}
