// The schema, as the steps that made it, and how a database is brought up to date. Steps are never edited once released.
import { type Kysely, sql } from 'kysely';
import { StoreOpenError } from './open-error.ts';
import type { Tables } from './tables.ts';

interface Migration {
  readonly id: number;
  readonly name: string;
  /** One statement each: a prepared statement holds no second one. */
  readonly sqlite: readonly string[];
}

const HEX_PREFIX = (column: string) => `length(${column}) = 8 and ${column} not glob '*[^0-9a-f]*'`;

/**
 * The triggers are the last guard of the life of a key: a fault in this program, or a hand in the sqlite3 shell, cannot
 * bring an ended key back. `insert or replace` deletes without asking delete triggers, hence the guard on insert.
 */
const KEYS: Migration = {
  id: 1,
  name: 'keys',
  sqlite: [
    `create table settings (name text primary key, value blob not null) strict`,
    `create table holders (
       id text primary key,
       tier text not null check (tier in ('Free', 'Lite', 'Pro')),
       label text,
       created_at text not null
     ) strict`,
    `create table keys (
       id integer primary key autoincrement,
       prefix text not null unique check (${HEX_PREFIX('prefix')}),
       holder_id text not null references holders (id),
       argon2 text not null check (argon2 like '$argon2id$%'),
       hmac blob not null check (length(hmac) = 32),
       state text not null check (state in ('active', 'invalidated', 'revoked')),
       version integer not null check (version >= 1),
       created_at text not null,
       ended_at text,
       replaces text unique references keys (prefix),
       check ((state = 'active') = (ended_at is null))
     ) strict`,
    `create index keys_by_holder on keys (holder_id)`,
    `create table key_events (
       id integer primary key autoincrement,
       prefix text not null references keys (prefix),
       kind text not null check (kind in ('issued', 'rotated', 'revoked')),
       version integer not null,
       at text not null,
       reason text
     ) strict`,
    `create index key_events_by_prefix on key_events (prefix, id)`,
    `create table free_key_grants (
       day text not null check (day glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]'),
       address blob not null check (length(address) = 32),
       count integer not null check (count >= 1),
       primary key (day, address)
     ) strict, without rowid`,
    `create trigger keys_begin_active before insert on keys
     when new.state <> 'active' or new.version <> 1
     begin select raise(abort, 'a key begins active, with version 1'); end`,
    `create trigger keys_are_not_replaced before insert on keys
     when exists (
       select 1 from keys where id = new.id or prefix = new.prefix or replaces = new.replaces
     )
     begin select raise(abort, 'a key with this prefix, id or predecessor exists'); end`,
    `create trigger keys_are_not_deleted before delete on keys
     begin select raise(abort, 'keys are never deleted'); end`,
    `create trigger keys_ended_stay before update on keys
     when old.state <> 'active'
     begin select raise(abort, 'nothing leaves the states invalidated and revoked'); end`,
    `create trigger keys_material_stays before update on keys
     when new.id is not old.id or new.prefix is not old.prefix or new.holder_id is not old.holder_id
       or new.argon2 is not old.argon2 or new.hmac is not old.hmac
       or new.created_at is not old.created_at or new.replaces is not old.replaces
     begin select raise(abort, 'identity and material of a key never change'); end`,
    `create trigger keys_version_grows before update on keys
     when new.version <= old.version
     begin select raise(abort, 'every change of a key raises its version'); end`,
    `create trigger key_events_stay before update on key_events
     begin select raise(abort, 'key events never change'); end`,
    `create trigger key_events_are_not_deleted before delete on key_events
     begin select raise(abort, 'key events are never deleted'); end`,
    `create trigger key_events_are_not_replaced before insert on key_events
     when exists (select 1 from key_events where id = new.id)
     begin select raise(abort, 'key events never change'); end`,
  ],
};

export const MIGRATIONS: readonly Migration[] = [KEYS];

interface Applied {
  readonly id: number;
  readonly name: string;
}

/**
 * Applies what is missing, in one transaction that excludes other processes, so that of two that start at once one
 * migrates and the other finds nothing to do. A database that is up to date is only read: a start need not wait for a
 * lock that somebody holds.
 *
 * @throws StoreOpenError when the database is not Tollgate's, or was written by a newer version
 */
export async function migrate(db: Kysely<Tables>, migrations = MIGRATIONS): Promise<void> {
  if (missing(await appliedTo(db), migrations).length === 0) return;
  await db.transaction().execute(async (trx) => {
    const applied = await appliedTo(trx);
    if (applied === undefined) {
      await trx.schema
        .createTable('schema_migrations')
        .addColumn('id', 'integer', (column) => column.primaryKey())
        .addColumn('name', 'text', (column) => column.notNull())
        .addColumn('applied_at', 'text', (column) => column.notNull())
        .execute();
    }
    for (const migration of missing(applied, migrations)) {
      for (const statement of migration.sqlite) await sql.raw(statement).execute(trx);
      await trx
        .insertInto('schema_migrations')
        .values({ id: migration.id, name: migration.name, applied_at: new Date().toISOString() })
        .execute();
    }
  });
}

/** The migrations that come after what was applied. */
function missing(
  applied: readonly Applied[] | undefined,
  migrations: readonly Migration[],
): readonly Migration[] {
  for (const [index, row] of (applied ?? []).entries()) {
    const known = migrations[index];
    if (known === undefined) {
      throw new StoreOpenError(
        `the store has schema ${row.id} (${row.name}), this version knows no more than ${migrations.length}; ` +
          'it was written by a newer version of Tollgate',
      );
    }
    if (known.id !== row.id || known.name !== row.name) {
      throw new StoreOpenError(
        `the store has schema ${row.id} (${row.name}) where this version expects ${known.id} (${known.name})`,
      );
    }
  }
  return migrations.slice(applied?.length ?? 0);
}

/** What was applied before, in order; undefined in an empty database. */
async function appliedTo(db: Kysely<Tables>): Promise<readonly Applied[] | undefined> {
  const tables = await db.introspection.getTables();
  if (tables.some((table) => table.name === 'schema_migrations')) {
    return db.selectFrom('schema_migrations').select(['id', 'name']).orderBy('id').execute();
  }
  if (tables.length > 0)
    throw new StoreOpenError('the database holds tables of something else than Tollgate');
  return undefined;
}
