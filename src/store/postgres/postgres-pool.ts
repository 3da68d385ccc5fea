// Connections to a PostgreSQL server, and the deadlines of their users. It knows no table.
//
// A server may be away, paused, overloaded or behind a network that swallows everything. Its own timeouts end what it can
// still end; the deadlines here (postgres-lease.ts) end the rest: they run from the moment the caller asked for a connection,
// cover all that the caller does with it, and close a connection on which nothing came, so that no other caller gets it.
//
// A server may also be the wrong one: after a failover the address of the store may lead to a standby for a while. A
// connection to a server that takes no writes is not kept, and one such answer makes all others suspect.
import { Socket } from 'node:net';
import { Pool, type PoolClient, type PoolConfig, TypeOverrides } from 'pg';
import { withDeadline } from '../../deadline.ts';
import type { WriteState } from '../write-state.ts';
import { failureOf, LateError, ReadOnlyServerError, ServerClient } from './postgres-client.ts';
import { PostgresLease } from './postgres-lease.ts';

export type { PostgresLease };

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
  /** Longest wait for one answer of the server, in milliseconds. Default: `callMs`. */
  readonly silenceMs?: number;
  /** The server ends a statement after this time; it is to be the first to give up, and its connection remains usable. */
  readonly statementMs: number;
  /** The server ends a wait for a lock after this time. */
  readonly lockMs: number;
  /**
   * The server ends a transaction in which nothing happens after this time, by default 1 s: a process that stopped would keep all
   * others from writing. It has to be longer than the way to the server and back.
   */
  readonly idleInTransactionMs?: number;
}

/** What the pools of one store have in common. */
interface PoolShared {
  /** When the server was last left. */
  readonly departure: Departure;
  /** Of a pool for writes: hears what they come to. */
  readonly writes?: Pick<WriteState, 'succeeded' | 'failed'>;
}

/** Connections that were begun before the server was left are not used again, in any pool. */
export class Departure {
  #at = Number.NEGATIVE_INFINITY;

  /** At most once a second: while no server can be written, reads are to keep their connections for that long. */
  leave(): void {
    const now = performance.now();
    if (now - this.#at > SUSPECT_MS) this.#at = now;
  }

  isBefore(client: ServerClient): boolean {
    return client.begunAt > this.#at;
  }
}

/** Closes itself when unused, so that an address that moved is found, and a firewall that forgot it does no harm. */
const IDLE_MS = 30_000;
const LIFETIME_S = 1800;
const IDLE_IN_TRANSACTION_MS = 1000;
/** A connection may be made for longer than its first caller waits: the next one finds it. */
const CONNECT_MS = 5000;
/** How long reads use a connection to a server that takes no writes. */
const SUSPECT_MS = 1000;
/** How long a connection may take to say goodbye. */
const FAREWELL_MS = 500;

const INT8 = 20;

export class PostgresPool {
  readonly #pool: Pool;
  readonly #limits: PoolLimits;
  readonly #shared: PoolShared;
  readonly #types = new TypeOverrides();
  readonly #sockets = new Set<Socket>();
  #waiting = 0;
  #closing: Promise<void> | undefined;

  /** Connects when the first caller comes. */
  constructor(
    server: PostgresServer,
    limits: PoolLimits,
    shared: PoolShared = { departure: new Departure() },
  ) {
    this.#limits = limits;
    this.#shared = shared;
    this.#types.setTypeParser(INT8, safeInteger);
    this.#pool = new Pool({
      ...server,
      Client: ServerClient,
      types: this.#types,
      application_name: 'tollgate',
      max: limits.connections,
      connectionTimeoutMillis: Math.max(limits.connectMs, CONNECT_MS),
      statement_timeout: limits.statementMs,
      lock_timeout: limits.lockMs,
      idle_in_transaction_session_timeout: limits.idleInTransactionMs ?? IDLE_IN_TRANSACTION_MS,
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

  /**
   * Resolves with a connection that the caller has alone until release. Rejects by `connectMs`.
   * @throws ReadOnlyServerError from a pool for writes, where the server says that it takes none
   */
  async acquire(): Promise<PostgresLease> {
    if (this.#closing !== undefined) throw new Error('the store is closed');
    const { maxWaiting, callMs, silenceMs = callMs } = this.#limits;
    if (this.#waiting >= maxWaiting) {
      throw new Error(`${maxWaiting} callers wait for the store already`);
    }
    const deadline = performance.now() + callMs;
    const client = await this.#connect().catch((error: unknown) => {
      if (error instanceof Error) this.#failed(error);
      throw error;
    });
    return new PostgresLease(client, {
      types: this.#types,
      deadline,
      callMs,
      silenceMs,
      onSuccess: () => this.#shared.writes?.succeeded(),
      onFailure: (error) => this.#failed(error),
    });
  }

  async #connect(): Promise<PoolClient> {
    const { connectMs } = this.#limits;
    const deadline = performance.now() + connectMs;
    this.#waiting += 1;
    try {
      for (;;) {
        const connecting = this.#pool.connect();
        const late = () => {
          // It is made all the same, for the next caller.
          connecting.then(
            (client) => client.release(),
            () => {},
          );
          return new LateError(`timeout: no connection to the database within ${connectMs} ms`, false);
        };
        const client = await withDeadline(connecting, deadline - performance.now(), late);
        const reason = this.#reasonAgainst(client);
        if (reason === undefined) return client;
        client.release(true);
        if (reason instanceof Error) throw reason;
      }
    } finally {
      this.#waiting -= 1;
    }
  }

  /** Why a connection is not to be used: an error where another one would be no better. */
  #reasonAgainst(client: PoolClient): ReadOnlyServerError | 'stale' | undefined {
    if (!(client instanceof ServerClient)) return undefined;
    if (!this.#shared.departure.isBefore(client)) return 'stale';
    const reason = client.readOnlyReason;
    if (reason === undefined) return undefined;
    if (this.#shared.writes !== undefined) return new ReadOnlyServerError(`${reason}, and takes no writes`);
    return performance.now() - client.begunAt > SUSPECT_MS ? 'stale' : undefined;
  }

  #failed(error: Error): void {
    const failure = failureOf(error);
    if (failure === 'read_only' || failure === 'lost') this.#shared.departure.leave();
    if (failure !== 'refused')
      this.#shared.writes?.failed(error, failure === 'read_only' || failure === 'unwritable');
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

function safeInteger(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`${text} is too large for an id`);
  return value;
}
