// A request body that may be forwarded while it still arrives: buffered until the watcher knows enough, then passed on piece by piece
// with backpressure. Only the watcher reads the content.
import { startDeadline } from '../../deadline.ts';
import { GatewayError, wrapError } from '../../errors.ts';
import type { Exchange } from '../exchange/exchange.ts';
import { hasBody } from '../exchange/response-writer.ts';
import { LARGE_BODY } from '../pieces/body-buffer.ts';
import type { BodyReader, BodySource } from '../pieces/body-source.ts';
import { type BodyPace, bodyTooLarge, PACE, waitsForContinue } from './read-body.ts';
import { SPOOL_MEMORY_BYTES, type Splice, type SpoolFiles, UploadSpool } from './upload-spool.ts';

/** Sees all bytes once, in order. Its errors end the upload. */
export interface UploadWatcher {
  push(piece: Buffer): void;
  /** The body is complete. */
  end(): void;
  /** Called before the last bytes of a body that is forwarded while it arrives; an error ends the upload. */
  confirm?(): unknown;
  /** End offset of what must be known before the body can be sent, in bytes; undefined until it has arrived. */
  readonly knownAt: number | undefined;
}

/** If only this much is still to come, wait for it: a complete body can be replayed. */
const LOOK_AHEAD_BYTES = 256 * 1024;

type State = 'new' | 'buffering' | 'streaming' | 'ended' | 'over';

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
  /** Why the rest will not arrive. */
  #error: GatewayError | undefined;
  #settle: ((error?: GatewayError) => void) | undefined;
  /** Received, but not read yet. */
  readonly #queue: Buffer[] = [];
  /** Stops the deadline for the client. */
  #stopTimer: (() => void) | undefined;
  #last = 0;
  #waitingSince = 0;
  /** Milliseconds of earlier waits for the client. */
  #waited = 0;

  /** @param limit maximum bytes */
  constructor(
    exchange: Exchange,
    limit: number,
    watcher: UploadWatcher,
    files: SpoolFiles,
    pace: BodyPace = PACE,
  ) {
    this.#exchange = exchange;
    this.#limit = limit;
    this.#watcher = watcher;
    this.#pace = pace;
    this.#spool = new UploadSpool(files);
    const { 'content-length': declared } = exchange.request.headers;
    this.#expected = declared === undefined ? undefined : Number(declared);
  }

  /** In bytes: the announced length, else the bytes received so far. */
  get size(): number {
    return this.#expected ?? this.#received;
  }

  /** Whether forwarding started before the whole body had arrived. */
  get isLive(): boolean {
    return this.#isLive;
  }

  /** The complete body, if it is in memory. */
  get whole(): Buffer | undefined {
    return this.#state === 'ended' && !this.#isLive && this.#spool.isInMemory
      ? this.#spool.take()
      : undefined;
  }

  /**
   * Reads until the body can be sent: completely if it is small or almost complete, else as far as the watcher needs. Call once.
   * @throws GatewayError (rejects) unsupported_content_encoding, request_too_large, request_timeout, overloaded, the stop reason of
   *   the exchange, and errors of the watcher
   */
  buffer(): Promise<void> {
    const { request, response, stopReason } = this.#exchange;
    if (stopReason !== undefined) return Promise.reject(stopReason);
    const { 'content-encoding': coding = 'identity' } = request.headers;
    if (coding.trim().toLowerCase() !== 'identity') {
      const message = 'A form must be sent without a content-encoding.';
      return Promise.reject(new GatewayError('unsupported_content_encoding', message));
    }
    if (this.#expected !== undefined && this.#expected > this.#limit)
      return Promise.reject(bodyTooLarge(this.#limit));
    if (waitsForContinue(request) && hasBody(this.#exchange)) response.writeContinue();
    this.#state = 'buffering';
    this.#exchange.hasLateBody = true;
    this.#exchange.onStop(this.#onStop);
    return new Promise((resolve, reject) => {
      this.#settle = (error) => (error === undefined ? resolve() : reject(error));
      request.on('data', this.#onData).once('end', this.#onEnd).once('error', this.#onError);
      this.#startTimer();
    });
  }

  /**
   * The body with edits, all of which lie in the received bytes. A live body can be opened only once.
   * @param splices in order, not overlapping
   */
  source(splices: readonly Splice[]): BodySource {
    const more = splices.reduce((sum, { span, bytes }) => sum + bytes.length - (span.end - span.start), 0);
    const size = this.#isLive ? this.#expected : this.#spool.size;
    return {
      length: size === undefined ? undefined : size + more,
      open: () => this.#open(splices),
    };
  }

  /** Whether forwarding has consumed the body, so that it cannot be replayed. */
  get isSpent(): boolean {
    return this.#isLive && this.#isOpened;
  }

  /** Discards the body; bytes that still arrive are dropped. Idempotent. */
  close(): Promise<void> {
    this.#release();
    return this.#spool.close();
  }

  #open(splices: readonly Splice[]): BodyReader {
    this.#isOpened = true;
    const pieces = this.#pieces(splices);
    return {
      next: async () => (await pieces.next()).value,
      cancel: () => {
        if (this.#isLive) this.#release();
      },
    };
  }

  async *#pieces(splices: readonly Splice[]): AsyncGenerator<Buffer, undefined> {
    yield* this.#spool.pieces(splices);
    if (!this.#isLive) return undefined;
    void this.#spool.close();
    for (;;) {
      const piece = await this.#next();
      const isLast = this.#received === this.#expected && this.#queue.length === 0;
      if (piece === undefined || isLast) await this.#watcher.confirm?.();
      if (piece === undefined) return undefined;
      yield piece;
    }
  }

  /** The next piece behind the buffered ones. */
  #next(): Promise<Buffer | undefined> {
    const piece = this.#queue.shift();
    if (piece !== undefined) return Promise.resolve(piece);
    if (this.#state === 'ended') return Promise.resolve(undefined);
    if (this.#state !== 'streaming') return Promise.reject(this.#error ?? new GatewayError('client_closed'));
    return new Promise((resolve, reject) => {
      this.#settle = (error) => (error === undefined ? resolve(this.#queue.shift()) : reject(error));
      this.#startTimer();
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
    if (this.#state === 'streaming') {
      this.#pause();
      this.#queue.push(piece);
      this.#settleWait();
      return;
    }
    // Edits apply to buffered bytes only.
    const isBuffered = (this.#watcher.knownAt ?? Number.POSITIVE_INFINITY) <= this.#spool.size;
    if (isBuffered && this.#startStreaming()) {
      this.#queue.push(piece);
      return;
    }
    const written = this.#spool.push(piece);
    if (written === undefined) this.#startStreaming();
    else {
      this.#pause();
      written.then(() => {
        if (this.#state !== 'buffering' || this.#startStreaming()) return;
        this.#startTimer();
        this.#exchange.request.resume();
      }, this.#onFailure);
    }
  };

  /** Starts forwarding if possible and worthwhile. @returns whether it has started */
  #startStreaming(): boolean {
    const { knownAt } = this.#watcher;
    if (knownAt === undefined || this.size <= SPOOL_MEMORY_BYTES) return false;
    if (this.size - knownAt <= LOOK_AHEAD_BYTES || this.#received === this.#expected) return false;
    this.#pause();
    this.#state = 'streaming';
    this.#isLive = true;
    // A response before the end of the request is the last on this connection.
    this.#exchange.headers['connection'] = 'close';
    this.#settleWait();
    return true;
  }

  readonly #onEnd = () => {
    if (!this.#guard(() => this.#watcher.end())) return;
    if (this.#isLive) delete this.#exchange.headers['connection'];
    this.#detach();
    this.#state = 'ended';
    this.#settleWait();
  };

  readonly #onError = () => this.#fail(new GatewayError('client_closed'));
  readonly #onStop = (reason: GatewayError) => this.#fail(reason);
  readonly #onFailure = (cause: unknown) => this.#fail(wrapError(cause, 'internal_error'));

  /** @returns whether the step succeeded */
  #guard(step: () => void): boolean {
    try {
      step();
      return true;
    } catch (error) {
      this.#onFailure(error);
      return false;
    }
  }

  #fail(error: GatewayError): void {
    if (this.#state === 'over' || this.#state === 'ended') return;
    this.#error = error;
    this.#release();
    this.#settleWait(error);
  }

  #settleWait(error?: GatewayError): void {
    const settle = this.#settle;
    this.#settle = undefined;
    settle?.(error);
  }

  #release(): void {
    if (this.#state === 'buffering' || this.#state === 'streaming') {
      this.#detach();
      // It may be paused, and the connection needs the rest read.
      this.#exchange.request.resume();
    }
    this.#queue.length = 0;
    this.#state = 'over';
  }

  #detach(): void {
    this.#endTimer();
    const { request } = this.#exchange;
    request.off('data', this.#onData).off('end', this.#onEnd).off('error', this.#onError);
    this.#exchange.offStop(this.#onStop);
  }

  /** Stops reading; the client's deadlines do not run meanwhile. */
  #pause(): void {
    this.#exchange.request.pause();
    this.#endTimer();
  }

  #startTimer(): void {
    if (this.#stopTimer !== undefined) return;
    this.#last = this.#waitingSince = performance.now();
    this.#onDue();
  }

  #endTimer(): void {
    if (this.#stopTimer === undefined) return;
    this.#stopTimer();
    this.#stopTimer = undefined;
    this.#waited += performance.now() - this.#waitingSince;
  }

  /** One timer for both deadlines; arriving bytes only move the deadline that it computes when due. */
  readonly #onDue = () => {
    const { silence, grace, rate } = this.#pace;
    const total = this.#waitingSince - this.#waited + grace + (this.#received / rate) * 1000;
    const left = Math.min(this.#last + silence, total) - performance.now();
    if (left <= 0) this.#fail(new GatewayError('request_timeout'));
    else this.#stopTimer = startDeadline(Math.ceil(left), this.#onDue);
  };
}
