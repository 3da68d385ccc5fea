// How a database is brought up to date: which steps there are, in which order, and that one process at a time applies them.
// What a step does is in its own file.
import { type Kysely, sql, type Transaction } from 'kysely';
import { StoreOpenError } from '../open-error.ts';
import type { Migration } from './migration.ts';
import { BILLING_MIGRATION } from './schema-billing.ts';
import { BILLING_STATUS_MIGRATION } from './schema-billing-status.ts';
import { KEYS_MIGRATION } from './schema-keys.ts';
import { ITEMS_MIGRATION, OBJECTS_MIGRATION } from './schema-objects.ts';
import { RESPONSES_MIGRATION } from './schema-responses.ts';
import { USAGE_MIGRATION } from './schema-usage.ts';
import type { Tables } from './tables.ts';

export const MIGRATIONS: readonly Migration[] = [
  KEYS_MIGRATION,
  USAGE_MIGRATION,
  BILLING_STATUS_MIGRATION,
  BILLING_MIGRATION,
  RESPONSES_MIGRATION,
  OBJECTS_MIGRATION,
  ITEMS_MIGRATION,
];

/** What the two kinds of database do differently here. */
export interface MigrationDialect {
  readonly statements: 'sqlite' | 'postgres';
  /** Names of the tables that are there, where Tollgate's would be; their columns too, as Tollgate is not alone with its names. */
  tables(db: Kysely<Tables>): Promise<ReadonlyMap<string, readonly string[]>>;
  /** Resolves when no other process migrates, until the end of the transaction. */
  alone(trx: Transaction<Tables>): Promise<void>;
}

export const SQLITE: MigrationDialect = {
  statements: 'sqlite',
  async tables(db) {
    const tables = await db.introspection.getTables();
    return new Map(tables.map(({ name, columns }) => [name, columns.map((column) => column.name)]));
  },
  // The transaction began with the lock of the file.
  async alone() {},
};

interface Applied {
  readonly id: number;
  readonly name: string;
}

/**
 * Applies what is missing, in one transaction that excludes other processes, so that of two that start at once one
 * migrates and the other finds nothing to do. A database that is up to date is only read: a start need not wait for a
 * lock that somebody holds.
 *
 * @param onNew called before tables are made in an empty database; may throw
 * @returns whether the database was empty
 * @throws StoreOpenError when the database is not Tollgate's, or was written by a newer version
 */
export async function migrate(
  db: Kysely<Tables>,
  dialect: MigrationDialect,
  migrations = MIGRATIONS,
  onNew = () => {},
): Promise<boolean> {
  if (missing(await appliedTo(db, dialect), migrations).length === 0) return false;
  return db.transaction().execute(async (trx) => {
    await dialect.alone(trx);
    const applied = await appliedTo(trx, dialect);
    if (applied === undefined) {
      onNew();
      await trx.schema
        .createTable('schema_migrations')
        .addColumn('id', 'integer', (column) => column.primaryKey())
        .addColumn('name', 'text', (column) => column.notNull())
        .addColumn('applied_at', 'text', (column) => column.notNull())
        .execute();
    }
    for (const migration of missing(applied, migrations)) {
      for (const statement of migration[dialect.statements]) await sql.raw(statement).execute(trx);
      await trx
        .insertInto('schema_migrations')
        .values({ id: migration.id, name: migration.name, applied_at: new Date().toISOString() })
        .execute();
    }
    return applied === undefined;
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
async function appliedTo(
  db: Kysely<Tables>,
  dialect: MigrationDialect,
): Promise<readonly Applied[] | undefined> {
  const tables = await dialect.tables(db);
  const history = tables.get('schema_migrations');
  if (history?.includes('id') === true && history.includes('name')) {
    return db.selectFrom('schema_migrations').select(['id', 'name']).orderBy('id').execute();
  }
  if (tables.size > 0) throw new StoreOpenError('the database holds tables of something else than Tollgate');
  return undefined;
}
