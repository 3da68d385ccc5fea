// A streaming scan of a large embeddings answer: pieces go in as they arrive and come out for the client, with the model name replaced
// and, if requested, vectors converted to base64. Numbers and texts are skipped natively (`indexOf`).
import { GatewayError } from '../../errors.ts';
import { parseUsage, type Usage } from '../../wire/token-usage.ts';
import { base64 } from './embeddings-form.ts';

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const SPACE = 0x20;

/** An answer has five levels. */
const MAX_DEPTH = 64;
const MAX_KEY = 64;
/** Vectors have some thousand numbers of at most 25 bytes. */
const MAX_VECTOR_BYTES = 4 * 1024 * 1024;
const MAX_USAGE_BYTES = 64 * 1024;

type Text = 'key' | 'model' | 'other';

export class EmbeddingsScan {
  readonly #alias: Buffer | undefined;
  readonly #inBase64: boolean;
  /** The closing byte of each open container, innermost last. */
  readonly #closers: number[] = [];
  /** The last key of the outermost object, and of the object at depth 3: an element of `data`. */
  #outerKey = '';
  #elementKey = '';
  #awaitsKey = false;
  /** The string at the current position. */
  #text: Text | undefined;
  #isEscaped = false;
  #key = '';
  /** The vector at the current position; its bytes are kept for conversion only. */
  #vector: { readonly pieces: Buffer[]; size: number } | undefined;
  #usage: Buffer[] | undefined;
  #usageBytes = 0;
  #hasBegun = false;
  /** The list of embeddings has begun. */
  hasData = false;
  /** Of the last `usage` member. */
  usage: Usage | null = null;

  /**
   * @param alias JSON string token for `model`, or undefined to leave it
   * @param inBase64 convert vectors of numbers to base64
   */
  constructor(alias: Buffer | undefined, inBase64: boolean) {
    this.#alias = alias;
    this.#inBase64 = inBase64;
  }

  /** The outermost object is closed. */
  get isWhole(): boolean {
    return this.#hasBegun && this.#closers.length === 0;
  }

  /**
   * @param piece the next bytes; not changed
   * @returns the bytes for the client, including views of `piece`
   * @throws GatewayError upstream_invalid_response where it cannot be JSON, or a vector cannot be converted
   */
  next(piece: Buffer): Buffer[] {
    const out: Buffer[] = [];
    /** The piece is copied to `out` or dropped up to here. */
    let copiedTo = 0;
    let captured = 0;
    let pos = 0;
    const take = (to: number) => {
      if (to > copiedTo) out.push(piece.subarray(copiedTo, to));
    };
    while (pos < piece.length) {
      if (this.#text !== undefined) {
        const end = this.#skipText(piece, pos);
        if (this.#text === undefined && this.#isReplaced) {
          if (this.#alias !== undefined) out.push(this.#alias);
          this.#isReplaced = false;
          copiedTo = end;
        } else if (this.#isReplaced) copiedTo = end;
        pos = end;
        continue;
      }
      if (this.#vector !== undefined) {
        const close = piece.indexOf(CLOSE_ARRAY, pos);
        const end = close === -1 ? piece.length : close + 1;
        if (this.#inBase64) {
          this.#addToVector(piece.subarray(pos, end));
          if (close !== -1) out.push(this.#convertedVector());
          copiedTo = end;
        }
        if (close !== -1) this.#vector = undefined;
        pos = end;
        continue;
      }
      const byte = piece[pos] ?? 0;
      if (byte === QUOTE) {
        this.#beginText();
        if (this.#isReplaced) {
          take(pos);
          copiedTo = pos + 1;
        }
      } else if (byte === OPEN_ARRAY && this.#isVectorNext) {
        this.#vector = { pieces: [], size: 0 };
        if (this.#inBase64) {
          take(pos);
          copiedTo = pos;
        }
        // The bracket belongs to the vector.
        if (this.#inBase64) this.#addToVector(piece.subarray(pos, pos + 1));
        if (this.#inBase64) copiedTo = pos + 1;
      } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        this.#open(byte);
        if (byte === OPEN_OBJECT && this.#closers.length === 2 && this.#outerKey === 'usage') {
          this.#usage = [];
          this.#usageBytes = 0;
          captured = pos;
        }
      } else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
        this.#close(byte);
        if (this.#usage !== undefined && this.#closers.length === 1) {
          this.#capture(piece.subarray(captured, pos + 1));
          this.#readUsage();
        }
      } else if (byte === COMMA) this.#awaitsKey = this.#closers.at(-1) === CLOSE_OBJECT;
      else if (byte > SPACE && this.#closers.length === 0) throw unusable('bytes outside the JSON object');
      pos += 1;
    }
    if (this.#usage !== undefined) this.#capture(piece.subarray(captured));
    take(piece.length);
    return out;
  }

  #isReplaced = false;

  get #isVectorNext(): boolean {
    return this.#closers.length === 3 && this.#outerKey === 'data' && this.#elementKey === 'embedding';
  }

  #beginText(): void {
    if (this.#closers.length === 0) throw unusable('a string outside the JSON object');
    this.#key = '';
    if (this.#awaitsKey) this.#text = 'key';
    else if (this.#closers.length === 1 && this.#outerKey === 'model') this.#text = 'model';
    else this.#text = 'other';
    this.#isReplaced = this.#text === 'model' && this.#alias !== undefined;
  }

  /** @returns the offset after the text, or the end of the piece */
  #skipText(piece: Buffer, start: number): number {
    let pos = start;
    while (pos < piece.length) {
      if (this.#isEscaped) {
        this.#isEscaped = false;
        pos += 1;
        continue;
      }
      const quote = indexOrEnd(piece, QUOTE, pos);
      const slash = piece.subarray(pos, quote).indexOf(BACKSLASH);
      const end = slash === -1 ? quote : pos + slash;
      if (this.#text === 'key' && this.#key.length < MAX_KEY)
        this.#key += piece.toString('latin1', pos, Math.min(end, pos + MAX_KEY));
      pos = end + 1;
      if (end === piece.length) return piece.length;
      if (slash === -1) {
        this.#endText();
        return pos;
      }
      this.#isEscaped = true;
    }
    return piece.length;
  }

  #endText(): void {
    if (this.#text === 'key') {
      this.#awaitsKey = false;
      if (this.#closers.length === 1) this.#outerKey = this.#key;
      else if (this.#closers.length === 3) this.#elementKey = this.#key;
    }
    this.#text = undefined;
  }

  #open(byte: number): void {
    if (this.#closers.length === 0 && (this.#hasBegun || byte !== OPEN_OBJECT))
      throw unusable('not a single JSON object');
    if (this.#closers.length >= MAX_DEPTH) throw unusable('nested too deeply');
    this.#hasBegun = true;
    // In ASCII, each closing bracket is two after its opening one.
    this.#closers.push(byte + 2);
    this.#awaitsKey = byte === OPEN_OBJECT;
    if (this.#closers.length === 3) this.#elementKey = '';
    this.hasData ||= byte === OPEN_ARRAY && this.#closers.length === 2 && this.#outerKey === 'data';
  }

  #close(byte: number): void {
    if (this.#closers.pop() !== byte) throw unusable('an unmatched closing bracket');
    this.#awaitsKey = false;
  }

  #addToVector(bytes: Buffer): void {
    const vector = this.#vector;
    if (vector === undefined) return;
    vector.size += bytes.length;
    if (vector.size > MAX_VECTOR_BYTES) throw unusable('a vector is too long');
    vector.pieces.push(bytes);
  }

  #convertedVector(): Buffer {
    const text = Buffer.concat(this.#vector?.pieces ?? []).toString('latin1');
    return Buffer.from(`"${base64(text)}"`);
  }

  #capture(bytes: Buffer): void {
    this.#usageBytes += bytes.length;
    if (this.#usageBytes > MAX_USAGE_BYTES) throw unusable('usage is too long');
    // A copy: the sender reuses the piece.
    this.#usage?.push(Buffer.from(bytes));
  }

  #readUsage(): void {
    const bytes = Buffer.concat(this.#usage ?? []);
    this.#usage = undefined;
    try {
      this.usage = parseUsage(bytes, { start: 0, end: bytes.length });
    } catch (error) {
      throw unusable(error);
    }
  }
}

function indexOrEnd(bytes: Buffer, byte: number, from: number): number {
  const index = bytes.indexOf(byte, from);
  return index === -1 ? bytes.length : index;
}

function unusable(cause: unknown): GatewayError {
  return new GatewayError('upstream_invalid_response', undefined, { cause });
}
