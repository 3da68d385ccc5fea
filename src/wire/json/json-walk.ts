// An incremental scan of a JSON text: it continues where it stopped as more of the text arrives, and reads no byte twice, however the
// text is cut. It rejects the same texts as JsonScanner, at the same offsets, and uses it for everything that can be long.
import { type JsonFault, JsonScanner, MAX_DEPTH } from './json.ts';
import { isDigit, LONG_TEXT, type LongTextListener } from './json-bytes.ts';

/** Receives the outermost value (depth 0), the values in it (depth 1), and so on. */
export interface WalkListener extends Partial<LongTextListener> {
  /** Deeper values are not reported. */
  readonly depth: number;
  /** A key was read: `keySpan`, `keyIs` and `keyAmong` of the scanner refer to it. */
  key(depth: number, scanner: JsonScanner): void;
  /** After a key of depth 1: whether values within its value need no report. Default: they are reported. */
  ignoresWithin?(): boolean;
  /** A complete valid value. @param isMember of an object; its key is the last one of this depth */
  value(depth: number, start: number, end: number, isMember: boolean): void;
  /** An object or an array with values of this depth begins. */
  opened?(depth: number, isObject: boolean): void;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const PLUS = 0x2b;
const MINUS = 0x2d;
const DOT = 0x2e;
const ZERO = 0x30;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const SPACE = 0x20;
/** Longest literal. */
const WORD_BYTES = 5;

/** What is expected at `pos`. */
const VALUE = 0;
const FIRST = 1;
const KEY = 2;
const KEY_TEXT = 3;
const COLON_BEHIND_KEY = 4;
const TEXT = 5;
const NUMBER = 6;
const AFTER = 7;
const NOTHING = 8;

/** The part of a number at `pos`. */
const INTEGER = 0;
const FRACTION = 1;
const EXPONENT = 2;

export class JsonWalk {
  readonly #scanner = new JsonScanner(new Uint8Array(MAX_DEPTH));
  readonly #listener: WalkListener;
  /** `#floor` outside of values that the listener ignores. */
  readonly #reportFloor: number;
  /** Values in more containers are not reported and take the fast path. */
  #floor: number;
  #open = 0;
  #state = VALUE;
  #pos = 0;
  #numberPart = INTEGER;
  /** Offset of the first digit of the number. */
  #firstDigit = 0;
  /** Start of the last string value, without its quote. */
  #textStart = 0;
  /** Offsets of the current value of each reported depth. */
  readonly #starts: number[] = [];
  /** Offset of the last `}` of the outermost object. */
  #closedAt = -1;

  constructor(listener: WalkListener) {
    this.#listener = listener;
    this.#reportFloor = Math.max(1, listener.depth);
    this.#floor = this.#reportFloor;
  }

  get fault(): JsonFault | null {
    return this.#scanner.fault;
  }

  get faultAt(): number {
    return this.#scanner.faultAt;
  }

  /** Whether the outermost value is an object. */
  get isObject(): boolean {
    return this.#closedAt !== -1;
  }

  /** Offset of the closing brace of the outermost object; -1 if it is none. */
  get insertAt(): number {
    return this.#closedAt;
  }

  /**
   * Continues the scan.
   * @param bytes the text from its beginning; may be in other memory than before
   * @param end bytes received so far
   * @param isLast whether the text is complete
   */
  advance(bytes: Buffer, end: number, isLast: boolean): void {
    const scanner = this.#scanner;
    if (scanner.fault !== null) return;
    scanner.goOn(bytes, end);
    const pos = this.#run(bytes, end, isLast);
    if (pos >= 0) this.#pos = pos;
  }

  /** @returns where to continue, or -1 with the fault recorded in the scanner */
  #run(bytes: Buffer, end: number, isLast: boolean): number {
    const scanner = this.#scanner;
    const { closers } = scanner;
    let pos = this.#pos;
    for (;;) {
      if (this.#open > this.#floor && (this.#state === VALUE || this.#state === AFTER)) {
        pos = scanner.skipPlain(pos, this.#open, this.#floor, this.#state === AFTER);
        this.#open = scanner.open;
        this.#state = scanner.isBehindValue ? AFTER : VALUE;
        if (this.#open === this.#floor) this.#ended(pos);
      }
      const state = this.#state;
      if (state === TEXT || state === KEY_TEXT) {
        pos = this.#text(pos, end, isLast);
        if (pos < 0) {
          if (pos === -1) return -1;
          if (state === TEXT) this.#tellText(this.#pos, false);
          return this.#pos;
        }
        if (state === TEXT) {
          this.#tellText(pos - 1, true);
          this.#ended(pos);
        } else {
          scanner.keyEnd = pos - 1;
          this.#state = COLON_BEHIND_KEY;
        }
        continue;
      }
      if (state === NUMBER) {
        pos = this.#digits(bytes, pos, end);
        if (pos === end && !isLast) return pos;
        // All numbers end with a digit.
        if (!isDigit(bytes[pos - 1] ?? 0)) return scanner.refuse(pos);
        this.#ended(pos);
        continue;
      }
      if (state === AFTER && this.#open === 0) this.#state = NOTHING;
      if (pos < end && (bytes[pos] ?? 0) <= SPACE) pos = scanner.skipSpace(pos);
      if (pos >= end) {
        if (!isLast || this.#state === NOTHING) return pos;
        return scanner.refuse(pos);
      }
      const byte = bytes[pos] ?? 0;
      switch (this.#state) {
        case FIRST:
          if (byte === closers[this.#open - 1]) {
            pos = this.#close(pos);
            break;
          }
          this.#state = closers[this.#open - 1] === CLOSE_OBJECT ? KEY : VALUE;
          break;
        case VALUE:
          pos = this.#value(pos, byte, end, isLast);
          if (pos < 0) return pos === -1 ? -1 : this.#pos;
          break;
        case KEY:
          if (byte !== QUOTE) return scanner.refuse(pos);
          pos++;
          scanner.keyStart = pos;
          scanner.escaped = false;
          this.#state = KEY_TEXT;
          break;
        case COLON_BEHIND_KEY:
          if (byte !== COLON) return scanner.refuse(pos);
          pos++;
          this.#tellKey();
          this.#state = VALUE;
          break;
        case AFTER:
          if (byte === COMMA) {
            pos++;
            this.#state = closers[this.#open - 1] === CLOSE_OBJECT ? KEY : VALUE;
          } else if (byte === closers[this.#open - 1]) pos = this.#close(pos);
          else return scanner.refuse(pos);
          break;
        default:
          return scanner.refuse(pos, 'more bytes after the value');
      }
    }
  }

  /** @returns the offset behind what was read of the value; -1 for a fault, -2 if more bytes are needed, with `#pos` set */
  #value(pos: number, byte: number, end: number, isLast: boolean): number {
    const scanner = this.#scanner;
    if (this.#open <= this.#listener.depth) this.#starts[this.#open] = pos;
    if (byte === QUOTE) {
      this.#state = TEXT;
      this.#textStart = pos + 1;
      // The fast path may have read a part of it.
      return Math.max(pos + 1, scanner.brokeAt);
    }
    if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
      if (this.#open >= MAX_DEPTH) return scanner.refuse(pos, 'nested deeper than 1000 levels');
      scanner.closers[this.#open++] = byte === OPEN_OBJECT ? CLOSE_OBJECT : CLOSE_ARRAY;
      this.#state = FIRST;
      if (this.#open <= this.#listener.depth) this.#listener.opened?.(this.#open, byte === OPEN_OBJECT);
      return pos + 1;
    }
    if (byte === MINUS || isDigit(byte)) {
      this.#numberPart = INTEGER;
      this.#firstDigit = byte === MINUS ? pos + 1 : pos;
      this.#state = NUMBER;
      return pos + 1;
    }
    if (end - pos < WORD_BYTES && !isLast) {
      this.#pos = pos;
      return -2;
    }
    const behind = scanner.skipScalar(pos, byte);
    if (behind >= 0) this.#ended(behind);
    return behind;
  }

  /** @returns the offset behind the closing quote; -1 for a fault, -2 if more bytes are needed, with `#pos` set */
  #text(pos: number, end: number, isLast: boolean): number {
    const scanner = this.#scanner;
    const behind = scanner.skipString(pos);
    if (behind >= 0 || isLast || scanner.faultAt < end) return behind;
    scanner.fault = null;
    this.#pos = scanner.brokeAt;
    return -2;
  }

  #tellKey(): void {
    const listener = this.#listener;
    if (this.#open <= listener.depth) listener.key(this.#open, this.#scanner);
    if (this.#open === 1) this.#floor = listener.ignoresWithin?.() === true ? 1 : this.#reportFloor;
  }

  #tellText(end: number, isWhole: boolean): void {
    const start = this.#textStart;
    if (end - start < LONG_TEXT) return;
    const { keyStart, keyEnd } = this.#scanner;
    this.#listener.longText?.(start, end, isWhole, keyStart, keyEnd);
  }

  /** @returns the offset of the first byte that does not continue the number, or the end */
  #digits(bytes: Buffer, from: number, end: number): number {
    let before = bytes[from - 1] ?? 0;
    for (let pos = from; pos < end; pos++) {
      const byte = bytes[pos] ?? 0;
      if (isDigit(byte)) {
        // A leading zero stands alone.
        if (before === ZERO && pos - 1 === this.#firstDigit) return pos;
      } else if (byte === DOT && this.#numberPart === INTEGER && isDigit(before)) {
        this.#numberPart = FRACTION;
      } else if ((byte | 0x20) === 0x65 && this.#numberPart !== EXPONENT && isDigit(before)) {
        this.#numberPart = EXPONENT;
      } else if ((byte !== PLUS && byte !== MINUS) || (before | 0x20) !== 0x65) return pos;
      before = byte;
    }
    return end;
  }

  #close(pos: number): number {
    this.#open--;
    if (this.#open === 0 && this.#scanner.closers[0] === CLOSE_OBJECT) this.#closedAt = pos;
    this.#ended(pos + 1);
    return pos + 1;
  }

  /** A value ends before `pos`. */
  #ended(pos: number): void {
    this.#state = AFTER;
    const open = this.#open;
    if (open > this.#listener.depth) return;
    this.#listener.value(
      open,
      this.#starts[open] ?? 0,
      pos,
      this.#scanner.closers[open - 1] === CLOSE_OBJECT,
    );
  }
}
