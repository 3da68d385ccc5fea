// Memory for large bodies that is used again: what V8 is given to count as new, for every body, makes it collect all of the heap
// again and again. Who reads a body, and who writes one, each hold the slab that it stands in; the last one gives it back.
import { GatewayError } from '../../errors.ts';

const MIB = 1024 * 1024;
const SMALLEST = MIB / 8;
/** Larger bodies are rare enough to get new memory each time. */
const LARGEST = 32 * MIB;

interface BufferPoolOptions {
  /** Bytes that may be kept for later. What is in use is not in it. Default 128 MiB. */
  readonly most?: number;
  /** Milliseconds after which a slab that nobody took is let go. Default 10 seconds. */
  readonly idleMs?: number;
  /** Hears of the bytes that are kept. */
  readonly gauge?: { set(bytes: number): void };
}

/** By its memory, so that whoever has a part of a body can hold all of it. */
const slabs = new WeakMap<ArrayBufferLike, PooledBuffer>();

/** The slab that these bytes stand in; undefined where they are in memory of their own, or it was given back. */
export function pooledBufferOf({ buffer }: Buffer): PooledBuffer | undefined {
  return slabs.get(buffer);
}

/** Memory that one request has. Who took it holds it. */
export class PooledBuffer {
  readonly bytes: Buffer;
  readonly #onFree: (memory: ArrayBuffer) => void;
  readonly #memory: ArrayBuffer;
  #holds = 1;

  constructor(memory: ArrayBuffer, onFree: (memory: ArrayBuffer) => void) {
    this.#memory = memory;
    this.bytes = Buffer.from(memory);
    this.#onFree = onFree;
    slabs.set(memory, this);
  }

  /**
   * Nobody else gets the memory before a `release` more.
   * @throws GatewayError internal_error when it was given back
   */
  hold(): void {
    if (this.#holds === 0) throw spent();
    this.#holds += 1;
  }

  /**
   * To be called once for each hold, when nothing of it is read any more, not by the system either.
   * @throws GatewayError internal_error when nobody holds it
   */
  release(): void {
    if (this.#holds === 0) throw spent();
    this.#holds -= 1;
    if (this.#holds > 0) return;
    slabs.delete(this.#memory);
    // The memory goes on in another object, and every view of this one is empty from now on: who reads a body that was given
    // back finds nothing, and never the body of somebody else.
    this.#onFree(this.#memory.transfer());
  }
}

interface Free {
  readonly memory: ArrayBuffer;
  readonly since: number;
}

export class BufferPool {
  readonly #most: number;
  readonly #idleMs: number;
  readonly #gauge: BufferPoolOptions['gauge'];
  /** By size; the last one was given back last, and is taken first. */
  readonly #free = new Map<number, Free[]>();
  #retained = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor({ most = 128 * MIB, idleMs = 10_000, gauge }: BufferPoolOptions = {}) {
    this.#most = most;
    this.#idleMs = idleMs;
    this.#gauge = gauge;
  }

  /** Bytes that are kept for later. */
  get retained(): number {
    return this.#retained;
  }

  /**
   * @param bytes at least so many; what stands in them is not defined
   * @returns a slab that nobody else has, with one hold on it
   */
  take(bytes: number): PooledBuffer {
    if (bytes > LARGEST) return new PooledBuffer(fresh(bytes), letGo);
    const size = sizeFor(bytes);
    // One that is somewhat larger is better than new memory.
    for (let larger = size; larger <= 2 * size; larger = sizeFor(larger + 1)) {
      const memory = this.#free.get(larger)?.pop()?.memory;
      if (memory === undefined) continue;
      this.#count(-larger);
      return new PooledBuffer(memory, this.#keep);
    }
    return new PooledBuffer(fresh(size), this.#keep);
  }

  readonly #keep = (memory: ArrayBuffer): void => {
    const size = memory.byteLength;
    if (this.#retained + size > this.#most) {
      letGo(memory);
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
        letGo(free[0].memory);
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

/** The next of four sizes between two powers of two: what is not used of a slab counts as if it were. */
function sizeFor(bytes: number): number {
  if (bytes <= SMALLEST) return SMALLEST;
  const step = 2 ** Math.floor(Math.log2(bytes - 1)) / 4;
  return Math.ceil(bytes / step) * step;
}

/** At once: an idle process collects nothing for a long time, and a busy one is not to begin for it. */
function letGo(memory: ArrayBuffer): void {
  memory.transfer(0);
}

function fresh(bytes: number): ArrayBuffer {
  const { buffer } = Buffer.allocUnsafeSlow(bytes);
  return buffer;
}

function spent(): GatewayError {
  return new GatewayError('internal_error', undefined, { cause: new Error('a slab that was given back') });
}
