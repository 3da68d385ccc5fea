// The fast path over JSON values that nobody reads: one loop over the common forms of tokens. It judges nothing: json-tokens.ts reads what it
// stops at.
import { isDigit, LONG_TEXT } from './json-bytes.ts';
import { firstFlag, flagsOf, JsonTokens, MAX_DEPTH } from './json-tokens.ts';

const SPACE = 0x20;
const QUOTE = 0x22;
const PLUS = 0x2b;
const COMMA = 0x2c;
const MINUS = 0x2d;
const DOT = 0x2e;
const ZERO = 0x30;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const LETTER_E = 0x65;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
/** `true`, `null` and `fals` as little-endian words. */
const TRUE = 0x65757274;
const NULL = 0x6c6c756e;
const FALS = 0x736c6166;

/** The loop reads words, and one byte behind them. */
const MARGIN = 8;

export class PlainValues extends JsonTokens {
  /** Where `skipPlain` stopped: the containers open there, and whether it is behind a value. */
  open = 0;
  isBehindValue = false;

  /**
   * The fast path within containers that nobody reads. It checks bounds once per token and records no faults: it stops in front of
   * faults, incomplete tokens, escapes in keys and the last bytes, at a string for `LongTextListener`, whose end is
   * then `brokeAt`, and where `open` has fallen to `floor`. One loop, because calls per token would double its time.
   * @param open containers open at `pos`, more than `floor`
   * @param isBehindValue whether a value ends at `pos`; otherwise one begins there
   */
  skipPlain(pos: number, open: number, floor: number, isBehindValue: boolean): number {
    const { bytes, view, base, closers } = this;
    const stop = this.end - MARGIN;
    let closer = closers[open - 1] ?? 0;
    let keyStart = 0;
    let keyEnd = 0;
    let stopped = pos;
    scan: while (pos < stop) {
      let byte = bytes[pos] ?? 0;
      if (!isBehindValue) {
        if (byte === QUOTE) {
          const start = ++pos;
          let flags = 0;
          for (; pos < stop; pos += 4) {
            flags = flagsOf(view.getInt32(base + pos, true));
            if (flags !== 0) break;
          }
          if (flags !== 0) pos += firstFlag(flags);
          pos = bytes[pos] === QUOTE ? pos + 1 : this.skipString(pos);
          if (pos < 0) break;
          if (pos - start > LONG_TEXT) {
            this.brokeAt = pos - 1;
            break;
          }
          isBehindValue = true;
        } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
          if (open === MAX_DEPTH) break;
          let next = bytes[++pos] ?? 0;
          if (next <= SPACE) {
            pos = this.skipSpace(pos);
            if (pos >= stop) break;
            next = bytes[pos] ?? 0;
          }
          if (next === byte + 2) {
            pos++;
            isBehindValue = true;
          } else if (byte === OPEN_ARRAY) {
            closer = CLOSE_ARRAY;
            closers[open++] = closer;
            stopped = pos;
            continue;
          } else byte = next;
        } else if (byte <= SPACE) {
          const behind = this.skipSpace(pos);
          // Another control character.
          if (behind === pos) break;
          pos = behind;
          continue;
        } else {
          const word = view.getInt32(base + pos, true);
          if (word === TRUE || word === NULL) pos += 4;
          else if (word === FALS && bytes[pos + 4] === LETTER_E) pos += 5;
          else pos = this.skipPlainNumber(pos, stop);
          if (pos < 0) break;
          isBehindValue = true;
        }
        if (isBehindValue) {
          stopped = pos;
          if (pos >= stop) break;
          byte = bytes[pos] ?? 0;
        }
      }
      if (isBehindValue) {
        while (byte === closer) {
          stopped = ++pos;
          if (--open === floor || pos >= stop) break scan;
          closer = closers[open - 1] ?? 0;
          byte = bytes[pos] ?? 0;
        }
        if (byte <= SPACE) {
          const behind = this.skipSpace(pos);
          // Another control character.
          if (behind === pos) break;
          pos = behind;
          continue;
        }
        if (byte !== COMMA) break;
        byte = bytes[++pos] ?? 0;
        if (closer === CLOSE_ARRAY) {
          isBehindValue = false;
          stopped = pos;
          continue;
        }
        if (byte <= SPACE) {
          pos = this.skipSpace(pos);
          if (pos >= stop) break;
          byte = bytes[pos] ?? 0;
        }
      }
      // A key, behind a comma or an opening brace.
      if (byte !== QUOTE) break;
      const start = ++pos;
      let flags = 0;
      for (; pos < stop; pos += 4) {
        flags = flagsOf(view.getInt32(base + pos, true));
        if (flags !== 0) break;
      }
      if (flags !== 0) pos += firstFlag(flags);
      if (bytes[pos] !== QUOTE || bytes[pos + 1] !== COLON) break;
      keyStart = start;
      keyEnd = pos;
      if (!isBehindValue) {
        closer = CLOSE_OBJECT;
        closers[open++] = closer;
      }
      isBehindValue = false;
      pos += 2;
      stopped = pos;
    }
    if (keyEnd > 0) {
      this.keyStart = keyStart;
      this.keyEnd = keyEnd;
      this.escaped = false;
    }
    this.fault = null;
    this.open = open;
    this.isBehindValue = isBehindValue;
    return stopped;
  }

  /** A number, or -1; records no fault. */
  private skipPlainNumber(pos: number, stop: number): number {
    const { bytes } = this;
    const first = bytes[pos] === MINUS ? pos + 1 : pos;
    pos = this.skipPlainDigits(first, stop);
    const isInteger = pos > first && (bytes[first] !== ZERO || pos === first + 1);
    if (!isInteger) return -1;
    if (bytes[pos] === DOT) {
      const dot = pos + 1;
      pos = this.skipPlainDigits(dot, stop);
      if (pos === dot) return -1;
    }
    if (((bytes[pos] ?? 0) | 0x20) === LETTER_E) {
      const sign = bytes[pos + 1];
      const exponent = sign === PLUS || sign === MINUS ? pos + 2 : pos + 1;
      pos = this.skipPlainDigits(exponent, stop);
      if (pos === exponent) return -1;
    }
    return pos >= stop ? -1 : pos;
  }

  private skipPlainDigits(pos: number, stop: number): number {
    const { bytes } = this;
    while (pos < stop && isDigit(bytes[pos] ?? 0)) pos++;
    return pos;
  }
}
