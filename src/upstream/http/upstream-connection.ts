// One connection to an upstream, and the one exchange that is under way on it. Making connections and keeping idle ones is
// connection-pool.ts; what the bytes of an answer mean is response-parser.ts.
import type { OnReadOpts, Socket } from 'node:net';
import { GatewayError } from '../../errors.ts';
import { batchWrite } from '../../http/exchange/write-batch.ts';
import { type BodySource, isSource } from '../../http/pieces/body-source.ts';
import { type BodyEvents, BodyWriter } from '../../http/pieces/body-writer.ts';
import { type AnswerReader, ResponseParser, UnusableAnswer } from './response-parser.ts';

/** Whoever has the connection: hears one answer, and then nothing more. */
export interface ResponseHandler extends AnswerReader, BodyEvents {
  /** The answer is complete; the connection is no longer this occupant's. */
  onComplete(): void;
  /** The connection or the answer broke. */
  onBroken(cause: Error): void;
  /** The request is being written. */
  onBegun(): void;
  /** The connection cannot be used, and no byte of the request was written to it. It is no longer this occupant's. */
  onUnsent(cause: Error): void;
}

/**
 * Bytes that answer no request.
 * - `idle`: they came while no request was under way.
 * - `unsent`: they came before the next request was written.
 * - `surplus`: they stood behind a complete answer.
 * - `farewell`: a 408 on an idle connection, which some servers send before they close it. No fault.
 */
export type Unsolicited = 'idle' | 'unsent' | 'surplus' | 'farewell';

/** To whom a connection goes back. */
export interface ConnectionOwner {
  /** It has answered and may be asked again. */
  onFree(connection: UpstreamConnection): void;
  onClosed(connection: UpstreamConnection): void;
  /** It was sent bytes that answer no request, and is closed. */
  onUnsolicited(kind: Unsolicited): void;
  /** Whether connections that have served before may not be used at present. */
  readonly isSuspect: boolean;
}

/** A request as it goes over the wire. */
export interface WrittenRequest {
  /** Request line, headers and the empty line, in Latin-1. */
  readonly head: string;
  readonly body: Buffer | BodySource;
  /** The connection is closed after its answer. */
  readonly isLast: boolean;
}

/** A body up to this size is copied behind its head, so that both are one piece and one call of the system. */
const ONE_PIECE_BYTES = 64 * 1024;
const READ_BYTES = 64 * 1024;

/** What some servers send on an idle connection before they close it; the status is all that is looked at. */
const FAREWELL = /^HTTP\/1\.[01] 408[ \r]/;
const MAX_FAREWELL = 16;

const READ: Buffer = Buffer.allocUnsafeSlow(READ_BYTES);

const connections = new WeakMap<object, UpstreamConnection>();

/**
 * How the sockets of upstreams are read: all into the same memory, without a stream or a buffer for each piece. Whoever wants
 * bytes for longer than a call copies them. To be given to the socket when it is made.
 */
export const READ_OPTIONS: OnReadOpts = {
  buffer: READ,
  // Node calls it as a method of the socket.
  callback(this: object, length: number, bytes: Uint8Array): boolean {
    connections
      .get(this)
      ?.onRead(bytes === READ ? READ : Buffer.from(bytes.buffer, bytes.byteOffset), length);
    return true;
  },
};

export class UpstreamConnection {
  readonly #socket: Socket;
  readonly #home: ConnectionOwner;
  readonly #parser: ResponseParser;
  /** By the clock of the pool, in monotonic milliseconds. */
  readonly openedAt: number;
  /** Until when an idle one may be used. */
  idleUntil = 0;
  /** Until when nothing is written to it. */
  restsUntil = 0;
  /** Milliseconds that the next request waits before it is written. */
  waitMs = 0;
  /** It was idle, so that it may be closed by now, or hold unsolicited bytes. */
  isKept = false;
  #keepAliveMs: number | undefined;
  #occupant: ResponseHandler | undefined;
  /** Of a body that is sent piece by piece. */
  #writer: BodyWriter | undefined;
  #isLast = false;
  #served = 0;
  #heard = false;
  /** The request of the occupant has not been written yet. */
  #isUnsent = false;
  #paused = false;
  #cause: Error | undefined;

  /** @param socket connected, and made with READ_OPTIONS */
  constructor(socket: Socket, home: ConnectionOwner, now: number) {
    this.#socket = socket;
    this.#home = home;
    this.openedAt = now;
    this.#parser = new ResponseParser({
      onHead: (status, headers) => {
        this.#keepAliveMs = keepAliveOf(headers['keep-alive']);
        // It is not wanted (RFC 9112, 9.5); the connection goes with it.
        if (status !== 200) this.#writer?.cancel();
        this.#occupant?.onHead(status, headers);
      },
      onBody: (bytes, start, end) => this.#occupant?.onBody(bytes, start, end),
    });
    connections.set(socket, this);
    socket.on('error', (error) => {
      this.#cause = error;
    });
    socket.on('end', () => this.#onEnd());
    socket.on('close', () => {
      this.#break(this.#cause ?? new Error('the other side closed the connection'));
      this.#home.onClosed(this);
    });
  }

  /** Requests that were begun on it. */
  get served(): number {
    return this.#served;
  }

  /** Milliseconds that the upstream said it keeps an idle connection (`keep-alive: timeout=…`); undefined if it did not. */
  get keepAliveMs(): number | undefined {
    return this.#keepAliveMs;
  }

  /** Whether the present request went out on a connection that had been idle, and not one byte came back. */
  get isUnheard(): boolean {
    return this.isKept && !this.#heard;
  }

  /** Writes a request at the end of this turn of the event loop, or after `waitMs`, and hands its answer to `occupant`. */
  begin(occupant: ResponseHandler, { head, body, isLast }: WrittenRequest): void {
    this.#occupant = occupant;
    this.#isLast = isLast;
    this.#served += 1;
    this.#heard = false;
    this.#isUnsent = true;
    const write = () => {
      // Unless it was given up meanwhile, which has closed the connection.
      if (this.#occupant === occupant) this.#write(occupant, head, body);
    };
    if (this.waitMs > 0) setTimeout(write, Math.ceil(this.waitMs));
    else batchWrite(write);
  }

  #write(occupant: ResponseHandler, head: string, body: Buffer | BodySource): void {
    // Another connection to the same origin was sent bytes since this one was taken.
    if (this.isKept && this.#home.isSuspect) {
      this.#leave(new Error('the origin sends bytes that answer no request'));
      return;
    }
    if (!this.#socket.writable) {
      this.#leave(this.#cause ?? new Error('the other side closed the connection'));
      return;
    }
    this.#isUnsent = false;
    this.#parser.expect();
    occupant.onBegun();
    if (isSource(body)) {
      this.#socket.write(head, 'latin1');
      this.#writer = new BodyWriter(this.#socket, body, occupant);
    } else if (body.length <= ONE_PIECE_BYTES) {
      const piece = Buffer.allocUnsafe(head.length + body.length);
      piece.write(head, 'latin1');
      body.copy(piece, head.length);
      this.#socket.write(piece);
    } else {
      this.#socket.cork();
      this.#socket.write(head, 'latin1');
      this.#socket.write(body);
      this.#socket.uncork();
    }
  }

  pause(): void {
    this.#paused = true;
    this.#socket.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#socket.resume();
  }

  /** Ends it at once. The occupant hears nothing. */
  abandon(): void {
    this.#occupant = undefined;
    this.#writer?.cancel();
    this.#socket.destroy();
  }

  /** Ends it at once. An occupant hears that it broke. */
  close(cause: Error): void {
    this.#cause ??= cause;
    this.#socket.destroy();
  }

  /** The next bytes, which are only lent. Called by the socket. @param length how many of them are new */
  onRead(bytes: Buffer, length: number): void {
    if (this.#occupant === undefined || this.#isUnsent) {
      this.#onUnsolicited(bytes, length);
      return;
    }
    this.#heard = true;
    try {
      const progress = this.#parser.push(bytes, length);
      if (progress === 'surplus') this.#home.onUnsolicited('surplus');
      if (progress !== 'open') this.#complete(progress === 'kept');
    } catch (error) {
      this.#socket.destroy();
      // What an occupant throws is a fault of the gateway, which costs this request and no other.
      this.#break(
        error instanceof UnusableAnswer
          ? error
          : new GatewayError('internal_error', undefined, { cause: error }),
      );
    }
  }

  /** Whatever they are, they answer no request: the next one goes out on another connection. */
  #onUnsolicited(bytes: Buffer, length: number): void {
    // A connection that was abandoned may still be read.
    if (!this.#socket.destroyed) {
      const isFarewell = FAREWELL.test(bytes.toString('latin1', 0, Math.min(length, MAX_FAREWELL)));
      this.#home.onUnsolicited(isFarewell ? 'farewell' : this.#isUnsent ? 'unsent' : 'idle');
    }
    this.#leave(new UnusableAnswer('bytes before the request'));
  }

  /** Closes it before the request is written. */
  #leave(cause: Error): void {
    const occupant = this.#occupant;
    this.#occupant = undefined;
    this.#socket.destroy();
    occupant?.onUnsent(cause);
  }

  #onEnd(): void {
    if (this.#occupant !== undefined && this.#parser.finish() === 'spent') this.#complete(false);
    this.#socket.destroy();
  }

  #complete(reusable: boolean): void {
    const occupant = this.#occupant;
    this.#occupant = undefined;
    // An upstream that answers before it has read the whole request may never read the rest.
    const isWritten = this.#writer === undefined || this.#writer.isWhole;
    const isIdle = isWritten && this.#socket.writable && this.#socket.writableLength === 0;
    this.#writer?.cancel();
    this.#writer = undefined;
    if (reusable && isIdle && !this.#isLast) {
      if (this.#paused) this.resume();
      this.#home.onFree(this);
    } else this.#socket.destroy();
    occupant?.onComplete();
  }

  #break(cause: Error): void {
    const occupant = this.#occupant;
    this.#occupant = undefined;
    this.#writer?.cancel();
    if (this.#isUnsent) occupant?.onUnsent(cause);
    else occupant?.onBroken(cause);
  }
}

/** From `timeout=5, max=100`. */
function keepAliveOf(header: string | string[] | undefined): number | undefined {
  if (header === undefined) return undefined;
  const seconds = /(?:^|[\s,])timeout *= *"?([0-9]{1,9})/i.exec(String(header))?.[1];
  return seconds === undefined ? undefined : Number(seconds) * 1_000;
}
