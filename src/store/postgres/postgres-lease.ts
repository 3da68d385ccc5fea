// A PostgreSQL connection in the hands of one caller, until release or until its time is over: the transaction, the statements
// that wait for company, and the deadlines. How a connection is come by is postgres-pool.ts.
import type { CompiledQuery, DatabaseConnection, QueryResult } from 'kysely';
import { DatabaseError, type PoolClient, type TypeOverrides } from 'pg';
import { startDeadline } from '../../deadline.ts';
import { isDeferred } from '../sql/deferred-statements.ts';
import { Batch, type Statement, type StatementResult } from './postgres-batch.ts';
import { failureOf, LateError } from './postgres-client.ts';

/** The level is said, whatever the server's default is: the operations are written for this one. */
const BEGIN: Statement = { text: 'begin isolation level read committed read write', values: [] };
const COMMIT: Statement = { text: 'commit', values: [] };

interface PostgresLeaseOptions {
  readonly types: TypeOverrides;
  /** `performance.now()` when the call is over. */
  readonly deadline: number;
  /** What the deadline was set to, in milliseconds; for its message. */
  readonly callMs: number;
  /** Longest wait for an answer of the server, in milliseconds. */
  readonly silenceMs: number;
  /** What was sent has been done, and committed. */
  readonly onSuccess: () => void;
  readonly onFailure: (error: Error) => void;
}

interface Queued {
  readonly statement: Statement;
  /** Takes the rows. */
  readonly rows: unknown[];
}

export class PostgresLease implements DatabaseConnection {
  readonly #client: PoolClient;
  readonly #options: PostgresLeaseOptions;
  readonly #stopDeadline: () => void;
  #state: 'held' | 'broken' | 'late' | 'released' = 'held';
  #late = { afterMs: 0, isSilence: false };
  /** Sent with the next statement whose answer is awaited. */
  #queue: Queued[] = [];
  #transaction: 'none' | 'queued' | 'begun' = 'none';
  // A client without a listener would end the process when its connection breaks between two statements.
  readonly #broke = (): void => {
    if (this.#state === 'held') this.#state = 'broken';
  };

  constructor(client: PoolClient, options: PostgresLeaseOptions) {
    this.#client = client;
    this.#options = options;
    client.on('error', this.#broke);
    const left = Math.max(0, options.deadline - performance.now());
    this.#stopDeadline = startDeadline(left, () => this.#giveUp(options.callMs, false));
  }

  /** Whether the connection can no longer be used. The server takes back what was not committed. */
  get isLost(): boolean {
    return this.#state !== 'held';
  }

  /** The transaction begins with its first statement, and travels with it. */
  begin(): void {
    this.#transaction = 'queued';
    this.#queue = [{ statement: BEGIN, rows: [] }];
  }

  async commit(): Promise<void> {
    const isEmpty = this.#transaction === 'queued' && this.#queue.length === 1;
    if (isEmpty) return this.#endTransaction();
    const answer = await this.#flush(COMMIT);
    this.#endTransaction();
    // The end of a transaction in which a statement failed is taken for a success by the protocol.
    if (answer?.command !== 'COMMIT') throw new Error('the database took the transaction back');
  }

  async rollback(): Promise<void> {
    const wasSent = this.#transaction === 'begun';
    this.#endTransaction();
    // The error that led here is the one to tell. A connection that cannot roll back is not given to anybody else.
    if (wasSent && !this.isLost) await this.command('rollback').catch(() => this.#broke());
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const statement = { text: query.sql, values: query.parameters };
    if (isDeferred(query) && this.#transaction !== 'none') {
      const rows: R[] = [];
      this.#queue.push({ statement, rows });
      return { rows };
    }
    const answer = await this.#flush(statement);
    // The type of a row is what the query builder derived from the query; a driver can only promise it.
    return { rows: (answer?.rows ?? []) as R[], numAffectedRows: BigInt(answer?.affected ?? 0) };
  }

  /** Runs a statement without parameters and returns what the server says it did, `COMMIT` say. */
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
      this.#client.removeListener('error', this.#broke);
      // A transaction that is still open must not become the next owner's.
      this.#client.release(isLost || this.#client.getTransactionStatus() !== 'I');
    }
    this.#state = 'released';
  }

  #endTransaction(): void {
    this.#transaction = 'none';
    this.#queue = [];
  }

  /** Sends what is queued and this statement, and resolves with the answer to it. */
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
      // The server shows the row that it refuses, and hashes are to be in no log.
      if (error instanceof DatabaseError) error.detail = undefined;
      const failure = this.#isLate() ? this.#tooLate(error) : error;
      // A server that takes no writes is the wrong server: the next connection may find the right one.
      if (['read_only', 'lost'].includes(failureOf(failure))) this.#broke();
      if (failure instanceof Error) this.#options.onFailure(failure);
      throw failure;
    }
  }

  async #send(statements: readonly Statement[]): Promise<readonly StatementResult[]> {
    if (this.#isLate()) throw this.#tooLate();
    if (this.isLost) throw new Error('the connection to the database is lost');
    const batch = new Batch(statements, this.#options.types);
    const { silenceMs } = this.#options;
    const stop = startDeadline(silenceMs, () => this.#giveUp(silenceMs, true));
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

  /** Closes the connection under a statement that has no answer, which thereby fails. */
  #giveUp(afterMs: number, isSilence: boolean): void {
    if (this.#state === 'released' || this.#state === 'late') return;
    this.#state = 'late';
    this.#late = { afterMs, isSilence };
    this.#client.release(true);
  }

  #tooLate(cause?: unknown): LateError {
    const { afterMs, isSilence } = this.#late;
    return new LateError(`the database did not answer within ${afterMs} ms`, isSilence, cause);
  }
}
