// Pipelines several statements in one round trip to PostgreSQL, before one Sync of the extended protocol. When one fails, the
// server skips the rest, so a commit at the end of a batch commits all or nothing, and nothing after a failed `begin` runs.
import type { Connection, CustomTypesConfig, FieldDef, Submittable } from 'pg';

export interface Statement {
  readonly text: string;
  readonly values: readonly unknown[];
}

export interface StatementResult {
  readonly rows: Record<string, unknown>[];
  /** The command tag of the server: `COMMIT`, `UPDATE`. */
  command: string;
  affected: number;
}

type Parser = (text: string) => unknown;

/** For single use: submit it with `client.query`, then await `answers`. */
export class Batch implements Submittable {
  readonly #statements: readonly { readonly text: string; readonly values: (Buffer | string | null)[] }[];
  readonly #types: CustomTypesConfig;
  readonly #answers: StatementResult[] = [];
  #current: StatementResult = newAnswer();
  #columns: readonly { readonly name: string; readonly parse: Parser }[] = [];
  #parseError: unknown;
  readonly #answered = Promise.withResolvers<readonly StatementResult[]>();
  /** One result per statement, in order. Rejects with the first error. */
  readonly answers = this.#answered.promise;

  /** @throws TypeError for a value that cannot be stored */
  constructor(statements: readonly Statement[], types: CustomTypesConfig) {
    this.#statements = statements.map(({ text, values }) => ({ text, values: values.map(parameter) }));
    this.#types = types;
  }

  // pg's client calls the methods below with the messages of the server for its current query.

  submit(connection: Connection): void {
    const { stream } = connection;
    stream.cork();
    try {
      for (const { text, values } of this.#statements) {
        connection.parse({ name: '', text, types: [] }, true);
        connection.bind({ values }, true);
        connection.describe({ type: 'P' }, true);
        connection.execute(null, true);
      }
      connection.sync();
    } finally {
      stream.uncork();
    }
  }

  handleRowDescription({ fields }: { readonly fields: readonly FieldDef[] }): void {
    this.#columns = fields.map(({ name, dataTypeID }) => ({
      name,
      parse: this.#types.getTypeParser(dataTypeID, 'text'),
    }));
  }

  handleDataRow({ fields }: { readonly fields: readonly (string | null)[] }): void {
    const row: Record<string, unknown> = {};
    try {
      for (const [index, { name, parse }] of this.#columns.entries()) {
        const text = fields[index] ?? null;
        row[name] = text === null ? null : parse(text);
      }
      this.#current.rows.push(row);
    } catch (error) {
      this.#parseError ??= error;
    }
  }

  handleCommandComplete({ text }: { readonly text: string }): void {
    // `INSERT 0 5`, `UPDATE 3`, `COMMIT`
    this.#current.command = /^[A-Z ]*[A-Z]/.exec(text)?.[0] ?? text;
    this.#current.affected = Number(/\d+$/.exec(text)?.[0] ?? 0);
    this.#answers.push(this.#current);
    this.#current = newAnswer();
    this.#columns = [];
  }

  handleEmptyQuery(): void {
    this.handleCommandComplete({ text: '' });
  }

  handlePortalSuspended(): void {}

  handleError(error: unknown): void {
    this.#answered.reject(error);
  }

  handleReadyForQuery(): void {
    if (this.#parseError === undefined) this.#answered.resolve(this.#answers);
    else this.#answered.reject(this.#parseError);
  }
}

function newAnswer(): StatementResult {
  return { rows: [], command: '', affected: 0 };
}

function parameter(value: unknown): Buffer | string | null {
  if (value === null) return null;
  if (Buffer.isBuffer(value)) return value;
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (typeof value === 'string') return value;
  if (typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean')
    return String(value);
  throw new TypeError(`a ${typeof value} cannot be stored`);
}
