// The reader of an answer that is not a 200: collects its text, within bounds, to be judged as a whole. Nothing of it goes
// to the client from here.
import { GatewayError } from '../../errors.ts';
import { certainBlame, type Failure, judgeErrorResponse } from '../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import type { AttemptResult, Receiver, Source } from '../contracts/receiver.ts';

/** An error's text is read to this size; beyond it, it is no error object. */
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

  /** The status came, and it says more than the way in which the text broke off. */
  broken({ code }: GatewayError): AttemptResult | undefined {
    return certainBlame(code).kind === 'neutral' ? undefined : this.#judge(NO_BYTES);
  }

  dispose(): void {}

  #judge(body: Buffer): AttemptResult {
    return { kind: 'failed', failure: judgeErrorResponse(this.#status, this.#headers, body) };
  }
}

/** An upstream's own text goes on to the client, and a word of it into the log, unless it quotes the credential that it was asked with. */
export function shown(failure: Failure, upstream: Upstream): Failure {
  const { verbatim, ...rest } = failure;
  const isShown = verbatim === undefined || !upstream.quotesCredential(verbatim.body);
  const judged = isShown ? failure : rest;
  const { error } = judged;
  if (!upstream.quotesCredential(String(error.cause ?? ''))) return judged;
  const { status, retryAfterMs } = error;
  const cause = new Error('the upstream quoted the credential that it was asked with');
  return { ...judged, error: new GatewayError(error.code, error.message, { cause, status, retryAfterMs }) };
}

/** The answer cannot be used. */
export function unusable(cause: unknown): GatewayError {
  return new GatewayError('upstream_invalid_response', undefined, { cause });
}
