// Reads the bytes of one connection as answers of HTTP/1.1 (RFC 9112), piece by piece. It is strict: what two readers could
// understand differently is refused. It knows no sockets and keeps no body.

import type { ResponseHeaders } from '../transport.ts';
import { TOKEN } from './header-names.ts';

/** The upstream said something that is no answer to the request; the message is for the log. */
export class UnusableAnswer extends Error {}

/** Hears what was read, in order. What it is given of the body is a place in bytes that are only lent to it. */
export interface AnswerReader {
  /** The final status line and headers, names in lower case; a header that came several times is a list. */
  onHead(status: number, headers: ResponseHeaders): void;
  onBody(bytes: Buffer, start: number, end: number): void;
}

/**
 * What has come of an answer.
 * - `open`: it goes on.
 * - `kept`: it is complete, and another request may be written on the connection.
 * - `spent`: it is complete, and the connection is to be closed.
 * - `surplus`: as `spent`, because bytes stand behind it that belong to no answer.
 */
export type Progress = 'open' | 'kept' | 'spent' | 'surplus';

/** An upstream may send this many interim answers before the final one; more is a fault, not patience. */
const MAX_INTERIM = 5;
/** Of one head, and of the trailers of one body. */
const MAX_HEAD_BYTES = 16 * 1024;
/** Of the line before a chunk: the size in hexadecimal, and extensions, which nobody uses. */
const MAX_SIZE_LINE = 4 * 1024;
/** 2^52 and a little: a number of this many hexadecimal digits is exact. */
const MAX_SIZE_DIGITS = 13;

const HEAD_END_BYTES = 4;
const NO_BYTES: Buffer = Buffer.alloc(0);
const CR = 0x0d;
const LF = 0x0a;

/** RFC 9110, 5.5, and the ends of lines, which are CR and LF together and nothing else (RFC 9112, 2.2). */
const FORBIDDEN = /[^\t\r\n\x20-\x7e\x80-\xff]|\r(?!\n)|(?<!\r)\n/;
const STATUS_LINE = /^HTTP\/1\.[01] [1-9][0-9]{2}(?: |\r)/;
/** In a status line: the digit behind `HTTP/1.`, and the three of the status. */
const MINOR_AT = 7;
const STATUS_AT = 9;
const DECIMAL = /^[0-9]{1,15}$/;

type State =
  /** The answer is complete, or nothing was asked. */
  | 'idle'
  | 'head'
  /** A body of known length. */
  | 'length'
  /** A body that ends with the connection. */
  | 'close'
  | 'chunk size'
  | 'chunk extension'
  | 'chunk data'
  /** Behind the data of a chunk stand CR and LF. */
  | 'chunk end'
  | 'trailers';

export class ResponseParser {
  readonly #reader: AnswerReader;
  #state: State = 'idle';
  #interim = 0;
  #keepAlive = false;
  /** Bytes that the body, or the chunk, still has. */
  #left = 0;
  /** Of a size line or of the trailers, so far. */
  #length = 0;
  #digits = 0;
  /** The last byte was a CR whose LF is to come. */
  #afterCr = false;
  /** Of the line of the trailers that is being read. */
  #lineLength = 0;
  /** The beginning of a head whose end has not come. */
  #held = NO_BYTES;

  constructor(reader: AnswerReader) {
    this.#reader = reader;
  }

  /** A request was written: what comes now is its answer. */
  expect(): void {
    this.#state = 'head';
    this.#interim = 0;
    this.#held = NO_BYTES;
  }

  /**
   * Takes the next bytes of the connection, which are not kept.
   * @param end of them in `bytes`; what stands behind it is of earlier times
   * @throws UnusableAnswer
   */
  push(bytes: Buffer, end = bytes.length): Progress {
    let at = 0;
    while (at < end && this.#state !== 'idle') at = this.#step(bytes, at, end);
    if (this.#state !== 'idle') return 'open';
    // What follows a complete answer was not asked for: nobody knows what it belongs to.
    if (!this.#keepAlive) return 'spent';
    return at === end ? 'kept' : 'surplus';
  }

  /** The connection has ended. */
  finish(): Exclude<Progress, 'kept' | 'surplus'> {
    if (this.#state !== 'close') return 'open';
    this.#state = 'idle';
    return 'spent';
  }

  #step(bytes: Buffer, at: number, end: number): number {
    switch (this.#state) {
      case 'head':
        return this.#head(bytes, at, end);
      case 'length':
      case 'close':
      case 'chunk data':
        return this.#data(bytes, at, end);
      case 'chunk size':
      case 'chunk extension':
        return this.#sizeLine(bytes, at, end);
      case 'chunk end':
        return this.#chunkEnd(bytes[at], at);
      case 'trailers':
        return this.#trailers(bytes, at, end);
      case 'idle':
        return at;
    }
  }

  // --- head -----------------------------------------------------------------------------------------------------------

  #head(bytes: Buffer, at: number, limit: number): number {
    const before = this.#held.length;
    const all = before === 0 ? bytes : Buffer.concat([this.#held, bytes.subarray(at, limit)]);
    const from = before === 0 ? at : 0;
    const stop = before === 0 ? limit : all.length;
    const end = headEnd(all, before === 0 ? at : Math.max(0, before - 3), stop);
    if ((end === -1 ? stop : end) - from > MAX_HEAD_BYTES) {
      throw new UnusableAnswer(`a head of more than ${MAX_HEAD_BYTES} bytes`);
    }
    if (end === -1) {
      // What can be no head is refused at once: its end might never come.
      if (stop - from >= 5 && all.toString('latin1', from, from + 5) !== 'HTTP/') {
        throw new UnusableAnswer('bytes that begin no answer');
      }
      // A copy: the bytes are lent.
      this.#held = before === 0 ? Buffer.from(all.subarray(from, stop)) : all;
      return limit;
    }
    this.#held = NO_BYTES;
    this.#readHead(all.toString('latin1', from, end + 2));
    const next = end + HEAD_END_BYTES;
    return before === 0 ? next : at + next - before;
  }

  /** @param text the lines of a head, each with its end */
  #readHead(text: string): void {
    if (FORBIDDEN.test(text)) throw new UnusableAnswer('a head with a character that may not be in it');
    const lineEnd = text.indexOf('\r\n');
    if (!STATUS_LINE.test(text)) throw new UnusableAnswer('no status line');
    const status = Number(text.slice(STATUS_AT, STATUS_AT + 3));
    const headers = headersOf(text, lineEnd + 2);
    if (status < 200) {
      this.#skipInterim(status);
      return;
    }
    // Before the head is told, so that an answer without a clear end is none from the beginning.
    this.#frame(status, headers, text[MINOR_AT] === '0');
    this.#reader.onHead(status, headers);
  }

  /** An interim answer that nobody asked for may be ignored (RFC 9110, 15.2); a change of protocol may not. */
  #skipInterim(status: number): void {
    if (status === 101) throw new UnusableAnswer('a change of protocol');
    this.#interim += 1;
    if (this.#interim > MAX_INTERIM) throw new UnusableAnswer(`more than ${MAX_INTERIM} interim answers`);
  }

  /** How long the body is: RFC 9112, 6.3. */
  #frame(status: number, headers: ResponseHeaders, isOld: boolean): void {
    const { 'content-length': length, 'transfer-encoding': coding } = headers;
    this.#keepAlive = keepsAlive(headers.connection, isOld);
    if (coding !== undefined && length !== undefined) throw new UnusableAnswer('two lengths of one body');
    if (status === 204 || status === 304) {
      this.#state = 'idle';
    } else if (coding !== undefined) {
      if (typeof coding !== 'string' || coding.toLowerCase() !== 'chunked')
        throw new UnusableAnswer('a transfer coding other than chunked');
      // The framing of such an answer is suspect (RFC 9112, 6.1).
      if (isOld) this.#keepAlive = false;
      this.#beginChunk();
    } else if (length !== undefined) {
      if (typeof length !== 'string' || !DECIMAL.test(length))
        throw new UnusableAnswer('no length of a body');
      this.#left = Number(length);
      this.#state = this.#left === 0 ? 'idle' : 'length';
    } else {
      this.#state = 'close';
      this.#left = Number.POSITIVE_INFINITY;
    }
  }

  // --- body -----------------------------------------------------------------------------------------------------------

  #data(bytes: Buffer, at: number, limit: number): number {
    const end = Math.min(limit, at + this.#left);
    this.#left -= end - at;
    if (this.#left === 0) this.#state = this.#state === 'length' ? 'idle' : 'chunk end';
    this.#reader.onBody(bytes, at, end);
    return end;
  }

  #beginChunk(): void {
    this.#state = 'chunk size';
    this.#left = 0;
    this.#length = 0;
    this.#digits = 0;
    this.#afterCr = false;
  }

  #sizeLine(bytes: Buffer, start: number, end: number): number {
    for (let at = start; at < end; at += 1) {
      const byte = bytes[at] ?? 0;
      this.#length += 1;
      if (this.#length > MAX_SIZE_LINE) throw new UnusableAnswer('a chunk with a long extension');
      if (this.#afterCr) {
        if (byte !== LF) throw new UnusableAnswer('a chunk whose line does not end');
        this.#afterCr = false;
        if (this.#left === 0) this.#beginTrailers();
        else this.#state = 'chunk data';
        return at + 1;
      }
      if (byte === CR) {
        if (this.#digits === 0) throw new UnusableAnswer('a chunk without a size');
        this.#afterCr = true;
      } else if (this.#state === 'chunk extension') {
        if (isControl(byte)) throw new UnusableAnswer('a control character before a chunk');
      } else this.#sizeByte(byte);
    }
    return end;
  }

  #sizeByte(byte: number): void {
    const digit = hexadecimal(byte);
    if (digit !== undefined) {
      this.#digits += 1;
      if (this.#digits > MAX_SIZE_DIGITS) throw new UnusableAnswer('a chunk of too many digits');
      this.#left = this.#left * 16 + digit;
    } else if (this.#digits > 0 && (byte === 0x3b || byte === 0x20 || byte === 0x09)) {
      // `;`, perhaps behind blanks (RFC 9112, 7.1.1).
      this.#state = 'chunk extension';
    } else throw new UnusableAnswer('a chunk whose size is no number');
  }

  #chunkEnd(byte: number | undefined, at: number): number {
    if (byte !== (this.#afterCr ? LF : CR)) throw new UnusableAnswer('a chunk that is longer than its size');
    if (this.#afterCr) this.#beginChunk();
    else this.#afterCr = true;
    return at + 1;
  }

  #beginTrailers(): void {
    this.#state = 'trailers';
    this.#length = 0;
    this.#lineLength = 0;
  }

  /** Trailers are read over: nothing that matters here may stand in them (RFC 9110, 6.5.1). */
  #trailers(bytes: Buffer, start: number, end: number): number {
    for (let at = start; at < end; at += 1) {
      const byte = bytes[at] ?? 0;
      this.#length += 1;
      if (this.#length > MAX_HEAD_BYTES) throw new UnusableAnswer('trailers without end');
      if (this.#afterCr) {
        if (byte !== LF) throw new UnusableAnswer('a trailer whose line does not end');
        this.#afterCr = false;
        if (this.#lineLength === 0) {
          this.#state = 'idle';
          return at + 1;
        }
        this.#lineLength = 0;
      } else if (byte === CR) this.#afterCr = true;
      else if (isControl(byte)) throw new UnusableAnswer('a control character in a trailer');
      else this.#lineLength += 1;
    }
    return end;
  }
}

/**
 * Where CR, LF, CR and LF stand, looked for from `start`; -1 if they do not. Heads are short, and a search by the native
 * method costs more.
 */
function headEnd(bytes: Buffer, start: number, end: number): number {
  // Looks at where the fourth would be; another byte there rules out all places at which it would be one of the four.
  for (let at = start + HEAD_END_BYTES - 1; at < end; ) {
    const byte = bytes[at];
    if (byte === LF) {
      if (bytes[at - 1] === CR && bytes[at - 2] === LF && bytes[at - 3] === CR) return at - 3;
      at += 2;
    } else if (byte === CR) at += 1;
    else at += HEAD_END_BYTES;
  }
  return -1;
}

/**
 * @param text the lines of a head, without forbidden characters
 * @param start where the first header begins
 */
function headersOf(text: string, start: number): ResponseHeaders {
  // Without a prototype: any token may be a name.
  const headers: Record<string, string | string[]> = Object.create(null);
  for (let at = start; at < text.length; ) {
    const end = text.indexOf('\r\n', at);
    const colon = text.indexOf(':', at);
    // Also a line that goes on with the one before (RFC 9112, 5.2), and blanks before the colon (5.1).
    const name = colon === -1 || colon > end ? undefined : nameOf(text.slice(at, colon));
    if (name === undefined) throw new UnusableAnswer('a line of a head that is no header');
    const value = withoutBlanks(text, colon + 1, end);
    at = end + 2;
    const present = headers[name];
    if (present === undefined) headers[name] = value;
    else if (typeof present === 'string') headers[name] = [present, value];
    else present.push(value);
  }
  return headers;
}

/** Names as they were written → in lower case. An upstream says the same few again and again. */
const names = new Map<string, string>();
const MAX_NAMES = 256;
const MAX_NAME = 64;

/** A name in lower case; undefined if it is none. */
function nameOf(written: string): string | undefined {
  const known = names.get(written);
  if (known !== undefined) return known;
  if (!TOKEN.test(written)) return undefined;
  const name = written.toLowerCase();
  if (names.size < MAX_NAMES && written.length <= MAX_NAME) names.set(written, name);
  return name;
}

/** RFC 9110, 5.5: blanks around a value are no part of it. */
function withoutBlanks(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isBlank(text.charCodeAt(start))) start += 1;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

/** RFC 9112, 9.3. */
function keepsAlive(connection: string | string[] | undefined, isOld: boolean): boolean {
  if (connection === undefined) return !isOld;
  if (connection === 'keep-alive') return true;
  const options = String(connection)
    .toLowerCase()
    .split(',')
    .map((option) => option.trim());
  return !options.includes('close') && (!isOld || options.includes('keep-alive'));
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

/** A byte that may not stand in a line; CR is not asked about. */
function isControl(byte: number): boolean {
  return (byte < 0x20 && byte !== 0x09) || byte === 0x7f;
}

function hexadecimal(byte: number): number | undefined {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : undefined;
}
