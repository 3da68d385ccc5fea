// Kysely's dialect over node:sqlite: what differs from the built-in one is that the connection is given to one caller at
// a time (sqlite-queue.ts) and that a transaction begins with the write lock.
import {
  type DatabaseConnection,
  type Dialect,
  type Driver,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely';
import type { SqliteQueue } from './sqlite-queue.ts';

/** Kysely's own mutex has neither a bound nor a deadline; the lane has both, so the mutex is turned off. */
class LaneAdapter extends SqliteAdapter {
  override get supportsMultipleConnections(): boolean {
    return true;
  }
}

class LaneDriver implements Driver {
  readonly #lane: SqliteQueue;

  constructor(lane: SqliteQueue) {
    this.#lane = lane;
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<DatabaseConnection> {
    await this.#lane.acquire();
    return this.#lane;
  }

  async releaseConnection(): Promise<void> {
    this.#lane.release();
  }

  async beginTransaction(): Promise<void> {
    await this.#lane.begin();
  }

  async commitTransaction(): Promise<void> {
    this.#lane.commit();
  }

  async rollbackTransaction(): Promise<void> {
    this.#lane.rollback();
  }

  async destroy(): Promise<void> {
    await this.#lane.close();
  }
}

export class SqliteDialect implements Dialect {
  readonly #lane: SqliteQueue;

  constructor(lane: SqliteQueue) {
    this.#lane = lane;
  }

  createDriver(): Driver {
    return new LaneDriver(this.#lane);
  }

  createAdapter(): LaneAdapter {
    return new LaneAdapter();
  }

  createQueryCompiler(): SqliteQueryCompiler {
    return new SqliteQueryCompiler();
  }

  createIntrospector(db: Parameters<Dialect['createIntrospector']>[0]): SqliteIntrospector {
    return new SqliteIntrospector(db);
  }
}
