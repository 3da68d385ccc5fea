// A store as an older version migrates it, and as its statements or those of a person in a shell find it.
import { DatabaseSync } from 'node:sqlite';
import type { Kysely } from 'kysely';
import type { StoreAddress } from '../../src/config/schema/addresses.ts';
import { postgresKysely } from '../../src/store/postgres/postgres.ts';
import { PostgresPool } from '../../src/store/postgres/postgres-pool.ts';
import { POSTGRES } from '../../src/store/postgres/postgres-schema.ts';
import { readAddress } from '../../src/store/postgres/postgres-server.ts';
import { type MIGRATIONS, migrate } from '../../src/store/schema/migrations.ts';
import type { Tables } from '../../src/store/schema/tables.ts';
import { sqliteKysely } from '../../src/store/sqlite/sqlite.ts';
import { SqliteQueue } from '../../src/store/sqlite/sqlite-queue.ts';
import { SQLITE } from '../../src/store/sqlite/sqlite-schema.ts';
import { USAGE_SUMS } from '../../src/store/usage-record.ts';
import { query, runStatements } from '../helpers/postgres.ts';
import { distinct } from './usage-samples.ts';

/** As an older version does it. */
export async function migrateTo(address: StoreAddress, migrations: typeof MIGRATIONS): Promise<void> {
  const db = readerOf(address);
  await migrate(db, address.kind === 'sqlite' ? SQLITE : POSTGRES, migrations);
  await db.destroy();
}

/** For PostgreSQL, in milliseconds: a machine that is busy is slow to connect, and that is no fault of what is tested. */
const PATIENCE_MS = 120_000;

/** One connection, for queries. `destroy` closes it. */
export function readerOf(address: StoreAddress): Kysely<Tables> {
  if (address.kind === 'sqlite')
    return sqliteKysely(new SqliteQueue(new DatabaseSync(address.path), { waitMs: 1000, maxWaiting: 10 }));
  const pool = new PostgresPool(readAddress(address.url).server, {
    connections: 1,
    maxWaiting: 10,
    connectMs: PATIENCE_MS,
    callMs: PATIENCE_MS,
    statementMs: PATIENCE_MS,
    lockMs: PATIENCE_MS,
  });
  return postgresKysely(pool);
}

/** As a hand in a shell does it. */
export async function run(address: StoreAddress, statements: readonly string[]): Promise<void> {
  if (address.kind === 'postgres') {
    await runStatements(address.url, statements);
    return;
  }
  const database = new DatabaseSync(address.path);
  try {
    for (const statement of statements) database.exec(statement);
  } finally {
    database.close();
  }
}

/** The rows of a query, with its counts as numbers: drivers return large types as text. */
export async function countsOf(
  address: StoreAddress,
  text: string,
): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const rows = address.kind === 'postgres' ? await query(address.url, text) : allOf(address.path, text);
  return rows.map((row) =>
    Object.fromEntries(
      Object.entries(row).map(([name, value]) => [name, /^\d+$/.test(String(value)) ? Number(value) : value]),
    ),
  );
}

function allOf(path: string, text: string) {
  const database = new DatabaseSync(path);
  try {
    return database.prepare(text).all();
  } finally {
    database.close();
  }
}

/** The statement of the version before days and months, with sums that all differ. */
export function earlierUsage(hour: string, holder: string, factor: number): string {
  const names = USAGE_SUMS.join(', ');
  const max = Number.MAX_SAFE_INTEGER;
  const raised = USAGE_SUMS.map((name) => {
    const [old, more] = [`usage_hours.${name}`, `excluded.${name}`];
    return `${name} = case when ${old} > ${max} - ${more} then ${max} else ${old} + ${more} end`;
  });
  return `insert into usage_hours (holder_id, hour, prefix, model, upstream, ${names})
    values ('${holder}', '${hour}', '0123abcd', 'gpt', 'openai', ${Object.values(distinct(factor)).join(', ')})
    on conflict (holder_id, hour, prefix, model, upstream) do update set ${raised.join(', ')}`;
}
