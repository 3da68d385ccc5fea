// Writes a body piece by piece with backpressure, and yields to other requests between pieces. The owner handles the response and
// the connection.
import type { Writable } from 'node:stream';
import { BodyPacing } from './body-pacing.ts';
import type { BodyReader, BodySource } from './body-source.ts';

export interface BodyEvents {
  /** Backpressure starts or ends. */
  onStall(isStalled: boolean): void;
  /** The last byte was written. */
  onWritten(): void;
  /** The source failed; the body stays incomplete. */
  onSourceError(cause: unknown): void;
}

const LAST_CHUNK = '0\r\n\r\n';

export class BodyWriter {
  readonly #to: Writable;
  readonly #reader: BodyReader;
  readonly #isChunked: boolean;
  readonly #events: BodyEvents;
  readonly #pacing = new BodyPacing();
  #isOver = false;
  #isComplete = false;
  /** Writes that the kernel has not taken yet. */
  #pendingWrites = 0;
  /** Undefined if the source does not need to know when a piece is released. */
  readonly #onTaken: (() => void) | undefined;
  #wake: (() => void) | undefined;

  /** Starts at once, but calls no event before the next tick. */
  constructor(to: Writable, source: BodySource, events: BodyEvents) {
    this.#to = to;
    this.#isChunked = source.length === undefined;
    this.#events = events;
    this.#reader = source.open();
    this.#onTaken = this.#reader.released && this.#taken;
    void this.#run();
  }

  /** Everything was written. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** Stops writing and calls no further events. Idempotent. */
  cancel(): void {
    if (this.#isOver) return;
    this.#end();
    this.#reader.cancel();
    this.#wake?.();
  }

  async #run(): Promise<void> {
    try {
      for (;;) {
        const piece = await this.#reader.next();
        if (this.#isOver) return;
        if (piece === undefined) break;
        // After pending reads: if an upstream responds and closes at once, this write fails and would destroy the socket before
        // its response is read.
        await this.#nextTick();
        if (this.#isOver) return;
        const began = performance.now();
        const hasCapacity = piece.length === 0 || this.#write(piece);
        this.#pacing.record(piece.length, performance.now() - began);
        if (!hasCapacity) await this.#drained();
        if (this.#isOver) return;
      }
      if (this.#isChunked) this.#to.write(LAST_CHUNK, 'latin1');
      this.#isComplete = true;
      this.#end();
      this.#events.onWritten();
    } catch (error) {
      if (this.#isOver) return;
      this.#end();
      this.#reader.cancel();
      this.#events.onSourceError(error);
    }
  }

  #end(): void {
    this.#isOver = true;
    this.#pacing.end();
    if (this.#pendingWrites === 0) this.#reader.released?.();
  }

  /** Called when a piece was written or dropped. A failing socket calls it for all pending pieces. */
  readonly #taken = (): void => {
    this.#pendingWrites -= 1;
    if (this.#isOver && this.#pendingWrites === 0) this.#reader.released?.();
  };

  /** Resolves in a later tick; never if writing ends meanwhile. */
  #nextTick(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#pacing.isDue) this.#pacing.pause(resolve);
      else setImmediate(resolve);
    });
  }

  /** @returns false under backpressure */
  #write(piece: Buffer): boolean {
    if (this.#onTaken !== undefined) this.#pendingWrites += 1;
    if (!this.#isChunked) return this.#to.write(piece, this.#onTaken);
    this.#to.cork();
    this.#to.write(`${piece.length.toString(16)}\r\n`, 'latin1');
    this.#to.write(piece, this.#onTaken);
    const hasCapacity = this.#to.write('\r\n', 'latin1');
    this.#to.uncork();
    return hasCapacity;
  }

  async #drained(): Promise<void> {
    this.#events.onStall(true);
    await new Promise<void>((resolve) => {
      this.#wake = () => {
        this.#to.off('drain', resolve);
        resolve();
      };
      this.#to.once('drain', resolve);
    });
    this.#wake = undefined;
    if (!this.#isOver) this.#events.onStall(false);
  }
}
