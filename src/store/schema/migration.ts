// One step of the schema, for both kinds of database. A step is never edited once released.
export interface Migration {
  readonly id: number;
  readonly name: string;
  /** One statement each: a prepared statement holds no second one. */
  readonly sqlite: readonly string[];
  readonly postgres: readonly string[];
}
