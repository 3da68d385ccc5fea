// One exchange over a connection: the response handler of the connection, and the `Call` that the gateway holds. Decodes content codings.
import type { Transform } from 'node:stream';
import { GatewayError, wrapError } from '../../errors.ts';
import { isStreamed } from '../../http/pieces/body-source.ts';
import { isCertificateRejected } from '../outbound/socket-errors.ts';
import type { Call, Delivery, ResponseHeaders, Sink } from '../transport.ts';
import type { Opening } from './connection-pool.ts';
import { codingsOf, decoderFor, isKnownCoding } from './content-decoder.ts';
import { InvalidResponse } from './response-head.ts';
import { invalidResponse, wrapTransportError } from './transport-error.ts';
import type { ResponseHandler, UpstreamConnection, WrittenRequest } from './upstream-connection.ts';

type Reopen = (call: HttpCall, request: WrittenRequest) => void;

/** One exchange: the response handler of a connection, and the `Call` that the gateway holds. */
export class HttpCall implements Call, ResponseHandler {
  readonly #sink: Sink;
  readonly #reopen: Reopen;
  /** The request, kept while it may be moved to another connection. */
  #request: WrittenRequest | undefined;
  /** The pending connection for this call. */
  opening: Opening | undefined;
  #connection: UpstreamConnection | undefined;
  #isWriteStarted = false;
  /** The body is streamed; only then are upload events reported. */
  #isStreamed = false;
  #coding: string | undefined;
  #decoder: Transform | undefined;
  /** The error that ended the body early, while the decoder still holds data. */
  #broken: GatewayError | undefined;
  #paused = false;
  #over = false;

  /** @param reopen opens a new connection after an unusable one */
  constructor(sink: Sink, reopen: Reopen) {
    this.#sink = sink;
    this.#reopen = reopen;
  }

  get isOver(): boolean {
    return this.#over;
  }

  begin(connection: UpstreamConnection, request: WrittenRequest): void {
    this.#connection = connection;
    // A request may move from an idle connection to a new one, but not from a new one.
    this.#request = connection.isKept ? request : undefined;
    this.#isStreamed = isStreamed(request.body);
    if (this.#paused) connection.pause();
    connection.begin(this, request);
  }

  onWriteStart(): void {
    this.#isWriteStarted = true;
    // From now on it cannot move.
    this.#request = undefined;
    if (this.#isStreamed) this.#sink.onUpload?.();
    else this.#sink.onSent?.();
  }

  onUnsent(cause: Error): void {
    this.#connection = undefined;
    if (this.#over) return;
    if (this.#request === undefined) this.#fail(wrapTransportError(cause));
    else this.#reopen(this, this.#request);
  }

  pause(): void {
    if (this.#over) return;
    this.#paused = true;
    // The decoder takes what is in flight, then applies backpressure to the connection.
    if (this.#decoder === undefined) this.#connection?.pause();
    else this.#decoder.pause();
  }

  resume(): void {
    if (this.#over) return;
    this.#paused = false;
    if (this.#decoder === undefined) this.#connection?.resume();
    else this.#decoder.resume();
  }

  abort(): void {
    if (this.#over) return;
    this.#stop();
    this.opening?.cancel();
  }

  onHead(status: number, headers: ResponseHeaders): void {
    if (this.#over) return;
    const codings = codingsOf(headers['content-encoding']);
    const [coding] = codings;
    if (coding !== undefined) {
      if (codings.length > 1 || !isKnownCoding(coding)) {
        throw new InvalidResponse(`content-encoding ${codings.join(', ')}`);
      }
      this.#coding = coding;
    }
    this.#sink.onHead(status, headers);
  }

  onBody(bytes: Buffer, start: number, end: number): void {
    if (this.#over) return;
    // Copied: the read buffer is reused.
    const chunk = Buffer.allocUnsafe(end - start);
    bytes.copy(chunk, 0, start, end);
    if (this.#coding === undefined) this.#sink.onData(chunk);
    else {
      this.#decoder ??= this.#decode(this.#coding, chunk[0] ?? 0);
      if (!this.#decoder.write(chunk)) this.#connection?.pause();
    }
  }

  onStall(isStalled: boolean): void {
    if (!this.#over && this.#isStreamed) this.#sink.onStall?.(isStalled);
  }

  onWritten(): void {
    if (!this.#over && this.#isStreamed) this.#sink.onSent?.();
  }

  onSourceError(cause: unknown): void {
    if (!this.#over) this.#fail(wrapError(cause, 'internal_error'), 'body_lost');
  }

  onComplete(): void {
    this.#connection = undefined;
    if (this.#over) return;
    if (this.#decoder === undefined) this.#end();
    else this.#decoder.end();
  }

  onBroken(cause: Error): void {
    if (this.#over) return;
    const error = wrapTransportError(cause);
    const isUnread = isCertificateRejected(cause) && this.#connection?.isUnanswered === true;
    if (this.#decoder === undefined) this.#fail(error, isUnread ? 'not_sent' : undefined);
    else {
      this.#broken = error;
      this.#decoder.end();
    }
  }

  #decode(coding: string, first: number): Transform {
    const decoder = decoderFor(coding, first);
    decoder.on('data', (chunk: Buffer) => this.#over || this.#sink.onData(chunk));
    decoder.on('drain', () => this.#connection?.resume());
    decoder.once('end', () => (this.#broken === undefined ? this.#end() : this.#fail(this.#broken)));
    decoder.on('error', (cause) => this.#fail(this.#broken ?? invalidResponse(cause)));
    if (this.#paused) decoder.pause();
    return decoder;
  }

  #end(): void {
    if (this.#over) return;
    this.#over = true;
    try {
      this.#sink.onEnd();
    } catch (cause) {
      // A bug in the sink fails this request only.
      this.#sink.onError(new GatewayError('internal_error', undefined, { cause }), 'maybe_sent');
    }
  }

  #fail(error: GatewayError, delivery = this.#delivery()): void {
    if (this.#over) return;
    this.#stop();
    this.#sink.onError(error, delivery);
  }

  /** No more sink calls; a connection without a complete response cannot be reused. */
  #stop(): void {
    this.#over = true;
    this.#decoder?.destroy();
    this.#connection?.abandon();
  }

  #delivery(): Delivery {
    if (!this.#isWriteStarted) return 'not_sent';
    return this.#connection?.hasNoResponse === true ? 'no_response' : 'maybe_sent';
  }
}
