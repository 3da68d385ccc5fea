// A PostgreSQL database as the store: brings it up to date, makes sure that it can be written, and gives the store two pools.
//
// Reads and writes have connections of their own, so that writes that wait for a lock leave those of reads free. Every
// transaction is read committed; what that means for the operations is in sql-store.ts.
import { Kysely, sql, type Transaction } from 'kysely';
import { rejectNewStore } from '../earlier-store.ts';
import { StoreOpenError } from '../open-error.ts';
import { MIGRATIONS, type MigrationDialect, migrate } from '../schema/migrations.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from '../sql/deferred-statements.ts';
import { SqlStore, writeHeartbeat } from '../sql/sql-store.ts';
import type { Store } from '../store.ts';
import { WriteState } from '../write-state.ts';
import { PoolDialect } from './postgres-dialect.ts';
import { explainOpening, isStartingUp } from './postgres-open-error.ts';
import { Departure, type PoolLimits, PostgresPool, type PostgresServer } from './postgres-pool.ts';
import { readAddress } from './postgres-server.ts';

/** At start other processes may be starting too, and one of them migrates; or the server itself is. */
const OPEN_MS = 5000;
const OPENING: PoolLimits = {
  connections: 1,
  maxWaiting: 1,
  connectMs: OPEN_MS,
  callMs: 20_000,
  silenceMs: OPEN_MS,
  statementMs: OPEN_MS,
  lockMs: OPEN_MS - 500,
};

/**
 * For requests. What takes long is a server that is far away: a connection takes it some four answers, a write two to four. One that
 * says nothing at all is given up sooner. Ten connections of a process are few enough for several processes.
 */
const CALL = { connectMs: 2500, callMs: 5000, silenceMs: 1400, statementMs: 1000, lockMs: 900 };
const READS: PoolLimits = { connections: 6, maxWaiting: 1024, ...CALL };
const WRITES: PoolLimits = { connections: 4, maxWaiting: 256, ...CALL };

/** For a command that one person waits for: it revokes a key also over a way of a second and a half. */
const PATIENT = {
  connectMs: 20_000,
  callMs: 45_000,
  silenceMs: 15_000,
  statementMs: 10_000,
  lockMs: 9000,
  idleInTransactionMs: 5000,
};

/** Names of advisory locks in the database; other programs in it are to use others. Random, as there is no registry. */
const TURN_LOCK = 6_105_893_427_155_233n;
const MIGRATION_LOCK = 6_105_893_427_155_234n;

/** What the store does with its tables. A role that may not is found out at start, and not at the first rotation. */
const PRIVILEGES = {
  settings: ['select', 'insert'],
  holders: ['select', 'insert', 'update'],
  keys: ['select', 'insert', 'update'],
  key_events: ['select', 'insert'],
  free_key_grants: ['select', 'insert', 'update', 'delete'],
  usage_hours: ['select', 'insert', 'update'],
  usage_batches: ['select', 'insert', 'delete'],
  orders: ['select', 'insert', 'update', 'delete'],
  billing_events: ['select', 'insert', 'delete'],
  test_payments: ['select', 'insert', 'update'],
  fleet_tasks: ['select', 'insert', 'update'],
  responses: ['select', 'insert', 'update', 'delete'],
  objects: ['select', 'insert', 'update'],
} as const satisfies Partial<Record<keyof Tables, readonly string[]>>;

/**
 * @param url `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with libpq's parameters for TLS and `options`
 * @throws StoreOpenError within about 5 s where the server says nothing; a patient caller waits longer, also for each later call
 */
export async function openPostgres(
  url: string,
  {
    isPatient = false,
    signs = [],
  }: { readonly isPatient?: boolean; readonly signs?: readonly string[] } = {},
): Promise<Store> {
  let name = 'postgres://…';
  try {
    const address = readAddress(url);
    name = address.name;
    const patience = isPatient ? PATIENT : {};
    const refuseNew = () => rejectNewStore(signs, 'the database holds no tables', undefined);
    const isNew = await prepare(address.server, { ...OPENING, ...patience }, refuseNew);
    return storeOn(address.server, patience, isNew);
  } catch (error) {
    throw new StoreOpenError(`cannot open the store ${name}: ${explainOpening(error)}`, { cause: error });
  }
}

function storeOn(server: PostgresServer, patience: Partial<PoolLimits>, isNew: boolean): Store {
  const departure = new Departure();
  const writable = new WriteState({ write: () => writeHeartbeat(writer) });
  const reads = new PostgresPool(server, { ...READS, ...patience }, { departure });
  const writes = new PostgresPool(server, { ...WRITES, ...patience }, { departure, writes: writable });
  const writer = over(writes);
  return new SqlStore({
    isNew,
    reader: over(reads),
    writer,
    writable,
    elementsOf: (json) => sql`json_array_elements(${json}::json) as e(value)`,
    takeTurn,
    close: async () => {
      await Promise.all([reads.close(), writes.close()]);
    },
  });
}

/**
 * Without this the change feed would lose changes. An id is drawn when a row is inserted, and seen by others after commit: of
 * two transactions, the one with the lower id may commit later. Who followed the feed in between saw the higher id, asks
 * from there on, and never learns of the lower one, which may be a revocation. So ids are drawn by one transaction at a
 * time, and the next one draws when this one can be seen: PostgreSQL lets go of the lock after that.
 *
 * It is taken after the locks of rows, never before: a row that somebody holds keeps nobody else from writing.
 */
async function takeTurn(trx: Transaction<Tables>): Promise<void> {
  const lock = sql`select pg_advisory_xact_lock(${sql.lit(TURN_LOCK)})`;
  await defer(trx, { compile: () => lock.compile(trx) });
}

export const POSTGRES: MigrationDialect = {
  statements: 'postgres',
  /** In the schema in which this connection would create tables; without what extensions bring (pg_stat_statements, say). */
  async tables(db) {
    const { rows } = await sql<{ name: string; columns: string[] }>`
      select c.relname::text as name, array_agg(a.attname::text) as columns
      from pg_catalog.pg_class c
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace
      join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      where n.nspname = current_schema() and c.relkind in ('r', 'p', 'v', 'm', 'f')
        and not exists (
          select from pg_catalog.pg_depend d
          where d.classid = 'pg_catalog.pg_class'::regclass and d.objid = c.oid and d.deptype = 'e'
        )
      group by c.relname`.execute(db);
    return new Map(rows.map(({ name, columns }) => [name, columns]));
  },
  async alone(trx) {
    await sql`select pg_advisory_xact_lock(${sql.lit(MIGRATION_LOCK)})`.execute(trx);
  },
};

/** Migrates and checks, over a connection of its own: what a start may wait for is more than a call may. */
async function prepare(server: PostgresServer, limits: PoolLimits, refuseNew: () => void): Promise<boolean> {
  const pool = new PostgresPool(server, limits);
  try {
    const db = over(pool);
    const deadline = performance.now() + OPEN_MS;
    await until(deadline, () => refuseReadOnly(db));
    const isNew = await migrate(db, POSTGRES, MIGRATIONS, refuseNew);
    await refuseWeakRole(db);
    return isNew;
  } finally {
    await pool.close();
  }
}

/** A server that is starting up, as one beside this process may be, is asked again. */
async function until(deadline: number, work: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!isStartingUp(error) || performance.now() > deadline) throw error;
      await new Promise<void>((resolve) => setTimeout(resolve, 100));
    }
  }
}

async function refuseReadOnly(db: Kysely<Tables>): Promise<void> {
  const { rows } = await sql<{ standby: boolean; read_only: string; schema: string | null }>`
    select pg_is_in_recovery() as standby, current_setting('transaction_read_only') as read_only,
      current_schema()::text as schema`.execute(db);
  const [row] = rows;
  if (row?.standby === true) {
    throw new StoreOpenError('the server is a standby that cannot be written; name the primary');
  }
  if (row?.read_only === 'on') {
    throw new StoreOpenError('transactions are read-only there (default_transaction_read_only)');
  }
  if (row?.schema === null) {
    throw new StoreOpenError('no schema of the search_path exists or may be used by this role');
  }
}

async function refuseWeakRole(db: Kysely<Tables>): Promise<void> {
  const needed = Object.entries(PRIVILEGES).flatMap(([table, rights]) =>
    rights.map((right) => ({ table, right })),
  );
  const { rows } = await sql<{ role: string; lacking: string[] }>`
    select current_user::text as role, coalesce(
      array_agg(wanted.right || ' on ' || wanted.table)
        filter (where not has_table_privilege(quote_ident(wanted.table), wanted.right)), '{}') as lacking
    from json_to_recordset(${JSON.stringify(needed)}::json) as wanted("table" text, "right" text)`.execute(
    db,
  );
  const [row] = rows;
  if (row !== undefined && row.lacking.length > 0) {
    throw new StoreOpenError(
      `the role ${JSON.stringify(row.role)} lacks rights (${row.lacking.join(', ')}); ` +
        'grant them, or let Tollgate connect as the owner of its tables',
    );
  }
}

function over(pool: PostgresPool): Kysely<Tables> {
  return new Kysely({ dialect: new PoolDialect(pool) });
}
