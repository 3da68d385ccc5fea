// One connection to an upstream and its current exchange. connection-pool.ts opens connections and keeps idle ones;
// response-parser.ts parses responses.
import type { Socket } from 'node:net';
import { GatewayError } from '../../errors.ts';
import { readInto } from '../../http/exchange/node-internals.ts';
import { batchWrite } from '../../http/exchange/write-batch.ts';
import { type BodySource, isSource } from '../../http/pieces/body-source.ts';
import { type BodyEvents, BodyWriter } from '../../http/pieces/body-writer.ts';
import { type HeaderLines, InvalidResponse } from './response-head.ts';
import { ResponseParser, type ResponseReader } from './response-parser.ts';

/** Handler of one response; not called after its end. */
export interface ResponseHandler extends ResponseReader, BodyEvents {
  /** The response is complete; the connection is released from this handler. */
  onComplete(): void;
  /** The connection failed or the response is invalid. */
  onBroken(cause: Error): void;
  /** Writing of the request starts. */
  onWriteStart(): void;
  /** The connection is unusable, and no byte of the request was written. It is released from this handler. */
  onUnsent(cause: Error): void;
}

/**
 * Unsolicited bytes: bytes that answer no request.
 * - `idle`: received while the connection was idle.
 * - `unsent`: received before the next request was written.
 * - `surplus`: received after a complete response.
 * - `farewell`: a 408 on an idle connection, which some servers send before they close it. Not a fault.
 */
export type Unsolicited = 'idle' | 'unsent' | 'surplus' | 'farewell';

/** The pool that owns a connection. */
export interface ConnectionOwner {
  /** The response is complete; the connection is reusable. */
  onFree(connection: UpstreamConnection): void;
  onClosed(connection: UpstreamConnection): void;
  /** Unsolicited bytes arrived; the connection is closed. */
  onUnsolicited(kind: Unsolicited): void;
  /** Whether reused connections must not be used at present. */
  readonly isSuspect: boolean;
  /** Of the last head, for the parsers of all its connections. */
  readonly headerLines: HeaderLines[];
  /** For requests that the kernel takes at once, which is nearly all: new memory for each costs more than the copy. */
  writeBuffer: Buffer;
}

/** A serialized request. */
export interface WrittenRequest {
  /** Request line, headers and the empty line, in Latin-1. */
  readonly head: string;
  readonly body: Buffer | BodySource;
  /** Close the connection after the response. */
  readonly isLast: boolean;
}

/** Bodies up to this size are copied behind the head, so that one system call writes both. */
const SINGLE_WRITE_BYTES = 128 * 1024;
/** With TLS, which needs new memory for the copy. */
const SINGLE_TLS_WRITE_BYTES = 64 * 1024;
const READ_BYTES = 64 * 1024;

/** A 408 that some servers send on an idle connection before closing it. */
const FAREWELL = /^HTTP\/1\.[01] 408[ \r]/;
const MAX_FAREWELL = 16;

const READ_BUFFER: Buffer = Buffer.allocUnsafeSlow(READ_BYTES);
/** Size of the memory in which requests are put together. */
export const WRITE_BYTES = SINGLE_WRITE_BYTES + 16 * 1024;

const connections = new WeakMap<object, UpstreamConnection>();

/**
 * Read options of upstream sockets, for their creation: all read into one shared buffer, without a stream. The buffer is reused
 * after the callback returns; copy what you keep.
 */
export const READ_OPTIONS = readInto(READ_BUFFER, (socket, bytes, length) =>
  connections.get(socket)?.onRead(bytes, length),
);

export class UpstreamConnection {
  readonly #socket: Socket;
  readonly #owner: ConnectionOwner;
  readonly #parser: ResponseParser;
  /** In monotonic milliseconds of the pool's clock. */
  readonly openedAt: number;
  /** End of its use as an idle connection. */
  idleUntil = 0;
  /** End of its quiet period, in which nothing is written. */
  quietUntil = 0;
  /** Delay of the next request in milliseconds. */
  waitMs = 0;
  /** The connection was idle, so it may be stale or hold unsolicited bytes. */
  isKept = false;
  /** The upstream's idle timeout (`keep-alive: timeout=…`) in milliseconds; undefined if not named. */
  keepAliveMs: number | undefined;
  /** Number of requests started on it. */
  served = 0;
  #handler: ResponseHandler | undefined;
  /** Of a streamed body. */
  #writer: BodyWriter | undefined;
  #isLast = false;
  #hasResponseBytes = false;
  /** The request of the handler is not written yet. */
  #isUnsent = false;
  #paused = false;
  #cause: Error | undefined;

  /** @param socket connected, and created with READ_OPTIONS */
  constructor(socket: Socket, owner: ConnectionOwner, now: number) {
    this.#socket = socket;
    this.#owner = owner;
    this.openedAt = now;
    const reader: ResponseReader = {
      onHead: (status, headers) => {
        this.keepAliveMs = keepAliveOf(headers['keep-alive']);
        // The upstream does not want the rest of the body (RFC 9112, 9.5); the connection is then closed.
        if (status !== 200) this.#writer?.cancel();
        this.#handler?.onHead(status, headers);
      },
      onBody: (bytes, start, end) => this.#handler?.onBody(bytes, start, end),
    };
    this.#parser = new ResponseParser(reader, owner.headerLines);
    connections.set(socket, this);
    socket.on('error', (error) => {
      this.#cause = error;
    });
    socket.on('end', () => this.#onEnd());
    socket.on('close', () => {
      this.#fail(this.#cause ?? new Error('the peer closed the connection'));
      this.#owner.onClosed(this);
    });
  }

  /** Whether the current request used a reused connection and no response byte came: probably a stale keep-alive connection. */
  get hasNoResponse(): boolean {
    return this.isKept && !this.#hasResponseBytes;
  }

  /** Whether no byte of any response came. */
  get isUnanswered(): boolean {
    return this.served === 1 && !this.#hasResponseBytes;
  }

  /** Writes a request at the end of this event-loop tick, or after `waitMs`; `handler` receives the response. */
  begin(handler: ResponseHandler, { head, body, isLast }: WrittenRequest): void {
    this.#handler = handler;
    this.#isLast = isLast;
    this.served += 1;
    this.#hasResponseBytes = false;
    this.#isUnsent = true;
    const write = () => {
      // Unless aborted meanwhile, which has closed the connection.
      if (this.#handler === handler) this.#write(handler, head, body);
    };
    if (this.waitMs > 0) setTimeout(write, Math.ceil(this.waitMs));
    else batchWrite(write);
  }

  #write(handler: ResponseHandler, head: string, body: Buffer | BodySource): void {
    // Another connection to the origin received unsolicited bytes after this one was taken.
    if (this.isKept && this.#owner.isSuspect) {
      this.#rejectUnsent(new Error('the origin sends unsolicited bytes'));
      return;
    }
    if (!this.#socket.writable) {
      this.#rejectUnsent(this.#cause ?? new Error('the peer closed the connection'));
      return;
    }
    this.#isUnsent = false;
    this.#parser.expect();
    handler.onWriteStart();
    if (this.#writeAtOnce(head, body)) return;
    if (isSource(body)) {
      this.#socket.write(head, 'latin1');
      this.#writer = new BodyWriter(this.#socket, body, handler);
    } else {
      this.#socket.cork();
      this.#socket.write(head, 'latin1');
      this.#socket.write(body);
      this.#socket.uncork();
    }
  }

  /** @returns whether head and body were written; not those of a body that is large or not in memory */
  #writeAtOnce(head: string, body: Buffer | BodySource): boolean {
    const socket = this.#socket;
    const { length } = body;
    // TLS may read the bytes later.
    const isTls = 'encrypted' in socket;
    if (length === undefined || length > (isTls ? SINGLE_TLS_WRITE_BYTES : SINGLE_WRITE_BYTES)) return false;
    const size = head.length + length;
    const isLent = size <= WRITE_BYTES && !isTls;
    const bytes = isLent ? this.#owner.writeBuffer.subarray(0, size) : Buffer.allocUnsafe(size);
    bytes.write(head, 'latin1');
    if (!isSource(body)) body.copy(bytes, head.length);
    else if (body.copyTo?.(bytes, head.length) !== true) return false;
    socket.write(bytes);
    // The kernel takes the rest of it later.
    if (isLent && socket.writableLength > 0) this.#owner.writeBuffer = Buffer.allocUnsafeSlow(WRITE_BYTES);
    return true;
  }

  pause(): void {
    this.#paused = true;
    this.#socket.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#socket.resume();
  }

  /** Closes the connection at once, without a call to the handler. */
  abandon(): void {
    this.#handler = undefined;
    this.#writer?.cancel();
    this.#socket.destroy();
  }

  /** Closes the connection at once; the handler receives `cause` as an error. */
  close(cause: Error): void {
    this.#cause ??= cause;
    this.#socket.destroy();
  }

  /** Called by the socket with the shared read buffer. @param length number of new bytes in it */
  onRead(bytes: Buffer, length: number): void {
    if (this.#handler === undefined || this.#isUnsent) {
      this.#onUnsolicited(bytes, length);
      return;
    }
    this.#hasResponseBytes = true;
    try {
      const progress = this.#parser.push(bytes, length);
      if (progress === 'surplus') this.#owner.onUnsolicited('surplus');
      if (progress !== 'open') this.#complete(progress === 'reusable');
    } catch (error) {
      this.#socket.destroy();
      // An error thrown by a handler is a bug of the gateway and fails this request only.
      const isInvalid = error instanceof InvalidResponse;
      this.#fail(isInvalid ? error : new GatewayError('internal_error', undefined, { cause: error }));
    }
  }

  /** The next request is sent on another connection. */
  #onUnsolicited(bytes: Buffer, length: number): void {
    // A destroyed socket may still deliver data.
    if (!this.#socket.destroyed) {
      const isFarewell = FAREWELL.test(bytes.toString('latin1', 0, Math.min(length, MAX_FAREWELL)));
      this.#owner.onUnsolicited(isFarewell ? 'farewell' : this.#isUnsent ? 'unsent' : 'idle');
    }
    this.#rejectUnsent(new InvalidResponse('unsolicited bytes before the request'));
  }

  /** Closes the connection before the request is written. */
  #rejectUnsent(cause: Error): void {
    const handler = this.#handler;
    this.#handler = undefined;
    this.#socket.destroy();
    handler?.onUnsent(cause);
  }

  #onEnd(): void {
    if (this.#handler !== undefined && this.#parser.finish() === 'spent') this.#complete(false);
    this.#socket.destroy();
  }

  #complete(reusable: boolean): void {
    const handler = this.#handler;
    this.#handler = undefined;
    // An upstream that responds before it has read the whole request may never read the rest.
    const isWritten = this.#writer === undefined || this.#writer.isComplete;
    const isIdle = isWritten && this.#socket.writable && this.#socket.writableLength === 0;
    this.#writer?.cancel();
    this.#writer = undefined;
    if (reusable && isIdle && !this.#isLast) {
      if (this.#paused) this.resume();
      this.#owner.onFree(this);
    } else this.#socket.destroy();
    handler?.onComplete();
  }

  #fail(cause: Error): void {
    const handler = this.#handler;
    this.#handler = undefined;
    this.#writer?.cancel();
    if (this.#isUnsent) handler?.onUnsent(cause);
    else handler?.onBroken(cause);
  }
}

/** Parses `timeout=5, max=100`. */
function keepAliveOf(header: string | string[] | undefined): number | undefined {
  if (header === undefined) return undefined;
  const seconds = /(?:^|[\s,])timeout *= *"?([0-9]{1,9})/i.exec(String(header))?.[1];
  return seconds === undefined ? undefined : Number(seconds) * 1_000;
}
