// Reads along in one direction of a WebSocket (RFC 6455, 5.2): where frames begin and end, what a Close says, and the texts of
// whole messages as far as they are short. It changes nothing and holds nothing back; bytes that make no sense end the
// reading, and not the connection.
import { randomBytes } from 'node:crypto';
import { BodyBuffer } from '../http/pieces/body-buffer.ts';

/** Of one message that is collected; a longer one is passed over. */
export const MAX_TEXT = 1024 * 1024;
/** What is kept of a longer one: its type stands there. */
const HEAD_OF_TEXT = 512;
/** RFC 6455, 5.5: what a control frame holds at most. */
const MAX_CONTROL = 125;
/** Length, extended length and mask at their longest. */
const MAX_HEAD = 14;

const NO_BYTES = Buffer.alloc(0);
const TEXT = 0x1;
const CLOSE = 0x8;
const PING = 0x9;
const PONG = 0xa;

interface FrameEvents {
  /** A whole text message. Its bytes are valid during the call alone. Absent where nobody reads them. */
  onText?(text: Buffer): void;
  /** A text message that was too long to be collected. @param head what it begins with */
  onLongText?(bytes: number, head: Buffer): void;
  /** Absent where the other end answers it. */
  onPing?(payload: Buffer): void;
  /** @param code 1005 where the frame names none (RFC 6455, 7.4.1) */
  onClose(code: number): void;
}

export class WebSocketFrameReader {
  readonly #events: FrameEvents;
  readonly #maxText: number;
  readonly #head = Buffer.alloc(MAX_HEAD);
  #headLength = 0;
  /** Of the present frame. */
  #opcode = 0;
  #isFinal = false;
  #mask: Buffer | undefined;
  #left = 0;
  #read = 0;
  #inPayload = false;
  /** A data message was begun and its last frame has not come. */
  #inMessage = false;
  #isText = false;
  #control: Buffer[] = [];
  /** Of a text that came in several pieces. */
  #text: BodyBuffer | undefined;
  /** Of a text that came in one. */
  #whole: Buffer | undefined;
  /** Of a text that is too long, its beginning. */
  #textHead = NO_BYTES;
  #size = 0;
  /** Bytes before the piece that is read, and where in all of them the present frame begins. */
  #passed = 0;
  #frameStart = 0;
  #closeStart: number | undefined;
  #isLost = false;
  #hasClosed = false;

  /** @param maxText of one message that is collected, in bytes */
  constructor(events: FrameEvents, maxText: number = MAX_TEXT) {
    this.#events = events;
    this.#maxText = maxText;
  }

  /** Something may be put between what came and what comes. */
  get atBoundary(): boolean {
    return !this.#isLost && !this.#inPayload && this.#headLength === 0;
  }

  /** Also a whole message may be put there. */
  get betweenMessages(): boolean {
    return this.atBoundary && !this.#inMessage;
  }

  /** The other side has said Close: nothing may follow. */
  get hasClosed(): boolean {
    return this.#hasClosed;
  }

  /** What came is no sequence of frames. */
  get isLost(): boolean {
    return this.#isLost;
  }

  /**
   * @param stop at the end of the present frame
   * @returns how many bytes were read: all of them, or with `stop` those up to the end of the frame
   */
  push(chunk: Buffer, stop = false): number {
    let at = 0;
    while (at < chunk.length && !this.#isLost) {
      if (!this.#inPayload && this.#headLength === 0) this.#frameStart = this.#passed + at;
      at += this.#inPayload ? this.#takePayload(chunk, at) : this.#takeHead(chunk, at);
      if (stop && this.atBoundary) {
        this.#passed += at;
        return at;
      }
    }
    this.#passed += chunk.length;
    return chunk.length;
  }

  /** Where in all that was read the Close begins; undefined where none came. */
  get closeStart(): number | undefined {
    return this.#closeStart;
  }

  #takeHead(chunk: Buffer, start: number): number {
    let at = start;
    let needed = this.#needed();
    while (at < chunk.length && this.#headLength < needed) {
      this.#head[this.#headLength] = chunk[at] ?? 0;
      this.#headLength += 1;
      at += 1;
      needed = this.#needed();
    }
    if (this.#headLength === needed) this.#begin();
    return at - start;
  }

  /** Bytes of the head, as far as they are known from those that came. */
  #needed(): number {
    if (this.#headLength < 2) return 2;
    const second = this.#head[1] ?? 0;
    const length = second & 0x7f;
    const extended = length === 126 ? 2 : length === 127 ? 8 : 0;
    return 2 + extended + (second & 0x80 ? 4 : 0);
  }

  #begin(): void {
    const head = this.#head;
    const [first = 0, second = 0] = head;
    const length = second & 0x7f;
    const isMasked = (second & 0x80) !== 0;
    const extended = length === 126 ? 2 : length === 127 ? 8 : 0;
    const left =
      extended === 0 ? length : extended === 2 ? head.readUInt16BE(2) : Number(head.readBigUInt64BE(2));
    const opcode = first & 0x0f;
    const isFinal = (first & 0x80) !== 0;
    const isControl = opcode >= 0x8;
    const isOdd =
      // No extension was agreed on, so reserved bits and opcodes mean nothing (RFC 6455, 5.2).
      (first & 0x70) !== 0 ||
      (opcode > 0x2 && opcode < 0x8) ||
      opcode > 0xa ||
      left > Number.MAX_SAFE_INTEGER ||
      (isControl && (left > MAX_CONTROL || !isFinal)) ||
      (!isControl && (opcode === 0) !== this.#inMessage);
    if (isOdd) {
      this.#lose();
      return;
    }
    this.#headLength = 0;
    this.#opcode = opcode;
    this.#isFinal = isFinal;
    this.#mask = isMasked ? Buffer.from(head.subarray(2 + extended, 6 + extended)) : undefined;
    this.#left = left;
    this.#read = 0;
    this.#inPayload = true;
    if (!isControl && opcode !== 0) {
      this.#isText = opcode === TEXT;
      this.#inMessage = true;
    }
    if (left === 0) this.#end();
  }

  #takePayload(chunk: Buffer, start: number): number {
    const count = Math.min(this.#left, chunk.length - start);
    const bytes = chunk.subarray(start, start + count);
    if (this.#opcode >= 0x8) this.#control.push(this.#plain(bytes));
    else if (this.#isText && this.#events.onText !== undefined) this.#collect(bytes);
    this.#left -= count;
    this.#read += count;
    if (this.#left === 0) this.#end();
    return count;
  }

  #collect(bytes: Buffer): void {
    const isWhole = this.#size === 0 && bytes.length === this.#left && this.#isFinal;
    this.#size += bytes.length;
    // Most come in one piece, and need not be kept.
    if (isWhole && this.#size <= this.#maxText) this.#whole = this.#plain(bytes);
    else if (this.#size > this.#maxText) {
      if (this.#size - bytes.length <= this.#maxText) {
        const start = this.#text?.take() ?? this.#plain(bytes.subarray(0, HEAD_OF_TEXT));
        this.#textHead = Buffer.from(start.subarray(0, HEAD_OF_TEXT));
      }
      this.#text = undefined;
    } else {
      this.#text ??= new BodyBuffer(this.#maxText, undefined);
      this.#text.push(this.#plain(bytes));
    }
  }

  #plain(bytes: Buffer): Buffer {
    const mask = this.#mask;
    if (mask === undefined) return bytes;
    const plain = Buffer.from(bytes);
    for (let i = 0; i < plain.length; i++) plain[i] = (plain[i] ?? 0) ^ (mask[(this.#read + i) & 3] ?? 0);
    return plain;
  }

  #end(): void {
    this.#inPayload = false;
    if (this.#opcode >= 0x8) {
      const payload = Buffer.concat(this.#control);
      this.#control = [];
      if (this.#opcode === PING) this.#events.onPing?.(payload);
      if (this.#opcode !== CLOSE || this.#hasClosed) return;
      this.#hasClosed = true;
      this.#closeStart = this.#frameStart;
      this.#events.onClose(payload.length < 2 ? 1005 : payload.readUInt16BE(0));
      return;
    }
    if (!this.#isFinal) return;
    this.#inMessage = false;
    const size = this.#size;
    const text = this.#whole ?? this.#text?.take() ?? NO_BYTES;
    this.#size = 0;
    this.#whole = undefined;
    this.#text = undefined;
    if (!this.#isText || this.#events.onText === undefined) return;
    if (size > this.#maxText) this.#events.onLongText?.(size, this.#textHead);
    else this.#events.onText(text);
  }

  #lose(): void {
    this.#isLost = true;
    this.#text = undefined;
    this.#control = [];
  }
}

/**
 * A Close (RFC 6455, 5.5.1).
 * @param reason ASCII of at most 123 bytes
 * @param isMasked towards a server (RFC 6455, 5.3)
 */
export function closeFrame(code: number, reason: string, isMasked: boolean): Buffer {
  const payload = Buffer.alloc(2 + reason.length);
  payload.writeUInt16BE(code, 0);
  payload.write(reason, 2, 'latin1');
  return frame(CLOSE, payload, isMasked);
}

/** The answer of a server to a Ping (RFC 6455, 5.5.3). */
export function pongFrame(payload: Buffer): Buffer {
  return frame(PONG, payload, false);
}

/** A whole text message from a server. */
export function textFrame(text: string): Buffer {
  return frame(TEXT, Buffer.from(text), false);
}

function frame(opcode: number, payload: Buffer, isMasked: boolean): Buffer {
  const { length } = payload;
  const extended = Buffer.alloc(length < 126 ? 0 : length < 65_536 ? 2 : 8);
  if (extended.length === 2) extended.writeUInt16BE(length, 0);
  if (extended.length === 8) extended.writeBigUInt64BE(BigInt(length), 0);
  const short = extended.length === 8 ? 127 : Math.min(length, 126);
  const head = Buffer.from([0x80 | opcode, (isMasked ? 0x80 : 0) | short]);
  if (!isMasked) return Buffer.concat([head, extended, payload]);
  const mask = randomBytes(4);
  const masked = payload.map((byte, index) => byte ^ (mask[index & 3] ?? 0));
  return Buffer.concat([head, extended, mask, masked]);
}
