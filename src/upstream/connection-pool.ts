// The connections to one origin: makes them, keeps idle ones for a while, closes them. How many are used at once is decided
// by whoever sends (`max_concurrency`): one that is asked for is made.
import { type LookupFunction, Socket } from 'node:net';
import { buildConnector } from 'undici';
import { type Home, HttpConnection, READ_OPTIONS } from './http-connection.ts';
import { Resolver } from './resolver.ts';

export interface ConnectionPoolOptions {
  /** Scheme, host and port. */
  readonly origin: string;
  /** Milliseconds for name resolution, TCP and TLS together. */
  readonly connectTimeout: number;
  /** Most idle connections that are kept. */
  readonly connections: number;
  /** Finds the addresses of a name. Default: the system's resolver. */
  readonly lookup?: LookupFunction;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

/** A connection that is being made. */
export interface Opening {
  /** Gives it up; the callback hears an error. One that is made stays. */
  cancel(): void;
}

/** A resolver that needs longer than this is passed over, where addresses are known from before. */
const LOOKUP_PATIENCE_MS = 1_000;
/** For how long an idle connection is kept where the upstream does not say. */
const KEEP_ALIVE_MS = 10_000;
/** And at most, where it does. */
const MAX_KEEP_ALIVE_MS = 60_000;
/** Before the upstream's own end of its patience, so that a request does not meet it. */
const KEEP_ALIVE_MARGIN_MS = 1_000;
/** A name is never resolved again while connections live on, so they are replaced. */
const MAX_AGE_MS = 60_000;
const MAX_REQUESTS = 1_000;
const SWEEP_MS = 1_000;

export class ConnectionPool implements Home {
  readonly #options: ConnectionPoolOptions;
  readonly #now: () => number;
  readonly #target: buildConnector.Options;
  readonly #connect: buildConnector.connector;
  readonly #opening = new Set<Socket>();
  readonly #connections = new Set<HttpConnection>();
  /** The one that was used last is at the end, and is taken first: the others grow old and go. */
  readonly #idle: HttpConnection[] = [];
  #sweep: NodeJS.Timeout | undefined;
  #retired = false;
  #onEmpty: (() => void) | undefined;

  constructor(options: ConnectionPoolOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    const { protocol, hostname, host, port } = new URL(options.origin);
    this.#target = { protocol, hostname: hostname.replace(/^\[|\]$/g, ''), host, port };
    const { connectTimeout, lookup } = options;
    const resolver = new Resolver({
      // The rest of the time is for the connection itself.
      patienceMs: Math.min(LOOKUP_PATIENCE_MS, connectTimeout / 3),
      ...(lookup === undefined ? {} : { lookup }),
    });
    this.#connect = buildConnector({
      timeout: connectTimeout,
      autoSelectFamily: true,
      allowH2: false,
      lookup: resolver.lookup,
      onread: READ_OPTIONS,
    });
  }

  /** Whether nothing may be sent any more. */
  get isRetired(): boolean {
    return this.#retired;
  }

  /** A connection that waits for a request, if there is one. */
  take(): HttpConnection | undefined {
    const now = this.#now();
    for (;;) {
      const connection = this.#idle.pop();
      if (connection === undefined || isGood(connection, now)) return connection;
      connection.abandon();
    }
  }

  /**
   * Makes a connection.
   * @param callback called later: with the connection, or with why there is none
   */
  open(callback: (outcome: HttpConnection | Error) => void): Opening {
    const made: unknown = this.#connect(this.#target, (error, socket) => {
      if (opening !== undefined) this.#opening.delete(opening);
      // On failure the second argument is left out, whatever the types say.
      if (socket instanceof Socket) {
        const connection = new HttpConnection(socket, this, this.#now());
        this.#connections.add(connection);
        callback(connection);
      } else callback(error ?? new Error('no connection, and no reason'));
      this.#checkEmpty();
    });
    const opening = made instanceof Socket ? made : undefined;
    if (opening !== undefined) this.#opening.add(opening);
    return {
      cancel: () => {
        if (opening !== undefined && this.#opening.has(opening)) {
          opening.destroy(new Error('nobody waits for this connection'));
        }
      },
    };
  }

  onFree(connection: HttpConnection): void {
    const now = this.#now();
    connection.idleUntil = now + keepFor(connection);
    if (this.#retired || this.#idle.length >= this.#options.connections || !isGood(connection, now)) {
      connection.abandon();
      return;
    }
    this.#idle.push(connection);
    this.#sweep ??= setInterval(() => this.#closeOld(), SWEEP_MS).unref();
  }

  onClosed(connection: HttpConnection): void {
    this.#connections.delete(connection);
    const index = this.#idle.indexOf(connection);
    if (index !== -1) this.#idle.splice(index, 1);
    this.#checkEmpty();
  }

  /** No more requests: idle connections close now, the others after their answer. Resolves when all are closed. */
  async retire(): Promise<void> {
    this.#retired = true;
    this.#stopSweep();
    for (const connection of this.#idle.splice(0)) connection.abandon();
    if (this.#connections.size + this.#opening.size === 0) return;
    await new Promise<void>((resolve) => {
      const before = this.#onEmpty;
      this.#onEmpty = () => {
        before?.();
        resolve();
      };
    });
  }

  /** Closes everything. Resolves when it is closed. */
  close(): Promise<void> {
    const reason = new Error('the gateway closes its connections');
    const closed = this.retire();
    for (const socket of this.#opening) socket.destroy(reason);
    for (const connection of this.#connections) connection.close(reason);
    return closed;
  }

  #closeOld(): void {
    const now = this.#now();
    const old = this.#idle.filter((connection) => !isGood(connection, now));
    for (const connection of old) {
      this.#idle.splice(this.#idle.indexOf(connection), 1);
      connection.abandon();
    }
    if (this.#idle.length === 0) this.#stopSweep();
  }

  #stopSweep(): void {
    clearInterval(this.#sweep);
    this.#sweep = undefined;
  }

  #checkEmpty(): void {
    if (this.#connections.size + this.#opening.size > 0) return;
    this.#onEmpty?.();
    this.#onEmpty = undefined;
  }
}

function isGood(connection: HttpConnection, now: number): boolean {
  return (
    now < connection.idleUntil && now < connection.openedAt + MAX_AGE_MS && connection.served < MAX_REQUESTS
  );
}

function keepFor({ keepAliveMs }: HttpConnection): number {
  return keepAliveMs === undefined
    ? KEEP_ALIVE_MS
    : Math.min(MAX_KEEP_ALIVE_MS, keepAliveMs - KEEP_ALIVE_MARGIN_MS);
}
