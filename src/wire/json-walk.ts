// A scan of a JSON text that goes on from where it stopped, as more of the text comes: no byte is read twice, however the text
// is cut and whatever its shape. What JsonScanner refuses, and where, this refuses too; it has the same rules, and asks it for
// all that can be long.
import { type JsonFault, JsonScanner, MAX_DEPTH } from './json.ts';
import { LONG_TEXT, type LongTextListener } from './json-bytes.ts';

/** Hears of the outermost value (at depth 0), of what stands in it (at depth 1), in that (at depth 2), and so on. */
export interface WalkListener extends Partial<LongTextListener> {
  /** What stands deeper is not told. */
  readonly depth: number;
  /** A key was read: the scanner answers `keySpan`, `keyIs` and `keyAmong` for it. */
  key(depth: number, scanner: JsonScanner): void;
  /**
   * A value stands here, and is valid.
   * @param isMember of an object, and the last key of this depth is its own
   */
  value(depth: number, start: number, end: number, isMember: boolean): void;
  /** Before anything is told of this depth: an object or an array begins, in which it is. */
  opened?(depth: number, isObject: boolean): void;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
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

/** Where in a number `pos` is. */
const SIGN = 0;
const LEADING_ZERO = 1;
const INTEGER = 2;
const POINT = 3;
const FRACTION = 4;
const EXPONENT = 5;
const EXPONENT_SIGN = 6;
const EXPONENT_DIGITS = 7;

export class JsonWalk {
  readonly #scanner = new JsonScanner();
  readonly #listener: WalkListener;
  /** What closes each open container, innermost last. */
  readonly #closers = new Uint8Array(MAX_DEPTH);
  #open = 0;
  #state = VALUE;
  #pos = 0;
  #number = SIGN;
  #keyStart = 0;
  #keyEnd = 0;
  /** Of the last string that is a value, without its quotes. */
  #textStart = 0;
  #escaped = false;
  /** Where the values of the depths that are heard of begin. */
  readonly #starts: number[] = [];
  /** The last `}` of the outermost object. */
  #closedAt = -1;

  constructor(listener: WalkListener) {
    this.#listener = listener;
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

  /** Of an object: just before its closing brace. */
  get insertAt(): number {
    return this.#closedAt;
  }

  /**
   * Reads on.
   * @param bytes the text from its beginning; the memory may be another one than before
   * @param end so much of it has come: at least as much as before
   * @param isLast that is all of it
   */
  advance(bytes: Buffer, end: number, isLast: boolean): void {
    const scanner = this.#scanner;
    if (scanner.fault !== null) return;
    scanner.goOn(bytes, end);
    const pos = this.#run(bytes, end, isLast);
    if (pos >= 0) this.#pos = pos;
  }

  /** @returns where to go on, or -1 with the fault noted in the scanner */
  #run(bytes: Buffer, end: number, isLast: boolean): number {
    const scanner = this.#scanner;
    const closers = this.#closers;
    let pos = this.#pos;
    for (;;) {
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
          this.#keyEnd = pos - 1;
          scanner.noteKey(this.#keyStart, pos - 1, this.#escaped);
          this.#state = COLON_BEHIND_KEY;
        }
        continue;
      }
      if (state === NUMBER) {
        pos = this.#digits(bytes, pos, end);
        if (pos === end && !isLast) return pos;
        if (this.#number !== LEADING_ZERO && this.#number !== INTEGER && this.#number !== FRACTION) {
          if (this.#number !== EXPONENT_DIGITS) return scanner.refuse(pos);
        }
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
          this.#keyStart = pos;
          this.#escaped = false;
          this.#state = KEY_TEXT;
          break;
        case COLON_BEHIND_KEY:
          if (byte !== COLON) return scanner.refuse(pos);
          pos++;
          if (this.#open <= this.#listener.depth) this.#listener.key(this.#open, scanner);
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

  /** @returns behind what was read of the value; -1 for a fault, -2 when it has to wait for more, with `#pos` set */
  #value(pos: number, byte: number, end: number, isLast: boolean): number {
    const scanner = this.#scanner;
    if (this.#open <= this.#listener.depth) this.#starts[this.#open] = pos;
    if (byte === QUOTE) {
      this.#state = TEXT;
      this.#textStart = pos + 1;
      return pos + 1;
    }
    if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
      if (this.#open >= MAX_DEPTH) return scanner.refuse(pos, 'nested deeper than 1000 levels');
      this.#closers[this.#open++] = byte === OPEN_OBJECT ? CLOSE_OBJECT : CLOSE_ARRAY;
      this.#state = FIRST;
      if (this.#open <= this.#listener.depth) this.#listener.opened?.(this.#open, byte === OPEN_OBJECT);
      return pos + 1;
    }
    if (byte === MINUS || (byte >= 0x30 && byte <= 0x39)) {
      this.#number = byte === MINUS ? SIGN : byte === 0x30 ? LEADING_ZERO : INTEGER;
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

  /** @returns behind the closing quote; -1 for a fault, -2 when it has to wait for more, with `#pos` set */
  #text(pos: number, end: number, isLast: boolean): number {
    const scanner = this.#scanner;
    scanner.escaped = this.#escaped;
    const behind = scanner.skipString(pos);
    this.#escaped = scanner.escaped;
    if (behind >= 0 || isLast || scanner.faultAt < end) return behind;
    scanner.fault = null;
    this.#pos = scanner.brokeAt;
    return -2;
  }

  #tellText(end: number, isWhole: boolean): void {
    const start = this.#textStart;
    if (end - start < LONG_TEXT) return;
    this.#listener.longText?.(start, end, isWhole, this.#keyStart, this.#keyEnd);
  }

  /** @returns the first byte that is no part of the number, or the end */
  #digits(bytes: Buffer, from: number, end: number): number {
    let pos = from;
    let part = this.#number;
    for (; pos < end; pos++) {
      const byte = bytes[pos] ?? 0;
      if (byte >= 0x30 && byte <= 0x39) {
        if (part === LEADING_ZERO) break;
        if (part === SIGN) part = byte === 0x30 ? LEADING_ZERO : INTEGER;
        else if (part === POINT) part = FRACTION;
        else if (part === EXPONENT || part === EXPONENT_SIGN) part = EXPONENT_DIGITS;
      } else if (byte === 0x2e && (part === INTEGER || part === LEADING_ZERO)) part = POINT;
      else if ((byte | 0x20) === 0x65 && (part === INTEGER || part === LEADING_ZERO || part === FRACTION))
        part = EXPONENT;
      else if ((byte === 0x2b || byte === MINUS) && part === EXPONENT) part = EXPONENT_SIGN;
      else break;
    }
    this.#number = part;
    return pos;
  }

  #close(pos: number): number {
    this.#open--;
    if (this.#open === 0 && this.#closers[0] === CLOSE_OBJECT) this.#closedAt = pos;
    this.#ended(pos + 1);
    return pos + 1;
  }

  /** A value ends before `pos`. */
  #ended(pos: number): void {
    this.#state = AFTER;
    const open = this.#open;
    if (open > this.#listener.depth) return;
    this.#listener.value(open, this.#starts[open] ?? 0, pos, this.#closers[open - 1] === CLOSE_OBJECT);
  }
}
