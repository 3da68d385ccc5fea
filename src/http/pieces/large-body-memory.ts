// The memory that one large body stands in while it is read: a slab, and another one when it has outgrown that. What is read of
// it is for who extends this.
import type { LargeBody } from './body-buffer.ts';
import type { BufferPool, PooledBuffer } from './buffer-pool.ts';

export abstract class BodyMemory implements LargeBody {
  readonly #buffers: BufferPool;
  #pooled: PooledBuffer | undefined;
  /** What stood in it is being copied. */
  #outgrown: PooledBuffer | undefined;

  readonly admit: (() => Promise<void>) | undefined;

  /**
   * It costs nothing until a body turns out to be large.
   * @param admit see `LargeBody`
   */
  constructor(buffers: BufferPool, admit?: () => Promise<void>) {
    this.#buffers = buffers;
    this.admit = admit;
  }

  take(bytes: number): Buffer {
    this.#outgrown = this.#pooled;
    this.#pooled = this.#buffers.take(bytes);
    return this.#pooled.bytes;
  }

  arrived(bytes: Buffer, size: number): void {
    this.#letOutgrown();
    this.advance(bytes, size);
  }

  /** The body is not read any more but by who holds its slab. Idempotent. */
  release(): void {
    this.#letOutgrown();
    this.#pooled?.release();
    this.#pooled = undefined;
  }

  /** More has come, as in `arrived`. */
  protected abstract advance(bytes: Buffer, size: number): void;

  #letOutgrown(): void {
    this.#outgrown?.release();
    this.#outgrown = undefined;
  }
}
