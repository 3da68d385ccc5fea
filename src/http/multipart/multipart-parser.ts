// Incremental multipart parser (RFC 7578, RFC 2046): reports the position of each part without buffering its content. part-head.ts
// parses part headers; the listener decides which parts matter.
import { GatewayError } from '../../errors.ts';
import { type PartHead, partHead } from './part-head.ts';

/** Offsets in bytes of the body. */
export interface PartPosition {
  /** Of the boundary before the part. */
  readonly start: number;
  readonly contentStart: number;
  /** Start of the CRLF before the next boundary. */
  readonly contentEnd: number;
  /** Of the boundary after the part. */
  readonly end: number;
}

export interface PartListener {
  /**
   * The headers of a part were parsed.
   * @param fault creates the error for a part that the listener rejects
   * @returns whether the listener needs the content
   */
  onPart(head: PartHead, fault: MultipartFault): boolean;
  /** A piece of requested content; its buffer may be reused after the call. */
  onContent(bytes: Buffer): void;
  onPartEnd(position: PartPosition): void;
  /** @param at offset of the closing boundary */
  onClose(at: number): void;
}

export type MultipartFault = (what: string) => GatewayError;

/** Header bytes per part; browsers and SDKs send some hundred. */
const MAX_HEAD_BYTES = 8 * 1024;
/** More fields and files than any endpoint has. */
const MAX_PARTS = 1_000;
/** Preamble and epilogue, each. Clients send an empty line, if anything. */
const MAX_TEXT_BYTES = 8 * 1024;
const HEAD_END = Buffer.from('\r\n\r\n');
const CR = 0x0d;
const LF = 0x0a;
const DASH = 0x2d;
const NO_BYTES: Buffer = Buffer.alloc(0);

type State = 'preamble' | 'delimiter' | 'head' | 'content' | 'epilogue';

export class MultipartParser {
  readonly #needle: Buffer;
  readonly #listener: PartListener;
  #state: State = 'preamble';
  /** Unprocessed bytes; the first one is at offset `#base` of the body. */
  #bytes: Buffer = NO_BYTES;
  #base = 0;
  /** Index in `#bytes` up to which bytes are processed. */
  #at = 0;
  #parts = 0;
  #start = 0;
  #contentStart = 0;
  #isWanted = false;
  /** Offset of the epilogue, after the CRLF of the closing boundary; undefined before it. */
  #epilogueStart: number | undefined;

  /** @param boundary result of `boundaryOf` */
  constructor(boundary: string, listener: PartListener) {
    this.#needle = Buffer.from(`--${boundary}`, 'latin1');
    this.#listener = listener;
  }

  /** @throws GatewayError invalid_form, or an error of the listener; do not call it again then */
  push(piece: Buffer): void {
    const pending = this.#bytes.subarray(this.#at);
    if (this.#isSeamless(pending, piece)) {
      this.#pass(this.#bytes.length);
      this.#base += this.#bytes.length;
      this.#bytes = piece;
    } else {
      this.#base += this.#at;
      this.#bytes = pending.length === 0 ? piece : Buffer.concat([pending, piece]);
    }
    this.#at = 0;
    while (this.#step());
  }

  /** @throws GatewayError invalid_form if the closing boundary is missing */
  end(): void {
    const left = this.#bytes.length - this.#at;
    const isWhole = this.#state === 'epilogue' && (this.#epilogueStart !== undefined || left === 0);
    if (!isWhole) {
      this.#at = this.#bytes.length;
      throw this.#fault('it ends before its last boundary is complete');
    }
  }

  /** Whether no boundary starts in the pending bytes, so that a large piece need not be copied behind them. */
  #isSeamless(pending: Buffer, piece: Buffer): boolean {
    const reach = this.#needle.length + 1;
    if (this.#state !== 'content' || piece.length < reach) return false;
    return !Buffer.concat([pending, piece.subarray(0, reach)]).includes(this.#needle);
  }

  /** @returns whether another step may be possible with the received bytes */
  #step(): boolean {
    switch (this.#state) {
      case 'preamble':
        return this.#preamble();
      case 'delimiter':
        return this.#delimiter();
      case 'head':
        return this.#head();
      case 'content':
        return this.#content();
      case 'epilogue':
        return this.#epilogue();
    }
  }

  /** RFC 2046, 5.1.1: the preamble is ignored. A boundary in it that does not start a line is ambiguous between parsers. */
  #preamble(): boolean {
    const bytes = this.#bytes;
    const found = bytes.indexOf(this.#needle);
    if ((found === -1 ? bytes.length - this.#needle.length : found) > MAX_TEXT_BYTES)
      throw this.#fault(`its first boundary does not begin within ${MAX_TEXT_BYTES} bytes`);
    if (found === -1) return false;
    if (found > 0 && (bytes[found - 1] !== LF || bytes[found - 2] !== CR))
      throw this.#fault('its first boundary does not begin a line');
    this.#start = found;
    this.#at = found + this.#needle.length;
    this.#state = 'delimiter';
    return true;
  }

  #delimiter(): boolean {
    const [first, second] = this.#bytes.subarray(this.#at, this.#at + 2);
    if (first === undefined || second === undefined) return false;
    this.#at += 2;
    if (first === DASH && second === DASH) {
      this.#state = 'epilogue';
      this.#listener.onClose(this.#start);
    } else if (first === CR && second === LF) {
      this.#parts += 1;
      if (this.#parts > MAX_PARTS) throw this.#fault(`it has more than ${MAX_PARTS} parts`);
      this.#state = 'head';
    } else throw this.#fault('a boundary is not followed by a line end');
    return true;
  }

  #head(): boolean {
    const end = this.#bytes.indexOf(HEAD_END, this.#at);
    if ((end === -1 ? this.#bytes.length : end) - this.#at > MAX_HEAD_BYTES)
      throw this.#fault(`the headers of a part have more than ${MAX_HEAD_BYTES} bytes`);
    if (end === -1) return false;
    const block = this.#bytes.toString('latin1', this.#at, end);
    this.#isWanted = this.#listener.onPart(partHead(block, this.#fault), this.#fault);
    this.#at = end + HEAD_END.length;
    this.#contentStart = this.#base + this.#at;
    this.#state = 'content';
    return true;
  }

  #content(): boolean {
    const bytes = this.#bytes;
    const found = this.#find();
    if (found === -1) {
      // The end may be the start of a boundary: keep its length, its CRLF and one more byte.
      this.#pass(Math.max(this.#at, bytes.length - this.#needle.length - 2));
      return false;
    }
    const contentEnd = found - 2;
    this.#pass(contentEnd);
    const position = {
      start: this.#start,
      contentStart: this.#contentStart,
      contentEnd: this.#base + contentEnd,
      end: this.#base + found,
    };
    this.#start = position.end;
    this.#at = found + this.#needle.length;
    this.#state = 'delimiter';
    this.#listener.onPartEnd(position);
    return true;
  }

  /**
   * The index of the next complete boundary at the start of a line; -1 if there is none.
   * @throws GatewayError invalid_form if a boundary is ambiguous between parsers
   */
  #find(): number {
    const bytes = this.#bytes;
    for (let from = this.#at; ; ) {
      const found = bytes.indexOf(this.#needle, from);
      if (found === -1) return -1;
      const isFirst = this.#base + found === this.#contentStart;
      // The byte before a possible boundary is always kept.
      const before = isFirst ? LF : bytes[found - 1];
      const isLine = before === LF && bytes[found - 2] === CR && this.#base + found - 2 >= this.#contentStart;
      if (isLine) return found;
      if (before === LF || before === CR) {
        this.#at = found;
        throw this.#fault('a boundary is not preceded by CRLF');
      }
      from = found + 1;
    }
  }

  /** Processes the content up to an index. */
  #pass(to: number): void {
    if (this.#isWanted && to > this.#at) this.#listener.onContent(this.#bytes.subarray(this.#at, to));
    this.#at = Math.max(this.#at, to);
  }

  /** RFC 2046, 5.1.1: the epilogue, which starts on a new line, is ignored. Some parsers would continue at a boundary in it. */
  #epilogue(): boolean {
    const bytes = this.#bytes;
    const [first, second] = bytes.subarray(this.#at, this.#at + 2);
    if (this.#epilogueStart === undefined) {
      if (first === undefined || (first === CR && second === undefined)) return false;
      if (first !== CR || second !== LF) throw this.#fault('its last boundary is not followed by a line end');
      this.#at += 2;
      this.#epilogueStart = this.#base + this.#at;
    }
    const found = bytes.indexOf(this.#needle, this.#at);
    const end = found === -1 ? bytes.length - this.#needle.length : found;
    if (this.#base + end - this.#epilogueStart > MAX_TEXT_BYTES) {
      this.#at = this.#epilogueStart - this.#base;
      throw this.#fault(`more than ${MAX_TEXT_BYTES} bytes follow its last boundary`);
    }
    if (found !== -1) {
      this.#at = found;
      throw this.#fault('a boundary follows its last boundary');
    }
    this.#at = Math.max(this.#at, bytes.length - this.#needle.length + 1);
    return false;
  }

  readonly #fault = (what: string): GatewayError =>
    new GatewayError('invalid_form', `The form is not valid: ${what}, at byte ${this.#base + this.#at}.`);
}
