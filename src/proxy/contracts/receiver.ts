// What an attempt and the reader of its answer tell each other. Only shapes; the two sides are attempt.ts and its readers.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { ErrorCode, GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import type { BodySource } from '../../http/pieces/body-source.ts';
import type { BufferPool } from '../../http/pieces/buffer-pool.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import type { Failure } from '../../upstream/error-outcome.ts';
import type { UsageReads } from '../../upstream/usage-reads.ts';
import type { Usage } from '../../wire/chat-chunk.ts';
import type { CreatedObjects } from '../../wire/created-objects.ts';
import type { Target } from '../routes/route-table.ts';
import type { Endpoint, RequestFacts } from './endpoint.ts';

/** A body that need not be in memory. */
export interface FormBody {
  /** Some of it is still to come, so that it can be sent once. */
  readonly isLive: boolean;
  /** It was begun to be sent, and nobody has all of it any more. */
  readonly isSpent: boolean;
  /** In the target's words. */
  bodyFor(target: Target): Buffer | BodySource;
}

/** The largest event of a stream and the largest JSON answers, in bytes. */
export type AnswerBounds = DynamicConfig['max_answer'];

/** What an attempt has to know of the client's request. */
export interface RelayRequest {
  readonly exchange: Exchange;
  readonly endpoint: Endpoint;
  readonly facts: Omit<RequestFacts, 'stream' | 'estimate'>;
  /** Of a form it may be known only when its last field has come. */
  readonly stream: boolean;
  /** Answers that are written at the same time, each with a finish reason of its own. Default 1. */
  readonly choices?: number | undefined;
  /** JSON string token to put in place of the answer's `model`, or undefined to leave the upstream's. */
  readonly alias: Buffer | undefined;
  /** Whether the client itself asked for usage in its stream. */
  readonly includeUsage: boolean;
  /** The usage chunk was asked for by the gateway and is not shown to the client. */
  readonly hideUsage?: boolean;
  /** Bounds on the answer, in bytes. */
  readonly maxAnswer: AnswerBounds;
  /** Milliseconds after the upstream's 200 at which a stream is opened to the client even without output. */
  readonly commitAfter: number;
  /** Milliseconds of silence after which a stream gets a comment. */
  readonly keepalive: number;
  /** Whether another target may be asked although the first may have begun to work. */
  readonly afterSend: boolean;
  /** Of the body, as it stands in a header. Default: JSON. */
  readonly contentType?: string | undefined;
  readonly metrics: Metrics;
  /** Where large answers stand. */
  readonly buffers: BufferPool;
  /** Streams that are read on after their clients have left. Default: none is. */
  readonly usageReads?: UsageReads | undefined;
  readonly meter: { note(use: AttemptUse): void };
  /** Records what an upstream has made, so that later calls find it. Never rejects. Undefined where nothing is made that lasts. */
  readonly keep?: ((created: CreatedObjects, target: Target) => Promise<void>) | undefined;
}

export type AttemptResult =
  /** The client has an answer, whole or visibly broken; `outcome` says which. */
  | { readonly kind: 'answered'; readonly outcome: ResultCode }
  /** Nothing was sent to the client. */
  | { readonly kind: 'failed'; readonly failure: Failure };

export function failed(failure: Failure): AttemptResult {
  return { kind: 'failed', failure };
}

/** Or another attempt of the same request had the client first, and this one was ended for that. */
export type AttemptEnd = AttemptResult | { readonly kind: 'superseded' };

export type ResultCode = 'ok' | ErrorCode;

/** As the metrics name it. */
export function resultCodeOf(result: AttemptEnd): ResultCode | 'superseded' {
  if (result.kind === 'answered') return result.outcome;
  return result.kind === 'failed' ? result.failure.error.code : result.kind;
}

/** One attempt, when it is over. */
export interface AttemptUse {
  /** Name of the upstream. */
  readonly upstream: string;
  /** Whose API that is. */
  readonly provider: string;
  /** What the upstream said; null when it said nothing. */
  readonly usage: Usage | null;
  /** Frames of output that no reported usage covers. */
  readonly outputs: number;
  /** The rest of what no reported usage covers. Default: nothing. */
  readonly unreported?: Unreported | undefined;
  /** Some of the request may have reached the upstream. */
  readonly isSent: boolean;
  /** It answered with another status than 200. Default false. */
  readonly isRefused?: boolean;
  readonly outcome: ResultCode | 'superseded';
}

/** Output for which there is no usage, beside the number of its frames. */
export interface Unreported {
  /** As output-text.ts counts them. */
  readonly textBytes: number;
  /** Milliseconds in which the upstream was at work and nothing came. */
  readonly silentMs: number;
  /** Its length cannot be told before all of it is there: then it is what was reserved. */
  readonly isReserved: boolean;
}

/** Hears how the target does while the attempt is under way. */
export interface Watcher {
  /** The attempt has its place at the upstream. @returns its number among those of the request, from 1 */
  onBegin(): number;
  /**
   * The first output came.
   * @param ms of a stream, milliseconds since the request was sent; a JSON answer comes at its end and says nothing of that
   */
  onOutput(ms: number | undefined): void;
  /** After so many milliseconds without output the attempt was given up. */
  onSilence(ms: number): void;
  /** After so many milliseconds without output another attempt was quicker. */
  onOvertaken(ms: number): void;
}

/** Reads what follows the head of an answer. After it has called `finish` it hears nothing but `dispose`. */
export interface Receiver {
  data(chunk: Buffer): void;
  /** The upstream's body is complete by its framing, or enough of it came. */
  end(): void;
  /**
   * The answer will not be completed: the upstream broke, a deadline passed, or nobody waits any more. Ends what was begun
   * so that the client can tell.
   * @returns what that makes of the attempt; undefined when nothing was sent and nothing is known but the error
   */
  broken(error: GatewayError): AttemptResult | undefined;
  /** The attempt is over: drop timers and listeners, write down what was seen. */
  dispose(): void;
  /** No other attempt runs beside this one any more: what waited for that may happen. */
  alone?(): void;
  /**
   * The client has left. From now on nothing is written.
   * @returns whether the answer is nearly whole, so that reading on for a moment tells what it used; otherwise `broken` follows
   */
  leave?(): boolean;
}

/** How an attempt stands to another one of the same request. */
export interface Rivalry {
  /** Another one is under way too, and neither has the client. */
  readonly isUndecided: boolean;
  /**
   * To be called before the first byte goes to the client. Ends the other attempt. May be called again.
   * @returns false when the other one was first: then nothing may be sent
   */
  commit(): boolean;
}

/** The attempt, as a receiver sees it. */
export interface Source {
  /** Only where another attempt of the same request may run at the same time. */
  readonly rivalry?: Rivalry | undefined;
  /** The upstream has made something that later calls may refer to. Undefined where that is not recorded. */
  created?: ((created: CreatedObjects) => Promise<void>) | undefined;
  /** What kind of answer comes: one in pieces, or one that counts when all of it is there. The wait for it begins. */
  expects(isStream: boolean): void;
  /** From now on this one reads the answer. */
  reads(receiver: Receiver): void;
  /** Stop reading: the client does not keep up. */
  pause(): void;
  resume(): void;
  /**
   * What the answer says that it used, when it says so, and how much output came that this does not cover. The last call before the
   * attempt ends counts.
   * @param usage null when it said nothing
   * @param outputs frames of output
   * @param textBytes their text. Default 0
   */
  used(usage: Usage | null, outputs: number, textBytes?: number): void;
  /** Output came: the deadline for the first token becomes the one for silence, or begins anew. */
  progress(): void;
  /** The client has the first bytes of the answer, so that no other target is asked. */
  committed(): void;
  /** Nothing more is expected but the rest of a line end, or the end of the body: `end` is called after a moment. */
  lastFrame(): void;
  /** Whether a text of the upstream quotes what it was asked with. Default: none does. */
  quotesCredential?(text: Buffer): boolean;
  /** The answer cannot be used. */
  unusable(reason: unknown): void;
  /**
   * The upstream did the work, and its answer cannot be relayed: it is not asked for again.
   * @param why a sentence for the client
   */
  unrelayable(why: string): void;
  /** The gateway's own code failed. */
  crashed(error: unknown): void;
  /** The body ended as if it were whole, and is not. */
  incomplete(reason: unknown): void;
  /**
   * The attempt is over. An upstream whose body has not ended gets a moment for that when it was answered with `ok`, so that
   * the connection can be used again.
   */
  finish(result: AttemptResult): void;
}
