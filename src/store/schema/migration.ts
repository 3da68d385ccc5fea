// One schema migration, and what a database brings to it. Released migrations are immutable.
import type { Kysely, Transaction } from 'kysely';
import type { Tables } from './tables.ts';

/** The words of a database for the definitions of tables. */
export interface SqlTypes {
  /** Text that is compared by bytes. Plain `text` is for columns that are neither sorted nor part of a key. */
  readonly text: string;
  /** Of 64 bits. */
  readonly integer: string;
  /** A primary key whose values only grow. */
  readonly id: string;
  /** A primary key with the values of another table's. */
  readonly key: string;
  readonly bytes: string;
  /** The function that counts bytes. */
  readonly byteLength: string;
  readonly isPrefix: (column: string) => string;
  readonly isDay: (column: string) => string;
  readonly isHour: (column: string) => string;
  /** What follows an expression of text in an index that compares bytes. */
  readonly byBytes: string;
  /** A number from 0, of the bytes or characters of an expression of text: at least of its length and its last eight. */
  readonly hash: (text: string) => string;
  /** What follows the columns of a table with a column `id` or `seq`; `keyedTable` of one that is stored by another key. */
  readonly table: string;
  readonly keyedTable: string;
}

export interface Migration {
  readonly id: number;
  readonly name: string;
  /** One SQL statement per entry, because a prepared statement cannot contain several. */
  readonly statements: (types: SqlTypes) => readonly string[];
}

/** The differences between the databases for migrations. */
export interface MigrationDialect {
  readonly types: SqlTypes;
  /** Statements that a migration needs in this database alone, by its id. They run after the common ones. */
  readonly statements: Readonly<Record<number, readonly string[]>>;
  /** Existing tables in Tollgate's schema, with their columns, because other programs may use the same table names. */
  tables(db: Kysely<Tables>): Promise<ReadonlyMap<string, readonly string[]>>;
  /** Locks out other migrating processes until the end of the transaction. */
  lock(trx: Transaction<Tables>): Promise<void>;
  /** What keeps tables as they are while rows are made from them: statements, and the end of a query of these tables. */
  readonly fillLocks: readonly string[];
  readonly forShare: (tables: string) => string;
}

/** Columns of an order that never change; triggers hold them. */
export const ORDER_TERMS = [
  'id',
  'tier',
  'price',
  'amount',
  'currency',
  'mode',
  '"interval"',
  'provider',
  'is_live',
  'claim',
  'nonce',
  'base_tier',
  'created_at',
];
