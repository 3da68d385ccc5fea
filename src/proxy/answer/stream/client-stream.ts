// The client's side of a stream: holding bytes back until it opens, writing with backpressure, keep-alive comments, and the
// two ways to end. stream-relay.ts decides what is written and when it opens.
import type { Writable } from 'node:stream';
import { TLSSocket } from 'node:tls';
import type { GatewayError } from '../../../errors.ts';
import { forgetHead, frameChunksByHand } from '../../../http/exchange/node-internals.ts';
import { batchWrite } from '../../../http/exchange/write-batch.ts';
import { relayedHeaders } from '../../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../../upstream/transport.ts';
import type { RelayRequest, Source } from '../../contracts/receiver.ts';

/** The content type of a stream. */
export const EVENTS = 'text/event-stream; charset=utf-8';

/** Not `: ping`, which some clients take for the end of a stream. */
const KEEP_ALIVE = Buffer.from(': keep-alive\n\n');

/**
 * How long a broken stream stays open after its last frame. Node's fetch drops its queue when a connection breaks, so a slow
 * reader would lose tokens and the error. A client that has read the error closes by itself.
 */
const CUT_DELAY_MS = 1_000;

/** Larger batches are flushed at once, so that backpressure works; the wake-up costs little beside the copying. */
const MAX_PENDING_BYTES = 16 * 1024;

const LAST_CHUNK = Buffer.from('0\r\n\r\n');
const HEX_DIGITS = Buffer.from('0123456789abcdef');
const CR = 0x0d;
const LF = 0x0a;

/** One chunk of RFC 9112, section 7.1, in one buffer. `length` is not 0: an empty chunk ends the body. */
function chunkOf(pieces: readonly Buffer[], length: number): Buffer {
  const digits = Math.ceil((32 - Math.clz32(length)) / 4);
  const chunk = Buffer.allocUnsafe(digits + length + 4);
  // For a few bytes, `write` and `copy` cost twice as much as these.
  for (let digit = digits - 1, left = length; digit >= 0; digit -= 1, left >>>= 4)
    chunk[digit] = HEX_DIGITS[left & 0xf] ?? 0;
  chunk[digits] = CR;
  chunk[digits + 1] = LF;
  let at = digits + 2;
  for (const piece of pieces) {
    chunk.set(piece, at);
    at += piece.length;
  }
  chunk[at] = CR;
  chunk[at + 1] = LF;
  return chunk;
}

export class ClientStream {
  readonly #request: RelayRequest;
  readonly #headers: ResponseHeaders;
  readonly #source: Source;
  readonly #type: string | undefined;
  /** The client received its 200. Before `open`, it receives nothing. */
  isOpen = false;
  /** Ended, cleanly or not; nothing more is written. */
  isOver = false;
  /** The client applies backpressure, so the upstream is not read. */
  isPaused = false;
  #isChunked = false;
  #held: Buffer[] = [];
  heldBytes = 0;
  /** To be written in one piece at the end of the tick. */
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  /** The end is to be written with the batch. */
  #isEndDue = false;
  /** The head is written to the response. Node writes what is text in Latin-1, which maps every byte, in one piece with the head. */
  #hasHead = false;
  /** The writable whose `drain` is awaited. */
  #draining: Writable | undefined;
  #keepAlive: NodeJS.Timeout | undefined;
  #wroteAt = 0;
  /** Written bytes, including the gateway's own comments. */
  #bytesOut = 0;

  /**
   * @param headers of the upstream; an allow-list of them goes to the client
   * @param source paused while the client applies backpressure
   * @param type content type of a byte stream, which takes no comments; default: an event stream
   */
  constructor(request: RelayRequest, headers: ResponseHeaders, source: Source, type?: string) {
    this.#request = request;
    this.#type = type;
    this.#headers = headers;
    this.#source = source;
  }

  /** Writes whole frames, or holds them back until the stream opens. */
  pass(bytes: Buffer): void {
    this.passAll([bytes]);
  }

  /** As `pass`, for bytes in several buffers. */
  passAll(pieces: readonly Buffer[]): void {
    if (this.isOpen) this.#write(pieces);
    else {
      this.#held.push(...pieces);
      this.heldBytes += lengthOf(pieces);
    }
  }

  /** Sends the head and the held bytes, once; not if another attempt won the race. */
  open(): void {
    if (this.isOpen || this.isOver) return;
    if (!this.#source.commit()) {
      this.drop();
      return;
    }
    const { exchange } = this.#request;
    const { response } = exchange;
    // HTTP/1.0 has no chunked coding: the close of the connection ends the answer.
    this.#isChunked = exchange.request.httpVersionMinor !== 0;
    response.writeHead(200, {
      ...exchange.headers,
      'content-type': this.#type ?? EVENTS,
      // Intermediaries must neither store nor compress nor buffer it.
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
      ...relayedHeaders(this.#headers),
      ...(this.#isChunked ? { 'transfer-encoding': 'chunked' } : {}),
    });
    // Node would write each chunk in three pieces; here it is one.
    frameChunksByHand(response);
    this.isOpen = true;
    if (this.#type === undefined) exchange.probe = this.#onKeepAlive;
    if (this.heldBytes === 0) {
      response.flushHeaders();
      this.#wroteHead();
    } else this.#write(this.#held);
    this.#held = [];
  }

  /** A stream that ends in its first tick needs no timer. */
  #wroteHead(): void {
    const { exchange, config } = this.#request;
    forgetHead(exchange.response);
    this.#hasHead = true;
    if (this.#type === undefined) this.#keepAlive = setTimeout(this.#onSilence, config.stream.keepalive);
  }

  /** Ends the answer cleanly, with the batch of this tick. */
  end(): void {
    if (!this.isOpen) return;
    this.#close();
    this.#request.exchange.isEnding = true;
    this.#isEndDue = true;
    if (this.#pendingBytes === 0) batchWrite(this.#flush);
  }

  #writeEnd(): void {
    const { response } = this.#request.exchange;
    const last = this.#pendingBytes > 0 ? [this.#takePending()] : [];
    if (this.#isChunked) last.push(LAST_CHUNK);
    if (last.length === 0) response.end();
    else if (this.#hasHead) response.end(last.length === 1 ? last[0] : Buffer.concat(last));
    else response.end(Buffer.concat(last).toString('latin1'), 'latin1');
  }

  /**
   * Ends the connection without the final chunk, so that clients which check the framing see an incomplete message
   * (RFC 9112, section 8).
   * @param frame reports the error to clients that read only frames; undefined where it is reported already, or cannot be
   */
  cut(error: GatewayError, frame: Buffer | undefined): void {
    const { exchange } = this.#request;
    const { socket } = exchange.response;
    // The client is at a frame boundary, because partial frames are held back.
    if (frame !== undefined) this.#write([frame]);
    this.#flush();
    this.#close();
    exchange.error = error;
    // Stop the exchange first, so that the close does not count as the client's.
    exchange.stop(error);
    exchange.markAnswered();
    if (socket === null) return;
    const delay = setTimeout(() => {
      if (exchange.request.httpVersionMinor !== 0) socket.destroySoon();
      // In HTTP/1.0 a close is a clean end, so only a reset signals the error; in TLS a close without its own end (RFC 8446, 6.1).
      else
        socket.write('', () => (socket instanceof TLSSocket ? socket.destroy() : socket.resetAndDestroy()));
    }, CUT_DELAY_MS);
    socket.once('close', () => clearTimeout(delay));
  }

  /** @returns what is held back, to be sent later or not at all; the stream is then discarded */
  takeHeld(): Buffer {
    const held = Buffer.concat(this.#held, this.heldBytes);
    this.drop();
    return held;
  }

  /** Discards the stream: the client left, or another answer replaces it. */
  drop(): void {
    this.#close();
    this.#held = [];
    this.#pending = [];
    this.#pendingBytes = 0;
    if (this.isOpen) this.#request.exchange.response.destroy();
  }

  /** Removes timers and listeners, and reports the size of an opened stream to the access log. */
  dispose(): void {
    if (this.isOpen) this.#request.exchange.access.bytes_out = this.#bytesOut;
    clearTimeout(this.#keepAlive);
    this.#draining?.off('drain', this.#onDrain);
  }

  /** Batches the writes of one event-loop tick: an upstream's frames often arrive together. */
  #write(pieces: readonly Buffer[]): void {
    const length = lengthOf(pieces);
    if (length === 0) return;
    this.#bytesOut += length;
    if (this.#pendingBytes === 0) batchWrite(this.#flush);
    for (const piece of pieces) this.#pending.push(piece);
    this.#pendingBytes += length;
    if (this.#pendingBytes > MAX_PENDING_BYTES) this.#flush();
  }

  /** Takes the batch in its wire form. It must not be empty: an empty chunk ends the body. */
  #takePending(): Buffer {
    const bytes = this.#isChunked
      ? chunkOf(this.#pending, this.#pendingBytes)
      : Buffer.concat(this.#pending, this.#pendingBytes);
    this.#pending = [];
    this.#pendingBytes = 0;
    return bytes;
  }

  /** Writes the batch. Under backpressure, the upstream is paused until the client drains. */
  readonly #flush = () => {
    if (this.#isEndDue) {
      this.#isEndDue = false;
      this.#writeEnd();
      return;
    }
    if (this.#pendingBytes === 0) return;
    const { response } = this.#request.exchange;
    // After the head, write to the socket directly: the response would delay each piece by another tick.
    const to = this.#hasHead ? (response.socket ?? response) : response;
    const bytes = this.#takePending();
    const isTaken = this.#hasHead ? to.write(bytes) : response.write(bytes.toString('latin1'), 'latin1');
    this.#wroteAt = performance.now();
    if (!this.#hasHead) this.#wroteHead();
    // A closed connection accepts no bytes and never drains.
    if (isTaken || !to.writableNeedDrain || this.isPaused || this.isOver) return;
    this.isPaused = true;
    this.#source.pause();
    this.#draining = to.once('drain', this.#onDrain);
  };

  readonly #onDrain = () => {
    this.isPaused = false;
    this.#source.resume();
  };

  /** Writes a comment. The client is always at a frame boundary, so a comment is a frame of its own. */
  readonly #onKeepAlive = () => {
    if (!this.isOver && !this.isPaused) this.#write([KEEP_ALIVE]);
  };

  /** Writes only update a timestamp; the timer compares it when it fires. */
  readonly #onSilence = () => {
    if (this.isOver) return;
    const { keepalive } = this.#request.config.stream;
    const left = this.#wroteAt + keepalive - performance.now();
    if (left <= 0) this.#onKeepAlive();
    if (this.isOver) return;
    this.#keepAlive = setTimeout(this.#onSilence, left <= 0 ? keepalive : Math.ceil(left));
  };

  #close(): void {
    this.isOver = true;
    clearTimeout(this.#keepAlive);
    // While the stream is not open, the probe belongs to another response.
    if (this.isOpen) this.#request.exchange.probe = undefined;
  }
}

function lengthOf(pieces: readonly Buffer[]): number {
  let length = 0;
  for (const piece of pieces) length += piece.length;
  return length;
}
