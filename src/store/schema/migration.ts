// One schema migration for both databases. Released migrations are immutable.
export interface Migration {
  readonly id: number;
  readonly name: string;
  /** One SQL statement per entry, because a prepared statement cannot contain several. */
  readonly sqlite: readonly string[];
  readonly postgres: readonly string[];
}
