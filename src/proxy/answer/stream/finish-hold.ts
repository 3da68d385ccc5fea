// The chunk with the last finish reason of a stream, held back briefly for the members of the hidden usage chunk behind it. Directly,
// the client would read them in this chunk.
import { startDeadline } from '../../../deadline.ts';
import { batchWrite } from '../../../http/exchange/write-batch.ts';
import type { ClientStream } from './client-stream.ts';
import { withMembers } from './frame-edits.ts';

/** Upstreams send the usage chunk together with the finish reason or right behind it. */
const MAX_HOLD_MS = 100;
/** Of comments behind the chunk, which are held with it. */
const MAX_HELD_BYTES = 64 * 1024;

type HoldClient = Pick<ClientStream, 'isOver' | 'isPaused' | 'passAll'>;

export class FinishHold {
  readonly #client: HoldClient;
  #frame: Buffer | undefined;
  /** Comments behind the frame, and the second half of its line end. */
  #behind: Buffer[] = [];
  #behindBytes = 0;
  #cancel: (() => void) | undefined;

  constructor(client: HoldClient) {
    this.#client = client;
  }

  get isHolding(): boolean {
    return this.#frame !== undefined;
  }

  /** Once per stream. */
  begin(frame: Buffer): void {
    this.#frame = frame;
    // Most usage chunks come in the same tick: those need no timer.
    batchWrite(() => {
      if (this.isHolding) this.#wait();
    });
  }

  /** Holds bytes behind the frame, or writes all of it if that is too much. */
  passAll(pieces: readonly Buffer[]): void {
    for (const piece of pieces) {
      this.#behind.push(piece);
      this.#behindBytes += piece.length;
    }
    if (this.#behindBytes > MAX_HELD_BYTES) this.release();
  }

  /** Ends the hold. @param members to add to the frame @returns what was held, in order */
  take(members?: ReadonlyMap<string, Buffer>): Buffer[] {
    this.#cancel?.();
    const frame = this.#frame;
    if (frame === undefined) return [];
    const held = [members === undefined ? frame : withMembers(frame, members), ...this.#behind];
    this.#frame = undefined;
    this.#behind = [];
    return held;
  }

  /** Writes what is held. */
  release(): void {
    const held = this.take();
    if (held.length > 0 && !this.#client.isOver) this.#client.passAll(held);
  }

  #wait(): void {
    this.#cancel = startDeadline(MAX_HOLD_MS, () => {
      // A client that does not keep up stops the reading of the upstream, so the usage chunk cannot have arrived.
      if (this.#client.isPaused && !this.#client.isOver) this.#wait();
      else this.release();
    });
  }
}
