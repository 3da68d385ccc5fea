// Migrations 15 and 16: the table that searches of keys read, the marks of holders, and both for keys that are older than they.
import { setTimeout as sleep } from 'node:timers/promises';
import { type Kysely, sql, type Transaction } from 'kysely';
import type { Migration, MigrationDialect, SqlTypes } from './migration.ts';
import type { Tables } from './tables.ts';

/** Rows of one transaction: other writers wait for it. */
const PORTION = 5000;
/** Between two portions. Processes that wait for SQLite's lock try again within 25 ms, and nothing else makes room for them. */
const PAUSE_MS = 40;

/** The kind of a key: the initials of its tier, standing and state, such as `Lga`. */
const kind = (holder: string, key: string) =>
  `substr(${holder}.tier, 1, 1) || substr(${holder}.standing, 1, 1) || substr(${key}.state, 1, 1)`;

/** Puts rows into the table. What follows is a condition on the keys `k` and their holders `h`. @param more `, ` and a column of holders */
const insertion = (
  more: string,
) => `insert into key_search (key_id, kind, name, team_id, expires_at, used${more})
  select k.id, ${kind('h', 'k')}, lower(h.label), h.team_id, k.expires_at,
    coalesce((select day from key_uses where prefix = k.prefix), '')${more}
  from keys as k join holders as h on h.id = k.holder_id where`;

/** Marks of more bits take more bytes in SQLite. */
const MARKS = 47;

/**
 * An expression for the marks of texts: three bits of each.
 * @param hash as in `SqlTypes`
 * @returns what stands before and after a query for the texts in a column `t`
 */
export const marksOf = (hash: (text: string) => string): readonly [string, string] => [
  `(select cast(sum(mark) as bigint) from (
    select distinct cast(1 as bigint) << cast(hash / part % ${MARKS} as integer) as mark
    from (select ${hash('t')} as hash from (`,
  `) as texts) as hashes cross join (select 1 as part union all select ${MARKS} union all select ${MARKS ** 2}) as parts) as marks)`,
];

/** What the marks of a holder are of, as conditions of searches name it. */
const MARKED = `select 'tier=' || holders.tier as t union all select 'standing=' || holders.standing
  union all select 'team=' || holders.team_id
  union all select name || '=' || value from labels where owner_id = holders.id`;

/** What follows is a condition on the holders. */
const marking = (hash: (text: string) => string) =>
  `update holders set marks = ${marksOf(hash).join(MARKED)} where`;

/** Statements of the triggers, which also see what earlier versions write. */
export const SEARCH_CHANGES = {
  keyAdded: `${insertion('')} k.id = new.id`,
  keyChanged: `update key_search set kind = substr(kind, 1, 2) || substr(new.state, 1, 1), expires_at = new.expires_at
    where key_id = new.id`,
  holderChanged: `update key_search set
    kind = substr(new.tier, 1, 1) || substr(new.standing, 1, 1) || substr(kind, 3, 1), name = lower(new.label), team_id = new.team_id
    where key_id in (select id from keys where holder_id = new.id)`,
  keyUsed: `update key_search set used = new.day where key_id = (select id from keys where prefix = new.prefix)`,
};

/** Statements of the triggers of marks. Rows of keys get those of their holder when they are written, so each holder of a key has them. */
export const markChanges = ({ hash }: SqlTypes) => ({
  keyAdded: `${marking(hash)} id = new.holder_id and marks is null; ${insertion(', marks')} k.id = new.id`,
  holderChanged: `${marking(hash)} id = new.id`,
  labelChanged: `${marking(hash)} id = new.owner_id`,
  labelRemoved: `${marking(hash)} id = old.owner_id`,
  marked: `update key_search set marks = new.marks where key_id in (select id from keys where holder_id = new.id)`,
});

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

/**
 * The marks of a holder are bits of its tier, standing, team and labels. They stand in the indexes of keys, so that a row of another holder is
 * passed over without a look at its labels; what has the bits is looked at. All rows are written anew, in portions.
 */
const MARKS_OF_HOLDERS: Migration = {
  id: 16,
  name: 'marks',
  statements: ({ integer, byBytes }) => [
    ...['kind', 'name', 'team', 'expiry', 'use'].map((index) => `drop index key_search_by_${index}`),
    'delete from key_search',
    `alter table key_search add column marks ${integer}`,
    `alter table holders add column marks ${integer}`,
    'create index key_search_by_kind on key_search (kind, key_id, marks)',
    'create index key_search_by_name on key_search (kind, name, key_id, marks) where name is not null',
    'create index key_search_by_team on key_search (team_id, kind, key_id, marks) where team_id is not null',
    'create index key_search_by_expiry on key_search (kind, expires_at, key_id, marks, used) where expires_at is not null',
    'create index key_search_by_use on key_search (kind, used, key_id, marks)',
    'drop index holders_by_name',
    'drop index holders_by_tier',
    'drop index holders_by_standing',
    // No holder has marks yet, so this takes no longer where there are many.
    `create index holders_by_name on holders (lower(label)${byBytes}, id, marks) where marks is not null`,
    'create index holders_by_tier on holders (tier, id, marks) where marks is not null',
    'create index holders_by_standing on holders (standing, id, marks) where marks is not null',
  ],
};

export const SEARCH_MIGRATIONS = [SEARCH, MARKS_OF_HOLDERS];

/**
 * Writes the marks of holders and then the rows of keys that are older than the table, the latest first: a row for a key means that all later keys have one. Not in the
 * migration, whose transaction would keep other processes from writing for seconds.
 */
export async function fillKeySearch(db: Kysely<Tables>, dialect: MigrationDialect): Promise<void> {
  const oldest = sql`coalesce((select min(key_id) from key_search), ${sql.lit(Number.MAX_SAFE_INTEGER)})`;
  const missing = sql<{ id: number }>`select id from keys where id < ${oldest} limit 1`;
  const isFilled = async () => (await missing.execute(db)).rows.length === 0;
  if (!(await isFilled()) || (await isUnused(db))) await markHolders(db, dialect);
  const portion = async (trx: Transaction<Tables>) => {
    await dialect.lock(trx);
    for (const statement of dialect.fillLocks) await sql.raw(statement).execute(trx);
    const holders = sql`select holder_id from keys where id < ${oldest} order by id desc limit ${sql.lit(PORTION)}`;
    await sql`${sql.raw(marking(dialect.types.hash))} id in (${holders}) and marks is null`.execute(trx);
    await sql`${sql.raw(insertion(', marks'))} k.id < ${oldest} order by k.id desc limit ${sql.lit(PORTION)} ${sql.raw(dialect.forShare)}`.execute(
      trx,
    );
  };
  while (!(await isFilled())) {
    await db.transaction().execute(portion);
    await sleep(PAUSE_MS);
  }
}

/** Whether there are holders, and no row says that they have marks. */
async function isUnused(db: Kysely<Tables>): Promise<boolean> {
  const holders = sql`select id from holders where not exists (select 1 from key_search) limit 1`;
  return (await holders.execute(db)).rows.length > 0;
}

/** Of holders without keys; the others get theirs with the rows of their keys, which are as near to each other. */
async function markHolders(db: Kysely<Tables>, dialect: MigrationDialect): Promise<void> {
  let last = '';
  for (;;) {
    const portion = sql`select id from holders where id > ${last} order by id limit ${sql.lit(PORTION)}`;
    const { rows } = await sql<{
      id: string | null;
    }>`select max(id) as id from (${portion}) as portion`.execute(db);
    const to = rows[0]?.id ?? undefined;
    if (to === undefined) return;
    const without = sql`select id from holders as h where id > ${last} and id <= ${to}
      and not exists (select 1 from keys where holder_id = h.id)`;
    await sql`${sql.raw(marking(dialect.types.hash))} id in (${without}) and marks is null`.execute(db);
    last = to;
  }
}
