// The tokens of JSON (RFC 8259): strings, numbers, literals and white space. json.ts checks the order of tokens in a whole text,
// json-walk.ts in one that still arrives; plain-values.ts has the fast path over values that nobody reads.
import { hexValue, isDigit, type JsonFault, LETTER_U } from './json-bytes.ts';

/** Maximum nesting depth. RFC 8259, 9 allows a limit; this one makes the stack a fixed array. */
export const MAX_DEPTH = 1000;

const TAB = 0x09;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const PLUS = 0x2b;
const MINUS = 0x2d;
const DOT = 0x2e;
const ZERO = 0x30;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const LETTER_E = 0x65;

/** 1 for the bytes of two-character escapes. */
const SHORT_ESCAPES = new Uint8Array(256);
for (const byte of Buffer.from('"\\/bfnrt')) SHORT_ESCAPES[byte] = 1;

const NO_BYTES: Buffer = Buffer.alloc(0);
const NO_VIEW: DataView = new DataView(new ArrayBuffer(0));

/**
 * Flags the bytes of a word that end plain text: quotes, backslashes and control characters. They are the top bits of the bytes, as of
 * lanes: `(x - n) & ~x` has the top bit of a lane set if the lane is below `n` (exact for the lowest such lane). Flipping bit 1 first
 * moves the quote (0x22 → 0x20) next to the control characters, which stay below 0x20; flipping the bits of the backslash makes it 0.
 * Neither changes the top bits.
 */
export function flagsOf(word: number): number {
  const low = (word ^ 0x02020202) - 0x21212121;
  const slash = (word ^ 0x5c5c5c5c) - 0x01010101;
  return (low | slash) & ~word & 0x80808080;
}

/** The first byte with a flag, 0 to 3. */
export function firstFlag(flags: number): number {
  return (31 - Math.clz32(flags & -flags)) >> 3;
}

/** Its methods take an offset and return the one behind what they skipped, or -1 with the fault recorded. */
export class JsonTokens {
  fault: JsonFault | null = null;
  /** Offset of the faulty byte. */
  faultAt = 0;
  /** Whether white space contained CR or LF, which end a line of an SSE frame. */
  sawLineBreak = false;
  /** The last key, without its quotes, and whether it contains a backslash. */
  keyStart = 0;
  keyEnd = 0;
  escaped = false;
  /** Where the last incomplete string can be continued: at its end, or at an incomplete escape. */
  brokeAt = 0;
  /** The closing byte of each open container, innermost last. */
  readonly closers: Uint8Array;

  protected bytes = NO_BYTES;
  protected end = 0;
  /** The memory behind `bytes`, which begin at `base` in it. */
  protected view = NO_VIEW;
  protected base = 0;

  /** @param closers memory for `MAX_DEPTH` containers */
  constructor(closers: Uint8Array) {
    this.closers = closers;
  }

  protected setText(bytes: Buffer, end: number): void {
    this.bytes = bytes;
    if (this.view.buffer !== bytes.buffer) this.view = new DataView(bytes.buffer);
    this.base = bytes.byteOffset;
    this.end = end;
  }

  /** White space, a key and its colon. */
  protected skipKey(pos: number): number {
    const { bytes, end } = this;
    if (bytes[pos] !== QUOTE) pos = this.skipSpace(pos);
    if (pos >= end || bytes[pos] !== QUOTE) return this.refuse(pos);
    this.escaped = false;
    this.keyStart = pos + 1;
    pos = this.skipString(pos + 1);
    if (pos < 0) return -1;
    this.keyEnd = pos - 1;
    if (bytes[pos] !== COLON) pos = this.skipSpace(pos);
    return pos < end && bytes[pos] === COLON ? pos + 1 : this.refuse(pos);
  }

  /** A string from behind its opening quote. Plain text is skipped four bytes at a time. */
  skipString(pos: number): number {
    const { bytes, end, view, base } = this;
    const lastWord = end - 4;
    for (;;) {
      let found = 0;
      while (pos <= lastWord) {
        found = flagsOf(view.getInt32(base + pos, true));
        if (found !== 0) break;
        pos += 4;
      }
      if (found !== 0) pos += firstFlag(found);
      if (pos >= end) {
        this.brokeAt = end;
        return this.refuse(end);
      }
      const byte = bytes[pos] ?? 0;
      if (byte === QUOTE) return pos + 1;
      if (byte < SPACE) return this.refuse(pos, 'raw control character in a string');
      if (byte !== BACKSLASH) {
        pos++; // One of the last three bytes, which are not read as a word.
        continue;
      }
      this.escaped = true;
      do {
        const isShort = pos + 1 < end && SHORT_ESCAPES[bytes[pos + 1] ?? 0] === 1;
        pos = isShort ? pos + 2 : this.skipLongEscape(pos + 1);
        if (pos < 0) return -1;
      } while (pos < end && bytes[pos] === BACKSLASH);
    }
  }

  /** `u` and four hexadecimal digits. */
  private skipLongEscape(pos: number): number {
    const { bytes, end } = this;
    this.brokeAt = pos - 1;
    if (pos < end && bytes[pos] !== LETTER_U) return this.refuse(pos, 'invalid escape in a string');
    for (const stop = pos + 5; ++pos < stop; ) {
      if (pos < end && hexValue(bytes[pos] ?? 0) < 0) return this.refuse(pos, 'invalid escape in a string');
    }
    return pos <= end ? pos : this.refuse(end);
  }

  /** A literal or number that begins with `byte`. */
  skipScalar(pos: number, byte: number): number {
    if (byte === MINUS || isDigit(byte)) return this.skipNumber(byte === MINUS ? pos + 1 : pos);
    if (byte === 0x74) return this.skipWord(pos, 'true');
    if (byte === 0x66) return this.skipWord(pos, 'false');
    if (byte === 0x6e) return this.skipWord(pos, 'null');
    return this.refuse(pos);
  }

  private skipWord(pos: number, word: string): number {
    for (let i = 0; i < word.length; i++, pos++) {
      if (pos >= this.end || this.bytes[pos] !== word.charCodeAt(i)) return this.refuse(pos);
    }
    return pos;
  }

  /** A number without its sign. A leading zero stands alone: a digit behind it is an unexpected byte. */
  private skipNumber(pos: number): number {
    const { bytes, end } = this;
    pos = pos < end && bytes[pos] === ZERO ? pos + 1 : this.skipDigits(pos);
    if (pos >= 0 && pos < end && bytes[pos] === DOT) pos = this.skipDigits(pos + 1);
    if (pos >= 0 && pos < end && ((bytes[pos] ?? 0) | 0x20) === LETTER_E) {
      const sign = bytes[pos + 1];
      pos = this.skipDigits(sign === PLUS || sign === MINUS ? pos + 2 : pos + 1);
    }
    return pos;
  }

  /** At least one digit. */
  private skipDigits(start: number): number {
    const { bytes, end } = this;
    let pos = start;
    while (pos < end && isDigit(bytes[pos] ?? 0)) pos++;
    return pos === start ? this.refuse(pos) : pos;
  }

  skipSpace(pos: number): number {
    const { bytes, end } = this;
    while (pos < end) {
      const byte = bytes[pos] ?? 0;
      if (byte > SPACE) break;
      if (byte === LF || byte === CR) this.sawLineBreak = true;
      else if (byte !== SPACE && byte !== TAB) break;
      pos++;
    }
    return pos;
  }

  refuse(pos: number, fault?: JsonFault): -1 {
    this.fault = fault ?? (pos >= this.end ? 'it ends too early' : 'unexpected byte');
    this.faultAt = Math.min(pos, this.end);
    return -1;
  }
}
