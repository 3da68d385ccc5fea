// Cuts a byte stream into SSE frames (WHATWG HTML, 9.2.6: lines end with LF, CR or CRLF). It returns every byte, in order and
// unchanged; chat-chunk.ts reads the frames.
import { GatewayError } from '../errors.ts';

const LF = 0x0a;
const CR = 0x0d;

/** Maximum frame size. Real frames have a few hundred bytes, those with images in base64 more. */
const DEFAULT_MAX_FRAME_BYTES = 1024 * 1024;
/** Initial buffer of a partial frame, and the largest buffer that is kept after it. */
const SMALL_HOLD = 4096;
const KEPT_HOLD = 64 * 1024;

/** The frames that one piece of the stream completed. */
export interface FrameBatch {
  /** The frames, end to end, which can be written to the client at once if nothing changes. */
  readonly bytes: Buffer;
  /** End offset of each frame in `bytes`; each begins at the end of the previous one, the first at 0. */
  readonly ends: readonly number[];
}

const NO_FRAMES: FrameBatch = { bytes: Buffer.alloc(0), ends: [] };

/**
 * Reads one stream. A frame is everything up to and including a blank line; all batches and `rest()` together are the stream.
 *
 * A frame is returned at the first byte that completes its blank line. If that is a CR at the end of a piece, an LF may follow and
 * belong to it: it is then the first frame of the next batch, a comment of one byte that must be written like any other. Except for
 * these one-byte frames, the frames do not depend on where the stream was cut into pieces.
 */
export class SseFrameScanner {
  readonly #maxFrameBytes: number;
  /** The incomplete frame is in the first `#held` bytes. */
  #hold = NO_FRAMES.bytes;
  #held = 0;
  /** Whether the line of the next byte is empty so far. */
  #lineIsEmpty = true;
  /** The last byte was a CR, so that a following LF belongs to its line end. */
  #afterCr = false;
  #tooLarge = false;

  /** @param maxFrameBytes the largest frame, complete or not; default 1 MiB */
  constructor(maxFrameBytes: number = DEFAULT_MAX_FRAME_BYTES) {
    this.#maxFrameBytes = maxFrameBytes;
  }

  /**
   * Adds the next piece of the stream, cut anywhere.
   * @returns the frames that it completed; possibly a view of `chunk`, which must then stay unchanged
   * @throws GatewayError `upstream_unusable_response` if a frame is too large. Complete frames before it in the same piece are
   *   returned first, and the next call throws.
   */
  push(chunk: Buffer): FrameBatch {
    if (this.#tooLarge) throw this.#rejection();
    const { length } = chunk;
    if (length === 0) return NO_FRAMES;
    const held = this.#held;
    const ends: number[] = [];
    // Offsets in the loop are those of the chunk; the held frame began before it.
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
      if (ends.length === 0) throw this.#rejection();
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

  /**
   * A copy of the incomplete frame, which remains when the stream has ended. While it is empty, a frame (a comment, an error) may be
   * inserted after the written batches. Behind a CR too: a late LF is then one more blank line, which dispatches nothing. An inserted
   * frame must end with LF LF: a final CR would swallow that LF.
   */
  rest(): Buffer {
    return Buffer.from(this.#hold.subarray(0, this.#held));
  }

  /** The held bytes and the chunk up to `end`; a view of the chunk if nothing was held. */
  #joined(chunk: Buffer, end: number): Buffer {
    if (this.#held === 0) return end === chunk.length ? chunk : chunk.subarray(0, end);
    const joined = Buffer.allocUnsafe(this.#held + end);
    this.#hold.copy(joined, 0, 0, this.#held);
    chunk.copy(joined, this.#held, 0, end);
    return joined;
  }

  /** Holds the chunk from `start` on. The buffer doubles, so that a slowly arriving frame is not copied for every byte. */
  #keep(chunk: Buffer, start: number): void {
    const size = this.#held + chunk.length - start;
    if (size > this.#hold.length) {
      const larger = Buffer.allocUnsafe(Math.max(size, 2 * this.#hold.length, SMALL_HOLD));
      this.#hold.copy(larger, 0, 0, this.#held);
      this.#hold = larger;
    }
    chunk.copy(this.#hold, this.#held, start);
    this.#held = size;
  }

  #rejection(): GatewayError {
    return new GatewayError('upstream_unusable_response', undefined, {
      cause: `an event of the stream is larger than ${this.#maxFrameBytes} bytes`,
    });
  }
}

function indexOrEnd(bytes: Buffer, byte: number, from: number): number {
  const index = bytes.indexOf(byte, from);
  return index < 0 ? bytes.length : index;
}
