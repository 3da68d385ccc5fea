// The graceful shutdown of a listener: it reports draining, stops accepting, lets running responses complete, and cuts the rest.
import type { Server as HttpServer } from 'node:http';
import type { Socket } from 'node:net';
import { setImmediate as nextTick, setTimeout as setTimer } from 'node:timers/promises';
import { GatewayError } from '../errors.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { ConnectionIntake } from './accept/connection-intake.ts';
import type { Connection } from './connection.ts';
import type { RunningExchanges } from './exchange/running-exchanges.ts';

/** Time between stopping all exchanges and destroying the remaining sockets. */
const CUT_MS = 1_000;

interface DrainOptions {
  readonly http: HttpServer;
  readonly intake: ConnectionIntake;
  /** The open ones. */
  readonly connections: ReadonlyMap<Socket, Connection>;
  readonly active: RunningExchanges;
  readonly logger: Logger;
}

export class Drain {
  readonly #options: DrainOptions;
  #hasBegun = false;
  #isClosing = false;
  /** Responses cut. */
  #cut = 0;
  /** Aborted to end it early. */
  readonly #abort = new AbortController();

  constructor(options: DrainOptions) {
    this.#options = options;
  }

  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** Nothing is accepted any more; a handshake may still end. */
  get isClosing(): boolean {
    return this.#isClosing;
  }

  /** All exchanges were stopped. */
  get isCut(): boolean {
    return this.#abort.signal.aborted;
  }

  /** As `Server.drain`. */
  async run(delay: number, timeout: number): Promise<void> {
    this.#hasBegun = true;
    const { http, intake, connections, active, logger } = this.#options;
    logger.info({ in_flight: active.size, delay_ms: delay, timeout_ms: timeout }, 'draining');
    // Responses from now on announce `connection: close`.
    for (const connection of connections.values()) connection.announceEnd();
    await setTimer(delay, undefined, { signal: this.#abort.signal }).catch(() => undefined);
    if (http.listening) {
      const closed = new Promise<void>((resolve) => http.close(() => resolve()));
      this.#isClosing = true;
      for (const connection of connections.values()) connection.finish();
      for (const { onDrain } of active) onDrain?.();
      setTimeout(() => intake.close(), CUT_MS).unref();
      const deadline = setTimeout(() => this.cut(), this.isCut ? 0 : timeout);
      await closed;
      clearTimeout(deadline);
      // The listener closes before the last sockets have notified their exchanges.
      while (active.size > 0) await nextTick();
    }
    logger.info({ cut: this.#cut }, 'drained');
  }

  /** Ends every running exchange at once; streams are cut visibly. */
  cut(): void {
    const { intake, connections, active } = this.#options;
    this.#abort.abort();
    this.#cut += active.size;
    for (const exchange of active) active.stop(exchange, new GatewayError('draining'));
    // Destroys what is still open: unread responses, silent clients.
    setTimeout(() => {
      for (const socket of connections.keys()) socket.destroy();
      intake.close();
    }, CUT_MS).unref();
  }
}
