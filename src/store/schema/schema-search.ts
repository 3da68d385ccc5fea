// Migrations 15, 16 and 18: the table that searches of keys read, the marks of holders and of their labels, and all for rows that are older than they.
import { setTimeout as sleep } from 'node:timers/promises';
import { type Kysely, type RawBuilder, sql, type Transaction } from 'kysely';
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

/** Statements of the triggers of marks of labels. What is no holder's has 0; a label may be there before its holder. */
export const LABEL_MARK_CHANGES = {
  labelAdded: `update labels set marks = coalesce((select marks from holders where id = new.owner_id), 0)
    where owner_id = new.owner_id and name = new.name and marks is null and
      (exists (select 1 from holders where id = new.owner_id) or exists (select 1 from teams where id = new.owner_id))`,
  marked: 'update labels set marks = new.marks where owner_id = new.id',
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

/** The setting that says whether all labels have marks: empty until then. */
const LABEL_MARKS = 'label_marks';

/** The marks of a holder stand in the index of its labels, too: so two labels, or a beginning and another condition, are read from one index. */
const MARKS_OF_LABELS: Migration = {
  id: 18,
  name: 'label_marks',
  statements: ({ integer, bytes }) => [
    `alter table labels add column marks ${integer}`,
    'drop index labels_by_value',
    'create index labels_by_value on labels (name, value, owner_id, marks) where marks is not null',
    `insert into settings (name, value) values ('${LABEL_MARKS}', cast('' as ${bytes}))`,
  ],
};

export const SEARCH_MIGRATIONS = [SEARCH, MARKS_OF_HOLDERS, MARKS_OF_LABELS];

/**
 * Writes the marks of holders, then the rows of keys that are older than the table, the latest first: a row for a key means that all later keys have one. Then the marks of labels. Not in the
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
    await sql`${sql.raw(insertion(', marks'))} k.id < ${oldest} order by k.id desc limit ${sql.lit(PORTION)} ${sql.raw(dialect.forShare('k, h'))}`.execute(
      trx,
    );
  };
  while (!(await isFilled())) {
    await db.transaction().execute(portion);
    await sleep(PAUSE_MS);
  }
  await markLabels(db, dialect);
}

async function markLabels(db: Kysely<Tables>, dialect: MigrationDialect): Promise<void> {
  const isOpen = sql`select 1 from settings where name = ${LABEL_MARKS} and length(value) = 0`;
  if ((await isOpen.execute(db)).rows.length === 0) return;
  await inPortions(db, sql`labels`, sql`owner_id`, async (isIn) => {
    await db.transaction().execute(async (trx) => {
      await dialect.lock(trx);
      // A change of a holder locks it before its labels.
      await sql`select 1 from holders as h where ${isIn(sql`h.id`)} ${sql.raw(dialect.forShare('h'))}`.execute(
        trx,
      );
      await sql`update labels set marks = coalesce((select marks from holders where id = owner_id), 0)
        where ${isIn(sql`owner_id`)} and marks is null`.execute(trx);
    });
    await sleep(PAUSE_MS);
  });
  await sql`update settings set value = cast('all' as ${sql.raw(dialect.types.bytes)}) where name = ${LABEL_MARKS}`.execute(
    db,
  );
}

/** Whether there are holders, and no row says that they have marks. */
async function isUnused(db: Kysely<Tables>): Promise<boolean> {
  const holders = sql`select id from holders where not exists (select 1 from key_search) limit 1`;
  return (await holders.execute(db)).rows.length > 0;
}

/** Of holders without keys; the others get theirs with the rows of their keys, which are as near to each other. */
async function markHolders(db: Kysely<Tables>, dialect: MigrationDialect): Promise<void> {
  await inPortions(db, sql`holders`, sql`id`, async (isIn) => {
    const without = sql`select id from holders as h where ${isIn(sql`id`)}
      and not exists (select 1 from keys where holder_id = h.id)`;
    await sql`${sql.raw(marking(dialect.types.hash))} id in (${without}) and marks is null`.execute(db);
  });
}

/** @param work one portion after the other, by a condition on its ids */
async function inPortions(
  db: Kysely<Tables>,
  table: RawBuilder<unknown>,
  column: RawBuilder<unknown>,
  work: (isIn: (id: RawBuilder<unknown>) => RawBuilder<boolean>) => Promise<void>,
): Promise<void> {
  let last = '';
  for (;;) {
    const portion = sql`select ${column} as id from ${table} where ${column} > ${last} order by ${column} limit ${sql.lit(PORTION)}`;
    const { rows } = await sql<{
      id: string | null;
    }>`select max(id) as id from (${portion}) as portion`.execute(db);
    const [from, to] = [last, rows[0]?.id ?? undefined];
    if (to === undefined) return;
    await work((id) => sql<boolean>`${id} > ${from} and ${id} <= ${to}`);
    last = to;
  }
}
