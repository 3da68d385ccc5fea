// The reader of an answer with a status other than 200: collects its body, within bounds, to classify it as a whole. It sends nothing
// to the client.
import { GatewayError } from '../../errors.ts';
import { certainBlame, type Failure, failure, judgeErrorResponse } from '../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import type { AttemptResult, Receiver, Source } from '../contracts/receiver.ts';

/** A larger body is not an error object and is not read. */
const MAX_ERROR_BYTES = 1024 * 1024;

const NO_BYTES = Buffer.alloc(0);

export class ErrorReader implements Receiver {
  readonly #status: number;
  readonly #headers: ResponseHeaders;
  readonly #source: Source;
  readonly #chunks: Buffer[] = [];
  #size = 0;

  constructor(status: number, headers: ResponseHeaders, source: Source) {
    this.#status = status;
    this.#headers = headers;
    this.#source = source;
  }

  data(chunk: Buffer): void {
    this.#size += chunk.length;
    if (this.#size > MAX_ERROR_BYTES) this.#source.finish(this.#judge(NO_BYTES));
    else this.#chunks.push(chunk);
  }

  end(): void {
    this.#source.finish(this.#judge(Buffer.concat(this.#chunks)));
  }

  /** The status is known, and says more than how the body broke off. */
  broken({ code }: GatewayError): AttemptResult | undefined {
    return certainBlame(code).kind === 'neutral' ? undefined : this.#judge(NO_BYTES);
  }

  dispose(): void {}

  #judge(body: Buffer): AttemptResult {
    return { kind: 'failed', failure: judgeErrorResponse(this.#status, this.#headers, body) };
  }
}

/** Removes the upstream's text from the failure (for the client and the log) if it quotes the gateway's credential. */
export function withoutCredential(failure: Failure, upstream: Upstream): Failure {
  const { verbatim, ...rest } = failure;
  const isShown =
    verbatim === undefined || verbatim.status === 200 || !upstream.quotesCredential(verbatim.body);
  const judged = isShown ? failure : rest;
  const { error } = judged;
  if (!upstream.quotesCredential(String(error.cause ?? ''))) return judged;
  const { status, retryAfterMs } = error;
  const cause = new Error('the upstream quoted the credential of the gateway');
  return { ...judged, error: new GatewayError(error.code, error.message, { cause, status, retryAfterMs }) };
}

/** @returns what is read; undefined where it throws that the answer is unusable, which the source then knows */
export function readUsable<Read>(source: Source, read: () => Read): Read | undefined {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    source.unusable(error.cause);
    return undefined;
  }
}

/** Of an attempt that sent nothing to the client: no stream has started there, so `stream_incomplete` would be wrong. */
export function unansweredFailure(error: GatewayError, tryNextTarget: boolean): Failure {
  const told = error.code === 'stream_incomplete' ? unusable(error.cause) : error;
  return failure(told, tryNextTarget);
}

/** The error for an unusable answer. */
export function unusable(cause: unknown): GatewayError {
  return new GatewayError('upstream_invalid_response', undefined, { cause });
}
