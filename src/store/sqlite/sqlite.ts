// A SQLite file as the store: creates it, sets it up, and gives it two connections.
//
// Writes go through one connection, one transaction at a time; reads have a second one, which in WAL mode always sees the
// last commit and never waits for a writer. A commit is durable when it returns (synchronous=FULL): SQLite's WAL mode with
// NORMAL may lose acknowledged commits when the power fails, and a lost key cannot be shown again.
import { closeSync, existsSync, mkdirSync, openSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Kysely, sql } from 'kysely';
import { rejectNewStore, sizeOf } from '../earlier-store.ts';
import { StoreOpenError } from '../open-error.ts';
import { MIGRATIONS, migrate, SQLITE } from '../schema/migrations.ts';
import type { Tables } from '../schema/tables.ts';
import { SqlStore, writeHeartbeat } from '../sql/sql-store.ts';
import type { Store } from '../store.ts';
import { WriteState } from '../write-state.ts';
import { SqliteDialect } from './sqlite-dialect.ts';
import { SqliteFile } from './sqlite-file.ts';
import { explainSqliteOpening } from './sqlite-open-error.ts';
import { SqliteQueue, type SqliteQueueLimits, whenFree } from './sqlite-queue.ts';

/** At start other processes may be starting too, and one of them migrates. */
const OPEN_MS = 5000;
const WRITES: SqliteQueueLimits = { waitMs: 1500, maxWaiting: 256 };
const READS: SqliteQueueLimits = { waitMs: 1500, maxWaiting: 1024 };

/**
 * @param path of the file; it and its folder are created when missing, readable by this user alone
 * @param signs that a store was there before: then a missing or empty file is not made a new store
 * @throws StoreOpenError
 */
export async function openSqlite(path: string, signs: readonly string[] = []): Promise<Store> {
  if (path === '' || path.startsWith(':') || path.startsWith('file:')) {
    throw new StoreOpenError(`a SQLite store needs the path of a file, not ${JSON.stringify(path)}`);
  }
  const file = resolve(path);
  const opened: DatabaseSync[] = [];
  try {
    const refuseNew = (what: string) => rejectNewStore(signs, what, file);
    // Before SQLite sees it, which would remove a log without its file.
    if (sizeOf(file) === 0) refuseNew(existsSync(file) ? 'the file is empty' : 'the file is missing');
    createPrivately(file);
    const deadline = performance.now() + OPEN_MS;
    const writing = await connect(file, deadline, opened);
    const migrating = new SqliteQueue(writing, { ...WRITES, waitMs: OPEN_MS });
    const isNew = await migrate(over(migrating), SQLITE, MIGRATIONS, () =>
      refuseNew('the file holds no tables'),
    );
    const reading = await connect(file, deadline, opened);
    reading.exec('pragma query_only = on');
    const writable = new WriteState({ write: () => writeHeartbeat(writer) });
    const identity = new SqliteFile(file);
    identity.check();
    const writes = new SqliteQueue(writing, WRITES, { state: writable, file: identity });
    const reads = new SqliteQueue(reading, READS);
    const writer = over(writes);
    return new SqlStore({
      isNew,
      reader: over(reads),
      writer,
      writable,
      elementsOf: (json) => sql`json_each(${json}) as e`,
      // A transaction begins with the lock of the file: its turn came then.
      takeTurn: async () => {},
      close: async () => {
        await reads.close();
        // The last connection to close moves the log into the file, so this is the one that may write.
        await writes.close();
      },
    });
  } catch (error) {
    for (const database of opened) if (database.isOpen) database.close();
    throw new StoreOpenError(`cannot open the store ${file}: ${explainSqliteOpening(error)}`, {
      cause: error,
    });
  }
}

function over(lane: SqliteQueue): Kysely<Tables> {
  return new Kysely({ dialect: new SqliteDialect(lane) });
}

/**
 * Creates the file with mode 0600 (SQLite gives its -wal and -shm files the same). An existing one is not opened here: by
 * POSIX, closing any descriptor of a file drops the locks that this process holds on it through SQLite.
 */
function createPrivately(file: string): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  try {
    closeSync(openSync(file, 'wx', 0o600));
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  }
}

async function connect(file: string, deadline: number, opened: DatabaseSync[]): Promise<DatabaseSync> {
  const database = new DatabaseSync(file, { timeout: 0, enableForeignKeyConstraints: true });
  opened.push(database);
  // Changing the journal mode of a fresh file needs it alone for a moment.
  const mode = await whenFree(() => database.prepare('pragma journal_mode = wal').get(), deadline);
  if (mode?.['journal_mode'] !== 'wal') {
    throw new StoreOpenError('its file system does not support write-ahead logging (a network share?)');
  }
  database.exec('pragma synchronous = full');
  database.exec('pragma trusted_schema = off');
  database.exec('pragma journal_size_limit = 67108864');
  return database;
}
