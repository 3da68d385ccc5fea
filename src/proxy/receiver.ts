// What an attempt and the reader of its answer tell each other. Only shapes; the two sides are attempt.ts and its readers.
import type { ErrorCode, GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Failure } from '../upstream/outcome.ts';

/** What an attempt has to know of the client's request. */
export interface ChatRequest {
  readonly exchange: Exchange;
  readonly stream: boolean;
  /** JSON string token to put in place of the answer's `model`, or undefined to leave the upstream's. */
  readonly alias: Buffer | undefined;
  /** The usage chunk was asked for by the gateway and is not shown to the client. */
  readonly hideUsage: boolean;
  /** Milliseconds after the upstream's 200 at which a stream is opened to the client even without output. */
  readonly commitAfter: number;
  readonly metrics: Metrics;
}

export type AttemptResult =
  /** The client has an answer, whole or visibly broken; `outcome` says which. */
  | { readonly kind: 'answered'; readonly outcome: 'ok' | ErrorCode }
  /** Nothing was sent to the client. */
  | { readonly kind: 'failed'; readonly failure: Failure };

/** Reads what follows the head of an answer. */
export interface Receiver {
  /** True once something was sent to the client: no other target can be asked any more. */
  readonly committed: boolean;
  data(chunk: Buffer): void;
  /** The upstream's body is complete by its framing. */
  end(): void;
  /** What was begun will not be completed: end it so that the client can tell. Called at most once, only when committed. */
  break(error: GatewayError): void;
  /** The attempt is over: drop timers and listeners. */
  dispose(): void;
}

/** The attempt, as a receiver sees it. */
export interface Source {
  pause(): void;
  resume(): void;
  /** Output came: the deadline for the first token becomes the one for silence, or begins anew. */
  progress(): void;
  /** Nothing more is expected but the end of the body; the attempt waits only a moment for it. */
  lastFrame(): void;
  /** The answer cannot be used, or nobody takes it. */
  fail(error: GatewayError): void;
  finish(result: AttemptResult): void;
}
