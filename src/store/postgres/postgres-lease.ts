// The lease of a PostgreSQL connection by one caller, until release or its deadline: the transaction and the deferred statements.
// postgres-pool.ts creates leases.
import type { CompiledQuery, QueryResult } from 'kysely';
import { DatabaseError, type PoolClient, type TypeOverrides } from 'pg';
import { startDeadline } from '../../deadline.ts';
import { isDeferred } from '../sql/deferred-statements.ts';
import type { ConnectionLease } from '../sql/sql-database.ts';
import { Batch, type Statement, type StatementResult } from './postgres-batch.ts';
import { failureOf, LateError } from './postgres-client.ts';

/** Sets the isolation level that the operations need, independent of the server's default. */
const BEGIN: Statement = { text: 'begin isolation level read committed read write', values: [] };
const COMMIT: Statement = { text: 'commit', values: [] };

interface PostgresLeaseOptions {
  readonly types: TypeOverrides;
  /** End of the call, in `performance.now()` milliseconds. */
  readonly deadline: number;
  /** Length of the deadline in milliseconds, for its message. */
  readonly callMs: number;
  /** Maximum wait for one answer of the server, in milliseconds. */
  readonly silenceMs: number;
  /** Called when the statements were executed and committed. */
  readonly onSuccess: () => void;
  readonly onFailure: (error: Error) => void;
}

interface Queued {
  readonly statement: Statement;
  readonly rows: unknown[];
}

export class PostgresLease implements ConnectionLease {
  readonly #client: PoolClient;
  readonly #options: PostgresLeaseOptions;
  readonly #stopDeadline: () => void;
  #state: 'held' | 'broken' | 'late' | 'released' = 'held';
  #late = { afterMs: 0, isSilence: false };
  /** Deferred statements, sent with the next awaited one. */
  #queue: Queued[] = [];
  #transaction: 'none' | 'queued' | 'begun' = 'none';
  // Without an 'error' listener, a connection that breaks between two statements would end the process.
  readonly #onBroken = (): void => {
    if (this.#state === 'held') this.#state = 'broken';
  };

  constructor(client: PoolClient, options: PostgresLeaseOptions) {
    this.#client = client;
    this.#options = options;
    client.on('error', this.#onBroken);
    const left = Math.max(0, options.deadline - performance.now());
    this.#stopDeadline = startDeadline(left, () => this.#onDeadline(options.callMs, false));
  }

  /** Whether the connection is unusable. The server rolls back an open transaction. */
  get isLost(): boolean {
    return this.#state !== 'held';
  }

  /** Queues `begin`, which is sent with the first statement. */
  begin(): void {
    this.#transaction = 'queued';
    this.#queue = [{ statement: BEGIN, rows: [] }];
  }

  async commit(): Promise<void> {
    const isEmpty = this.#transaction === 'queued' && this.#queue.length === 1;
    if (isEmpty) return this.#endTransaction();
    const answer = await this.#flush(COMMIT);
    this.#endTransaction();
    // A commit of a failed transaction succeeds in the protocol, with the tag ROLLBACK.
    if (answer?.command !== 'COMMIT') throw new Error('the database rolled the transaction back');
  }

  async rollback(): Promise<void> {
    const wasSent = this.#transaction === 'begun';
    this.#endTransaction();
    // The earlier error is the one to report. A connection that cannot roll back is not reused.
    if (wasSent && !this.isLost) await this.command('rollback').catch(() => this.#onBroken());
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const statement = { text: query.sql, values: query.parameters };
    if (isDeferred(query) && this.#transaction !== 'none') {
      const rows: R[] = [];
      this.#queue.push({ statement, rows });
      return { rows };
    }
    const answer = await this.#flush(statement);
    // The query builder derives the row type from the query; a driver cannot verify it.
    return { rows: (answer?.rows ?? []) as R[], numAffectedRows: BigInt(answer?.affected ?? 0) };
  }

  /** Runs a statement without parameters. @returns the command tag of the server, such as `COMMIT` */
  async command(text: string): Promise<string> {
    return (await this.#flush({ text, values: [] }))?.command ?? '';
  }

  streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('queries are not streamed: an open cursor would hold the connection');
  }

  release(): void {
    this.#stopDeadline();
    const { isLost } = this;
    if (this.#state === 'held' || this.#state === 'broken') {
      this.#client.removeListener('error', this.#onBroken);
      // The next owner must not inherit an open transaction.
      this.#client.release(isLost || this.#client.getTransactionStatus() !== 'I');
    }
    this.#state = 'released';
  }

  #endTransaction(): void {
    this.#transaction = 'none';
    this.#queue = [];
  }

  /** Sends the queued statements and this one. @returns the result of this one */
  async #flush(last: Statement): Promise<StatementResult | undefined> {
    const queue = this.#queue;
    this.#queue = [];
    if (this.#transaction === 'queued') this.#transaction = 'begun';
    const isDone = this.#transaction === 'none' || last === COMMIT;
    try {
      const answers = await this.#send([...queue.map(({ statement }) => statement), last]);
      for (const [index, { rows }] of queue.entries()) rows.push(...(answers[index]?.rows ?? []));
      if (isDone) this.#options.onSuccess();
      return answers.at(-1);
    } catch (error) {
      // `detail` shows the rejected row, and hashes must not be logged.
      if (error instanceof DatabaseError) error.detail = undefined;
      const failure = this.#isLate() ? this.#lateError(error) : error;
      // A read-only server is the wrong one: the next connection may reach the primary.
      if (['read_only', 'lost'].includes(failureOf(failure))) this.#onBroken();
      if (failure instanceof Error) this.#options.onFailure(failure);
      throw failure;
    }
  }

  async #send(statements: readonly Statement[]): Promise<readonly StatementResult[]> {
    if (this.#isLate()) throw this.#lateError();
    if (this.isLost) throw new Error('the connection to the database was lost');
    const batch = new Batch(statements, this.#options.types);
    const { silenceMs } = this.#options;
    const stop = startDeadline(silenceMs, () => this.#onDeadline(silenceMs, true));
    try {
      this.#client.query(batch);
      return await batch.answers;
    } finally {
      stop();
    }
  }

  #isLate(): boolean {
    return this.#state === 'late';
  }

  /** Closes the connection, which fails a statement that has no answer. */
  #onDeadline(afterMs: number, isSilence: boolean): void {
    if (this.#state === 'released' || this.#state === 'late') return;
    this.#state = 'late';
    this.#late = { afterMs, isSilence };
    this.#client.release(true);
  }

  #lateError(cause?: unknown): LateError {
    const { afterMs, isSilence } = this.#late;
    return new LateError(`the database did not answer within ${afterMs} ms`, isSilence, cause);
  }
}
