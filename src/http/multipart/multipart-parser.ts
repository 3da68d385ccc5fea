// Finds the parts of a form (RFC 7578, 2046) in bytes that come in any pieces: where each begins and ends, without keeping
// what is inside. What the headers of a part mean is part-head.ts; which parts matter is the listener's.
import { GatewayError } from '../../errors.ts';
import { type PartHead, partHead } from './part-head.ts';

/** Offsets are bytes of the body. */
export interface PartPosition {
  /** Of the boundary in front of it. */
  readonly start: number;
  readonly contentStart: number;
  /** Where the line end of the boundary behind it begins. */
  readonly contentEnd: number;
  /** Of the boundary behind it. */
  readonly end: number;
}

export interface PartListener {
  /**
   * The headers of a part came.
   * @param fault makes the error for what the listener does not take
   * @returns whether it wants to read the content
   */
  onPart(head: PartHead, fault: MultipartFault): boolean;
  /** A piece of a content that is wanted, which is only lent. */
  onContent(bytes: Buffer): void;
  onPartEnd(place: PartPosition): void;
  /** @param at offset of the last boundary */
  onClose(at: number): void;
}

export type MultipartFault = (what: string) => GatewayError;

/** Of one part; browsers and SDKs send some hundred bytes. */
const MAX_HEAD_BYTES = 8 * 1024;
/** More than any endpoint has fields and files. */
const MAX_PARTS = 1_000;
/** Of the text in front of the first boundary, and of that behind the last one. Clients send an empty line, if anything. */
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
  /** What has come and is not done with; the first byte of it is at `#base`. */
  #bytes: Buffer = NO_BYTES;
  #base = 0;
  /** Done with, as an index in `#bytes`. */
  #at = 0;
  #parts = 0;
  #start = 0;
  #contentStart = 0;
  #isWanted = false;
  /** Where the epilogue begins, behind the line end of the last boundary; undefined before it does. */
  #epilogueStart: number | undefined;

  /** @param boundary as `boundaryOf` gives it */
  constructor(boundary: string, listener: PartListener) {
    this.#needle = Buffer.from(`--${boundary}`, 'latin1');
    this.#listener = listener;
  }

  /** @throws GatewayError invalid_form, or what the listener throws: then it is not to be called again */
  push(piece: Buffer): void {
    const rest = this.#bytes.subarray(this.#at);
    if (this.#isSeamless(rest, piece)) {
      this.#pass(this.#bytes.length);
      this.#base += this.#bytes.length;
      this.#bytes = piece;
    } else {
      this.#base += this.#at;
      this.#bytes = rest.length === 0 ? piece : Buffer.concat([rest, piece]);
    }
    this.#at = 0;
    while (this.#step());
  }

  /** @throws GatewayError invalid_form: the last boundary has not come */
  end(): void {
    const left = this.#bytes.length - this.#at;
    const isWhole = this.#state === 'epilogue' && (this.#epilogueStart !== undefined || left === 0);
    if (!isWhole) {
      this.#at = this.#bytes.length;
      throw this.#fault('it ends before its last boundary is complete');
    }
  }

  /** Whether no boundary, with its line end, begins before the piece: so that large pieces need not be copied. */
  #isSeamless(rest: Buffer, piece: Buffer): boolean {
    const reach = this.#needle.length + 1;
    if (this.#state !== 'content' || piece.length < reach) return false;
    return !Buffer.concat([rest, piece.subarray(0, reach)]).includes(this.#needle);
  }

  /** @returns whether another step may be possible with what has come */
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

  /**
   * RFC 2046, 5.1.1: text in front of the first boundary is to be ignored. A boundary in it that does not begin a line is one
   * for some readers and not for others.
   */
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
    } else throw this.#fault('a boundary is followed by something else than a line end');
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
      // What could be the beginning of a boundary, with its line end and the byte before that.
      this.#pass(Math.max(this.#at, bytes.length - this.#needle.length - 2));
      return false;
    }
    const contentEnd = found - 2;
    this.#pass(contentEnd);
    const place = {
      start: this.#start,
      contentStart: this.#contentStart,
      contentEnd: this.#base + contentEnd,
      end: this.#base + found,
    };
    this.#start = place.end;
    this.#at = found + this.#needle.length;
    this.#state = 'delimiter';
    this.#listener.onPartEnd(place);
    return true;
  }

  /**
   * The index of the next boundary that is complete and begins a line; -1 when there is none.
   * @throws GatewayError invalid_form: one begins a line for some readers and not for others
   */
  #find(): number {
    const bytes = this.#bytes;
    for (let from = this.#at; ; ) {
      const found = bytes.indexOf(this.#needle, from);
      if (found === -1) return -1;
      const isFirst = this.#base + found === this.#contentStart;
      // A byte of content is always kept before what may be a boundary.
      const before = isFirst ? LF : bytes[found - 1];
      const isLine = before === LF && bytes[found - 2] === CR && this.#base + found - 2 >= this.#contentStart;
      if (isLine) return found;
      if (before === LF || before === CR) {
        this.#at = found;
        throw this.#fault('a boundary is not behind a line end of CR and LF of its own');
      }
      from = found + 1;
    }
  }

  /** The content up to an index is done with. */
  #pass(to: number): void {
    if (this.#isWanted && to > this.#at) this.#listener.onContent(this.#bytes.subarray(this.#at, to));
    this.#at = Math.max(this.#at, to);
  }

  /** RFC 2046, 5.1.1: text behind the last boundary, on a line of its own, is to be ignored. Some readers go on at a boundary in it. */
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
