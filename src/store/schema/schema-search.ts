// Migration 15: the table that searches of keys read, and its rows for keys that are older than it.
import { setTimeout as sleep } from 'node:timers/promises';
import { type Kysely, sql, type Transaction } from 'kysely';
import type { Migration, MigrationDialect } from './migration.ts';
import type { Tables } from './tables.ts';

/** Rows of one transaction: other writers wait for it. */
const PORTION = 10_000;
/** Between two portions. Processes that wait for SQLite's lock try again within 25 ms, and nothing else makes room for them. */
const PAUSE_MS = 40;

/** The kind of a key: the initials of its tier, standing and state, such as `Lga`. */
const kind = (holder: string, key: string) =>
  `substr(${holder}.tier, 1, 1) || substr(${holder}.standing, 1, 1) || substr(${key}.state, 1, 1)`;

/** Puts rows into the table. What follows is a condition on the keys `k` and their holders `h`. */
const INSERTION = `insert into key_search (key_id, kind, name, team_id, expires_at, used)
  select k.id, ${kind('h', 'k')}, lower(h.label), h.team_id, k.expires_at,
    coalesce((select day from key_uses where prefix = k.prefix), '')
  from keys as k join holders as h on h.id = k.holder_id where`;

/** Statements of the triggers, which also see what earlier versions write. */
export const SEARCH_CHANGES = {
  keyAdded: `${INSERTION} k.id = new.id`,
  keyChanged: `update key_search set kind = substr(kind, 1, 2) || substr(new.state, 1, 1), expires_at = new.expires_at
    where key_id = new.id`,
  holderChanged: `update key_search set
    kind = substr(new.tier, 1, 1) || substr(new.standing, 1, 1) || substr(kind, 3, 1), name = lower(new.label), team_id = new.team_id
    where key_id in (select id from keys where holder_id = new.id)`,
  keyUsed: `update key_search set used = new.day where key_id = (select id from keys where prefix = new.prefix)`,
};

/**
 * What is searched is in the tables of keys, holders and uses, and a condition on two of them has no index. The kind leads the indexes, so
 * that it adds to any other condition: a search reads one stream for each kind that it wants. A key that was never used has the empty day.
 */
const SEARCH: Migration = {
  id: 15,
  name: 'key_search',
  statements: ({ text, key, table }) => [
    `create table key_search (
       key_id ${key},
       kind ${text} not null,
       name ${text},
       team_id ${text},
       expires_at ${text},
       used ${text} not null
     )${table}`,
    'create index key_search_by_kind on key_search (kind, key_id)',
    'create index key_search_by_name on key_search (kind, name, key_id) where name is not null',
    'create index key_search_by_team on key_search (team_id, kind, key_id) where team_id is not null',
    'create index key_search_by_expiry on key_search (kind, expires_at, key_id) where expires_at is not null',
    'create index key_search_by_use on key_search (kind, used, key_id)',
    'drop index keys_active',
    'drop index keys_ended',
    'drop index key_uses_by_day',
  ],
};

export const SEARCH_MIGRATIONS = [SEARCH];

/**
 * Writes the rows of keys that are older than the table, the latest first: a row for a key means that all later keys have one. Not in the
 * migration, whose transaction would keep other processes from writing for seconds.
 */
export async function fillKeySearch(db: Kysely<Tables>, dialect: MigrationDialect): Promise<void> {
  const oldest = sql`coalesce((select min(key_id) from key_search), ${sql.lit(Number.MAX_SAFE_INTEGER)})`;
  const missing = sql<{ id: number }>`select id from keys where id < ${oldest} limit 1`;
  const portion = async (trx: Transaction<Tables>) => {
    await dialect.lock(trx);
    for (const statement of dialect.fillLocks) await sql.raw(statement).execute(trx);
    await sql`${sql.raw(INSERTION)} k.id < ${oldest} order by k.id desc limit ${sql.lit(PORTION)} ${sql.raw(dialect.forShare)}`.execute(
      trx,
    );
  };
  while ((await missing.execute(db)).rows.length > 0) {
    await db.transaction().execute(portion);
    await sleep(PAUSE_MS);
  }
}
