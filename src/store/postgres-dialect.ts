// Kysely's dialect over PostgreSQL connections with a deadline (postgres-pool.ts), which the built-in driver does not have.
import {
  type DatabaseConnection,
  type Dialect,
  type Driver,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from 'kysely';
import type { Lease, PostgresPool } from './postgres-pool.ts';

/** The level is said, whatever the server's default is: the operations are written for this one. */
const BEGIN = 'begin isolation level read committed read write';

class PoolDriver implements Driver {
  readonly #pool: PostgresPool;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  async init(): Promise<void> {}

  acquireConnection(): Promise<DatabaseConnection> {
    return this.#pool.acquire();
  }

  async releaseConnection(lease: Lease): Promise<void> {
    lease.release();
  }

  async beginTransaction(lease: Lease): Promise<void> {
    await lease.command(BEGIN);
  }

  async commitTransaction(lease: Lease): Promise<void> {
    // The end of a transaction in which a statement failed is taken for a success by the protocol.
    if ((await lease.command('commit')) !== 'COMMIT')
      throw new Error('the database took the transaction back');
  }

  async rollbackTransaction(lease: Lease): Promise<void> {
    // The error that led here is the one to tell. A connection that cannot roll back is not given to anybody else.
    if (!lease.isLost) await lease.command('rollback').catch(() => {});
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
