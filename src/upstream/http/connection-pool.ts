// Connection pool of one origin: opens connections, keeps idle ones for reuse, closes old ones. `max_concurrency` bounds the
// requests, so every requested connection is opened.
import { type LookupFunction, Socket } from 'node:net';
import type { Connect, Destination, PendingConnection } from '../outbound/connect.ts';
import { createConnect, type Egress } from '../outbound/dialer.ts';
import { type OriginQuarantine, OriginQuarantines } from './origin-quarantine.ts';
import { Resolver, type ResolverOptions } from './resolver.ts';
import type { HeaderLines } from './response-head.ts';
import {
  type ConnectionOwner,
  READ_OPTIONS,
  type Unsolicited,
  UpstreamConnection,
  WRITE_BYTES,
} from './upstream-connection.ts';

export interface ConnectionPoolOptions {
  /** Scheme, host and port. */
  readonly origin: string;
  /** Milliseconds for name resolution, TCP, proxy and TLS together. */
  readonly connectTimeout: number;
  /** Maximum of idle connections. */
  readonly connections: number;
  /** How connections are made now; undefined: directly, with the defaults of Node.js. */
  readonly egress?: () => Egress | undefined;
  /** Resolves a name. Default: the system's resolver. */
  readonly lookup?: LookupFunction;
  /** As in `ResolverOptions`. */
  readonly onStale?: ResolverOptions['onStale'];
  /** Unsolicited bytes arrived. @param quarantineMs length of the quarantine of the origin, if it starts now */
  readonly onUnsolicited?: (kind: Unsolicited, quarantineMs: number | undefined) => void;
  /** Shared with the other pools of the gateway. Default: its own. */
  readonly quarantines?: OriginQuarantines;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

/** A pending connection. */
export interface Opening {
  /** Cancels it; the callback receives an error. No effect once connected. */
  cancel(): void;
}

/** After this wait for a lookup, addresses of an earlier one are used, if any. */
const LOOKUP_PATIENCE_MS = 1_000;
/** Keep-alive of an idle connection if the upstream names none. */
const KEEP_ALIVE_MS = 10_000;
/** Upper bound of the keep-alive that an upstream names. */
const MAX_KEEP_ALIVE_MS = 60_000;
/** Safety margin before the upstream's own idle timeout. */
const KEEP_ALIVE_MARGIN_MS = 1_000;
/** Connections are replaced after this age, so that DNS changes take effect. */
const MAX_AGE_MS = 60_000;
const MAX_REQUESTS = 1_000;
const SWEEP_MS = 1_000;
/**
 * Quiet period of a connection after each response: surplus bytes of the upstream show now, and not as the response to the next
 * request. No delay if another connection is past it; otherwise the request waits for the remainder.
 */
const QUIET_MS = 10;
/** At high rates the quiet period is shorter: rotating over more connections costs more per request. */
const MAX_QUIET = 16;
/** After this many delayed requests, each soon after the one before, spare connections are opened. */
const WAITS = 8;
const WAITS_APART_MS = 25;
/** Spare connections beyond `connections`; always fewer than those, since a single-request server may serve no second one. */
const MAX_SPARE = 2 * MAX_QUIET;

export class ConnectionPool implements ConnectionOwner {
  readonly #options: ConnectionPoolOptions;
  readonly #now: () => number;
  readonly #destination: Destination;
  readonly #lookup: LookupFunction;
  #egress: Egress | undefined;
  #connect: Connect;
  readonly #quarantine: OriginQuarantine;
  readonly headerLines: HeaderLines[] = [];
  writeBuffer: Buffer = Buffer.allocUnsafeSlow(WRITE_BYTES);
  readonly #opening = new Set<PendingConnection>();
  readonly #connections = new Set<UpstreamConnection>();
  /** LIFO: the most recently used is at the end and is taken first, so that the others expire. */
  readonly #idle: UpstreamConnection[] = [];
  /** In their quiet period; the oldest response first. */
  readonly #quiet: UpstreamConnection[] = [];
  /** Delayed requests in a row, and the time of the last one. */
  #waits = 0;
  #lastWaitAt = Number.NEGATIVE_INFINITY;
  #sweep: NodeJS.Timeout | undefined;
  #retired = false;
  #onEmpty: (() => void) | undefined;

  constructor(options: ConnectionPoolOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    const { origin, protocol, hostname, host, port } = new URL(options.origin);
    this.#quarantine = (options.quarantines ?? new OriginQuarantines()).of(origin);
    this.#destination = { protocol, hostname: hostname.replace(/^\[|\]$/g, ''), host, port };
    const { connectTimeout, lookup, onStale } = options;
    this.#lookup = new Resolver({
      // The remaining time is for connecting.
      patienceMs: Math.min(LOOKUP_PATIENCE_MS, connectTimeout / 3),
      ...(lookup === undefined ? {} : { lookup }),
      ...(onStale === undefined ? {} : { onStale }),
    }).lookup;
    this.#egress = options.egress?.();
    this.#connect = this.#createConnect();
  }

  #createConnect(): Connect {
    const timeoutMs = this.#options.connectTimeout;
    return createConnect(this.#egress, { timeoutMs, lookup: this.#lookup, onread: READ_OPTIONS });
  }

  /** Whether no more requests may be sent. */
  get isRetired(): boolean {
    return this.#retired;
  }

  get isSuspect(): boolean {
    return this.#quarantine.isActive(this.#now);
  }

  /** An idle connection, if any; `waitMs` is the delay before it may be written to. */
  take(): UpstreamConnection | undefined {
    if (this.isSuspect) return undefined;
    const now = this.#now();
    this.#endQuietPeriods(now);
    for (;;) {
      const connection = this.#idle.pop() ?? this.#quiet.shift();
      if (connection === undefined) return undefined;
      if (isGood(connection, now)) {
        connection.waitMs = Math.max(0, connection.quietUntil - now);
        if (connection.waitMs > 0) this.#countWait(now);
        return connection;
      }
      connection.abandon();
    }
  }

  #endQuietPeriods(now: number): void {
    for (;;) {
      const [first] = this.#quiet;
      if (first === undefined) return;
      if (first.quietUntil > now && this.#quiet.length <= MAX_QUIET) return;
      this.#quiet.shift();
      first.quietUntil = now;
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
    return this.#idle.length + this.#quiet.length;
  }

  /** Bound of kept connections; requests may open more. */
  get #maxConnections(): number {
    const { connections } = this.#options;
    return connections + Math.min(connections - 1, MAX_SPARE);
  }

  /** Opens a connection. @param callback called asynchronously with the connection or the error */
  open(callback: (outcome: UpstreamConnection | Error) => void): Opening {
    const egress = this.#options.egress?.();
    if (egress !== this.#egress) {
      this.#egress = egress;
      this.#connect = this.#createConnect();
    }
    const opening = this.#connect(this.#destination, (outcome) => {
      this.#opening.delete(opening);
      if (outcome instanceof Socket) {
        const connection = new UpstreamConnection(outcome, this, this.#now());
        this.#connections.add(connection);
        callback(connection);
      } else callback(outcome);
      this.#checkEmpty();
    });
    this.#opening.add(opening);
    return {
      cancel: () => {
        if (this.#opening.has(opening)) opening.destroy(new Error('the pending connection was cancelled'));
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
    connection.quietUntil = now + QUIET_MS;
    connection.isKept = true;
    this.#quiet.push(connection);
    this.#sweep ??= setInterval(() => this.#closeOld(), SWEEP_MS).unref();
  }

  #abandonIdle(): void {
    for (const connection of [...this.#idle.splice(0), ...this.#quiet.splice(0)]) connection.abandon();
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
      remove(this.#quiet, connection);
    }
    this.#checkEmpty();
  }

  /** Graceful shutdown: idle connections close now, busy ones after their response. Resolves when all are closed. */
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

  /** Closes all connections at once and resolves when they are closed. */
  close(): Promise<void> {
    const reason = new Error('the connection pool was closed');
    const closed = this.retire();
    for (const socket of this.#opening) socket.destroy(reason);
    for (const connection of this.#connections) connection.close(reason);
    return closed;
  }

  #closeOld(): void {
    const now = this.#now();
    this.#endQuietPeriods(now);
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
