// A validating JSON scanner over bytes (RFC 8259): it finds where values stand and builds none of them.
// request-reader.ts and chat-chunk.ts interpret members; the caller checks that the text is UTF-8.
import {
  hexValue,
  isDigit,
  type JsonFault,
  LETTER_U,
  LONG_TEXT,
  type LongTextListener,
  type MemberNames,
  readsAs,
  type Span,
} from './json-bytes.ts';

export { decodeString, type JsonFault, type Span } from './json-bytes.ts';

/** Maximum nesting depth. RFC 8259, 9 allows a limit; this one makes the stack a fixed array. */
export const MAX_DEPTH = 1000;

const TAB = 0x09;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const PLUS = 0x2b;
const COMMA = 0x2c;
const MINUS = 0x2d;
const DOT = 0x2e;
const ZERO = 0x30;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** 1 for the bytes of two-character escapes. */
const SHORT_ESCAPES = new Uint8Array(256);
for (const byte of Buffer.from('"\\/bfnrt')) SHORT_ESCAPES[byte] = 1;

/** The closing byte of each open container, innermost last. Shared, because scanning a value is synchronous. */
const CLOSERS = new Uint8Array(MAX_DEPTH);
const NO_BYTES: Buffer = Buffer.alloc(0);
const NO_VIEW: DataView = new DataView(new ArrayBuffer(0));

/**
 * Walks one JSON text. After `reset`, the caller enters the containers that it needs and skips the rest:
 *
 *     scanner.reset(bytes);
 *     if (scanner.enterObject()) {
 *       while (scanner.nextMember()) {
 *         if (scanner.keyIs('model')) …            // `pos` is the first byte of the value
 *         scanner.skipValue();                     // `pos` is behind the value
 *       }
 *     }
 *     if (!scanner.finish()) …                     // `fault` and `faultAt` say why and where
 *
 * After a fault every method returns false, and the fault stays. Nothing throws.
 */
export class JsonScanner {
  /** Offset of the next byte to read. */
  pos = 0;
  fault: JsonFault | null = null;
  /** Offset of the faulty byte. */
  faultAt = 0;
  /** Whether white space contained CR or LF, which end a line of an SSE frame. */
  sawLineBreak = false;

  /** Optional; set it before a text is read. */
  texts: LongTextListener | undefined;

  private bytes = NO_BYTES;
  private end = 0;
  /** The memory behind `bytes`, which begin at `base` in it. */
  private view = NO_VIEW;
  private base = 0;
  private depth = 0;
  /** A container was entered, and no item of it was read. */
  private fresh = false;
  /** The last key, without its quotes, and whether it contains a backslash. */
  private keyStart = 0;
  private keyEnd = 0;
  escaped = false;
  /** Where an incomplete string can be continued: at its end, or at an incomplete escape. */
  brokeAt = 0;

  /** Starts a scan of the text in `[start, end)`. */
  reset(bytes: Buffer, start = 0, end = bytes.length): void {
    this.bytes = bytes;
    if (this.view.buffer !== bytes.buffer) this.view = new DataView(bytes.buffer);
    this.base = bytes.byteOffset;
    this.pos = start;
    this.end = end;
    this.fault = null;
    this.sawLineBreak = false;
    this.depth = 0;
  }

  /** For json-walk.ts, which keeps the position itself: more of the text arrived. */
  goOn(bytes: Buffer, end: number): void {
    if (this.bytes !== bytes) this.reset(bytes);
    this.end = end;
  }

  /** For json-walk.ts: the last key, without its quotes. */
  noteKey(start: number, end: number, escaped: boolean): void {
    this.keyStart = start;
    this.keyEnd = end;
    this.escaped = escaped;
  }

  /** Skips white space. @returns the byte at `pos`, or -1 at the end */
  peek(): number {
    this.pos = this.skipSpace(this.pos);
    return this.pos < this.end ? (this.bytes[this.pos] ?? -1) : -1;
  }

  /** Enters the object at `pos`; false if the value is something else, which is no fault: `pos` stays. */
  enterObject(): boolean {
    return this.enter(OPEN_OBJECT);
  }

  /** Enters the array at `pos`; false if the value is something else. */
  enterArray(): boolean {
    return this.enter(OPEN_ARRAY);
  }

  /** Reads the key of the next member and moves `pos` to its value. False: `pos` is behind the `}`, or a fault. */
  nextMember(): boolean {
    if (!this.nextItem(CLOSE_OBJECT)) return false;
    const pos = this.skipKey(this.pos);
    if (pos < 0) return false;
    this.pos = this.skipSpace(pos);
    return true;
  }

  /** Moves `pos` to the next element. False: `pos` is behind the `]`, or a fault. */
  nextElement(): boolean {
    return this.nextItem(CLOSE_ARRAY);
  }

  /** The key of the current member, quotes included. Valid until its value is skipped, as the following. */
  get keySpan(): Span {
    return { start: this.keyStart - 1, end: this.keyEnd + 1 };
  }

  /** Length of the key as written, in bytes. */
  get keyLength(): number {
    return this.keyEnd - this.keyStart;
  }

  /** Whether the key contains a backslash. */
  get isKeyEscaped(): boolean {
    return this.escaped;
  }

  /** Whether the key is `name` (ASCII), with or without escapes: `"mod\u0065l"` is `model`. */
  keyIs(name: string): boolean {
    if (this.escaped) return readsAs(this.bytes, this.keyStart, this.keyEnd, name);
    const start = this.keyStart;
    const { length } = name;
    if (this.keyEnd - start !== length) return false;
    const { bytes } = this;
    for (let i = 0; i < length; i++) {
      if (bytes[start + i] !== name.charCodeAt(i)) return false;
    }
    return true;
  }

  /** The name that some reader could take the key for; `keyIs` says whether it is spelled exactly so. */
  keyAmong(names: MemberNames): string | undefined {
    return names.find(this.bytes, this.keyStart, this.keyEnd);
  }

  /** Skips the value at `pos`, checking all of it. */
  skipValue(): boolean {
    if (this.fault !== null) return false;
    const pos = this.skipNested(this.pos);
    if (pos < 0) return false;
    this.pos = pos;
    return true;
  }

  /** Skips the value at `pos`. @returns its span if it begins with `first`, else null */
  skipIf(first: number): Span | null {
    const isIt = this.peek() === first;
    const { pos: start } = this;
    return this.skipValue() && isIt ? { start, end: this.pos } : null;
  }

  /** Checks that only white space follows. @returns whether the whole text was valid */
  finish(): boolean {
    if (this.fault === null && this.peek() !== -1) this.refuse(this.pos, 'more bytes after the value');
    return this.fault === null;
  }

  private enter(opener: number): boolean {
    if (this.fault !== null || this.peek() !== opener) return false;
    if (this.depth >= MAX_DEPTH) return this.refuse(this.pos, 'nested deeper than 1000 levels') > 0;
    this.depth++;
    this.pos++;
    this.fresh = true;
    return true;
  }

  private nextItem(closer: number): boolean {
    if (this.fault !== null) return false;
    const byte = this.peek();
    const { fresh } = this;
    this.fresh = false;
    if (byte === closer) {
      this.depth--;
      this.pos++;
      return false;
    }
    if (fresh) return true;
    if (byte !== COMMA) return this.refuse(this.pos) > 0;
    this.pos++;
    return true;
  }

  /**
   * Like all methods below, takes an offset and returns the one behind what it skipped, or -1 with the fault recorded. A loop with
   * its own stack, so that depth costs no call frames.
   */
  private skipNested(pos: number): number {
    const { bytes, end } = this;
    const room = MAX_DEPTH - this.depth;
    let open = 0;
    value: for (;;) {
      let byte = pos < end ? (bytes[pos] ?? 0) : -1;
      if (byte <= SPACE) {
        pos = this.skipSpace(pos);
        byte = pos < end ? (bytes[pos] ?? 0) : -1;
      }
      if (byte === QUOTE) {
        const start = pos + 1;
        pos = this.skipString(start);
        if (pos - start > LONG_TEXT) this.texts?.longText(start, pos - 1, true, this.keyStart, this.keyEnd);
      } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        if (open >= room) return this.refuse(pos, 'nested deeper than 1000 levels');
        const closer = byte + 2;
        pos = this.skipSpace(pos + 1);
        if (pos < end && bytes[pos] === closer) {
          pos++;
        } else {
          CLOSERS[open++] = closer;
          if (closer === CLOSE_OBJECT) pos = this.skipKey(pos);
          if (pos < 0) return -1;
          continue;
        }
      } else {
        pos = this.skipScalar(pos, byte);
      }
      if (pos < 0) return -1;
      // A value ended: close the containers that end with it, or continue behind a comma.
      while (open > 0) {
        byte = pos < end ? (bytes[pos] ?? 0) : -1;
        if (byte <= SPACE) {
          pos = this.skipSpace(pos);
          byte = pos < end ? (bytes[pos] ?? 0) : -1;
        }
        const closer = CLOSERS[open - 1];
        pos++;
        if (byte === COMMA) {
          if (closer === CLOSE_OBJECT) pos = this.skipKey(pos);
          if (pos < 0) return -1;
          continue value;
        }
        if (byte !== closer) return this.refuse(pos - 1);
        open--;
      }
      return pos;
    }
  }

  /** White space, a key and its colon. */
  private skipKey(pos: number): number {
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

  /**
   * A string from behind its opening quote. Plain text is skipped four bytes at a time, as the lanes of a word:
   * `(x - n) & ~x` has the top bit of a lane set if the lane is below `n` (exact for the lowest such lane). Flipping bit 1
   * first moves the quote (0x22 → 0x20) next to the control characters, which stay below 0x20; flipping the bits of the
   * backslash makes it 0. Neither changes the top bits.
   */
  skipString(pos: number): number {
    const { bytes, end, view, base } = this;
    const lastWord = end - 4;
    for (;;) {
      let found = 0;
      while (pos <= lastWord) {
        const word = view.getInt32(base + pos, true);
        const low = (word ^ 0x02020202) - 0x21212121;
        const slash = (word ^ 0x5c5c5c5c) - 0x01010101;
        found = (low | slash) & ~word & 0x80808080;
        if (found !== 0) break;
        pos += 4;
      }
      if (found !== 0) pos += (31 - Math.clz32(found & -found)) >> 3;
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
    if (pos >= 0 && pos < end && ((bytes[pos] ?? 0) | 0x20) === 0x65) {
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
