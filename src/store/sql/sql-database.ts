// What a database has to bring for the queries in this folder: connections that one caller leases at a time, and the few
// expressions in which SQL databases differ.
import {
  type DatabaseConnection,
  type Dialect,
  Kysely,
  type RawBuilder,
  sql,
  type Transaction,
} from 'kysely';
import type { Tables } from '../schema/tables.ts';

/** A connection that one caller has exclusively until release. */
export interface ConnectionLease extends DatabaseConnection {
  begin(): void | Promise<void>;
  commit(): void | Promise<void>;
  rollback(): void | Promise<void>;
  release(): void;
}

interface LeaseSource {
  acquire(): Promise<ConnectionLease>;
  close(): Promise<void>;
}

/** A query builder over leased connections. Kysely's own drivers have neither bounds nor deadlines. */
export function kyselyOn<Schema = Tables>(
  source: LeaseSource,
  dialect: Omit<Dialect, 'createDriver'>,
): Kysely<Schema> {
  const createDriver = () => ({
    init: async () => {},
    acquireConnection: () => source.acquire(),
    beginTransaction: async (lease: ConnectionLease) => lease.begin(),
    commitTransaction: async (lease: ConnectionLease) => lease.commit(),
    rollbackTransaction: async (lease: ConnectionLease) => lease.rollback(),
    releaseConnection: async (lease: ConnectionLease) => lease.release(),
    destroy: () => source.close(),
  });
  return new Kysely({ dialect: { ...dialect, createDriver } });
}

/**
 * Locks the change feed until the end of the transaction. Events are inserted under this lock, so that their ids become
 * visible in ascending order.
 */
export type LockChangeFeed = (trx: Transaction<Tables>) => Promise<void>;

export interface SqlDatabase {
  readonly reader: Kysely<Tables>;
  readonly writer: Kysely<Tables>;
  /** A table expression named `e` with one row for each element of a JSON array, in a column `value`. */
  readonly elementsOf: (json: string) => RawBuilder<unknown>;
  /** Whether a statement is cheap and its parameters are too, so that many rows are not read from `elementsOf`. */
  readonly bindsRows: boolean;
  /** Whether streams of a merge need an order and a limit of their own, with which others sort them. */
  readonly ordersStreams: boolean;
  readonly lockChangeFeed: LockChangeFeed;
  /** What follows a query whose rows no other transaction may change until the end of this one. */
  readonly forShare: RawBuilder<unknown>;
  /** What follows an expression of text that is compared by bytes, as in `SqlTypes`. */
  readonly byBytes: RawBuilder<unknown>;
  /** As in `SqlTypes`. */
  readonly hash: (text: string) => string;
  /** Whether a transaction failed because the prefix of its new key is taken. */
  readonly isPrefixTaken: (error: Error) => boolean;
}

/** A query of these texts. They are one parameter, so the statement is the same for any number of them. */
export function queryOfTexts(
  { elementsOf }: Pick<SqlDatabase, 'elementsOf'>,
  texts: readonly string[],
): RawBuilder<unknown> {
  const elements = elementsOf(JSON.stringify(texts.map((text) => [text])));
  return sql`select cast(e.value ->> 0 as text) from ${elements} where true`;
}

class Rollback extends Error {}

/** The body of a transaction. Throwing `rollBack(result)` rolls back and returns that result. */
type Work<T> = (trx: Transaction<Tables>, rollBack: (result: T) => Error) => Promise<T>;

export async function transact<T>({ writer }: Pick<SqlDatabase, 'writer'>, work: Work<T>): Promise<T> {
  const results: T[] = [];
  const rollBack = (result: T) => {
    results.push(result);
    return new Rollback();
  };
  try {
    const run = () => writer.transaction().execute((trx) => work(trx, rollBack));
    // Another transaction removed, or used, a record between two statements of this one: once more, its reads find that.
    return await run().catch((error: unknown) => {
      if (!isForeignKeyViolation(error)) throw error;
      return run();
    });
  } catch (error) {
    const [result] = results;
    if (error instanceof Rollback && result !== undefined) return result;
    throw error;
  }
}

/** Of PostgreSQL; in SQLite nothing is written between the statements of a transaction. */
function isForeignKeyViolation(error: unknown): boolean {
  return error instanceof Error && Reflect.get(error, 'code') === '23503';
}

/** A transaction that stores a key, whose prefix a concurrent one may take first. */
export async function transactWithKey<T>(
  database: SqlDatabase,
  work: Work<T>,
): Promise<T | { readonly kind: 'prefix_taken' }> {
  try {
    return await transact(database, work);
  } catch (error) {
    if (error instanceof Error && database.isPrefixTaken(error)) return { kind: 'prefix_taken' };
    throw error;
  }
}

/**
 * Deletes rows that are older than a time, the oldest first and at most `limit`.
 * @param key columns of the primary key
 * @param age column that has the time
 * @returns the number deleted
 */
export async function deleteBefore(
  db: Kysely<Tables>,
  table: keyof Tables,
  key: readonly string[],
  age: string,
  before: string,
  limit: number,
): Promise<number> {
  const [from, at] = [sql.table(table), sql.ref(age)];
  const columns = sql.join(key.map((name) => sql.ref(name)));
  const { numAffectedRows } = await sql`delete from ${from} where (${columns}) in (
    select ${columns} from ${from} where ${at} < ${before} order by ${at} limit ${sql.lit(limit)})`.execute(
    db,
  );
  return Number(numAffectedRows ?? 0);
}
