// Buffers what the client sends before the upstream answers the handshake, and detects a client that disconnects meanwhile.
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import type { Upgrade } from '../http/exchange/upgrade.ts';

/** At this size, reading pauses. */
const MAX_EARLY = 64 * 1024;

export class EarlyBytes {
  readonly #exchange: Exchange;
  readonly #socket: Upgrade['socket'];
  readonly #pieces: Buffer[] = [];
  #size = 0;

  constructor(exchange: Exchange, { socket, head }: Upgrade) {
    this.#exchange = exchange;
    this.#socket = socket;
    if (head.length > 0) this.#keep(head);
    socket.on('data', this.#onData);
    socket.once('end', this.#onEnd);
  }

  /** Stops reading. @returns the buffered bytes, in order */
  take(): Buffer {
    this.#socket.off('data', this.#onData);
    this.#socket.off('end', this.#onEnd);
    this.#socket.pause();
    return Buffer.concat(this.#pieces);
  }

  #keep(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#size += piece.length;
    if (this.#size >= MAX_EARLY) this.#socket.pause();
  }

  readonly #onData = (piece: Buffer) => this.#keep(piece);

  /** WebSocket clients do not half-close, so an end is a disconnect. */
  readonly #onEnd = () => {
    this.#exchange.stop(new GatewayError('client_closed'));
    this.#socket.destroy();
  };
}
