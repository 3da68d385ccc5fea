// The connections to one origin: makes them, keeps idle ones for a while, closes them. How many are used at once is decided
// by whoever sends (`max_concurrency`): one that is asked for is made.
import { type LookupFunction, Socket } from 'node:net';
import { buildConnector } from 'undici';
import { type OriginQuarantine, quarantineOf } from './origin-quarantine.ts';
import { Resolver, type ResolverOptions } from './resolver.ts';
import {
  type ConnectionOwner,
  READ_OPTIONS,
  type Unsolicited,
  UpstreamConnection,
} from './upstream-connection.ts';

export interface ConnectionPoolOptions {
  /** Scheme, host and port. */
  readonly origin: string;
  /** Milliseconds for name resolution, TCP and TLS together. */
  readonly connectTimeout: number;
  /** Most idle connections that are kept. */
  readonly connections: number;
  /** Finds the addresses of a name. Default: the system's resolver. */
  readonly lookup?: LookupFunction;
  /** As in `ResolverOptions`. */
  readonly onStale?: ResolverOptions['onStale'];
  /**
   * Bytes came that answer no request.
   * @param quarantineMs for how long connections to the origin are not kept, if that begins now
   */
  readonly onUnsolicited?: (kind: Unsolicited, quarantineMs: number | undefined) => void;
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
/**
 * TCP keep-alive: a host that has gone is found while an answer is waited for, however long that takes. Node then probes each
 * second and gives up after ten probes, so that it takes 20 s.
 */
export const TCP_KEEP_ALIVE_MS = 10_000;
/** A name is never resolved again while connections live on, so they are replaced. */
const MAX_AGE_MS = 60_000;
const MAX_REQUESTS = 1_000;
const SWEEP_MS = 1_000;
/**
 * After an answer a connection rests for so long: what an upstream sends behind it shows now, and not as the answer to the next
 * request. No delay where others have rested; where none has, the request waits for the rest of it.
 */
const REST_MS = 10;
/** At high rates the rest is shorter: with more connections in turn each request would cost more. */
const MAX_RESTING = 16;
/** So many requests that had to wait, none long after the one before, and further ones have connections opened. */
const WAITS = 8;
const WAITS_APART_MS = 25;
/** Beyond `connections`, and fewer than those: a server that gets one request at a time may serve no second connection. */
const MAX_SPARE = 2 * MAX_RESTING;

export class ConnectionPool implements ConnectionOwner {
  readonly #options: ConnectionPoolOptions;
  readonly #now: () => number;
  readonly #target: buildConnector.Options;
  readonly #connect: buildConnector.connector;
  readonly #quarantine: OriginQuarantine;
  readonly #opening = new Set<Socket>();
  readonly #connections = new Set<UpstreamConnection>();
  /** The one that was used last is at the end, and is taken first: the others grow old and go. */
  readonly #idle: UpstreamConnection[] = [];
  /** The one that has answered first is at the beginning. */
  readonly #resting: UpstreamConnection[] = [];
  /** Requests in a row that had to wait, and when the last one came. */
  #waits = 0;
  #lastWaitAt = Number.NEGATIVE_INFINITY;
  #sweep: NodeJS.Timeout | undefined;
  #retired = false;
  #onEmpty: (() => void) | undefined;

  constructor(options: ConnectionPoolOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    const { origin, protocol, hostname, host, port } = new URL(options.origin);
    this.#quarantine = quarantineOf(origin);
    this.#target = { protocol, hostname: hostname.replace(/^\[|\]$/g, ''), host, port };
    const { connectTimeout, lookup, onStale } = options;
    const resolver = new Resolver({
      // The rest of the time is for the connection itself.
      patienceMs: Math.min(LOOKUP_PATIENCE_MS, connectTimeout / 3),
      ...(lookup === undefined ? {} : { lookup }),
      ...(onStale === undefined ? {} : { onStale }),
    });
    this.#connect = buildConnector({
      timeout: connectTimeout,
      autoSelectFamily: true,
      keepAlive: true,
      keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
      allowH2: false,
      lookup: resolver.lookup,
      onread: READ_OPTIONS,
    });
  }

  /** Whether nothing may be sent any more. */
  get isRetired(): boolean {
    return this.#retired;
  }

  get isSuspect(): boolean {
    return this.#quarantine.isActive(this.#now);
  }

  /** A connection that waits for a request, if there is one; `waitMs` says when that may be written. */
  take(): UpstreamConnection | undefined {
    if (this.isSuspect) return undefined;
    const now = this.#now();
    this.#endRests(now);
    for (;;) {
      const connection = this.#idle.pop() ?? this.#resting.shift();
      if (connection === undefined) return undefined;
      if (isGood(connection, now)) {
        connection.waitMs = Math.max(0, connection.restsUntil - now);
        if (connection.waitMs > 0) this.#countWait(now);
        return connection;
      }
      connection.abandon();
    }
  }

  #endRests(now: number): void {
    for (;;) {
      const [first] = this.#resting;
      if (first === undefined) return;
      if (first.restsUntil > now && this.#resting.length <= MAX_RESTING) return;
      this.#resting.shift();
      first.restsUntil = now;
      this.#idle.push(first);
    }
  }

  #countWait(now: number): void {
    this.#waits = now - this.#lastWaitAt > WAITS_APART_MS ? 1 : this.#waits + 1;
    this.#lastWaitAt = now;
    if (this.#waits <= WAITS || this.#connections.size + this.#opening.size >= this.#maxConnections) return;
    this.open((outcome) => {
      if (outcome instanceof UpstreamConnection) this.onFree(outcome);
    });
  }

  get #idleCount(): number {
    return this.#idle.length + this.#resting.length;
  }

  /** Those that are kept; what is asked for is made, whatever their number. */
  get #maxConnections(): number {
    const { connections } = this.#options;
    return connections + Math.min(connections - 1, MAX_SPARE);
  }

  /**
   * Makes a connection.
   * @param callback called later: with the connection, or with why there is none
   */
  open(callback: (outcome: UpstreamConnection | Error) => void): Opening {
    const made: unknown = this.#connect(this.#target, (error, socket) => {
      if (opening !== undefined) this.#opening.delete(opening);
      // On failure the second argument is left out, whatever the types say.
      if (socket instanceof Socket) {
        const connection = new UpstreamConnection(socket, this, this.#now());
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

  onFree(connection: UpstreamConnection): void {
    const now = this.#now();
    connection.idleUntil = now + keepFor(connection);
    if (
      this.#retired ||
      this.#idleCount >= this.#maxConnections ||
      this.isSuspect ||
      !isGood(connection, now)
    ) {
      connection.abandon();
      return;
    }
    connection.restsUntil = now + REST_MS;
    connection.isKept = true;
    this.#resting.push(connection);
    this.#sweep ??= setInterval(() => this.#closeOld(), SWEEP_MS).unref();
  }

  #abandonIdle(): void {
    for (const connection of [...this.#idle.splice(0), ...this.#resting.splice(0)]) connection.abandon();
  }

  onUnsolicited(kind: Unsolicited): void {
    const { onUnsolicited } = this.#options;
    if (kind === 'farewell') {
      onUnsolicited?.(kind, undefined);
      return;
    }
    const hasBegun = this.#quarantine.enter(this.#now());
    this.#abandonIdle();
    onUnsolicited?.(kind, hasBegun ? this.#quarantine.lengthMs : undefined);
  }

  onClosed(connection: UpstreamConnection): void {
    this.#connections.delete(connection);
    if (connection.isKept) {
      remove(this.#idle, connection);
      remove(this.#resting, connection);
    }
    this.#checkEmpty();
  }

  /** No more requests: idle connections close now, the others after their answer. Resolves when all are closed. */
  async retire(): Promise<void> {
    this.#retired = true;
    this.#stopSweep();
    this.#abandonIdle();
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
    this.#endRests(now);
    const old = this.#idle.filter((connection) => !isGood(connection, now));
    for (const connection of old) {
      remove(this.#idle, connection);
      connection.abandon();
    }
    if (this.#idleCount === 0) this.#stopSweep();
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

function remove(connections: UpstreamConnection[], connection: UpstreamConnection): void {
  const index = connections.indexOf(connection);
  if (index !== -1) connections.splice(index, 1);
}

function isGood(connection: UpstreamConnection, now: number): boolean {
  return (
    now < connection.idleUntil && now < connection.openedAt + MAX_AGE_MS && connection.served < MAX_REQUESTS
  );
}

function keepFor({ keepAliveMs }: UpstreamConnection): number {
  return keepAliveMs === undefined
    ? KEEP_ALIVE_MS
    : Math.min(MAX_KEEP_ALIVE_MS, keepAliveMs - KEEP_ALIVE_MARGIN_MS);
}
