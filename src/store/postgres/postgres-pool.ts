// The pool of connections to a PostgreSQL server, and the deadlines of their callers. It is independent of the tables.
//
// A server may be down, paused, overloaded or behind a network that drops all packets. Its own timeouts end what they can; the
// deadlines here (postgres-lease.ts) end the rest. They run from the request for a connection to its release, and close a silent
// connection, so that no other caller gets it.
//
// After a failover the address may lead to a standby for a while. A connection to a read-only server is dropped, and one such
// answer makes all older connections stale.
import { Socket } from 'node:net';
import { Pool, type PoolClient, type PoolConfig, TypeOverrides } from 'pg';
import { withDeadline } from '../../deadline.ts';
import type { WriteState } from '../write-state.ts';
import { failureOf, LateError, ReadOnlyServerError, ServerClient } from './postgres-client.ts';
import { PostgresLease } from './postgres-lease.ts';

export type { PostgresLease };

/** Address and credentials of the server; `options` are PostgreSQL's, such as `-c name=value`. */
export type PostgresServer = Readonly<
  Pick<PoolConfig, 'host' | 'port' | 'user' | 'database' | 'password' | 'ssl' | 'options'>
>;

export interface PoolLimits {
  readonly connections: number;
  /** Maximum number of callers that wait for a connection. */
  readonly maxWaiting: number;
  /** Maximum wait for a connection, in milliseconds. */
  readonly connectMs: number;
  /** Maximum time from the request for a connection to its release, in milliseconds. */
  readonly callMs: number;
  /** Maximum wait for one answer of the server, in milliseconds. Default: `callMs`. */
  readonly silenceMs?: number;
  /** Statement timeout of the server, in milliseconds. The shortest of them all, because the connection stays usable. */
  readonly statementMs: number;
  /** Lock timeout of the server, in milliseconds. */
  readonly lockMs: number;
  /**
   * Idle-in-transaction timeout of the server, in milliseconds, default 1000: a stopped process would block all writers. It has
   * to be longer than a round trip to the server.
   */
  readonly idleInTransactionMs?: number;
}

/** State that the pools of one store share. */
interface PoolShared {
  readonly generation: ConnectionGeneration;
  /** For the pool for writes: receives their results. */
  readonly writes?: Pick<WriteState, 'succeeded' | 'failed'>;
}

/** Marks connections as stale: those that started before the last `advance` are not used again, in any pool. */
export class ConnectionGeneration {
  #at = Number.NEGATIVE_INFINITY;

  /** Makes current connections stale, at most once per second: reads keep theirs for that long while no server is writable. */
  advance(): void {
    const now = performance.now();
    if (now - this.#at > READ_ONLY_MS) this.#at = now;
  }

  isCurrent(client: ServerClient): boolean {
    return client.startedAt > this.#at;
  }
}

/** Idle timeout of a connection: a changed address is resolved again, and dropped state in a firewall does no harm. */
const IDLE_MS = 30_000;
const LIFETIME_S = 1800;
const IDLE_IN_TRANSACTION_MS = 1000;
/** Minimum connect timeout, which can exceed the wait of the first caller: the next caller gets the connection. */
const CONNECT_MS = 5000;
/** How long reads use a connection to a read-only server. */
const READ_ONLY_MS = 1000;
/** Maximum time to close a connection. */
const CLOSE_MS = 500;

const INT8 = 20;

export class PostgresPool {
  readonly #pool: Pool;
  readonly #limits: PoolLimits;
  readonly #shared: PoolShared;
  readonly #types = new TypeOverrides();
  readonly #sockets = new Set<Socket>();
  #waiting = 0;
  #closing: Promise<void> | undefined;

  /** Connects on the first `acquire`. */
  constructor(
    server: PostgresServer,
    limits: PoolLimits,
    shared: PoolShared = { generation: new ConnectionGeneration() },
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
    // An idle connection broke: the pool has dropped it, and without a listener the process would end.
    this.#pool.on('error', () => {});
    // The server may close a connection directly after accepting it, before any other listener exists.
    this.#pool.on('connect', (client) => client.on('error', () => {}));
  }

  /**
   * Leases a connection exclusively until release. Rejects within `connectMs`.
   * @throws ReadOnlyServerError from the pool for writes when the server is read-only
   */
  async acquire(): Promise<PostgresLease> {
    if (this.#closing !== undefined) throw new Error('the store is closed');
    const { maxWaiting, callMs, silenceMs = callMs } = this.#limits;
    if (this.#waiting >= maxWaiting) {
      throw new Error(`the queue for the store is full: ${maxWaiting} callers wait`);
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
          // Keep the connection for the next caller.
          connecting.then(
            (client) => client.release(),
            () => {},
          );
          return new LateError(`no connection to the database within ${connectMs} ms`, false);
        };
        const client = await withDeadline(connecting, deadline - performance.now(), late);
        const reason = this.#rejectionOf(client);
        if (reason === undefined) return client;
        client.release(true);
        if (reason instanceof Error) throw reason;
      }
    } finally {
      this.#waiting -= 1;
    }
  }

  /** Why a connection must not be used: `stale` to try another one, or the error when another one would not help. */
  #rejectionOf(client: PoolClient): ReadOnlyServerError | 'stale' | undefined {
    if (!(client instanceof ServerClient)) return undefined;
    if (!this.#shared.generation.isCurrent(client)) return 'stale';
    const reason = client.readOnlyReason;
    if (reason === undefined) return undefined;
    if (this.#shared.writes !== undefined)
      return new ReadOnlyServerError(`${reason}; writes need the primary`);
    return performance.now() - client.startedAt > READ_ONLY_MS ? 'stale' : undefined;
  }

  #failed(error: Error): void {
    const failure = failureOf(error);
    if (failure === 'read_only' || failure === 'lost') this.#shared.generation.advance();
    if (failure !== 'rejected')
      this.#shared.writes?.failed(error, failure === 'read_only' || failure === 'unwritable');
  }

  /** Rejects new callers, waits for leases until their deadline, and closes all connections. */
  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  async #end(): Promise<void> {
    const destroyAll = () => {
      for (const socket of this.#sockets) socket.destroy();
    };
    const last = setTimeout(destroyAll, this.#limits.callMs + CLOSE_MS);
    await this.#pool.end();
    clearTimeout(last);
    // The pool has sent Terminate on each connection; do not wait for a silent server.
    const late = setTimeout(destroyAll, CLOSE_MS);
    await Promise.all([...this.#sockets].map((socket) => new Promise((done) => socket.once('close', done))));
    clearTimeout(late);
  }

  #socket(): Socket {
    const socket = new Socket();
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    // After our FIN, a silent server would keep the connection half-open without limit.
    socket.once('finish', () => setTimeout(() => socket.destroy(), CLOSE_MS).unref());
    return socket;
  }
}

function safeInteger(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`${text} is too large for an id`);
  return value;
}
