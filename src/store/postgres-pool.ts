// Connections to a PostgreSQL server, and the deadline of whoever has one. It knows no table.
//
// A server may be away, paused, overloaded or behind a network that swallows everything. Its own timeouts end what it can
// still end; the deadline here ends the rest: it runs from the moment the caller asked for a connection, covers all that the
// caller does with it, and closes a connection on which nothing came, so that nobody gets it next.
import { Socket } from 'node:net';
import type { CompiledQuery, DatabaseConnection, QueryResult } from 'kysely';
import { DatabaseError, Pool, type PoolClient, type PoolConfig, TypeOverrides } from 'pg';

/** Where the server is and who asks; `options` are PostgreSQL's own, as `-c name=value`. */
export type PostgresServer = Readonly<
  Pick<PoolConfig, 'host' | 'port' | 'user' | 'database' | 'password' | 'ssl' | 'options'>
>;

export interface PoolLimits {
  readonly connections: number;
  /** Most callers that wait for a connection. */
  readonly maxWaiting: number;
  /** Longest wait for a connection, in milliseconds. */
  readonly connectMs: number;
  /** Longest time from asking for a connection to giving it back, in milliseconds. */
  readonly callMs: number;
  /** The server ends a statement after this time; it is to be the first to give up, and its connection remains usable. */
  readonly statementMs: number;
  /** The server ends a wait for a lock after this time. */
  readonly lockMs: number;
}

/** Closes itself when unused, so that an address that moved is found, and a firewall that forgot it does no harm. */
const IDLE_MS = 30_000;
const LIFETIME_S = 1800;
/** The server ends a transaction in which nothing happens: a process that stopped would keep all others from writing. */
const IDLE_IN_TRANSACTION_MS = 1000;
/** How long a connection may take to say goodbye. */
const FAREWELL_MS = 500;

const INT8 = 20;

export class PostgresPool {
  readonly #pool: Pool;
  readonly #limits: PoolLimits;
  readonly #sockets = new Set<Socket>();
  #closing: Promise<void> | undefined;

  /** Connects when the first caller comes. */
  constructor(server: PostgresServer, limits: PoolLimits) {
    this.#limits = limits;
    const types = new TypeOverrides();
    types.setTypeParser(INT8, safeInteger);
    this.#pool = new Pool({
      ...server,
      types,
      application_name: 'tollgate',
      max: limits.connections,
      connectionTimeoutMillis: limits.connectMs,
      statement_timeout: limits.statementMs,
      lock_timeout: limits.lockMs,
      idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
      idleTimeoutMillis: IDLE_MS,
      maxLifetimeSeconds: LIFETIME_S,
      keepAlive: true,
      keepAliveInitialDelayMillis: 10_000,
      stream: () => this.#socket(),
    });
    // A connection that broke while nobody had it: the pool has dropped it, and without a listener the process would end.
    this.#pool.on('error', () => {});
    // One that the server ends in the same breath in which it let it in: nobody listens yet, and the process would end too.
    this.#pool.on('connect', (client) => client.on('error', () => {}));
  }

  /** Resolves with a connection that the caller has alone until release. Rejects by `connectMs`. */
  async acquire(): Promise<Lease> {
    if (this.#closing !== undefined) throw new Error('the store is closed');
    const { maxWaiting, callMs } = this.#limits;
    if (this.#pool.waitingCount >= maxWaiting) {
      throw new Error(`${maxWaiting} callers wait for the store already`);
    }
    const deadline = performance.now() + callMs;
    const client = await this.#pool.connect();
    return new Lease(client, deadline, callMs);
  }

  /** Refuses who comes, lets those who have a connection finish, and closes all. */
  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  async #end(): Promise<void> {
    const cut = () => {
      for (const socket of this.#sockets) socket.destroy();
    };
    const last = setTimeout(cut, this.#limits.callMs + FAREWELL_MS);
    await this.#pool.end();
    clearTimeout(last);
    // The pool has said goodbye on each connection; a server that does not answer is not waited for.
    const late = setTimeout(cut, FAREWELL_MS);
    await Promise.all([...this.#sockets].map((socket) => new Promise((done) => socket.once('close', done))));
    clearTimeout(late);
  }

  #socket(): Socket {
    const socket = new Socket();
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    // After our end of the connection is closed, a server that is silent would leave the other one open for ever.
    socket.once('finish', () => setTimeout(() => socket.destroy(), FAREWELL_MS).unref());
    return socket;
  }
}

/** A connection in the hands of one caller, until release or until its time is over. */
export class Lease implements DatabaseConnection {
  readonly #client: PoolClient;
  readonly #callMs: number;
  readonly #timer: NodeJS.Timeout;
  #state: 'held' | 'broken' | 'late' | 'released' = 'held';
  // A client without a listener would end the process when its connection breaks between two statements.
  readonly #broke = (): void => {
    if (this.#state === 'held') this.#state = 'broken';
  };

  constructor(client: PoolClient, deadline: number, callMs: number) {
    this.#client = client;
    this.#callMs = callMs;
    client.on('error', this.#broke);
    this.#timer = setTimeout(() => this.#giveUp(), Math.max(0, deadline - performance.now()));
  }

  /** Whether the connection can no longer be used. The server takes back what was not committed. */
  get isLost(): boolean {
    return this.#state !== 'held';
  }

  async executeQuery<R>({ sql, parameters }: CompiledQuery): Promise<QueryResult<R>> {
    const { rows, rowCount } = await this.#ask<R>(sql, parameters);
    return { rows, numAffectedRows: BigInt(rowCount ?? 0) };
  }

  /** Runs a statement without parameters and returns what the server says it did, `COMMIT` say. */
  async command(text: string): Promise<string> {
    return (await this.#ask(text, [])).command;
  }

  streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('queries are not streamed: an open cursor would hold the connection');
  }

  release(): void {
    clearTimeout(this.#timer);
    const { isLost } = this;
    if (this.#state === 'held' || this.#state === 'broken') {
      this.#client.removeListener('error', this.#broke);
      // A transaction that is still open must not become the next owner's.
      this.#client.release(isLost || this.#client.getTransactionStatus() !== 'I');
    }
    this.#state = 'released';
  }

  async #ask<R>(text: string, values: readonly unknown[]) {
    if (this.#isLate()) throw this.#tooLate();
    if (this.isLost) throw new Error('the connection to the database is lost');
    try {
      return await this.#client.query<object & R>(text, [...values]);
    } catch (error) {
      // The server shows the row that it refuses, and hashes are to be in no log.
      if (error instanceof DatabaseError) error.detail = undefined;
      if (this.#isLate()) throw this.#tooLate(error);
      // A server that became a read-only one is the wrong server: the next connection may find the right one.
      if (!(error instanceof DatabaseError) || error.code === '25006') this.#broke();
      throw error;
    }
  }

  #isLate(): boolean {
    return this.#state === 'late';
  }

  /** Closes the connection under a statement that has no answer, which thereby fails. */
  #giveUp(): void {
    if (this.#state === 'released') return;
    this.#state = 'late';
    this.#client.release(true);
  }

  #tooLate(cause?: unknown): Error {
    return new Error(`the database did not answer within ${this.#callMs} ms`, { cause });
  }
}

function safeInteger(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`${text} is too large for an id`);
  return value;
}
