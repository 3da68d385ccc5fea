// The client's side of a stream: what is held back until it is opened, the writing at the client's pace, comments in
// silence, and the two ways to end. What is written, and when it is opened, is for stream-relay.ts.
import type { Writable } from 'node:stream';
import type { GatewayError } from '../../errors.ts';
import { batchWrite } from '../../http/exchange/write-batch.ts';
import { relayedHeaders } from '../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import type { RelayRequest, Source } from '../contracts/receiver.ts';

/** Not `: ping`, which some clients take for the end of a stream. */
const KEEP_ALIVE = Buffer.from(': keep-alive\n\n');

/**
 * How long a broken stream stays open behind its last frame. Node's fetch drops what it has queued when a connection
 * breaks, so a client that reads slowly would lose tokens and the error; one that has read the error closes by itself.
 */
const CUT_DELAY_MS = 1_000;

/** More is written at once: the client's own pace is to be felt, and waking it is little beside the copying. */
const MAX_DUE_BYTES = 16 * 1024;

const LAST_CHUNK = Buffer.from('0\r\n\r\n');
const CR = 0x0d;
const LF = 0x0a;

/** One chunk of RFC 9112, 7.1, in one piece. An empty one would be the last. */
function chunkOf(pieces: readonly Buffer[], length: number): Buffer {
  const size = `${length.toString(16)}\r\n`;
  const chunk = Buffer.allocUnsafe(size.length + length + 2);
  let at = chunk.write(size, 'latin1');
  for (const piece of pieces) at += piece.copy(chunk, at);
  chunk[at] = CR;
  chunk[at + 1] = LF;
  return chunk;
}

export class ClientStream {
  readonly #request: RelayRequest;
  readonly #headers: ResponseHeaders;
  readonly #source: Source;
  #isOpen = false;
  #isOver = false;
  #isChunked = false;
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** To be written at the end of the turn, in one piece. */
  #due: Buffer[] = [];
  #dueBytes = 0;
  /** The head has been handed to the response. */
  #hasHead = false;
  /** Whose `drain` is waited for. */
  #full: Writable | undefined;
  #keepAlive: NodeJS.Timeout | undefined;
  #wroteAt = 0;
  #paused = false;
  #bytesOut = 0;

  readonly #type: string | undefined;

  /**
   * @param headers of the upstream, of which an allow-list goes with the client's
   * @param source made to wait while the client does not keep up
   * @param type content type of a stream of bytes, into which nothing may be put; default: a stream of events
   */
  constructor(request: RelayRequest, headers: ResponseHeaders, source: Source, type?: string) {
    this.#request = request;
    this.#type = type;
    this.#headers = headers;
    this.#source = source;
  }

  /** The client has its 200. Until then it has nothing, and never will when `open` is not called. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** It has ended, one way or the other; nothing more is written. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** It does not keep up, so the upstream is not read. */
  get isPaused(): boolean {
    return this.#paused;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** Written bytes, comments of the gateway's among them. */
  get bytesOut(): number {
    return this.#bytesOut;
  }

  /** Writes whole frames, or holds them back until it is open. */
  pass(bytes: Buffer): void {
    this.passAll([bytes]);
  }

  /** The same for bytes that lie in several places. */
  passAll(pieces: readonly Buffer[]): void {
    if (this.#isOpen) this.#write(pieces);
    else {
      this.#held.push(...pieces);
      this.#heldBytes += lengthOf(pieces);
    }
  }

  /** Sends the head and all that was held back. Once; and never when another attempt has the client. */
  open(): void {
    if (this.#isOpen || this.#isOver) return;
    if (this.#source.rivalry?.commit() === false) {
      this.drop();
      return;
    }
    this.#source.committed();
    const { exchange, keepalive } = this.#request;
    const { response } = exchange;
    // HTTP/1.0 knows no chunks: there the end of the connection is the end of the answer.
    this.#isChunked = exchange.request.httpVersionMinor !== 0;
    response.writeHead(200, {
      ...exchange.headers,
      'content-type': this.#type ?? 'text/event-stream; charset=utf-8',
      // Proxies on the way must neither store nor compress nor collect it.
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
      ...relayedHeaders(this.#headers),
      ...(this.#isChunked ? { 'transfer-encoding': 'chunked' } : {}),
    });
    // Node would write each chunk as three pieces; here size, bytes and end of line are one.
    response.chunkedEncoding = false;
    this.#isOpen = true;
    if (this.#type === undefined) {
      this.#keepAlive = setTimeout(this.#onSilence, keepalive);
      exchange.probe = this.#onKeepAlive;
    }
    if (this.#heldBytes === 0) {
      response.flushHeaders();
      this.#hasHead = true;
    } else this.#write(this.#held);
    this.#held = [];
  }

  /** Ends as a whole answer does. */
  end(): void {
    if (!this.#isOpen) return;
    this.#close();
    const { response } = this.#request.exchange;
    const due = this.#dueBytes > 0 ? [this.#takeDue()] : [];
    if (this.#isChunked) due.push(LAST_CHUNK);
    if (due.length === 0) response.end();
    else response.end(due.length === 1 ? due[0] : Buffer.concat(due));
  }

  /**
   * Ends the connection without the final chunk: by RFC 9112, 8 the message is incomplete, for everyone who reads framing
   * and not frames.
   * @param frame tells the error to everyone else; undefined where it was told, or nothing can tell it
   */
  cut(error: GatewayError, frame: Buffer | undefined): void {
    const { exchange } = this.#request;
    const { response } = exchange;
    const { socket } = response;
    // The client is at a frame boundary: partial frames are held back.
    if (frame !== undefined) this.#write([frame]);
    this.#flush();
    this.#close();
    exchange.error = error;
    // The connection is about to close with an answer that is not complete, and it is not the client that closed it.
    exchange.stop(error);
    exchange.markAnswered();
    if (socket === null) return;
    // Node holds back what was written in this turn, and would lose it with the socket.
    if (response.writableCorked > 0) response.uncork();
    const delay = setTimeout(() => {
      if (exchange.request.httpVersionMinor !== 0) socket.destroySoon();
      // In HTTP/1.0 the end of the connection is the end of the answer, so only a reset says that it broke.
      else socket.write('', () => socket.resetAndDestroy());
    }, CUT_DELAY_MS);
    socket.once('close', () => clearTimeout(delay));
  }

  /** The client is gone, or nothing of this stream is for it. */
  drop(): void {
    this.#close();
    this.#held = [];
    this.#due = [];
    this.#dueBytes = 0;
    if (this.#isOpen) this.#request.exchange.response.destroy();
  }

  /** Nobody feeds it any more: no timer and no listener is left. */
  dispose(): void {
    clearTimeout(this.#keepAlive);
    this.#full?.off('drain', this.#onDrain);
  }

  /** What comes in one turn of the event loop goes out together: an upstream's frames often arrive in a bunch. */
  #write(pieces: readonly Buffer[]): void {
    const length = lengthOf(pieces);
    if (length === 0) return;
    this.#bytesOut += length;
    this.#wroteAt = performance.now();
    if (this.#dueBytes === 0) batchWrite(this.#flush);
    for (const piece of pieces) this.#due.push(piece);
    this.#dueBytes += length;
    if (this.#dueBytes > MAX_DUE_BYTES) this.#flush();
  }

  /** What is due, as it goes over the wire. There is some: a chunk without bytes would be the last one. */
  #takeDue(): Buffer {
    const bytes = this.#isChunked
      ? chunkOf(this.#due, this.#dueBytes)
      : Buffer.concat(this.#due, this.#dueBytes);
    this.#due = [];
    this.#dueBytes = 0;
    return bytes;
  }

  /** When the client does not keep up, the upstream is not read until it does. */
  readonly #flush = () => {
    if (this.#dueBytes === 0) return;
    const { response } = this.#request.exchange;
    // Behind the head, straight to the connection: the response would only hold each piece back again, for a tick of its own.
    const to = this.#hasHead ? (response.socket ?? response) : response;
    this.#hasHead = true;
    // A connection that is gone takes nothing either, and will not drain.
    if (to.write(this.#takeDue()) || !to.writableNeedDrain || this.#paused || this.#isOver) return;
    this.#paused = true;
    this.#source.pause();
    this.#full = to.once('drain', this.#onDrain);
  };

  readonly #onDrain = () => {
    this.#paused = false;
    this.#source.resume();
  };

  /** Between whole frames, which is where the client always is: a comment there is one of its own. */
  readonly #onKeepAlive = () => {
    if (!this.#isOver && !this.#paused) this.#write([KEEP_ALIVE]);
  };

  /** A write moves a time and not a timer, which finds out when it fires whether there was silence. */
  readonly #onSilence = () => {
    if (this.#isOver) return;
    const { keepalive } = this.#request;
    const left = this.#wroteAt + keepalive - performance.now();
    if (left <= 0) this.#onKeepAlive();
    if (this.#isOver) return;
    this.#keepAlive = setTimeout(this.#onSilence, left <= 0 ? keepalive : Math.ceil(left));
  };

  #close(): void {
    this.#isOver = true;
    clearTimeout(this.#keepAlive);
    // Of a stream that was never opened it is another's.
    if (this.#isOpen) this.#request.exchange.probe = undefined;
  }
}

function lengthOf(pieces: readonly Buffer[]): number {
  let length = 0;
  for (const piece of pieces) length += piece.length;
  return length;
}
