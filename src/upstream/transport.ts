// The contract between an attempt and whatever carries it to an upstream: one request, one answer as it arrives, one end.
// The HTTP form of it is http-transport.ts, the one inside the process echo.ts.
import type { GatewayError } from '../errors.ts';

export type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** One request to an upstream. `headers` are complete but for `host` and `content-length`, which the transport owns. */
export interface UpstreamRequest {
  /** Path and query, in origin form. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** Default POST. */
  readonly method?: 'GET' | 'POST' | 'DELETE';
  /** On a connection of its own, because a kept one has just failed. Default false. */
  readonly fresh?: boolean;
}

/**
 * How far a request had come when it failed.
 * - `not_sent`: no byte of it left; it is safe anywhere.
 * - `unheard`: it went out on a connection that had served before, which then closed without a byte of an answer. That is
 *   how an upstream's closing of an idle connection looks from here, so it was almost certainly not read.
 * - `maybe_sent`: the upstream may have begun to work, and to bill.
 */
export type Delivery = 'not_sent' | 'unheard' | 'maybe_sent';

/** Receives one answer. Nothing is called before `send` has returned, and nothing after `onEnd`, `onError` or `abort`. */
export interface Sink {
  /** A connection was found and the request is being written. A transport without connections does not call it. */
  onSent?(): void;
  /** The final status line and headers, names in lower case. Interim 1xx answers are not shown. */
  onHead(status: number, headers: ResponseHeaders): void;
  /** A piece of the body, without content coding. */
  onData(chunk: Buffer): void;
  /** The body is complete by its own framing. */
  onEnd(): void;
  onError(error: GatewayError, delivery: Delivery): void;
}

export interface Call {
  /** Stops reading from the upstream; at most what is already under way still arrives. */
  pause(): void;
  resume(): void;
  /** Ends the exchange and closes its connection, also one that is only being made. The sink hears nothing more. Idempotent. */
  abort(): void;
}

export interface Transport {
  send(request: UpstreamRequest, sink: Sink): Call;
  /** Closes all connections; calls under way are aborted. */
  close(): Promise<void>;
}
