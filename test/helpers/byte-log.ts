// Bytes as they arrived, with the time of each piece. Joins lazily, so that a long stream costs no copy per piece.

export interface Piece {
  readonly bytes: Buffer;
  /** `performance.now()` when the piece was read from the socket. */
  readonly at: number;
}

export class ByteLog {
  readonly pieces: Piece[] = [];
  #length = 0;
  #joined: Buffer | undefined;

  get length(): number {
    return this.#length;
  }

  /** All bytes so far in one buffer. */
  get bytes(): Buffer {
    this.#joined ??= Buffer.concat(this.pieces.map((piece) => piece.bytes));
    return this.#joined;
  }

  push(bytes: Buffer, at: number = performance.now()): void {
    this.pieces.push({ bytes, at });
    this.#length += bytes.length;
    this.#joined = undefined;
  }
}
