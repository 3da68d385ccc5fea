// The client's connection between its handshake and the upstream's answer to it: what comes early is kept, and a client that
// leaves is noticed. It writes nothing.
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import type { Upgrade } from '../http/exchange/upgrade.ts';

/** Beyond it the client waits, as the connection does. */
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

  /** Stops reading. @returns what came so far, in order */
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

  /** Nobody half-closes a connection that is to be a WebSocket. */
  readonly #onEnd = () => {
    this.#exchange.stop(new GatewayError('client_closed'));
    this.#socket.destroy();
  };
}
