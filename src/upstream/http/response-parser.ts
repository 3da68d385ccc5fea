// Incremental, strict parser of HTTP/1.1 responses on one connection (RFC 9112): rejects whatever two parsers could read
// differently. No sockets, no body buffering.
import { hexValue } from '../../wire/json/json-bytes.ts';
import type { ResponseHeaders } from '../transport.ts';
import {
  CR,
  HEAD_END_BYTES,
  type HeaderLines,
  hasBareLf,
  headEnd,
  InvalidResponse,
  keepsAlive,
  LF,
  readHead,
} from './response-head.ts';

/** Receives the parsed parts in order. Body bytes are a range of a buffer that is reused after the call. */
export interface ResponseReader {
  /** The final status and the headers that the gateway reads. */
  onHead(status: number, headers: ResponseHeaders): void;
  onBody(bytes: Buffer, start: number, end: number): void;
}

/**
 * State of a response.
 * - `open`: incomplete.
 * - `reusable`: complete; the connection may carry another request.
 * - `spent`: complete; the connection must be closed.
 * - `surplus`: as `spent`, because bytes follow that belong to no response.
 */
export type Progress = 'open' | 'reusable' | 'spent' | 'surplus';

/** Interim responses accepted before the final one. */
const MAX_INTERIM = 5;
/** Bound of one head, and of the trailers of one body. */
const MAX_HEAD_BYTES = 16 * 1024;
/** Bound of a chunk's size line: the hexadecimal size and extensions, which are unused in practice. */
const MAX_SIZE_LINE = 4 * 1024;
/** Hexadecimal digits of at most 2^52, so that the number is exact. */
const MAX_SIZE_DIGITS = 13;

const NO_BYTES: Buffer = Buffer.alloc(0);

const DECIMAL = /^[0-9]{1,15}$/;

type State =
  /** The response is complete, or no request was sent. */
  | 'idle'
  | 'head'
  /** A body of known length. */
  | 'length'
  /** A body delimited by the end of the connection. */
  | 'close'
  | 'chunk size'
  | 'chunk extension'
  | 'chunk data'
  /** The CRLF after chunk data. */
  | 'chunk end'
  | 'trailers';

export class ResponseParser {
  readonly #reader: ResponseReader;
  #state: State = 'idle';
  #interim = 0;
  #keepAlive = false;
  /** Remaining bytes of the body or chunk. */
  #left = 0;
  /** Bytes of the current size line or trailers. */
  #length = 0;
  #digits = 0;
  /** The last byte was a CR; LF must follow. */
  #afterCr = false;
  /** Bytes of the current trailer line. */
  #lineLength = 0;
  /** An incomplete head. */
  #held = NO_BYTES;
  readonly #lines: HeaderLines[];

  /** @param lines header lines of the last head from this origin, which this parser replaces: most of the next one repeat them */
  constructor(reader: ResponseReader, lines: HeaderLines[] = []) {
    this.#reader = reader;
    this.#lines = lines;
  }

  /** A request was written; the following bytes are its response. */
  expect(): void {
    this.#state = 'head';
    this.#interim = 0;
    this.#held = NO_BYTES;
  }

  /**
   * Parses the next bytes of the connection; keeps no reference to them.
   * @param end end of the valid bytes; the rest of the buffer is stale
   * @throws InvalidResponse
   */
  push(bytes: Buffer, end = bytes.length): Progress {
    let at = 0;
    while (at < end && this.#state !== 'idle') at = this.#step(bytes, at, end);
    if (this.#state !== 'idle') return 'open';
    // Bytes after a complete response are unsolicited.
    if (!this.#keepAlive) return 'spent';
    return at === end ? 'reusable' : 'surplus';
  }

  /** The connection has ended. */
  finish(): Exclude<Progress, 'reusable' | 'surplus'> {
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
      throw new InvalidResponse(`a head of more than ${MAX_HEAD_BYTES} bytes`);
    }
    if (end === -1) {
      // Rejected at once, because the end of the head might never come.
      if (stop - from >= 5 && all.toString('latin1', from, from + 5) !== 'HTTP/') {
        throw new InvalidResponse('bytes that are not an HTTP response');
      }
      if (hasBareLf(all, before === 0 ? at : before, stop))
        throw new InvalidResponse('a line in the head without CRLF');
      // Copied: the read buffer is reused.
      this.#held = before === 0 ? Buffer.from(all.subarray(from, stop)) : all;
      return limit;
    }
    this.#held = NO_BYTES;
    this.#readHead(all.toString('latin1', from, end + 2));
    const next = end + HEAD_END_BYTES;
    return before === 0 ? next : at + next - before;
  }

  /** @param text the lines of a head, each with its CRLF */
  #readHead(text: string): void {
    const { status, isOld, headers } = readHead(text, this.#lines);
    if (status < 200) {
      this.#skipInterim(status);
      return;
    }
    // Framing comes first: a response with ambiguous framing is rejected before its head is reported.
    this.#frame(status, headers, isOld);
    this.#reader.onHead(status, headers);
  }

  /** Unexpected interim responses may be ignored (RFC 9110, 15.2), but not a protocol switch. */
  #skipInterim(status: number): void {
    if (status === 101) throw new InvalidResponse('an unexpected protocol switch (101)');
    this.#interim += 1;
    if (this.#interim > MAX_INTERIM) throw new InvalidResponse(`more than ${MAX_INTERIM} interim responses`);
  }

  /** Message body length: RFC 9112, 6.3. */
  #frame(status: number, headers: ResponseHeaders, isOld: boolean): void {
    const { 'content-length': length, 'transfer-encoding': coding } = headers;
    this.#keepAlive = keepsAlive(headers.connection, isOld);
    if (coding !== undefined && length !== undefined)
      throw new InvalidResponse('both content-length and transfer-encoding');
    if (status === 204 || status === 304) {
      this.#state = 'idle';
    } else if (coding !== undefined) {
      if (typeof coding !== 'string' || coding.toLowerCase() !== 'chunked')
        throw new InvalidResponse('a transfer coding other than chunked');
      // RFC 9112, 6.1: with HTTP/1.0 this framing is suspect.
      if (isOld) this.#keepAlive = false;
      this.#beginChunk();
    } else if (length !== undefined) {
      if (typeof length !== 'string' || !DECIMAL.test(length))
        throw new InvalidResponse('an invalid content-length');
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
      if (this.#length > MAX_SIZE_LINE) throw new InvalidResponse('a chunk extension that is too long');
      if (this.#afterCr) {
        if (byte !== LF) throw new InvalidResponse('a chunk size line without CRLF');
        this.#afterCr = false;
        if (this.#left === 0) this.#beginTrailers();
        else this.#state = 'chunk data';
        return at + 1;
      }
      if (byte === CR) {
        if (this.#digits === 0) throw new InvalidResponse('a chunk without a size');
        this.#afterCr = true;
      } else if (this.#state === 'chunk extension') {
        if (isControl(byte)) throw new InvalidResponse('a control character in a chunk extension');
      } else this.#sizeByte(byte);
    }
    return end;
  }

  #sizeByte(byte: number): void {
    const digit = hexValue(byte);
    if (digit >= 0) {
      this.#digits += 1;
      if (this.#digits > MAX_SIZE_DIGITS) throw new InvalidResponse('a chunk size with too many digits');
      this.#left = this.#left * 16 + digit;
    } else if (this.#digits > 0 && (byte === 0x3b || byte === 0x20 || byte === 0x09)) {
      // `;`, possibly after blanks (RFC 9112, 7.1.1).
      this.#state = 'chunk extension';
    } else throw new InvalidResponse('a chunk size that is not hexadecimal');
  }

  #chunkEnd(byte: number | undefined, at: number): number {
    if (byte !== (this.#afterCr ? LF : CR))
      throw new InvalidResponse('chunk data longer than the chunk size');
    if (this.#afterCr) this.#beginChunk();
    else this.#afterCr = true;
    return at + 1;
  }

  #beginTrailers(): void {
    this.#state = 'trailers';
    this.#length = 0;
    this.#lineLength = 0;
  }

  /** Trailers are discarded: no field that matters here is allowed in them (RFC 9110, 6.5.1). */
  #trailers(bytes: Buffer, start: number, end: number): number {
    for (let at = start; at < end; at += 1) {
      const byte = bytes[at] ?? 0;
      this.#length += 1;
      if (this.#length > MAX_HEAD_BYTES) throw new InvalidResponse('trailers that are too long');
      if (this.#afterCr) {
        if (byte !== LF) throw new InvalidResponse('a trailer line without CRLF');
        this.#afterCr = false;
        if (this.#lineLength === 0) {
          this.#state = 'idle';
          return at + 1;
        }
        this.#lineLength = 0;
      } else if (byte === CR) this.#afterCr = true;
      else if (isControl(byte)) throw new InvalidResponse('a control character in a trailer');
      else this.#lineLength += 1;
    }
    return end;
  }
}

/** Whether a byte is forbidden in a line. CR is handled by the callers. */
function isControl(byte: number): boolean {
  return (byte < 0x20 && byte !== 0x09) || byte === 0x7f;
}
