// Takes connections off the accept queue: completes TLS where it is configured, rejects late ones, and hands the others to Node's
// HTTP parser.
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { ServerCertificate } from '../../config/schema/listener-schema.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { interceptConnections } from '../exchange/node-internals.ts';
import { AcceptQueue } from './accept-queue.ts';
import { backlogLength } from './backlog.ts';
import type { EarlyRejection } from './early-rejection.ts';
import { rejectLate, rejectUndecoded } from './late-connection.ts';
import { TlsHandshakes } from './tls-handshakes.ts';

interface ConnectionIntakeOptions {
  /** Serves HTTPS with this pair. Default: HTTP. */
  readonly certificate: ServerCertificate | undefined;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly early: EarlyRejection;
  /** Connections that `onOpen` got and that are open. */
  readonly open: () => number;
  /** A connection is about to be read. */
  readonly onOpen: (socket: Socket) => void;
  /** The number of running handshakes has changed. */
  readonly onHandshakes: () => void;
}

/** Minimum interval between equal log lines about connections. */
const LOG_EVERY_MS = 10_000;

export class ConnectionIntake {
  readonly #options: ConnectionIntakeOptions;
  /** The kernel's queue of unaccepted connections. */
  readonly queue: AcceptQueue;
  readonly #handshakes: TlsHandshakes | undefined;
  #dropped = 0;
  #droppedLoggedAt = Number.NEGATIVE_INFINITY;

  constructor(server: Server, options: ConnectionIntakeOptions) {
    this.#options = options;
    const { certificate, early, logger, metrics, open, onHandshakes } = options;
    this.queue = new AcceptQueue({
      length: () => backlogLength(server.address()),
      open: () => open() + this.handshakes,
      isRejecting: () => early.isOverloaded,
    });
    if (certificate !== undefined) {
      const deadlineMs = server.headersTimeout;
      const handshakes = { certificate, deadlineMs, logger, metrics, onChange: onHandshakes };
      this.#handshakes = new TlsHandshakes(handshakes);
    }
    interceptConnections(server, (socket, read) => this.#accept(socket, read));
    server.on('drop', () => this.#onDrop(server.maxConnections));
  }

  /** Connections whose TLS handshake is running. */
  get handshakes(): number {
    return this.#handshakes?.size ?? 0;
  }

  /** For handshakes from now on; without effect on a listener without TLS. @throws the system's error */
  set certificate(pair: ServerCertificate) {
    if (this.#handshakes !== undefined) this.#handshakes.certificate = pair;
  }

  /** Closes the connections whose handshake is not complete. Call it when none is accepted any more. */
  close(): void {
    this.#handshakes?.close();
  }

  #accept(socket: Socket, read: (socket: Socket) => void): void {
    const isLate = this.queue.accept();
    if (this.#handshakes === undefined) this.#admit(socket, isLate, read);
    // Rejected in HTTP as well: before the handshake, a request cannot be told from a health check.
    else this.#handshakes.begin(socket, (secure) => this.#admit(secure, isLate, read));
  }

  #admit(socket: Socket, isLate: boolean, read: (socket: Socket) => void): void {
    const serve = () => {
      this.#options.onOpen(socket);
      read(socket);
    };
    const { early, metrics } = this.#options;
    if (isLate) rejectLate(socket, serve, metrics);
    else if (early.isActive) rejectUndecoded(socket, serve, early);
    else serve();
  }

  #onDrop(limit: number): void {
    const { logger, metrics } = this.#options;
    this.#dropped += 1;
    metrics.connectionsDropped.inc();
    const now = performance.now();
    if (now - this.#droppedLoggedAt < LOG_EVERY_MS) return;
    this.#droppedLoggedAt = now;
    logger.warn(
      { dropped: this.#dropped, limit },
      'rejecting connections: the limit of open connections is reached',
    );
  }
}
