// Cuts a byte stream into SSE frames (WHATWG HTML, 9.2.6: lines end with LF, CR or CRLF). It hands every byte on, in order
// and unchanged; what a frame says is for chat-chunk.ts.
import { GatewayError } from '../errors.ts';

const LF = 0x0a;
const CR = 0x0d;

/** The bytes held of a partial frame may not outgrow this; real frames are a few hundred bytes, images in base64 more. */
const DEFAULT_MAX_FRAME_BYTES = 1024 * 1024;
/** The room for a partial frame: what it begins with, and what is kept when a large frame has passed. */
const SMALL_HOLD = 4096;
const KEPT_HOLD = 64 * 1024;

/** The complete frames that one piece of the stream brought. */
export interface FrameBatch {
  /** The frames, end to end: what may be written to the client in one go when nothing has to be changed. */
  readonly bytes: Buffer;
  /** Where each frame ends in `bytes`; the first begins at 0, every other one where the one before it ended. */
  readonly ends: readonly number[];
}

const NO_FRAMES: FrameBatch = { bytes: Buffer.alloc(0), ends: [] };

/**
 * One scanner reads one stream. A frame is everything up to and including a blank line; all batches and `rest()`, one after
 * the other, are the stream.
 *
 * A frame is handed out at the first byte that completes its blank line. When that is a CR at the end of a piece, an LF may
 * still follow and belong to it: if it does, it comes out first in the next batch, as a frame of one byte. That one says
 * nothing (`readChunk` calls it a comment) and must be written like any other. But for these one-byte frames, the frames do
 * not depend on where the stream was cut into pieces.
 */
export class SseFrameScanner {
  readonly #maxFrameBytes: number;
  /** The beginning of the frame that is not complete, in the first `#held` bytes. */
  #hold = NO_FRAMES.bytes;
  #held = 0;
  /** The line that the next byte belongs to has no bytes so far. */
  #lineIsEmpty = true;
  /** The last byte was a CR, so an LF now is the second half of that line end. */
  #afterCr = false;
  #tooLarge = false;

  /** @param maxFrameBytes the largest frame, complete or not; default 1 MiB */
  constructor(maxFrameBytes: number = DEFAULT_MAX_FRAME_BYTES) {
    this.#maxFrameBytes = maxFrameBytes;
  }

  /**
   * Whether everything that came so far has been handed out, so that a whole frame of one's own (a comment, an error) may be
   * written now, if all batches were. That holds behind a CR too: should the LF still come, it then follows the blank line
   * of the inserted frame and is one more blank line, at which nothing is dispatched. An inserted frame must itself end
   * with LF LF; ending it with CR would only swallow that LF.
   */
  get atBoundary(): boolean {
    return this.#held === 0;
  }

  /**
   * Takes the next piece of the stream, cut anywhere.
   * @returns the frames it completed; a view of `chunk` where nothing was held before, so that one must stay as it is
   * @throws GatewayError `upstream_unusable_response` when a frame is larger than allowed. Frames that were complete before
   *   it in the same piece are returned first, and the next call throws.
   */
  push(chunk: Buffer): FrameBatch {
    if (this.#tooLarge) throw this.#refusal();
    const { length } = chunk;
    if (length === 0) return NO_FRAMES;
    const held = this.#held;
    const ends: number[] = [];
    // Offsets in the loop are those of the chunk; the frame that is held began before it.
    let frameStart = -held;
    let pos = 0;
    if (this.#afterCr) {
      this.#afterCr = false;
      if (chunk[0] === LF) {
        pos = 1;
        if (held === 0) {
          ends.push(1);
          frameStart = 1;
        }
      }
    }
    let lf = -1;
    let cr = -1;
    let lineIsEmpty = this.#lineIsEmpty;
    while (pos < length) {
      let byte = chunk[pos];
      if (byte !== LF && byte !== CR) {
        lineIsEmpty = false;
        if (lf < pos) lf = indexOrEnd(chunk, LF, pos);
        if (cr < pos) cr = indexOrEnd(chunk, CR, pos);
        pos = Math.min(lf, cr);
        if (pos === length) break;
        byte = chunk[pos];
      }
      pos++;
      if (byte === CR) {
        if (pos === length) this.#afterCr = true;
        else if (chunk[pos] === LF) pos++;
      }
      if (lineIsEmpty) {
        if (pos - frameStart > this.#maxFrameBytes) break;
        ends.push(held + pos);
        frameStart = pos;
      }
      lineIsEmpty = true;
    }
    this.#lineIsEmpty = lineIsEmpty;
    if (pos - frameStart > this.#maxFrameBytes) {
      this.#tooLarge = true;
      if (ends.length === 0) throw this.#refusal();
    }
    if (ends.length === 0) {
      this.#keep(chunk, 0);
      return NO_FRAMES;
    }
    const bytes = this.#joined(chunk, frameStart);
    this.#held = 0;
    if (this.#hold.length > KEPT_HOLD) this.#hold = NO_FRAMES.bytes;
    this.#keep(chunk, frameStart);
    return { bytes, ends };
  }

  /** The bytes of the frame that is not complete: what is left when the stream has ended. A copy. */
  rest(): Buffer {
    return Buffer.from(this.#hold.subarray(0, this.#held));
  }

  /** What was held, and the chunk up to `end`; the chunk itself where that is the same. */
  #joined(chunk: Buffer, end: number): Buffer {
    if (this.#held === 0) return end === chunk.length ? chunk : chunk.subarray(0, end);
    const joined = Buffer.allocUnsafe(this.#held + end);
    this.#hold.copy(joined, 0, 0, this.#held);
    chunk.copy(joined, this.#held, 0, end);
    return joined;
  }

  /** Holds the chunk from `start` on. The room doubles, so a frame that trickles in is not copied for every byte. */
  #keep(chunk: Buffer, start: number): void {
    const size = this.#held + chunk.length - start;
    if (size > this.#hold.length) {
      const room = Buffer.allocUnsafe(Math.max(size, 2 * this.#hold.length, SMALL_HOLD));
      this.#hold.copy(room, 0, 0, this.#held);
      this.#hold = room;
    }
    chunk.copy(this.#hold, this.#held, start);
    this.#held = size;
  }

  #refusal(): GatewayError {
    return new GatewayError('upstream_unusable_response', undefined, {
      cause: `an event of the stream is larger than ${this.#maxFrameBytes} bytes`,
    });
  }
}

function indexOrEnd(bytes: Buffer, byte: number, from: number): number {
  const index = bytes.indexOf(byte, from);
  return index < 0 ? bytes.length : index;
}
