// The memory that one large body stands in while it is read: a slab, and another one when it has outgrown that.
import type { Slab, SlabPool } from './slab-pool.ts';

export class BodyMemory {
  readonly #slabs: SlabPool;
  #slab: Slab | undefined;
  /** What stood in it is being copied. */
  #outgrown: Slab | undefined;

  /** It costs nothing until a body turns out to be large. */
  constructor(slabs: SlabPool) {
    this.#slabs = slabs;
  }

  /** @returns memory for at least so many bytes. What was taken before lasts until `moved` */
  take(bytes: number): Buffer {
    this.#outgrown = this.#slab;
    this.#slab = this.#slabs.take(bytes);
    return this.#slab.bytes;
  }

  /** All that has come stands in what was taken last. */
  moved(): void {
    this.#outgrown?.release();
    this.#outgrown = undefined;
  }

  /** The body is not read any more but by who holds its slab. Idempotent. */
  release(): void {
    this.moved();
    this.#slab?.release();
    this.#slab = undefined;
  }
}
