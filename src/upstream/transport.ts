// The contract between an attempt and whatever carries it to an upstream: one request, one answer as it arrives, one end.
// The HTTP form of it is http-transport.ts, the one inside the process echo.ts.
import type { GatewayError } from '../errors.ts';
import type { BodySource } from '../http/pieces/body-source.ts';

export type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>;

/**
 * One request to an upstream. `headers` and `common` together are complete but for `host` and `content-length`, which the
 * transport owns.
 */
export interface UpstreamRequest {
  /** Path and query, in origin form. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** What every request carries, and no name of `headers`: the same object each time, so that it is put together once. */
  readonly common?: Readonly<Record<string, string>>;
  /** One that is not in memory is opened when it is written. */
  readonly body: Buffer | BodySource;
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
 * - `withdrawn`: the rest of its body did not come. That is not the upstream's doing, and nobody else will get it either.
 */
export type Delivery = 'not_sent' | 'unheard' | 'maybe_sent' | 'withdrawn';

/** Receives one answer. Nothing is called before `send` has returned, and nothing after `onEnd`, `onError` or `abort`. */
export interface Sink {
  /**
   * A connection was found and the request is being written; of a body that is not in memory, all of it is written, for
   * which an answer may not have waited. A transport without connections does not call it.
   */
  onSent?(): void;
  /** A body that is not in memory is being written. */
  onUpload?(): void;
  /** Whether the upstream takes no more of that body for now. */
  onStall?(isStalled: boolean): void;
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
  /** Nobody will send any more: calls under way go on to their end, and each connection is closed after its own. */
  retire(): Promise<void>;
  /** Closes all connections; calls under way are aborted. Also after `retire`. */
  close(): Promise<void>;
}
