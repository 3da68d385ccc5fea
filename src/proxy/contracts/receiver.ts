// The interface between an attempt (attempt.ts) and the reader of its answer.
import type { Prices } from '../../config/prices.ts';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { FallbackReason } from '../../config/schema/model-schema.ts';
import type { ErrorCode, GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import type { BodySource } from '../../http/pieces/body-source.ts';
import type { BufferPool } from '../../http/pieces/buffer-pool.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import type { Failure } from '../../upstream/error-outcome.ts';
import type { UsageReads } from '../../upstream/usage-reads.ts';
import type { CreatedObjects } from '../../wire/created-objects.ts';
import type { Quantities, Usage } from '../../wire/token-usage.ts';
import type { RequestScan } from '../request/request-members.ts';
import type { Target } from '../routes/route-table.ts';
import type { Endpoint, RequestFacts } from './endpoint.ts';

/** A form body, which need not be in memory. */
export interface FormBody {
  /** Part of it is still to arrive, so it can be sent only once. */
  readonly isLive: boolean;
  /** Part of it was sent and discarded, so it cannot be sent again. */
  readonly isSpent: boolean;
  /** Header value. */
  readonly contentType: string;
  /** The body for one target. */
  bodyFor(target: Target): Buffer | BodySource;
}

/** What is sent to targets. */
export interface RequestContent {
  /** The client's body, from which `scan` was made. */
  readonly body: Buffer;
  readonly scan: RequestScan;
  /** A form; replaces both. */
  readonly form?: FormBody | undefined;
}

/** The client's request, as an attempt needs it. */
export interface RelayRequest {
  readonly exchange: Exchange;
  readonly endpoint: Endpoint;
  /** For a form, final only after its last field. */
  readonly facts: RequestFacts;
  /** JSON string token for the answer's `model`, or undefined to leave the upstream's. */
  readonly alias: Buffer | undefined;
  /** The client requested usage in its stream. */
  readonly includeUsage: boolean;
  /** The gateway requested the usage chunk; hide it from the client. */
  readonly hideUsage?: boolean;
  readonly config: Pick<DynamicConfig, 'max_answer' | 'retry' | 'stream'>;
  /** `fallback_on` of the model. Default: none. */
  readonly fallbackOn?: readonly FallbackReason[];
  /** The body's content-type header. Default: JSON. */
  readonly contentType?: string | undefined;
  readonly metrics: Metrics;
  /** Memory for large answers. */
  readonly buffers: BufferPool;
  /** Streams read for usage after their client left. Default: none. */
  readonly usageReads?: UsageReads | undefined;
  readonly meter: { add(use: AttemptUse): void };
  /** Encrypted contents of the answer are recorded, too. Default false. */
  readonly keepsSeals?: boolean;
  /** Records created objects for later calls. Never rejects. Undefined where nothing lasting is created. */
  readonly register?: ((created: CreatedObjects, target: Target) => Promise<void>) | undefined;
}

export type AttemptResult =
  /** The client received an answer, complete or visibly broken; `outcome` tells which. */
  | { readonly kind: 'answered'; readonly outcome: ResultCode }
  /** Nothing was sent to the client. */
  | { readonly kind: 'failed'; readonly failure: Failure };

export function failed(failure: Failure): AttemptResult {
  return { kind: 'failed', failure };
}

/** Or another attempt of the request won the race. */
export type AttemptEnd = AttemptResult | { readonly kind: 'superseded' };

/** Whether the client receives an answer, now or, where the content filter emptied it, if no other target has one. */
export function isAnswer(result: AttemptEnd): boolean {
  return result.kind === 'answered' || (result.kind === 'failed' && result.failure.verbatim?.status === 200);
}

export type ResultCode = 'ok' | ErrorCode;

/** The value for metrics. */
export function resultCodeOf(result: AttemptEnd): ResultCode | 'superseded' {
  if (result.kind === 'answered') return result.outcome;
  return result.kind === 'failed' ? result.failure.error.code : result.kind;
}

/** The usage of one finished attempt. */
export interface AttemptUse {
  /** Name of the upstream. */
  readonly upstream: string;
  /** Its name of the model. */
  readonly target: string;
  /** Provider of its API. */
  readonly provider: string;
  /** Of the target; undefined without one. */
  readonly price?: Prices | undefined;
  /** What it asks for beside tokens. Default: nothing that has a price. */
  readonly quantities?: Quantities | undefined;
  /** What its answer has beside tokens, instead of what it asks for. Default: as asked for. */
  readonly measured?: Quantities | undefined;
  /** Reported by the upstream; null if not. */
  readonly usage: Usage | null;
  /** Output frames that the reported usage does not cover. */
  readonly outputs: number;
  /** Other output that it does not cover. Default: none. */
  readonly unreported?: Unreported | undefined;
  /** Part of the request may have reached the upstream. */
  readonly isSent: boolean;
  /** It was sent without the client's bound of the answer. Default false. */
  readonly isUnbounded?: boolean | undefined;
  /** The status was not 200. Default false. */
  readonly hasErrorStatus?: boolean;
  readonly outcome: ResultCode | 'superseded';
}

/** Output without reported usage, besides the number of its frames. */
export interface Unreported {
  /** Counted as in output-text.ts. */
  readonly textBytes: number;
  /** Milliseconds in which the upstream worked without output. */
  readonly silentMs: number;
  /** The size of unfinished output is unknown, so the reserved amount counts. */
  readonly isReserved: boolean;
}

/** Observes the target during an attempt. */
export interface AttemptObserver {
  /** The attempt holds its slot at the upstream. @returns its number within the request, from 1 */
  onBegin(): number;
  /**
   * The first output arrived.
   * @param ms for a stream, milliseconds since the request was sent; undefined for JSON, which has no first output
   */
  onOutput(ms: number | undefined): void;
  /** The attempt was given up after this many milliseconds without output. */
  onSilence(ms: number): void;
  /** The client gets this answer, and no other target is tried. May be called again. */
  onCommit(): void;
  /** Another attempt won after this many milliseconds without output of this one. */
  onLost(ms: number): void;
}

/** Reads an answer after its head. After it calls `finish`, only `dispose` is called. */
export interface Receiver {
  data(chunk: Buffer): void;
  /** The upstream's body is complete by its framing, or sufficient. */
  end(): void;
  /**
   * The answer will not be completed: the upstream broke, a deadline passed, or the client left. Ends a started response
   * visibly broken.
   * @returns the result of the attempt; undefined when nothing was sent and the error alone decides
   */
  broken(error: GatewayError): AttemptResult | undefined;
  /** The attempt has ended: removes timers and listeners, and reports usage. */
  dispose(): void;
  /** The other attempt of the race ended: perform what waited for that. */
  soleAttempt?(): void;
  /**
   * The client left. Nothing is written from now on.
   * @returns whether the answer is nearly complete, so that a short read yields its usage; otherwise `broken` follows
   */
  leave?(): boolean;
}

/** The attempt, as a receiver sees it. */
export interface Source {
  /** Another attempt of the request is running, and neither has committed. */
  readonly isUndecided: boolean;
  /** The upstream created objects that later calls may refer to. Undefined where that is not recorded. */
  created?: ((created: CreatedObjects) => Promise<void>) | undefined;
  /** Sets the kind of answer (incremental or all at once) and starts its deadline. */
  expects(isStream: boolean): void;
  /** Sets the receiver of the rest of the answer. */
  reads(receiver: Receiver): void;
  /** Stops reading from the upstream (backpressure). */
  pause(): void;
  resume(): void;
  /**
   * Reports the usage, and the output that it does not cover. The last call before the end of the attempt counts.
   * @param usage null when the answer reports none
   * @param outputs frames of output
   * @param textBytes their text. Default 0
   * @param measured what the answer has beside tokens. Default: unknown
   */
  used(usage: Usage | null, outputs: number, textBytes?: number, measured?: Quantities): void;
  /** Output arrived: `idle` replaces the `first_token` deadline, or restarts. */
  progress(): void;
  /**
   * Call before the first byte to the client: no other target is tried, and another running attempt ends. Idempotent.
   * @returns false when another attempt won: then send nothing
   */
  commit(): boolean;
  /** Only a line end or the end of the body is missing: `end` is called after a moment. */
  lastFrame(): void;
  /** Whether the text quotes the gateway's credential. Default: none does. */
  quotesCredential?(text: Buffer): boolean;
  /** The answer is unusable. */
  unusable(reason: unknown): void;
  /**
   * The upstream executed the request, but its answer cannot be relayed: do not repeat it.
   * @param why a sentence for the client
   */
  unrelayable(why: string): void;
  /** The gateway's own code failed. */
  crashed(error: unknown): void;
  /** The body ended as if complete, but is not. */
  incomplete(reason: unknown): void;
  /**
   * Ends the attempt. After an `ok` answer, the upstream gets a moment to end its body, so that its connection can be reused.
   */
  finish(result: AttemptResult): void;
}
