// Kysely's dialect over PostgreSQL connections with deadlines (postgres-pool.ts), which the built-in driver does not have.
import {
  type DatabaseConnection,
  type Dialect,
  type Driver,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from 'kysely';
import type { PostgresLease, PostgresPool } from './postgres-pool.ts';

class PoolDriver implements Driver {
  readonly #pool: PostgresPool;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  async init(): Promise<void> {}

  acquireConnection(): Promise<DatabaseConnection> {
    return this.#pool.acquire();
  }

  async releaseConnection(lease: PostgresLease): Promise<void> {
    lease.release();
  }

  async beginTransaction(lease: PostgresLease): Promise<void> {
    lease.begin();
  }

  commitTransaction(lease: PostgresLease): Promise<void> {
    return lease.commit();
  }

  rollbackTransaction(lease: PostgresLease): Promise<void> {
    return lease.rollback();
  }

  destroy(): Promise<void> {
    return this.#pool.close();
  }
}

export class PoolDialect implements Dialect {
  readonly #pool: PostgresPool;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  createDriver(): Driver {
    return new PoolDriver(this.#pool);
  }

  createAdapter(): PostgresAdapter {
    return new PostgresAdapter();
  }

  createQueryCompiler(): PostgresQueryCompiler {
    return new PostgresQueryCompiler();
  }

  createIntrospector(db: Parameters<Dialect['createIntrospector']>[0]): PostgresIntrospector {
    return new PostgresIntrospector(db);
  }
}
