// A SQLite file as the store: creates and migrates it, and opens two connections.
//
// Writes use one connection, one transaction at a time. Reads use another, which in WAL mode always sees the last commit and
// never waits for a writer. Commits are durable (synchronous=FULL): with NORMAL, a power failure could lose acknowledged
// commits, and a lost key cannot be shown again.
import { closeSync, existsSync, mkdtempSync, openSync, rmSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type Kysely, SqliteAdapter, SqliteIntrospector, SqliteQueryCompiler, sql } from 'kysely';
import type { Tier } from '../../config/schema/config-schema.ts';
import { rejectNewStore, sizeOf } from '../earlier-store.ts';
import { MIGRATIONS, migrate, schemaState } from '../schema/migrations.ts';
import { fillKeySearch } from '../schema/schema-search.ts';
import type { Tables } from '../schema/tables.ts';
import { kyselyOn } from '../sql/sql-database.ts';
import { readTrial, sqlStore, writeHeartbeat } from '../sql/sql-store.ts';
import { EMPTY_TRIAL, type Store, type Trial } from '../store.ts';
import { StoreOpenError } from '../store-errors.ts';
import { WriteState } from '../write-state.ts';
import { makePrivateFolder } from './private-folder.ts';
import { withAdvice } from './sqlite-advice.ts';
import { SqliteFile } from './sqlite-file.ts';
import { retryWhileLocked, SqliteQueue, type SqliteQueueLimits } from './sqlite-queue.ts';
import { SQLITE } from './sqlite-schema.ts';

/** Turns off Kysely's own mutex, which has neither a bound nor a deadline; the queue has both. */
class QueueAdapter extends SqliteAdapter {
  override get supportsMultipleConnections(): boolean {
    return true;
  }
}

export function sqliteKysely<Schema = Tables>(queue: SqliteQueue): Kysely<Schema> {
  return kyselyOn<Schema>(queue, {
    createAdapter: () => new QueueAdapter(),
    createQueryCompiler: () => new SqliteQueryCompiler(),
    createIntrospector: (db) => new SqliteIntrospector(db),
  });
}

/** Timeout at start, when another process may be migrating. */
const OPEN_MS = 5000;
const WRITES: SqliteQueueLimits = { waitMs: 1500, maxWaiting: 256 };
const READS: SqliteQueueLimits = { waitMs: 1500, maxWaiting: 1024 };

/**
 * @param path path of the file; it and its folder are created when missing, readable only by this user
 * @param signs of an earlier store: with any, a missing or empty file does not become a new store
 * @throws StoreOpenError
 */
export async function openSqlite(path: string, signs: readonly string[] = []): Promise<Store> {
  const file = fileOf(path);
  const opened: DatabaseSync[] = [];
  try {
    const rejectNew = (what: string) => rejectNewStore(signs, what, file);
    rejectNewFile(file, signs);
    createPrivately(file);
    const deadline = performance.now() + OPEN_MS;
    const writing = await connect(file, deadline, opened);
    const migrating = new SqliteQueue(writing, { ...WRITES, waitMs: OPEN_MS });
    const db = sqliteKysely(migrating);
    const isNew = await migrate(db, SQLITE, MIGRATIONS, () => rejectNew('the file has no tables'));
    await fillKeySearch(db, SQLITE);
    // After the migrations, whose indexes may be larger than memory. Usage is bound in a temporary table, for which there may be no disk.
    writing.exec('pragma temp_store = memory');
    const reading = await connect(file, deadline, opened);
    reading.exec('pragma query_only = on');
    const writable = new WriteState({ write: () => writeHeartbeat(writer) });
    const identity = new SqliteFile(file);
    identity.check();
    const writes = new SqliteQueue(writing, WRITES, { state: writable, file: identity });
    const reads = new SqliteQueue(reading, READS);
    const writer = sqliteKysely(writes);
    return sqlStore({
      isNew,
      reader: sqliteKysely(reads),
      writer,
      writable,
      elementsOf: (json) => sql`json_each(${json}) as e`,
      bindsRows: true,
      ordersStreams: false,
      byBytes: sql.raw(SQLITE.types.byBytes),
      hash: SQLITE.types.hash,
      // Not needed: a transaction begins with the exclusive write lock.
      lockChangeFeed: async () => {},
      forShare: sql.raw(''),
      // The message of the constraint, and that of the trigger before it.
      isPrefixTaken: ({ message }) =>
        /UNIQUE constraint failed: keys\.prefix|a key with this prefix/.test(message),
      close: async () => {
        await reads.close();
        // The last connection to close checkpoints the log, so it has to be the one for writes.
        await writes.close();
      },
    });
  } catch (error) {
    closeAll(opened);
    throw openError(file, error);
  }
}

/**
 * Checks that `openSqlite` would succeed, and leaves the file as it is. Where there is none, it makes one in a temporary folder beside.
 * @returns what it keeps for good; nothing before the first start
 * @throws StoreOpenError
 */
export async function trySqlite(
  path: string,
  signs: readonly string[],
  tiers: readonly Tier[],
): Promise<Trial> {
  const file = fileOf(path);
  const opened: DatabaseSync[] = [];
  try {
    rejectNewFile(file, signs);
    const deadline = performance.now() + OPEN_MS;
    if (sizeOf(file) === 0) await tryFolder(dirname(file), deadline, opened);
    if (!existsSync(file)) return EMPTY_TRIAL;
    const database = new DatabaseSync(file, { timeout: 0 });
    opened.push(database);
    // A start writes, also where nothing has to be migrated.
    await retryWhileLocked(() => database.exec('begin immediate; rollback'), deadline);
    const db = sqliteKysely(new SqliteQueue(database, READS));
    if ((await schemaState(db, SQLITE)) !== 'empty') return await readTrial(db, tiers);
    rejectNewStore(signs, 'the file has no tables', file);
    return EMPTY_TRIAL;
  } catch (error) {
    throw openError(file, error);
  } finally {
    closeAll(opened);
  }
}

/** Makes and removes a database in the folder, or where that would have to be created. */
async function tryFolder(folder: string, deadline: number, opened: DatabaseSync[]): Promise<void> {
  if (!existsSync(folder) && folder !== dirname(folder))
    return await tryFolder(dirname(folder), deadline, opened);
  const trial = mkdtempSync(join(folder, '.tollgate-check-'));
  try {
    const database = await connect(join(trial, 'trial.db'), deadline, opened);
    database.exec('create table trial (id integer)');
    database.close();
  } finally {
    rmSync(trial, { recursive: true, force: true });
  }
}

function fileOf(path: string): string {
  if (path === '' || path.startsWith(':') || path.startsWith('file:'))
    throw new StoreOpenError(`a SQLite store needs the path of a file, not ${JSON.stringify(path)}`);
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() === true)
    throw new StoreOpenError(`cannot open the store ${path}: it is a directory; name a file in it`);
  return resolve(path);
}

/** Call it before SQLite opens the file: it would remove a write-ahead log without its file. */
function rejectNewFile(file: string, signs: readonly string[]): void {
  if (sizeOf(file) > 0) return;
  rejectNewStore(signs, existsSync(file) ? 'the file is empty' : 'the file is missing', file);
}

function closeAll(opened: readonly DatabaseSync[]): void {
  for (const database of opened) if (database.isOpen) database.close();
}

function openError(file: string, cause: unknown): StoreOpenError {
  const advised = withAdvice(cause);
  const reason = advised instanceof Error ? advised.message : String(advised);
  return new StoreOpenError(`cannot open the store ${file}: ${reason}`, { cause });
}

/**
 * Creates the file with mode 0600, which SQLite also uses for the -wal and -shm files. It does not open an existing file:
 * in POSIX, closing any descriptor of a file releases all locks of this process on it, including SQLite's.
 */
function createPrivately(file: string): void {
  makePrivateFolder(dirname(file));
  try {
    closeSync(openSync(file, 'wx', 0o600));
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  }
}

async function connect(file: string, deadline: number, opened: DatabaseSync[]): Promise<DatabaseSync> {
  const database = new DatabaseSync(file, { timeout: 0, enableForeignKeyConstraints: true });
  opened.push(database);
  // Changing the journal mode needs an exclusive lock.
  const mode = await retryWhileLocked(() => database.prepare('pragma journal_mode = wal').get(), deadline);
  if (mode?.['journal_mode'] !== 'wal') {
    throw new StoreOpenError(
      'its file system does not support write-ahead logging; move the file to a local disk',
    );
  }
  database.exec('pragma synchronous = full');
  database.exec('pragma trusted_schema = off');
  database.exec('pragma journal_size_limit = 67108864');
  // A batch of usage changes a page for nearly each of its rows, which are all over the file: with the 2 MB and 4 MB of the defaults it
  // reads them anew, and each commit copies all pages into the file.
  database.exec('pragma cache_size = -16000');
  database.exec('pragma wal_autocheckpoint = 4000');
  return database;
}
