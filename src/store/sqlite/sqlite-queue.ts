// One SQLite connection and the queue before it. It knows no table.
//
// SQLite answers synchronously, so what needs care is what lies between two statements. Kysely hands the same connection
// to everybody; a query that slipped between two statements of somebody's transaction would see rows that may never be
// committed. Here whoever acquired the connection has it alone until release, and readers have a connection of their own.
// Nothing blocks the event loop while another process holds the lock of the file: SQLite's own busy timeout is off, and
// the wait is a timer between tries, with a deadline that runs from the moment the caller joined the queue.

import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
import type { CompiledQuery, DatabaseConnection, QueryResult } from 'kysely';
import { startDeadline } from '../../deadline.ts';
import { RecentMap } from '../../recent-map.ts';
import type { WriteState } from '../write-state.ts';
import { type SqliteFile, StoreFileGone } from './sqlite-file.ts';

/** Of a connection that writes. */
interface SqliteQueueWrites {
  /** Hears what writes come to. */
  readonly state: Pick<WriteState, 'succeeded' | 'failed'>;
  /** Is checked before each write. */
  readonly file: Pick<SqliteFile, 'check'>;
}

export interface SqliteQueueLimits {
  /** Longest time in the queue and in waiting for the file's lock together, in milliseconds. */
  readonly waitMs: number;
  /** Most callers in the queue. */
  readonly maxWaiting: number;
}

const MAX_STATEMENTS = 64;
const MAX_PAUSE_MS = 25;

interface Waiter {
  readonly deadline: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
  /** Ends the wait. */
  readonly stop: () => void;
}

interface Prepared {
  readonly statement: StatementSync;
  /** Whether running it yields rows. */
  readonly yields: boolean;
}

export class SqliteQueue implements DatabaseConnection {
  readonly #database: DatabaseSync;
  readonly #limits: SqliteQueueLimits;
  readonly #writes: SqliteQueueWrites | undefined;
  readonly #waiting = new Set<Waiter>();
  /** In order of last use; SQLite itself prepares a statement again when the schema has changed. */
  readonly #statements = new RecentMap<string, Prepared>(MAX_STATEMENTS);
  #taken = false;
  #closing = false;
  #whenIdle: (() => void) | undefined;
  /** `performance.now()` until when the present owner may wait for the lock of the file. */
  #deadline = 0;

  constructor(database: DatabaseSync, limits: SqliteQueueLimits, writes?: SqliteQueueWrites) {
    this.#database = database;
    this.#limits = limits;
    this.#writes = writes;
  }

  /** Resolves when the caller has the connection alone. Whoever acquired must release. */
  acquire(): Promise<void> {
    if (this.#closing) return Promise.reject(new Error('the store is closed'));
    const deadline = performance.now() + this.#limits.waitMs;
    if (!this.#taken) {
      this.#taken = true;
      this.#deadline = deadline;
      return Promise.resolve();
    }
    if (this.#waiting.size >= this.#limits.maxWaiting) {
      return Promise.reject(new Error(`${this.#waiting.size} callers wait for the store already`));
    }
    return new Promise((resolve, reject) => {
      const stop = startDeadline(this.#limits.waitMs, () => {
        this.#waiting.delete(waiter);
        reject(new Error(`the store was not free within ${this.#limits.waitMs} ms`));
      });
      const waiter: Waiter = { deadline, resolve, reject, stop };
      this.#waiting.add(waiter);
    });
  }

  release(): void {
    try {
      // A transaction whose end failed must not become the next owner's.
      if (this.#database.isOpen) this.rollback();
    } finally {
      const [next] = this.#waiting;
      if (next === undefined) {
        this.#taken = false;
        this.#whenIdle?.();
      } else {
        this.#waiting.delete(next);
        next.stop();
        this.#deadline = next.deadline;
        next.resolve();
      }
    }
  }

  /** Takes the write lock at once: a transaction that began reading could find it taken when it comes to write. */
  async begin(): Promise<void> {
    try {
      this.#writes?.file.check();
      await whenFree(() => this.#database.exec('begin immediate'), this.#deadline);
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
    // SQLite has rolled back by itself after some errors (disk full, I/O).
    if (this.#database.isTransaction) this.#database.exec('rollback');
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const run = () => this.#run<R>(query);
    try {
      // Inside a transaction the write lock is held, and a single statement must not be tried again on its own.
      if (this.#database.isTransaction) return run();
      this.#writes?.file.check();
      const result = await whenFree(run, this.#deadline);
      this.#writes?.state.succeeded();
      return result;
    } catch (error) {
      throw this.#failed(error);
    }
  }

  streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('queries are not streamed: an open cursor would hold the connection');
  }

  /** Refuses everybody who waits or comes, lets the present owner finish, and closes the connection. */
  async close(): Promise<void> {
    this.#closing = true;
    for (const waiter of this.#waiting) {
      waiter.stop();
      waiter.reject(new Error('the store is closed'));
    }
    this.#waiting.clear();
    if (this.#taken) {
      await new Promise<void>((resolve) => {
        this.#whenIdle = resolve;
      });
    }
    this.#statements.clear();
    if (this.#database.isOpen) this.#database.close();
  }

  #failed(error: unknown): unknown {
    if (error instanceof Error && makesUnwritable(error)) this.#writes?.state.failed(error, true);
    return error;
  }

  #run<R>(query: CompiledQuery): QueryResult<R> {
    const { statement, yields } = this.#prepare(query.sql);
    const parameters = query.parameters.map(bindable);
    if (yields) {
      // The type of a row is what the query builder derived from the query; a driver can only promise it.
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
    const prepared = { statement, yields: statement.columns().length > 0 };
    this.#statements.set(text, prepared);
    return prepared;
  }
}

/**
 * Runs `work` until no other process holds the lock that it needs.
 *
 * @param deadline in `performance.now()` milliseconds; SQLite's error is thrown when it passes
 */
export async function whenFree<T>(work: () => T, deadline: number): Promise<T> {
  for (let pause = 1; ; pause = Math.min(pause * 2, MAX_PAUSE_MS)) {
    try {
      return work();
    } catch (error) {
      const left = deadline - performance.now();
      if (!isBusy(error) || left <= 0) throw error;
      // Between half of the pause and all of it, so that two processes do not meet again and again.
      const wait = Math.min(left, pause * (0.5 + Math.random() / 2));
      await new Promise<void>((resolve) => setTimeout(resolve, wait));
    }
  }
}

/** SQLITE_BUSY (5) and SQLITE_LOCKED (6) in all their extended forms, whose low byte is the primary code. */
function isBusy(error: unknown): boolean {
  const code = primaryCode(error);
  return code === 5 || code === 6;
}

/**
 * Whether no other write would work either: the lock was held for the whole wait (BUSY, LOCKED), READONLY, IOERR, CORRUPT, FULL,
 * CANTOPEN, NOTADB. A statement that breaks a constraint says nothing about the file.
 */
function makesUnwritable(error: unknown): boolean {
  return error instanceof StoreFileGone || [5, 6, 8, 10, 11, 13, 14, 26].includes(primaryCode(error));
}

/** SQLite's result code without its extension; 0 of an error that is not SQLite's. */
export function primaryCode(error: unknown): number {
  if (!(error instanceof Error) || !('errcode' in error) || typeof error.errcode !== 'number') return 0;
  return error.errcode & 0xff;
}

function bindable(value: unknown): SQLInputValue {
  if (value === null || value instanceof Uint8Array) return value;
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'bigint') return value;
  throw new TypeError(`a ${typeof value} cannot be stored`);
}
