// Collects the pieces of a body into one Buffer. A large body of known length is copied piece by piece into its place, so
// that its end does not stop the event loop for one large copy.

/** Up to this size, in bytes, pieces are kept as they came: most bodies are one piece, and space announced is not yet space needed. */
export const LARGE_BODY = 64 * 1024;

/** Where large bodies are put, and who looks at them as they come. */
export interface LargeBody {
  /**
   * Asked once, as soon as the body is known to be large: before it is read where its length is announced, else before more of it
   * is read. A rejection (with a GatewayError) ends the reading. Default: it may come.
   */
  readonly admit?: (() => Promise<void>) | undefined;
  /** @returns memory for at least so many bytes */
  take(bytes: number): Buffer;
  /** @param bytes the memory that was taken last, of which `size` bytes have come; what was taken before is not used any more */
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
   * @param limit most bytes
   * @param expected how many will come, if that was announced
   * @param large default: new memory, and nobody. Who gives it also gives the pieces away: nobody reads them any more
   */
  constructor(limit: number, expected?: number, large?: LargeBody) {
    this.#limit = limit;
    this.#large = large;
    this.#expected = expected;
  }

  get size(): number {
    return this.#size;
  }

  /** @returns false if this piece goes over the limit; it is not kept then */
  push(piece: Buffer): boolean {
    const size = this.#size + piece.length;
    if (size > this.#limit) return false;
    if (this.#space === undefined && size > LARGE_BODY) this.#gather(size);
    if (this.#space === undefined) this.#pieces.push(piece);
    else {
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

  /** The whole body. Nothing may be pushed after it. */
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

/**
 * Gives back the memory of a piece that was copied, if it is the piece's own. At once: V8 counts what such memory comes to, and
 * would begin to collect all of the heap every three bodies of 20 MiB.
 */
function free({ buffer, length }: Buffer): void {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === length) buffer.transfer(0);
}
