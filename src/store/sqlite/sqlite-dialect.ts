// Kysely's dialect over node:sqlite. Unlike the built-in one, it leases the connection to one caller at a time
// (sqlite-queue.ts), and a transaction begins with the write lock.
import {
  type DatabaseConnection,
  type Dialect,
  type Driver,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely';
import type { SqliteQueue } from './sqlite-queue.ts';

/** Turns off Kysely's own mutex, which has neither a bound nor a deadline; the queue has both. */
class QueueAdapter extends SqliteAdapter {
  override get supportsMultipleConnections(): boolean {
    return true;
  }
}

class QueueDriver implements Driver {
  readonly #queue: SqliteQueue;

  constructor(queue: SqliteQueue) {
    this.#queue = queue;
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<DatabaseConnection> {
    await this.#queue.acquire();
    return this.#queue;
  }

  async releaseConnection(): Promise<void> {
    this.#queue.release();
  }

  async beginTransaction(): Promise<void> {
    await this.#queue.begin();
  }

  async commitTransaction(): Promise<void> {
    this.#queue.commit();
  }

  async rollbackTransaction(): Promise<void> {
    this.#queue.rollback();
  }

  async destroy(): Promise<void> {
    await this.#queue.close();
  }
}

export class SqliteDialect implements Dialect {
  readonly #queue: SqliteQueue;

  constructor(queue: SqliteQueue) {
    this.#queue = queue;
  }

  createDriver(): Driver {
    return new QueueDriver(this.#queue);
  }

  createAdapter(): QueueAdapter {
    return new QueueAdapter();
  }

  createQueryCompiler(): SqliteQueryCompiler {
    return new SqliteQueryCompiler();
  }

  createIntrospector(db: Parameters<Dialect['createIntrospector']>[0]): SqliteIntrospector {
    return new SqliteIntrospector(db);
  }
}
