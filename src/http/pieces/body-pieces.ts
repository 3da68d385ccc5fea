// A body in memory with edited spans, without a copy. It is sent piece by piece, so that no single write takes long. The
// reader holds the pooled buffer behind it.
import { GatewayError } from '../../errors.ts';
import type { BodyReader, BodySource } from './body-source.ts';
import { type PooledBuffer, pooledBufferOf } from './buffer-pool.ts';

/** Bytes per write: the kernel copies them in one go, which blocks the event loop. */
const STEP = 128 * 1024;
/** A shorter piece is sent together with the following bytes. */
const SHORT = 16 * 1024;

export class BodyPieces implements BodySource {
  readonly isInMemory = true;
  readonly length: number;
  readonly #pieces: readonly Buffer[];

  /** @param pieces views of at most one pooled buffer; any others are small and owned by the caller */
  constructor(pieces: readonly Buffer[]) {
    this.#pieces = pieces;
    this.length = sizeOf(pieces);
  }

  open(): BodyReader {
    // A pooled buffer that was released too early is empty: send nothing rather than another body.
    return sizeOf(this.#pieces) === this.length ? new PiecesReader(this.#pieces, this.length) : RELEASED;
  }

  /** A contiguous copy of all bytes. */
  toBuffer(): Buffer {
    return Buffer.concat(this.#pieces);
  }

  copyTo(target: Buffer, at: number): boolean {
    let end = at;
    for (const piece of this.#pieces) end += piece.copy(target, end);
    return end - at === this.length;
  }
}

class PiecesReader implements BodyReader {
  readonly #pieces: readonly Buffer[];
  readonly #pooled: PooledBuffer | undefined;
  #isHeld = true;
  #left: number;
  #piece = 0;
  /** Offset in the current piece. */
  #at = 0;

  constructor(pieces: readonly Buffer[], length: number) {
    this.#pieces = pieces;
    this.#left = length;
    for (const piece of pieces) this.#pooled ??= pooledBufferOf(piece);
    this.#pooled?.hold();
  }

  async next(): Promise<Buffer | undefined> {
    if (this.#left === 0) return undefined;
    const piece = this.#pieces[this.#piece];
    const size = Math.min(STEP, (piece?.length ?? 0) - this.#at);
    if (piece === undefined || (size < SHORT && size < this.#left)) return this.#gather();
    this.#at += size;
    this.#left -= size;
    return piece.subarray(this.#at - size, this.#at);
  }

  cancel(): void {}

  released(): void {
    if (!this.#isHeld) return;
    this.#isHeld = false;
    this.#pooled?.release();
  }

  /** Copies the next bytes of several short pieces. */
  #gather(): Buffer {
    const bytes = Buffer.allocUnsafe(Math.min(2 * SHORT, this.#left));
    for (let to = 0; to < bytes.length; ) {
      const piece = this.#pieces[this.#piece];
      if (piece === undefined) throw releasedError();
      const size = piece.copy(bytes, to, this.#at);
      to += size;
      this.#at += size;
      if (this.#at === piece.length) {
        this.#piece += 1;
        this.#at = 0;
      }
    }
    this.#left -= bytes.length;
    return bytes;
  }
}

const RELEASED: BodyReader = {
  async next() {
    throw releasedError();
  },
  cancel() {},
};

function releasedError(): GatewayError {
  const cause = new Error('the buffer of a body was released before the body was sent');
  return new GatewayError('internal_error', undefined, { cause });
}

function sizeOf(pieces: readonly Buffer[]): number {
  return pieces.reduce((sum, { length }) => sum + length, 0);
}
