// Reads one direction of a WebSocket beside the relay (RFC 6455, 5.2): frame boundaries, the code of a Close, and the text of messages
// up to a size. It changes and delays nothing. Invalid bytes end the reading, not the connection.
import { randomBytes } from 'node:crypto';
import { BodyBuffer } from '../../http/pieces/body-buffer.ts';

/** Default maximum bytes of a message that is collected. */
export const MAX_TEXT = 1024 * 1024;
/** Bytes kept of a longer message: they contain its type. */
const TEXT_HEAD = 512;
/** Maximum payload of a control frame (RFC 6455, 5.5). */
const MAX_CONTROL = 125;
/** Maximum size of a frame header, with extended length and mask. */
const MAX_HEAD = 14;

const NO_BYTES = Buffer.alloc(0);
const TEXT = 0x1;
const CLOSE = 0x8;
const PING = 0x9;
const PONG = 0xa;

interface FrameEvents {
  /** A whole text message. Its bytes are valid only during the call. */
  onText(text: Buffer): void;
  /** A text message that is too long to be collected. @param head its first bytes */
  onLongText?(bytes: number, head: Buffer): void;
  /** A text message is too long, as soon as the lengths of its frames say so: its end may never come. */
  onTooLong?(): void;
  /** A binary message begins. */
  onBinary?(): void;
  /** Absent if the peer answers it. */
  onPing?(payload: Buffer): void;
  /** @param code 1005 if the frame has none (RFC 6455, 7.4.1) */
  onClose(code: number): void;
}

export class WebSocketFrameReader {
  readonly #events: FrameEvents;
  readonly #maxText: number;
  readonly #wantsMask: boolean;
  readonly #head = Buffer.alloc(MAX_HEAD);
  #headLength = 0;
  /** The current frame. */
  #opcode = 0;
  #isFinal = false;
  #mask: Buffer | undefined;
  #left = 0;
  #read = 0;
  #inPayload = false;
  /** A data message began, and its last frame has not arrived. */
  #inMessage = false;
  #isText = false;
  #control: Buffer[] = [];
  /** The text of the current message, or its head if it is too long. */
  #text: BodyBuffer | undefined;
  #size = 0;
  /** Bytes before the current piece, and where in all bytes the current frame begins. */
  #passed = 0;
  #frameStart = 0;
  /** Where in all bytes the Close begins, after which nothing may follow; undefined before it. */
  closeStart: number | undefined;
  /** The bytes are no sequence of frames. */
  isLost = false;

  /**
   * @param maxText maximum bytes of a message that is collected
   * @param wantsMask the gateway itself is the server, to which every frame has to be masked (RFC 6455, 5.1)
   */
  constructor(events: FrameEvents, maxText: number = MAX_TEXT, wantsMask = false) {
    this.#events = events;
    this.#maxText = maxText;
    this.#wantsMask = wantsMask;
  }

  /** Whether a frame may be inserted behind the received bytes. */
  get atBoundary(): boolean {
    return !this.isLost && !this.#inPayload && this.#headLength === 0;
  }

  /** Whether a whole message may be inserted there. */
  get betweenMessages(): boolean {
    return this.atBoundary && !this.#inMessage;
  }

  get hasClosed(): boolean {
    return this.closeStart !== undefined;
  }

  /** Bytes of the current text message, as far as its frames announce them. */
  get textSize(): number {
    return this.#inMessage && this.#isText ? this.#size + (this.#opcode < CLOSE ? this.#left : 0) : 0;
  }

  /**
   * @param stop at the end of the current frame
   * @returns the number of bytes read: all, or with `stop` those up to the end of the frame
   */
  push(chunk: Buffer, stop = false): number {
    let at = 0;
    while (at < chunk.length && !this.isLost) {
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

  #takeHead(chunk: Buffer, start: number): number {
    let at = start;
    let isWhole = false;
    while (at < chunk.length && !isWhole) {
      this.#head[this.#headLength] = chunk[at] ?? 0;
      this.#headLength += 1;
      at += 1;
      isWhole = this.#headLength === this.#headSize;
    }
    if (isWhole) this.#begin();
    return at - start;
  }

  /** As far as it is known from the received bytes. */
  get #headSize(): number {
    const [, second = 0] = this.#head;
    return this.#headLength < 2 ? 2 : 2 + extendedBytes(second & 0x7f) + (second & 0x80 ? 4 : 0);
  }

  #begin(): void {
    const head = this.#head;
    const [first = 0, second = 0] = head;
    const length = second & 0x7f;
    const isMasked = (second & 0x80) !== 0;
    const extended = extendedBytes(length);
    const left =
      extended === 0 ? length : extended === 2 ? head.readUInt16BE(2) : Number(head.readBigUInt64BE(2));
    const opcode = first & 0x0f;
    const isFinal = (first & 0x80) !== 0;
    const isControl = opcode >= 0x8;
    const isOdd =
      // Without an extension, reserved bits and opcodes are invalid (RFC 6455, 5.2).
      (first & 0x70) !== 0 ||
      (this.#wantsMask && !isMasked) ||
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
      if (!this.#isText) this.#events.onBinary?.();
    }
    const isTooLong = !isControl && this.#isText && this.#size + left > this.#maxText;
    if (isTooLong && this.#size <= this.#maxText) this.#events.onTooLong?.();
    if (left === 0) this.#end();
  }

  #takePayload(chunk: Buffer, start: number): number {
    const count = Math.min(this.#left, chunk.length - start);
    const bytes = chunk.subarray(start, start + count);
    if (this.#opcode >= 0x8) this.#control.push(this.#plain(bytes));
    else if (this.#isText) this.#collect(bytes);
    this.#left -= count;
    this.#read += count;
    if (this.#left === 0) this.#end();
    return count;
  }

  #collect(bytes: Buffer): void {
    const before = this.#size;
    this.#size += bytes.length;
    if (before > this.#maxText) return;
    const plain = this.#plain(bytes);
    this.#text ??= new BodyBuffer(this.#maxText);
    if (this.#text.push(plain)) return;
    const start = before > 0 ? this.#text.take() : plain;
    this.#text = new BodyBuffer(TEXT_HEAD);
    this.#text.push(Buffer.from(start.subarray(0, TEXT_HEAD)));
  }

  #plain(bytes: Buffer): Buffer {
    const mask = this.#mask;
    if (mask === undefined) return bytes;
    return masked(bytes, mask, this.#read);
  }

  #end(): void {
    this.#inPayload = false;
    if (this.#opcode >= 0x8) {
      const payload = Buffer.concat(this.#control);
      this.#control = [];
      if (this.#opcode === PING) this.#events.onPing?.(payload);
      if (this.#opcode !== CLOSE || this.hasClosed) return;
      this.closeStart = this.#frameStart;
      this.#events.onClose(payload.length < 2 ? 1005 : payload.readUInt16BE(0));
      return;
    }
    if (!this.#isFinal) return;
    this.#inMessage = false;
    if (!this.#isText) return;
    const size = this.#size;
    const text = this.#text?.take() ?? NO_BYTES;
    this.#size = 0;
    this.#text = undefined;
    if (size > this.#maxText) this.#events.onLongText?.(size, text);
    else this.#events.onText(text);
  }

  #lose(): void {
    this.isLost = true;
    this.#text = undefined;
    this.#control = [];
  }
}

/** Bytes of the extended length (RFC 6455, 5.2). @param length the seven bits in the second byte */
function extendedBytes(length: number): number {
  return length === 126 ? 2 : length === 127 ? 8 : 0;
}

/** Whether a Close may have this code (RFC 6455, 7.4.1 and 7.4.2). */
export function isCloseCode(code: number): boolean {
  return code >= 1000 && code < 5000 && ![1004, 1005, 1006, 1015].includes(code);
}

/**
 * A Close (RFC 6455, 5.5.1).
 * @param code 1005 (a Close without a code) becomes 1000; any other code that may not be sent becomes 1002
 * @param reason ASCII of at most 123 bytes
 * @param isMasked towards a server (RFC 6455, 5.3)
 */
export function closeFrame(code: number, reason: string, isMasked: boolean): Buffer {
  const payload = Buffer.alloc(2 + reason.length);
  payload.writeUInt16BE(code === 1005 ? 1000 : isCloseCode(code) ? code : 1002, 0);
  payload.write(reason, 2, 'latin1');
  return frame(CLOSE, payload, isMasked);
}

/** The answer to a Ping (RFC 6455, 5.5.3). @param isMasked towards a server */
export function pongFrame(payload: Buffer, isMasked = false): Buffer {
  return frame(PONG, payload, isMasked);
}

/** A whole text message. @param isMasked towards a server */
export function textFrame(text: string | Buffer, isMasked = false): Buffer {
  return frame(TEXT, typeof text === 'string' ? Buffer.from(text) : text, isMasked);
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
  return Buffer.concat([head, extended, mask, masked(payload, mask, 0)]);
}

/** A masked or unmasked copy (RFC 6455, 5.3), four bytes at a time. @param offset of these bytes in the payload */
function masked(bytes: Buffer, mask: Buffer, offset: number): Buffer {
  // Not from the pool: a word has to be at a multiple of four.
  const result = Buffer.alloc(bytes.length);
  bytes.copy(result);
  const turned = Buffer.alloc(4);
  for (let i = 0; i < 4; i++) turned[i] = mask[(offset + i) & 3] ?? 0;
  const key = new Int32Array(turned.buffer, turned.byteOffset, 1)[0] ?? 0;
  const words = new Int32Array(result.buffer, result.byteOffset, result.length >> 2);
  for (let i = 0; i < words.length; i++) words[i] = (words[i] ?? 0) ^ key;
  for (let i = words.length * 4; i < result.length; i++) result[i] = (result[i] ?? 0) ^ (turned[i & 3] ?? 0);
  return result;
}
