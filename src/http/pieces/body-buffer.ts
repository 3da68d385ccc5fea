// Collects the pieces of a body into one Buffer. A large body is copied into place piece by piece, so that its end does not block
// the event loop with one large copy.

/** Up to this size in bytes, pieces are kept as received: most bodies are one piece, and announced bytes may never come. */
export const LARGE_BODY = 64 * 1024;

/** So many pieces are merged into one, because a piece of one byte takes 200 bytes of memory. */
const MAX_PIECES = 256;

/** Memory for a large body, and an observer of its progress. */
export interface LargeBody {
  /**
   * Admission control: called once, as soon as the body is known to be large: before reading if its length is announced, else before
   * reading on. A rejection (with a GatewayError) ends the reading. Default: always admitted.
   */
  readonly admit?: (() => Promise<void>) | undefined;
  /** @returns memory for at least this many bytes */
  take(bytes: number): Buffer;
  /** @param bytes the memory taken last, filled up to `size`; memory taken before is no longer used */
  arrived(bytes: Buffer, size: number): void;
}

export class BodyBuffer {
  readonly #large: LargeBody | undefined;
  readonly #expected: number | undefined;
  readonly #limit: number;
  #pieces: Buffer[] = [];
  #space: Buffer | undefined;
  #size = 0;

  /**
   * @param limit maximum bytes
   * @param expected announced length, if any
   * @param large default: new memory, no observer. With it, the caller also hands over the pieces: their memory is freed
   */
  constructor(limit: number, expected?: number, large?: LargeBody) {
    this.#limit = limit;
    this.#large = large;
    this.#expected = expected;
  }

  get size(): number {
    return this.#size;
  }

  /** @returns false if the piece exceeds the limit; it is not stored then */
  push(piece: Buffer): boolean {
    const size = this.#size + piece.length;
    if (size > this.#limit) return false;
    if (this.#space === undefined && size > LARGE_BODY) this.#gather(size);
    if (this.#space === undefined) {
      if (this.#pieces.length === MAX_PIECES) this.#pieces = [Buffer.concat(this.#pieces)];
      this.#pieces.push(piece);
    } else {
      if (size > this.#space.length) this.#grow(size);
      piece.copy(this.#space, this.#size);
      if (this.#large !== undefined) {
        free(piece);
        this.#large.arrived(this.#space, size);
      }
    }
    this.#size = size;
    return true;
  }

  /** The complete body. Push nothing after this. */
  take(): Buffer {
    if (this.#space !== undefined) return this.#space.subarray(0, this.#size);
    const [first] = this.#pieces;
    return this.#pieces.length === 1 && first !== undefined ? first : Buffer.concat(this.#pieces, this.#size);
  }

  #gather(size: number): void {
    this.#space = this.#take(Math.min(Math.max(this.#expected ?? size * 2, size), this.#limit));
    let at = 0;
    for (const piece of this.#pieces) {
      at += piece.copy(this.#space, at);
      if (this.#large !== undefined) free(piece);
    }
    this.#pieces = [];
  }

  #grow(size: number): void {
    const larger = this.#take(Math.min(size * 2, this.#limit));
    this.#space?.copy(larger, 0, 0, this.#size);
    this.#space = larger;
  }

  #take(bytes: number): Buffer {
    return this.#large?.take(bytes) ?? Buffer.allocUnsafeSlow(bytes);
  }
}

/** The whole body, or undefined if it is larger. @param limit in bytes @throws (rejects with) what the pieces throw */
export async function wholeBody(pieces: AsyncIterable<Buffer>, limit: number): Promise<Buffer | undefined> {
  const body = new BodyBuffer(limit);
  for await (const piece of pieces) if (!body.push(piece)) return undefined;
  return body.take();
}

/**
 * Frees the memory of a copied piece, if it owns its memory. At once, because V8 counts external memory: it would otherwise start a
 * full garbage collection every three bodies of 20 MiB.
 */
function free({ buffer, length }: Buffer): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === length) buffer.transfer(0);
}
