// Contract between an attempt and its transport to an upstream: one request, one streamed response, one end. Implementations are
// http-transport.ts and, in-process, echo.ts.
import type { GatewayError } from '../errors.ts';
import type { BodySource } from '../http/pieces/body-source.ts';

/** The header fields of a response that are read, in lower case. Transports drop the others. */
export const RESPONSE_FIELDS = [
  'apim-request-id',
  'connection',
  'content-encoding',
  'content-length',
  'content-type',
  'keep-alive',
  'mistral-correlation-id',
  'openai-processing-ms',
  'openai-version',
  'request-id',
  'retry-after',
  'retry-after-ms',
  'transfer-encoding',
  'x-amzn-errortype',
  'x-amzn-requestid',
  'x-ds-trace-id',
  'x-generation-id',
  'x-request-id',
  'x-should-retry',
] as const;
export type ResponseField = (typeof RESPONSE_FIELDS)[number];
/** A repeated field is a list. */
export type ResponseHeaders = Readonly<Partial<Record<ResponseField, string | string[] | undefined>>>;

/** One request to an upstream. The transport adds `host` and `content-length`; all other headers are in `headers` and `common`. */
export interface UpstreamRequest {
  /** Path and query, in origin form. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Headers equal for all requests, disjoint from `headers`. Pass the same object each time: its serialization is cached. */
  readonly common?: Readonly<Record<string, string>>;
  /** A body that is not in memory is opened when it is written. */
  readonly body: Buffer | BodySource;
  /** Default POST. */
  readonly method?: 'GET' | 'POST' | 'DELETE';
  /** Use a new connection, because a keep-alive one was stale. Default false. */
  readonly fresh?: boolean;
}

/**
 * Delivery state of a failed request.
 * - `not_sent`: no byte was sent; safe to retry anywhere.
 * - `no_response`: sent on a reused connection that closed without a response byte: almost certainly a stale keep-alive
 *   connection, so the request was not read.
 * - `maybe_sent`: the upstream may have started work and billing.
 * - `body_lost`: the source of the request body failed. Not the upstream's fault, and no target can receive it.
 */
export type Delivery = 'not_sent' | 'no_response' | 'maybe_sent' | 'body_lost';

/** Receives one response. Nothing is called before `send` returns, nor after `onEnd`, `onError` or `abort`. */
export interface Sink {
  /**
   * The request is being written; a streamed body has been written completely (a response may come earlier). Transports without
   * connections do not call it.
   */
  onSent?(): void;
  /** Writing of a streamed body starts. */
  onUpload?(): void;
  /** Backpressure from the upstream on the streamed body starts or ends. */
  onStall?(isStalled: boolean): void;
  /** The final status and headers. Interim 1xx responses are not reported. */
  onHead(status: number, headers: ResponseHeaders): void;
  /** A piece of the body, content coding removed. */
  onData(chunk: Buffer): void;
  /** The body is complete by its framing. */
  onEnd(): void;
  onError(error: GatewayError, delivery: Delivery): void;
}

export interface Call {
  /** Stops reading from the upstream; data already in flight may still arrive. */
  pause(): void;
  resume(): void;
  /** Ends the exchange and closes its connection, also a pending one. No further sink calls. Idempotent. */
  abort(): void;
}

export interface Transport {
  send(request: UpstreamRequest, sink: Sink): Call;
  /** No more requests: calls in flight complete, then each connection closes. */
  retire(): Promise<void>;
  /** Closes all connections and aborts calls in flight. Also after `retire`. */
  close(): Promise<void>;
}
