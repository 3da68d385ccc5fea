// Writes a body that is not in memory to a connection, at the pace of the slower of the two sides. What the answer says, and what
// becomes of the connection, is http-connection.ts.
import type { Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import type { BodyReader, BodySource } from '../http/body-source.ts';

export interface BodyEvents {
  /** Whether the other side takes no more for now. */
  onStall(isStalled: boolean): void;
  /** The last byte of it is written. */
  onWritten(): void;
  /** There will be no more of it, and it is not complete. */
  onLost(cause: unknown): void;
}

const LAST_CHUNK = '0\r\n\r\n';

export class BodyWriter {
  readonly #socket: Socket;
  readonly #reader: BodyReader;
  readonly #isChunked: boolean;
  readonly #events: BodyEvents;
  #isOver = false;
  #wake: (() => void) | undefined;

  /** Begins at once, but tells nothing before the next turn. */
  constructor(socket: Socket, source: BodySource, events: BodyEvents) {
    this.#socket = socket;
    this.#isChunked = source.length === undefined;
    this.#events = events;
    this.#reader = source.open();
    void this.#run();
  }

  /** All was written, or nothing more will be. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Writes no more and tells nothing more. Idempotent. */
  cancel(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#reader.cancel();
    this.#wake?.();
  }

  async #run(): Promise<void> {
    try {
      for (;;) {
        const piece = await this.#reader.next();
        if (this.#isOver) return;
        if (piece === undefined) break;
        // Behind whatever has come to be read: an upstream that refuses and closes at once makes the next write fail, and the
        // socket would be gone before its refusal was seen.
        await turn();
        if (this.#isOver) return;
        if (piece.length > 0 && !this.#write(piece)) await this.#drained();
        if (this.#isOver) return;
      }
      if (this.#isChunked) this.#socket.write(LAST_CHUNK, 'latin1');
      this.#isOver = true;
      this.#events.onWritten();
    } catch (error) {
      if (this.#isOver) return;
      this.#isOver = true;
      this.#reader.cancel();
      this.#events.onLost(error);
    }
  }

  /** @returns false when the other side has to catch up */
  #write(piece: Buffer): boolean {
    if (!this.#isChunked) return this.#socket.write(piece);
    this.#socket.cork();
    this.#socket.write(`${piece.length.toString(16)}\r\n`, 'latin1');
    this.#socket.write(piece);
    const goesOn = this.#socket.write('\r\n', 'latin1');
    this.#socket.uncork();
    return goesOn;
  }

  async #drained(): Promise<void> {
    this.#events.onStall(true);
    await new Promise<void>((resolve) => {
      this.#wake = () => {
        this.#socket.off('drain', resolve);
        resolve();
      };
      this.#socket.once('drain', resolve);
    });
    this.#wake = undefined;
    if (!this.#isOver) this.#events.onStall(false);
  }
}
