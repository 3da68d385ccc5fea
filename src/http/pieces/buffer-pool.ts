// Pool of reference-counted buffers for large bodies: new external memory for every body would make V8 run full garbage
// collections. The reader and the writer of a body each hold its buffer; the last release returns it to the pool.
import { GatewayError } from '../../errors.ts';

const MIB = 1024 * 1024;
const MIN_SIZE = MIB / 8;
/** Larger bodies are rare and get new memory. */
const MAX_SIZE = 32 * MIB;

interface BufferPoolOptions {
  /** Maximum bytes of free buffers; buffers in use do not count. Default 128 MiB. */
  readonly maxRetained?: number;
  /** Milliseconds after which an unused free buffer is dropped. Default 10 seconds. */
  readonly idleMs?: number;
  /** Reports the bytes of free buffers. */
  readonly gauge?: { set(bytes: number): void };
}

/** By memory, so that a view of a body can hold the whole buffer. */
const pooled = new WeakMap<ArrayBufferLike, PooledBuffer>();

/** The pooled buffer behind these bytes; undefined if they have their own memory, or it was released. */
export function pooledBufferOf({ buffer }: Buffer): PooledBuffer | undefined {
  return pooled.get(buffer);
}

/** A buffer in use. The taker has the first hold. */
export class PooledBuffer {
  readonly bytes: Buffer;
  readonly #onFree: (memory: ArrayBuffer) => void;
  readonly #memory: ArrayBuffer;
  #holds = 1;

  constructor(memory: ArrayBuffer, onFree: (memory: ArrayBuffer) => void) {
    this.#memory = memory;
    this.bytes = Buffer.from(memory);
    this.#onFree = onFree;
    pooled.set(memory, this);
  }

  /**
   * Adds a hold, which needs a `release` of its own.
   * @throws GatewayError internal_error if the buffer was already returned
   */
  hold(): void {
    if (this.#holds === 0) throw releasedError();
    this.#holds += 1;
  }

  /**
   * Ends one hold. Call it when nothing reads the buffer any more, the kernel included.
   * @throws GatewayError internal_error if there is no hold
   */
  release(): void {
    if (this.#holds === 0) throw releasedError();
    this.#holds -= 1;
    if (this.#holds > 0) return;
    pooled.delete(this.#memory);
    // The memory moves to a new ArrayBuffer and all views of this one become empty: a use after release reads nothing, and
    // never another request's body.
    this.#onFree(this.#memory.transfer());
  }
}

interface FreeBuffer {
  readonly memory: ArrayBuffer;
  readonly since: number;
}

export class BufferPool {
  readonly #maxRetained: number;
  readonly #idleMs: number;
  readonly #gauge: BufferPoolOptions['gauge'];
  /** By size, as stacks: the last returned is taken first. */
  readonly #free = new Map<number, FreeBuffer[]>();
  #retained = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor({ maxRetained = 128 * MIB, idleMs = 10_000, gauge }: BufferPoolOptions = {}) {
    this.#maxRetained = maxRetained;
    this.#idleMs = idleMs;
    this.#gauge = gauge;
  }

  /** Bytes of free buffers. */
  get retained(): number {
    return this.#retained;
  }

  /** @param bytes minimum size; the content is undefined @returns an exclusive buffer with one hold */
  take(bytes: number): PooledBuffer {
    if (bytes > MAX_SIZE) return new PooledBuffer(allocate(bytes), drop);
    const size = sizeFor(bytes);
    // A somewhat larger buffer is better than new memory.
    for (let larger = size; larger <= 2 * size; larger = sizeFor(larger + 1)) {
      const memory = this.#free.get(larger)?.pop()?.memory;
      if (memory === undefined) continue;
      this.#count(-larger);
      return new PooledBuffer(memory, this.#retain);
    }
    return new PooledBuffer(allocate(size), this.#retain);
  }

  readonly #retain = (memory: ArrayBuffer): void => {
    const size = memory.byteLength;
    if (this.#retained + size > this.#maxRetained) {
      drop(memory);
      return;
    }
    const free = this.#free.get(size);
    const entry = { memory, since: performance.now() };
    if (free === undefined) this.#free.set(size, [entry]);
    else free.push(entry);
    this.#count(size);
    this.#timer ??= setTimeout(this.#onIdle, this.#idleMs).unref();
  };

  readonly #onIdle = (): void => {
    this.#timer = undefined;
    const before = performance.now() - this.#idleMs;
    for (const [size, free] of this.#free) {
      while (free[0] !== undefined && free[0].since <= before) {
        drop(free[0].memory);
        free.shift();
        this.#count(-size);
      }
    }
    if (this.#retained > 0) this.#timer = setTimeout(this.#onIdle, this.#idleMs).unref();
  };

  #count(bytes: number): void {
    this.#retained += bytes;
    this.#gauge?.set(this.#retained);
  }
}

/** Rounds up to one of four sizes between two powers of two, to bound unused memory. */
function sizeFor(bytes: number): number {
  if (bytes <= MIN_SIZE) return MIN_SIZE;
  const step = 2 ** Math.floor(Math.log2(bytes - 1)) / 4;
  return Math.ceil(bytes / step) * step;
}

/** Frees at once: an idle process would collect it late, and a busy one would start a garbage collection for it. */
function drop(memory: ArrayBuffer): void {
  memory.transfer(0);
}

function allocate(bytes: number): ArrayBuffer {
  const { buffer } = Buffer.allocUnsafeSlow(bytes);
  return buffer;
}

function releasedError(): GatewayError {
  return new GatewayError('internal_error', undefined, {
    cause: new Error('a pooled buffer was used after its release'),
  });
}
