// How bytes get to an upstream and back: one contract, and its HTTP form on undici. It knows sockets and framing,
// not keys, routes or retries.
import { type Dispatcher, errors, Pool } from 'undici';
import { GatewayError } from '../errors.ts';

export type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** One POST to an upstream. `headers` are complete but for `host` and `content-length`, which the transport owns. */
export interface UpstreamRequest {
  /** Path and query, in origin form. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** Whether the upstream can have begun to work (and to bill) when a request failed. */
export type Delivery = 'not_sent' | 'maybe_sent';

/** Receives one answer. Nothing is called before `send` has returned, and nothing after `onEnd`, `onError` or `abort`. */
export interface Sink {
  /** The final status line and headers, names in lower case. Interim 1xx answers are not shown. */
  onHead(status: number, headers: ResponseHeaders): void;
  onData(chunk: Buffer): void;
  /** The body is complete by its own framing. */
  onEnd(): void;
  onError(error: GatewayError, delivery: Delivery): void;
}

export interface Call {
  /** Stops reading from the upstream; at most what is already under way still arrives. */
  pause(): void;
  resume(): void;
  /** Ends the exchange and closes its connection. The sink hears nothing more. Idempotent. */
  abort(): void;
}

export interface Transport {
  send(request: UpstreamRequest, sink: Sink): Call;
  /** Closes all connections; calls under way are aborted. */
  close(): Promise<void>;
}

export interface HttpTransportOptions {
  /** Scheme, host and port. */
  readonly origin: string;
  /** Milliseconds for name resolution, TCP and TLS together. */
  readonly connectTimeout: number;
  /** Most connections that may be open at once. */
  readonly connections: number;
}

/** An upstream may send this many interim answers before the final one; more is a fault, not patience. */
const MAX_INTERIM = 5;

/** HTTP/1.1 over a bounded pool of kept connections. */
export class HttpTransport implements Transport {
  readonly #pool: Pool;

  constructor(options: HttpTransportOptions) {
    this.#pool = new Pool(options.origin, {
      connections: options.connections,
      pipelining: 1,
      allowH2: false,
      connect: { timeout: options.connectTimeout, autoSelectFamily: true },
      // Deadlines belong to the attempt, which knows what it waits for; undici's own 300 s would cut long answers.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: 10_000,
      keepAliveMaxTimeout: 60_000,
      // A pool never resolves a name again by itself: connections are replaced after a minute.
      clientTtl: 60_000,
      maxRequestsPerClient: 1_000,
    });
  }

  send(request: UpstreamRequest, sink: Sink): Call {
    const call = new HttpCall(sink);
    this.#pool.dispatch(
      { method: 'POST', path: request.path, headers: request.headers, body: request.body, idempotent: false },
      call,
    );
    call.returned = true;
    return call;
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
  }
}

/** One exchange on the pool: undici's handler on one side, the `Call` of the gateway on the other. */
class HttpCall implements Call, Dispatcher.DispatchHandler {
  readonly #sink: Sink;
  #controller: Dispatcher.DispatchController | undefined;
  #interim = 0;
  #over = false;
  /** False while `send` runs: undici reports a closed pool from inside `dispatch`, before the caller has its `Call`. */
  returned = false;

  constructor(sink: Sink) {
    this.#sink = sink;
  }

  pause(): void {
    if (!this.#over) this.#controller?.pause();
  }

  resume(): void {
    if (!this.#over) this.#controller?.resume();
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    // Still waiting for a connection: onRequestStart sees the flag and nothing is written.
    this.#controller?.abort(ABORTED);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#over) controller.abort(ABORTED);
  }

  onRequestUpgrade(controller: Dispatcher.DispatchController): void {
    controller.abort(new Error('the upstream switched protocols unasked'));
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: ResponseHeaders): void {
    if (this.#over) return;
    if (status >= 200) {
      this.#sink.onHead(status, headers);
      return;
    }
    this.#interim += 1;
    if (status === 101 || this.#interim > MAX_INTERIM) {
      controller.abort(new Error(`unusable interim answer (status ${status}, number ${this.#interim})`));
    }
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#over) this.#sink.onData(chunk);
  }

  onResponseEnd(): void {
    if (this.#over) return;
    this.#over = true;
    this.#sink.onEnd();
  }

  onResponseError(_controller: Dispatcher.DispatchController, cause: Error): void {
    if (this.#over) return;
    if (!this.returned) {
      queueMicrotask(() => this.onResponseError(_controller, cause));
      return;
    }
    this.#over = true;
    this.#sink.onError(wrapTransportError(cause), this.#controller === undefined ? 'not_sent' : 'maybe_sent');
  }
}

/** The reason given to undici when the gateway itself ends a call; no stack is needed, so it is made once. */
const ABORTED = new Error('the gateway ended this call');

/** The socket's or parser's error in the gateway's words. The cause may hold addresses: it is for the log alone. */
function wrapTransportError(cause: Error): GatewayError {
  if (cause instanceof errors.ConnectTimeoutError)
    return new GatewayError('upstream_timeout', undefined, { cause });
  if (
    cause instanceof errors.HTTPParserError ||
    cause instanceof errors.HeadersOverflowError ||
    cause instanceof errors.ResponseContentLengthMismatchError
  ) {
    return new GatewayError('upstream_invalid_response', undefined, { cause });
  }
  return new GatewayError('upstream_unreachable', undefined, { cause });
}
