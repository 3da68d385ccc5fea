// The memory that one large body stands in while it is read: a slab, and another one when it has outgrown that. What is read of
// it is for who extends this.
import type { LargeBody } from './body-buffer.ts';
import type { PooledBuffer, BufferPool } from './buffer-pool.ts';

export abstract class BodyMemory implements LargeBody {
  readonly #slabs: BufferPool;
  #slab: PooledBuffer | undefined;
  /** What stood in it is being copied. */
  #outgrown: PooledBuffer | undefined;

  readonly admit: (() => Promise<void>) | undefined;

  /**
   * It costs nothing until a body turns out to be large.
   * @param admit see `LargeBody`
   */
  constructor(slabs: BufferPool, admit?: () => Promise<void>) {
    this.#slabs = slabs;
    this.admit = admit;
  }

  take(bytes: number): Buffer {
    this.#outgrown = this.#slab;
    this.#slab = this.#slabs.take(bytes);
    return this.#slab.bytes;
  }

  arrived(bytes: Buffer, size: number): void {
    this.#letOutgrown();
    this.advance(bytes, size);
  }

  /** The body is not read any more but by who holds its slab. Idempotent. */
  release(): void {
    this.#letOutgrown();
    this.#slab?.release();
    this.#slab = undefined;
  }

  /** More has come, as in `arrived`. */
  protected abstract advance(bytes: Buffer, size: number): void;

  #letOutgrown(): void {
    this.#outgrown?.release();
    this.#outgrown = undefined;
  }
}
