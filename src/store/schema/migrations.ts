// The list of schema migrations, and their application by one process at a time.
import { type Kysely, sql } from 'kysely';
import { StoreOpenError } from '../store-errors.ts';
import type { Migration, MigrationDialect } from './migration.ts';
import { BILLING_MIGRATIONS } from './schema-billing.ts';
import { BUDGETS_MIGRATIONS } from './schema-budgets.ts';
import { KEYS_MIGRATIONS } from './schema-keys.ts';
import { OBJECTS_MIGRATIONS } from './schema-objects.ts';
import { OPERATORS_MIGRATIONS } from './schema-operators.ts';
import { ORGANISATION_MIGRATIONS } from './schema-organisation.ts';
import { SEARCH_MIGRATIONS } from './schema-search.ts';
import { UPSTREAMS_MIGRATIONS } from './schema-upstreams.ts';
import { USAGE_MIGRATIONS } from './schema-usage.ts';
import type { Tables } from './tables.ts';

export const MIGRATIONS: readonly Migration[] = [
  ...KEYS_MIGRATIONS,
  ...USAGE_MIGRATIONS,
  ...BILLING_MIGRATIONS,
  ...OBJECTS_MIGRATIONS,
  ...ORGANISATION_MIGRATIONS,
  ...UPSTREAMS_MIGRATIONS,
  ...BUDGETS_MIGRATIONS,
  ...OPERATORS_MIGRATIONS,
  ...SEARCH_MIGRATIONS,
].sort((a, b) => a.id - b.id);

interface Applied {
  readonly id: number;
  readonly name: string;
}

/**
 * Applies missing migrations in one transaction that locks out other processes. A database that is up to date is only read, so
 * that a start does not wait for locks.
 *
 * @param onNew called before tables are created in an empty database; may throw
 * @returns whether the database was empty
 * @throws StoreOpenError when the database belongs to another program or to a newer version
 */
export async function migrate(
  db: Kysely<Tables>,
  dialect: MigrationDialect,
  migrations = MIGRATIONS,
  onNew = () => {},
): Promise<boolean> {
  if (missing(await appliedTo(db, dialect), migrations).length === 0) return false;
  return db.transaction().execute(async (trx) => {
    await dialect.lock(trx);
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
    for (const { id, name, statements } of missing(applied, migrations)) {
      for (const statement of [...statements(dialect.types), ...(dialect.statements[id] ?? [])])
        await sql.raw(statement).execute(trx);
      const row = { id, name, applied_at: new Date().toISOString() };
      await trx.insertInto('schema_migrations').values(row).execute();
    }
    return applied === undefined;
  });
}

/** Reads what `migrate` would find. @throws StoreOpenError as `migrate` */
export async function schemaState(
  db: Kysely<Tables>,
  dialect: MigrationDialect,
): Promise<'empty' | 'earlier' | 'current'> {
  const applied = await appliedTo(db, dialect);
  const isCurrent = missing(applied, MIGRATIONS).length === 0;
  return applied === undefined ? 'empty' : isCurrent ? 'current' : 'earlier';
}

/** The migrations that are not applied yet. */
function missing(
  applied: readonly Applied[] | undefined,
  migrations: readonly Migration[],
): readonly Migration[] {
  for (const [index, row] of (applied ?? []).entries()) {
    const known = migrations[index];
    if (known === undefined) {
      throw new StoreOpenError(
        `the store has schema ${row.id} (${row.name}), but this version supports only ${migrations.length}; ` +
          'a newer version of Tollgate wrote it: run that version, or restore a backup',
      );
    }
    if (known.id !== row.id || known.name !== row.name) {
      throw new StoreOpenError(
        `the store has schema ${row.id} (${row.name}) where this version expects ${known.id} (${known.name}); check \`store\``,
      );
    }
  }
  return migrations.slice(applied?.length ?? 0);
}

/** The applied migrations, in order; undefined in an empty database. */
async function appliedTo(
  db: Kysely<Tables>,
  dialect: MigrationDialect,
): Promise<readonly Applied[] | undefined> {
  const tables = await dialect.tables(db);
  const history = tables.get('schema_migrations');
  if (history?.includes('id') === true && history.includes('name')) {
    return db.selectFrom('schema_migrations').select(['id', 'name']).orderBy('id').execute();
  }
  if (tables.size > 0)
    throw new StoreOpenError(
      'the database has tables of another program; set `store` to one for Tollgate alone',
    );
  return undefined;
}
