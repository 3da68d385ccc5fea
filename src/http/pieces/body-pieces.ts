// A large body in memory, with some of its bytes replaced and nothing copied: it is sent piece by piece, so that no single
// write is long. Whoever sends it holds the slab that it stands in.
import { GatewayError } from '../../errors.ts';
import type { BodyReader, BodySource } from './body-source.ts';
import { type PooledBuffer, pooledBufferOf } from './buffer-pool.ts';

/** Of one write: what the system takes of it at once, everybody else waits for. */
const STEP = 128 * 1024;
/** A shorter piece goes out in one with what follows it. */
const SHORT = 16 * 1024;

export class BodyPieces implements BodySource {
  readonly isInMemory = true;
  readonly length: number;
  readonly #pieces: readonly Buffer[];

  /** @param pieces of at most one slab; others are small and nobody's else */
  constructor(pieces: readonly Buffer[]) {
    this.#pieces = pieces;
    this.length = sizeOf(pieces);
  }

  open(): BodyReader {
    // Given back too early, it is empty: then nothing is sent, instead of something else.
    return sizeOf(this.#pieces) === this.length ? new PiecesReader(this.#pieces, this.length) : GIVEN_BACK;
  }

  /** A copy of all of it in one, for who cannot do with less. */
  whole(): Buffer {
    return Buffer.concat(this.#pieces);
  }
}

class PiecesReader implements BodyReader {
  readonly #pieces: readonly Buffer[];
  readonly #pooled: PooledBuffer | undefined;
  #isHeld = true;
  #left: number;
  #piece = 0;
  /** Of the present piece. */
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

  /** The next bytes of several pieces. */
  #gather(): Buffer {
    const bytes = Buffer.allocUnsafe(Math.min(2 * SHORT, this.#left));
    for (let to = 0; to < bytes.length; ) {
      const piece = this.#pieces[this.#piece];
      if (piece === undefined) throw givenBack();
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

const GIVEN_BACK: BodyReader = {
  async next() {
    throw givenBack();
  },
  cancel() {},
};

function givenBack(): GatewayError {
  const cause = new Error('a body that was given back before it was sent');
  return new GatewayError('internal_error', undefined, { cause });
}

function sizeOf(pieces: readonly Buffer[]): number {
  return pieces.reduce((sum, { length }) => sum + length, 0);
}
