// Memory of one large body during reading: a pooled buffer, replaced by a larger one when it is full. Subclasses read the body.
import type { LargeBody } from './body-buffer.ts';
import type { BufferPool, PooledBuffer } from './buffer-pool.ts';

export abstract class BodyMemory implements LargeBody {
  readonly #buffers: BufferPool;
  #pooled: PooledBuffer | undefined;
  /** The previous buffer, while its content is copied. */
  #outgrown: PooledBuffer | undefined;

  readonly admit: (() => Promise<void>) | undefined;

  /** Allocates nothing until a body turns out to be large. @param admit see `LargeBody` */
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
    this.#releaseOutgrown();
    this.advance(bytes, size);
  }

  /** Ends the hold on the buffer; other holders keep it. Idempotent. */
  release(): void {
    this.#releaseOutgrown();
    this.#pooled?.release();
    this.#pooled = undefined;
  }

  /** More bytes arrived; see `LargeBody.arrived`. */
  protected abstract advance(bytes: Buffer, size: number): void;

  #releaseOutgrown(): void {
    this.#outgrown?.release();
    this.#outgrown = undefined;
  }
}
