// A validating JSON scanner over bytes (RFC 8259): it finds where values stand and builds none of them.
// request-reader.ts and chat-chunk.ts interpret members; the caller checks that the text is UTF-8.
import { LONG_TEXT, type LongTextListener, type MemberNames, readsAs, type Span } from './json-bytes.ts';
import { MAX_DEPTH } from './json-tokens.ts';
import { PlainValues } from './plain-values.ts';

export { decodeString, type JsonFault, type Span } from './json-bytes.ts';
export { MAX_DEPTH } from './json-tokens.ts';

const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

const CLOSERS = new Uint8Array(MAX_DEPTH);

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
export class JsonScanner extends PlainValues {
  /** Offset of the next byte to read. */
  pos = 0;
  /** Optional; set it before a text is read. */
  texts: LongTextListener | undefined;

  private depth = 0;
  /** A container was entered, and no item of it was read. */
  private fresh = false;

  /** @param closers default: shared, because skipping a value is synchronous */
  constructor(closers: Uint8Array = CLOSERS) {
    super(closers);
  }

  /** Starts a scan of the text in `[start, end)`. */
  reset(bytes: Buffer, start = 0, end = bytes.length): void {
    this.setText(bytes, end);
    this.pos = start;
    this.fault = null;
    this.sawLineBreak = false;
    this.brokeAt = 0;
    this.depth = 0;
  }

  /** For json-walk.ts, which keeps the position itself: more of the text arrived. */
  goOn(bytes: Buffer, end: number): void {
    if (this.bytes !== bytes) this.reset(bytes);
    this.end = end;
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

  /** Enters the object at `pos`; skips the value if it is something else. */
  enterObjectOrSkip(): boolean {
    if (this.enterObject()) return true;
    this.skipValue();
    return false;
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
   * Takes an offset and returns the one behind the value, or -1 with the fault recorded. A loop with its own stack, so that depth costs
   * no call frames.
   */
  private skipNested(pos: number): number {
    const { bytes, end, closers, depth } = this;
    let open = depth;
    value: for (;;) {
      let isBehindValue = false;
      if (open > depth) {
        pos = this.skipPlain(pos, open, depth, false);
        ({ open, isBehindValue } = this);
        if (open === depth) return pos;
      }
      let byte = pos < end ? (bytes[pos] ?? 0) : -1;
      if (byte <= SPACE) {
        pos = this.skipSpace(pos);
        byte = pos < end ? (bytes[pos] ?? 0) : -1;
      }
      if (isBehindValue) {
        // Nothing of a value is left.
      } else if (byte === QUOTE) {
        const start = pos + 1;
        pos = this.skipString(Math.max(start, this.brokeAt));
        if (pos - start > LONG_TEXT) this.texts?.longText(start, pos - 1, true, this.keyStart, this.keyEnd);
      } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        if (open >= MAX_DEPTH) return this.refuse(pos, 'nested deeper than 1000 levels');
        const closer = byte + 2;
        pos = this.skipSpace(pos + 1);
        if (pos < end && bytes[pos] === closer) {
          pos++;
        } else {
          closers[open++] = closer;
          if (closer === CLOSE_OBJECT) pos = this.skipKey(pos);
          if (pos < 0) return -1;
          continue;
        }
      } else {
        pos = this.skipScalar(pos, byte);
      }
      if (pos < 0) return -1;
      // A value ended: close the containers that end with it, or continue behind a comma.
      while (open > depth) {
        byte = pos < end ? (bytes[pos] ?? 0) : -1;
        if (byte <= SPACE) {
          pos = this.skipSpace(pos);
          byte = pos < end ? (bytes[pos] ?? 0) : -1;
        }
        const closer = closers[open - 1];
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
}
