// The body of a request that is sent on while it still comes: kept as far as somebody has to look at it first, then passed on
// piece by piece at the pace of whoever takes it. It does not look inside; that is the watcher's.
import { startDeadline } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import type { Exchange } from '../exchange/exchange.ts';
import { hasBody } from '../exchange/response-writer.ts';
import { LARGE_BODY } from '../pieces/body-buffer.ts';
import type { BodyReader, BodySource } from '../pieces/body-source.ts';
import { type BodyPace, bodyTooLarge, PACE, waitsForContinue } from './read-body.ts';
import { SPOOL_MEMORY_BYTES, type SpoolRoom, UploadSpool } from './upload-spool.ts';

/** Sees all bytes in their order, once. What it throws ends the upload. */
export interface UploadWatcher {
  push(piece: Buffer): void;
  /** The body is complete. */
  end(): void;
  /** Where stands what has to be known before the body can be sent: its end, in bytes; undefined while it has not come. */
  readonly knownAt: number | undefined;
}

/** Other bytes for a span; an empty span is an insertion. */
interface Splice {
  readonly span: { readonly start: number; readonly end: number };
  readonly bytes: Buffer;
}

/** When so little is to come, or has come since, it is waited for: a body that is there can be sent again. */
const LOOK_AHEAD_BYTES = 256 * 1024;

type State = 'new' | 'keeping' | 'live' | 'ended' | 'over';

export class Upload {
  readonly #exchange: Exchange;
  readonly #limit: number;
  readonly #pace: BodyPace;
  readonly #watcher: UploadWatcher;
  readonly #spool: UploadSpool;
  readonly #expected: number | undefined;
  #state: State = 'new';
  #received = 0;
  #isOpened = false;
  #isLive = false;
  /** Why the rest will not come. */
  #error: GatewayError | undefined;
  #settle: ((error?: GatewayError) => void) | undefined;
  /** Came, and nobody has asked for it. */
  readonly #queue: Buffer[] = [];
  /** Ends the wait for the client. */
  #stop: (() => void) | undefined;
  #last = 0;
  #waitingSince = 0;
  /** Milliseconds for which the client was waited for before. */
  #waited = 0;

  /** @param limit most bytes */
  constructor(
    exchange: Exchange,
    limit: number,
    watcher: UploadWatcher,
    room: SpoolRoom,
    pace: BodyPace = PACE,
  ) {
    this.#exchange = exchange;
    this.#limit = limit;
    this.#watcher = watcher;
    this.#pace = pace;
    this.#spool = new UploadSpool(room);
    const { 'content-length': declared } = exchange.request.headers;
    this.#expected = declared === undefined ? undefined : Number(declared);
  }

  /** Bytes: what was announced, or else what has come. */
  get size(): number {
    return this.#expected ?? this.#received;
  }

  /** It went on its way before all of it had come. */
  get isLive(): boolean {
    return this.#isLive;
  }

  /** All of it, where that is in memory. */
  get whole(): Buffer | undefined {
    return this.#state === 'ended' && !this.#isLive && this.#spool.isInMemory
      ? this.#spool.take()
      : undefined;
  }

  /**
   * Reads until the body can be sent: all of it where that is not much or soon there, else as far as the watcher has to see. Once.
   * @throws GatewayError (rejects) unsupported_content_encoding, request_too_large, request_timeout, overloaded, the reason for
   *   which the exchange was stopped, and what the watcher throws
   */
  keep(): Promise<void> {
    const { request, response, stopReason } = this.#exchange;
    if (stopReason !== undefined) return Promise.reject(stopReason);
    const { 'content-encoding': coding = 'identity' } = request.headers;
    if (coding.trim().toLowerCase() !== 'identity') {
      const message = 'A form has to be sent without a content-encoding.';
      return Promise.reject(new GatewayError('unsupported_content_encoding', message));
    }
    if (this.#expected !== undefined && this.#expected > this.#limit)
      return Promise.reject(bodyTooLarge(this.#limit));
    if (waitsForContinue(request) && hasBody(this.#exchange)) response.writeContinue();
    this.#state = 'keeping';
    this.#exchange.onStop(this.#onStop);
    return new Promise((resolve, reject) => {
      this.#settle = (error) => (error === undefined ? resolve() : reject(error));
      request.on('data', this.#onData).once('end', this.#onEnd).once('error', this.#onError);
      this.#watch();
    });
  }

  /**
   * The body with other bytes in some places, all of which have come. One that is live can be opened once.
   * @param splices in their order, apart from each other
   */
  source(splices: readonly Splice[]): BodySource {
    const more = splices.reduce((sum, { span, bytes }) => sum + bytes.length - (span.end - span.start), 0);
    const size = this.#isLive ? this.#expected : this.#spool.size;
    return {
      length: size === undefined ? undefined : size + more,
      open: () => this.#open(splices),
    };
  }

  /** It was begun to be sent, and nobody has all of it any more. */
  get isSpent(): boolean {
    return this.#isLive && this.#isOpened;
  }

  /** Forgets all of it; what still comes is dropped. Idempotent. */
  close(): Promise<void> {
    this.#leave();
    return this.#spool.close();
  }

  #open(splices: readonly Splice[]): BodyReader {
    this.#isOpened = true;
    const kept = keptPieces(this.#spool, splices);
    if (!this.#isLive) {
      return {
        next: async () => (await kept.next()).value,
        cancel() {},
      };
    }
    let isThrough = false;
    return {
      next: async () => {
        if (!isThrough) {
          const { value } = await kept.next();
          if (value !== undefined) return value;
          isThrough = true;
          void this.#spool.close();
        }
        return await this.#next();
      },
      cancel: () => this.#leave(),
    };
  }

  /** The next piece of what was not kept. */
  #next(): Promise<Buffer | undefined> {
    const piece = this.#queue.shift();
    if (piece !== undefined) return Promise.resolve(piece);
    if (this.#state === 'ended') return Promise.resolve(undefined);
    if (this.#state !== 'live') return Promise.reject(this.#error ?? new GatewayError('client_closed'));
    return new Promise((resolve, reject) => {
      this.#settle = (error) => (error === undefined ? resolve(this.#queue.shift()) : reject(error));
      this.#watch();
      this.#exchange.request.resume();
    });
  }

  readonly #onData = (piece: Buffer) => {
    this.#last = performance.now();
    this.#received += piece.length;
    this.#exchange.access.bytes_in = this.#received;
    this.#exchange.isLarge = this.#received > LARGE_BODY;
    if (this.#received > this.#limit) {
      this.#fail(bodyTooLarge(this.#limit));
      return;
    }
    if (!this.#guard(() => this.#watcher.push(piece))) return;
    if (this.#state === 'live') {
      this.#hold();
      this.#queue.push(piece);
      this.#tell();
      return;
    }
    // What is to be changed has to be among what is kept.
    const isKept = (this.#watcher.knownAt ?? Number.POSITIVE_INFINITY) <= this.#spool.size;
    if (isKept && this.#decide()) {
      this.#queue.push(piece);
      return;
    }
    const written = this.#spool.push(piece);
    if (written === undefined) this.#decide();
    else {
      this.#hold();
      written.then(() => {
        if (this.#state !== 'keeping' || this.#decide()) return;
        this.#watch();
        this.#exchange.request.resume();
      }, this.#onFault);
    }
  };

  /** @returns whether it goes on its way now, though more is to come */
  #decide(): boolean {
    const { knownAt } = this.#watcher;
    if (knownAt === undefined || this.size <= SPOOL_MEMORY_BYTES) return false;
    if (this.size - knownAt <= LOOK_AHEAD_BYTES || this.#received === this.#expected) return false;
    this.#hold();
    this.#state = 'live';
    this.#isLive = true;
    // An answer that comes before the end of it is the last on this connection.
    this.#exchange.headers['connection'] = 'close';
    this.#tell();
    return true;
  }

  readonly #onEnd = () => {
    if (!this.#guard(() => this.#watcher.end())) return;
    if (this.#isLive) delete this.#exchange.headers['connection'];
    this.#detach();
    this.#state = 'ended';
    this.#tell();
  };

  readonly #onError = () => this.#fail(new GatewayError('client_closed'));
  readonly #onStop = () => this.#fail(this.#exchange.stopReason ?? new GatewayError('client_closed'));
  readonly #onFault = (cause: unknown) =>
    this.#fail(
      cause instanceof GatewayError ? cause : new GatewayError('internal_error', undefined, { cause }),
    );

  /** @returns whether it went well */
  #guard(step: () => void): boolean {
    try {
      step();
      return true;
    } catch (error) {
      this.#onFault(error);
      return false;
    }
  }

  #fail(error: GatewayError): void {
    if (this.#state === 'over' || this.#state === 'ended') return;
    this.#error = error;
    this.#leave();
    this.#tell(error);
  }

  #tell(error?: GatewayError): void {
    const settle = this.#settle;
    this.#settle = undefined;
    settle?.(error);
  }

  #leave(): void {
    if (this.#state === 'keeping' || this.#state === 'live') {
      this.#detach();
      // Paused perhaps; what is left has to leave the connection.
      this.#exchange.request.resume();
    }
    this.#queue.length = 0;
    this.#state = 'over';
  }

  #detach(): void {
    this.#unwatch();
    const { request } = this.#exchange;
    request.off('data', this.#onData).off('end', this.#onEnd).off('error', this.#onError);
    this.#exchange.offStop(this.#onStop);
  }

  /** The client is not waited for. */
  #hold(): void {
    this.#exchange.request.pause();
    this.#unwatch();
  }

  #watch(): void {
    if (this.#stop !== undefined) return;
    this.#last = this.#waitingSince = performance.now();
    this.#onDue();
  }

  #unwatch(): void {
    if (this.#stop === undefined) return;
    this.#stop();
    this.#stop = undefined;
    this.#waited += performance.now() - this.#waitingSince;
  }

  /** One timer for both deadlines; bytes that came only move the time at which it will find them passed. */
  readonly #onDue = () => {
    const { silence, grace, rate } = this.#pace;
    const whole = this.#waitingSince - this.#waited + grace + (this.#received / rate) * 1000;
    const left = Math.min(this.#last + silence, whole) - performance.now();
    if (left <= 0) this.#fail(new GatewayError('request_timeout'));
    else this.#stop = startDeadline(Math.ceil(left), this.#onDue);
  };
}

/** What is kept, with the splices in place. */
async function* keptPieces(
  spool: UploadSpool,
  splices: readonly Splice[],
): AsyncGenerator<Buffer, undefined> {
  const { size } = spool;
  let at = 0;
  for (const { span, bytes } of [...splices, { span: { start: size, end: size }, bytes: undefined }]) {
    while (at < span.start) {
      const piece = await spool.read(at, span.start);
      at += piece.length;
      yield piece;
    }
    if (bytes !== undefined && bytes.length > 0) yield bytes;
    at = span.end;
  }
  return undefined;
}
