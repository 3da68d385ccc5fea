// Writes a body piece by piece, at the pace of the slower of the two sides, with turns for everybody else between the pieces.
// What the other side says of it, and what becomes of the connection, is for whoever has it written.
import type { Writable } from 'node:stream';
import { BodyPacing } from './body-pacing.ts';
import type { BodyReader, BodySource } from './body-source.ts';

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
  readonly #to: Writable;
  readonly #reader: BodyReader;
  readonly #isChunked: boolean;
  readonly #events: BodyEvents;
  readonly #work = new BodyPacing();
  #isOver = false;
  #isWhole = false;
  /** Writes of pieces that the system has not taken yet. */
  #underWay = 0;
  /** Undefined where nobody has to know when a piece is not read any more. */
  readonly #onTaken: (() => void) | undefined;
  #wake: (() => void) | undefined;

  /** Begins at once, but tells nothing before the next turn. */
  constructor(to: Writable, source: BodySource, events: BodyEvents) {
    this.#to = to;
    this.#isChunked = source.length === undefined;
    this.#events = events;
    this.#reader = source.open();
    this.#onTaken = this.#reader.released && this.#taken;
    void this.#run();
  }

  /** All was written, or nothing more will be. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** All of it was written. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** Writes no more and tells nothing more. Idempotent. */
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
        // Behind whatever has come to be read: an upstream that refuses and closes at once makes the next write fail, and the
        // socket would be gone before its refusal was seen.
        await this.#turn();
        if (this.#isOver) return;
        const began = performance.now();
        const goesOn = piece.length === 0 || this.#write(piece);
        this.#work.did(piece.length, performance.now() - began);
        if (!goesOn) await this.#drained();
        if (this.#isOver) return;
      }
      if (this.#isChunked) this.#to.write(LAST_CHUNK, 'latin1');
      this.#isWhole = true;
      this.#end();
      this.#events.onWritten();
    } catch (error) {
      if (this.#isOver) return;
      this.#end();
      this.#reader.cancel();
      this.#events.onLost(error);
    }
  }

  #end(): void {
    this.#isOver = true;
    this.#work.end();
    if (this.#underWay === 0) this.#reader.released?.();
  }

  /** Of a piece that was written, or never will be. A socket that breaks says it of all that it had. */
  readonly #taken = (): void => {
    this.#underWay -= 1;
    if (this.#isOver && this.#underWay === 0) this.#reader.released?.();
  };

  /** Resolves in a later turn; never, if it ends meanwhile. */
  #turn(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#work.isDue) this.#work.rest(resolve);
      else setImmediate(resolve);
    });
  }

  /** @returns false when the other side has to catch up */
  #write(piece: Buffer): boolean {
    if (this.#onTaken !== undefined) this.#underWay += 1;
    if (!this.#isChunked) return this.#to.write(piece, this.#onTaken);
    this.#to.cork();
    this.#to.write(`${piece.length.toString(16)}\r\n`, 'latin1');
    this.#to.write(piece, this.#onTaken);
    const goesOn = this.#to.write('\r\n', 'latin1');
    this.#to.uncork();
    return goesOn;
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
