// One SQLite connection and the queue of its callers. It is independent of the tables.
//
// A caller has the connection exclusively from acquire to release, because a query between two statements of another caller's
// transaction would see uncommitted rows. Reads have a connection of their own. A lock of another process does not block the
// event loop: SQLite's busy timeout is off, and retries use a timer, with a deadline that starts when the caller is queued.

import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
import type { CompiledQuery, QueryResult } from 'kysely';
import { startDeadline } from '../../deadline.ts';
import { RecentMap } from '../../recent-map.ts';
import type { ConnectionLease } from '../sql/sql-database.ts';
import type { WriteState } from '../write-state.ts';
import { primaryCode, withAdvice } from './sqlite-advice.ts';
import { type SqliteFile, StoreFileGone } from './sqlite-file.ts';

/** Options of the connection for writes. */
interface SqliteQueueWrites {
  /** Receives the results of writes. */
  readonly state: Pick<WriteState, 'succeeded' | 'failed'>;
  /** Checked before each write. */
  readonly file: Pick<SqliteFile, 'check'>;
}

export interface SqliteQueueLimits {
  /** Maximum wait in the queue and for the file's lock together, in milliseconds. */
  readonly waitMs: number;
  /** Maximum number of callers in the queue. */
  readonly maxWaiting: number;
}

const MAX_STATEMENTS = 64;
const MAX_PAUSE_MS = 25;

interface Waiter {
  readonly deadline: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
  readonly stop: () => void;
}

interface Prepared {
  readonly statement: StatementSync;
  readonly returnsRows: boolean;
}

export class SqliteQueue implements ConnectionLease {
  readonly #database: DatabaseSync;
  readonly #limits: SqliteQueueLimits;
  readonly #writes: SqliteQueueWrites | undefined;
  readonly #waiting = new Set<Waiter>();
  /** Least recently used first. SQLite prepares a statement again when the schema has changed. */
  readonly #statements = new RecentMap<string, Prepared>(MAX_STATEMENTS);
  #isTaken = false;
  #isClosing = false;
  #whenIdle: (() => void) | undefined;
  /** Until when the current owner may wait for the lock of the file, in `performance.now()` milliseconds. */
  #deadline = 0;

  constructor(database: DatabaseSync, limits: SqliteQueueLimits, writes?: SqliteQueueWrites) {
    this.#database = database;
    this.#limits = limits;
    this.#writes = writes;
  }

  /** Resolves when the caller has the connection exclusively. The caller must release it. */
  acquire(): Promise<ConnectionLease> {
    if (this.#isClosing) return Promise.reject(new Error('the store is closed'));
    const deadline = performance.now() + this.#limits.waitMs;
    if (!this.#isTaken) {
      this.#isTaken = true;
      this.#deadline = deadline;
      return Promise.resolve(this);
    }
    if (this.#waiting.size >= this.#limits.maxWaiting) {
      return Promise.reject(new Error(`the queue for the store is full: ${this.#waiting.size} callers wait`));
    }
    return new Promise((resolve, reject) => {
      const stop = startDeadline(this.#limits.waitMs, () => {
        this.#waiting.delete(waiter);
        reject(new Error(`the connection to the store was not free within ${this.#limits.waitMs} ms`));
      });
      const waiter: Waiter = { deadline, resolve: () => resolve(this), reject, stop };
      this.#waiting.add(waiter);
    });
  }

  release(): void {
    try {
      // The next owner must not inherit a transaction whose end failed.
      if (this.#database.isOpen) this.rollback();
    } finally {
      const [next] = this.#waiting;
      if (next === undefined) {
        this.#isTaken = false;
        this.#whenIdle?.();
      } else {
        this.#waiting.delete(next);
        next.stop();
        this.#deadline = next.deadline;
        next.resolve();
      }
    }
  }

  /** Takes the write lock at once: a transaction that starts with a read could fail to upgrade its lock. */
  async begin(): Promise<void> {
    try {
      this.#writes?.file.check();
      await retryWhileLocked(() => this.#database.exec('begin immediate'), this.#deadline);
    } catch (error) {
      throw this.#failed(error);
    }
  }

  commit(): void {
    try {
      this.#database.exec('commit');
    } catch (error) {
      throw this.#failed(error);
    }
    this.#writes?.state.succeeded();
  }

  rollback(): void {
    // SQLite rolls back by itself after some errors (disk full, I/O).
    if (this.#database.isTransaction) this.#database.exec('rollback');
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const run = () => this.#run<R>(query);
    try {
      // A transaction holds the write lock, and its statements must not be retried individually.
      if (this.#database.isTransaction) return run();
      this.#writes?.file.check();
      const result = await retryWhileLocked(run, this.#deadline);
      this.#writes?.state.succeeded();
      return result;
    } catch (error) {
      throw this.#failed(error);
    }
  }

  streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('queries are not streamed: an open cursor would hold the connection');
  }

  /** Rejects waiting and new callers, waits for the current owner, and closes the connection. */
  async close(): Promise<void> {
    this.#isClosing = true;
    for (const waiter of this.#waiting) {
      waiter.stop();
      waiter.reject(new Error('the store is closed'));
    }
    this.#waiting.clear();
    if (this.#isTaken) {
      await new Promise<void>((resolve) => {
        this.#whenIdle = resolve;
      });
    }
    this.#statements.clear();
    if (this.#database.isOpen) this.#database.close();
  }

  #failed(error: unknown): unknown {
    if (error instanceof Error && makesUnwritable(error)) this.#writes?.state.failed(error, true);
    return withAdvice(error);
  }

  #run<R>(query: CompiledQuery): QueryResult<R> {
    const { statement, returnsRows } = this.#prepare(query.sql);
    const parameters = query.parameters.map(bindable);
    if (returnsRows) {
      // The query builder derives the row type from the query; a driver cannot verify it.
      return { rows: statement.all(...parameters).map((row) => ({ ...row })) as R[] };
    }
    const { changes } = statement.run(...parameters);
    return { rows: [], numAffectedRows: BigInt(changes) };
  }

  #prepare(text: string): Prepared {
    const cached = this.#statements.get(text);
    if (cached !== undefined) {
      this.#statements.set(text, cached);
      return cached;
    }
    const statement = this.#database.prepare(text);
    const prepared = { statement, returnsRows: statement.columns().length > 0 };
    this.#statements.set(text, prepared);
    return prepared;
  }
}

/**
 * Retries `work` while another process holds the lock that it needs.
 *
 * @param deadline in `performance.now()` milliseconds; SQLite's error is thrown when it passes
 */
export async function retryWhileLocked<T>(work: () => T, deadline: number): Promise<T> {
  for (let pause = 1; ; pause = Math.min(pause * 2, MAX_PAUSE_MS)) {
    try {
      return work();
    } catch (error) {
      const left = deadline - performance.now();
      if (!isBusy(error) || left <= 0) throw error;
      // Jitter, so that two processes do not collide repeatedly.
      const wait = Math.min(left, pause * (0.5 + Math.random() / 2));
      await new Promise<void>((resolve) => setTimeout(resolve, wait));
    }
  }
}

/** SQLITE_BUSY (5) and SQLITE_LOCKED (6), with all extended codes, whose low byte is the primary code. */
function isBusy(error: unknown): boolean {
  const code = primaryCode(error);
  return code === 5 || code === 6;
}

/**
 * Whether all other writes would fail too: the lock was held for the whole wait (BUSY, LOCKED), READONLY, IOERR, CORRUPT, FULL,
 * CANTOPEN, NOTADB. A violated constraint does not count.
 */
function makesUnwritable(error: unknown): boolean {
  return error instanceof StoreFileGone || [5, 6, 8, 10, 11, 13, 14, 26].includes(primaryCode(error));
}

function bindable(value: unknown): SQLInputValue {
  if (value === null || value instanceof Uint8Array) return value;
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'bigint') return value;
  throw new TypeError(`a ${typeof value} cannot be stored`);
}
