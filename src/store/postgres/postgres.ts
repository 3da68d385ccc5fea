// A PostgreSQL database as the store: migrates it, checks that it is writable, and creates two pools.
//
// Reads and writes have separate pools (a bulkhead), so that writes that wait for a lock do not block reads. Transactions are
// read committed; sql-store.ts explains the consequences.
import {
  type Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  sql,
  type Transaction,
} from 'kysely';
import { DatabaseError } from 'pg';
import type { Tier } from '../../config/schema/config-schema.ts';
import { rejectNewStore } from '../earlier-store.ts';
import { MIGRATIONS, migrate, schemaState } from '../schema/migrations.ts';
import { fillKeySearch } from '../schema/schema-search.ts';
import type { Tables } from '../schema/tables.ts';
import { defer } from '../sql/deferred-statements.ts';
import { kyselyOn } from '../sql/sql-database.ts';
import { readTrial, sqlStore, writeHeartbeat } from '../sql/sql-store.ts';
import { EMPTY_TRIAL, type Store, type Trial } from '../store.ts';
import { StoreOpenError } from '../store-errors.ts';
import { WriteState } from '../write-state.ts';
import { ADVICE, explainOpening, isStartingUp } from './postgres-open-error.ts';
import { ConnectionGeneration, type PoolLimits, PostgresPool, type PostgresServer } from './postgres-pool.ts';
import { POSTGRES } from './postgres-schema.ts';
import { readAddress } from './postgres-server.ts';

/** Timeout at start, when another process may be migrating or the server may be starting. */
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
 * Limits for requests. They allow for a distant server: a connection takes about four round trips, a write two to four. A
 * silent server is given up sooner. Ten connections per process leave room for several processes.
 */
const CALL = { connectMs: 2500, callMs: 5000, silenceMs: 1400, statementMs: 1000, lockMs: 900 };
const READS: PoolLimits = { connections: 6, maxWaiting: 1024, ...CALL };
const WRITES: PoolLimits = { connections: 4, maxWaiting: 256, ...CALL };

/** Limits for interactive commands: they can revoke a key over a round-trip time of 1.5 s. */
const PATIENT = {
  connectMs: 20_000,
  callMs: 45_000,
  silenceMs: 15_000,
  statementMs: 10_000,
  lockMs: 9000,
  idleInTransactionMs: 5000,
};

/** Key of an advisory lock in the database. It is random, because programs that share it must not use the same. */
const CHANGE_FEED_LOCK = 6_105_893_427_155_233n;

/** The privileges that the store needs. A missing one fails the start and not the first rotation. */
const PRIVILEGES = {
  settings: ['select', 'insert', 'update'],
  holders: ['select', 'insert', 'update'],
  keys: ['select', 'insert', 'update'],
  key_events: ['select', 'insert'],
  keys_unannounced: ['select'],
  key_uses: ['select', 'insert', 'update'],
  key_search: ['select', 'insert'],
  teams: ['select', 'insert', 'update', 'delete'],
  team_events: ['select', 'insert'],
  labels: ['select', 'insert', 'update', 'delete'],
  free_key_grants: ['select', 'insert', 'update', 'delete'],
  key_lineages: ['select', 'insert'],
  usage_hours: ['select', 'insert', 'update', 'delete'],
  usage_days: ['select', 'insert', 'update', 'delete'],
  usage_months: ['select', 'insert', 'update'],
  usage_backlog: ['select', 'update', 'delete'],
  usage_closings: ['select', 'insert', 'update'],
  usage_late: ['select', 'insert'],
  usage_batches: ['select', 'insert', 'delete'],
  orders: ['select', 'insert', 'update', 'delete'],
  billing_events: ['select', 'insert', 'delete'],
  test_payments: ['select', 'insert', 'update'],
  budget_notices: ['select', 'insert', 'update', 'delete'],
  fleet_tasks: ['select', 'insert', 'update'],
  responses: ['select', 'insert', 'update', 'delete'],
  objects: ['select', 'insert', 'update'],
  response_items: ['select', 'insert', 'delete'],
  upstream_drains: ['select', 'insert', 'update', 'delete'],
  upstream_events: ['select', 'insert', 'delete'],
  operators: ['select', 'insert', 'update', 'delete'],
  operator_sessions: ['select', 'insert', 'update', 'delete'],
  operator_events: ['select', 'insert', 'update', 'delete'],
} as const satisfies Record<Exclude<keyof Tables, 'schema_migrations'>, readonly string[]>;

/**
 * @param url `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with libpq's parameters for TLS and `options`
 * @param isPatient longer deadlines, also for later calls
 * @throws StoreOpenError within about 5 s when the server is silent, later with `isPatient`
 */
export async function openPostgres(
  url: string,
  {
    isPatient = false,
    signs = [],
  }: { readonly isPatient?: boolean; readonly signs?: readonly string[] } = {},
): Promise<Store> {
  return explained(url, async (server) => {
    const overrides = isPatient ? PATIENT : {};
    const isNew = await prepare(server, { ...OPENING, ...overrides }, async (db) => {
      const isNew = await migrate(db, POSTGRES, MIGRATIONS, () => rejectEmpty(signs));
      await rejectMissingPrivileges(db);
      await fillKeySearch(db, POSTGRES);
      return isNew;
    });
    return storeOn(server, overrides, isNew);
  });
}

/**
 * Checks that `openPostgres` would succeed, and writes nothing. Of missing migrations it knows only whether the role may create tables.
 * @returns what it keeps for good; nothing before the first start
 * @throws StoreOpenError as `openPostgres`
 */
export async function tryPostgres(
  url: string,
  signs: readonly string[],
  tiers: readonly Tier[],
): Promise<Trial> {
  return explained(url, (server) =>
    prepare(server, OPENING, async (db) => {
      const state = await schemaState(db, POSTGRES);
      if (state === 'empty') rejectEmpty(signs);
      await (state === 'current' ? rejectMissingPrivileges(db) : rejectNoTables(db));
      return state === 'empty' ? EMPTY_TRIAL : await readTrial(db, tiers);
    }),
  );
}

async function explained<T>(url: string, open: (server: PostgresServer) => Promise<T>): Promise<T> {
  let name = 'postgres://…';
  try {
    const address = readAddress(url);
    name = address.name;
    return await open(address.server);
  } catch (error) {
    throw new StoreOpenError(`cannot open the store ${name}: ${explainOpening(error)}`, { cause: error });
  }
}

function rejectEmpty(signs: readonly string[]): void {
  rejectNewStore(signs, 'the database has no tables', undefined);
}

function storeOn(server: PostgresServer, overrides: Partial<PoolLimits>, isNew: boolean): Store {
  const generation = new ConnectionGeneration();
  const writable = new WriteState({ write: () => writeHeartbeat(writer) });
  const reads = new PostgresPool(server, { ...READS, ...overrides }, { generation });
  const writes = new PostgresPool(server, { ...WRITES, ...overrides }, { generation, writes: writable });
  const writer = postgresKysely(writes);
  return sqlStore({
    isNew,
    reader: postgresKysely(reads),
    writer,
    writable,
    elementsOf: (json) => sql`json_array_elements(${json}::json) as e(value)`,
    bindsRows: false,
    ordersStreams: true,
    lockChangeFeed,
    forShare: sql.raw(' for share'),
    byBytes: sql.raw(POSTGRES.types.byBytes),
    hash: POSTGRES.types.hash,
    isPrefixTaken: (error) =>
      error instanceof DatabaseError && error.code === '23505' && error.constraint === 'keys_prefix_key',
    close: async () => {
      await Promise.all([reads.close(), writes.close()]);
    },
  });
}

/**
 * Serializes writers of the change feed. An id is assigned at the insert and visible after the commit, so without the lock a
 * lower id could become visible after a higher one, and a reader that continues from the higher one would miss it, perhaps a
 * revocation. PostgreSQL releases the lock after the commit is visible.
 *
 * Take it after all row locks: a transaction that waits for a row must not block all other writers.
 */
async function lockChangeFeed(trx: Transaction<Tables>): Promise<void> {
  const lock = sql`select pg_advisory_xact_lock(${sql.lit(CHANGE_FEED_LOCK)})`;
  await defer(trx, { compile: () => lock.compile(trx) });
}

/** Works over a pool of its own, because a start has longer timeouts than a call. The server is writable. */
async function prepare<T>(
  server: PostgresServer,
  limits: PoolLimits,
  work: (db: Kysely<Tables>) => Promise<T>,
): Promise<T> {
  const pool = new PostgresPool(server, limits);
  try {
    const db = postgresKysely(pool);
    const deadline = performance.now() + OPEN_MS;
    await retryWhileStarting(deadline, () => rejectReadOnly(db));
    return await work(db);
  } finally {
    await pool.close();
  }
}

/** Retries while the server is starting up. */
async function retryWhileStarting(deadline: number, work: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!isStartingUp(error) || performance.now() > deadline) throw error;
      await new Promise<void>((resolve) => setTimeout(resolve, 100));
    }
  }
}

async function rejectReadOnly(db: Kysely<Tables>): Promise<void> {
  const { rows } = await sql<{ standby: boolean; read_only: string; schema: string | null }>`
    select pg_is_in_recovery() as standby, current_setting('transaction_read_only') as read_only,
      current_schema()::text as schema`.execute(db);
  const [row] = rows;
  if (row?.standby === true) {
    throw new StoreOpenError('the server is a read-only standby; set `store` to the primary');
  }
  if (row?.read_only === 'on') {
    throw new StoreOpenError(
      'the server is read-only (default_transaction_read_only); make it writable, or set `store` to the primary',
    );
  }
  if (row?.schema === null) {
    throw new StoreOpenError(
      'no schema of the search_path exists or is accessible to this role; create one, or grant usage on it',
    );
  }
}

/** In the words of the server, which would say so when it creates the first table. */
async function rejectNoTables(db: Kysely<Tables>): Promise<void> {
  const { rows } = await sql<{ schema: string; may: boolean }>`
    select current_schema()::text as schema, has_schema_privilege(current_schema(), 'create') as may`.execute(
    db,
  );
  const [row] = rows;
  if (row?.may === false)
    throw new StoreOpenError(`permission denied for schema ${row.schema}; ${ADVICE['42501']}`);
}

async function rejectMissingPrivileges(db: Kysely<Tables>): Promise<void> {
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
      `the role ${JSON.stringify(row.role)} lacks privileges (${row.lacking.join(', ')}); ` +
        'grant them, or connect as the owner of the tables',
    );
  }
}

export function postgresKysely(pool: PostgresPool): Kysely<Tables> {
  return kyselyOn(pool, {
    createAdapter: () => new PostgresAdapter(),
    createQueryCompiler: () => new PostgresQueryCompiler(),
    createIntrospector: (db) => new PostgresIntrospector(db),
  });
}
