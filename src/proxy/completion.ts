// A JSON answer: collected, checked to be whole, its `model` spliced, and sent as one write with its length.
import { GatewayError } from '../errors.ts';
import { answer } from '../http/answer.ts';
import { judgeErrorObject, relayedHeaders } from '../upstream/outcome.ts';
import type { ResponseHeaders } from '../upstream/transport.ts';
import { readCompletion } from './chunk.ts';
import type { ChatRequest, Receiver, Source } from './receiver.ts';
import { spliceSpans } from './request-scan.ts';

/** Larger than any completion that a model produces; images in base64 included. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export class Completion implements Receiver {
  /** A JSON answer is sent whole, so there is no moment at which it has begun and not ended. */
  readonly committed = false;
  readonly #request: ChatRequest;
  readonly #headers: ResponseHeaders;
  readonly #source: Source;
  readonly #chunks: Buffer[] = [];
  #size = 0;

  constructor(request: ChatRequest, headers: ResponseHeaders, source: Source) {
    this.#request = request;
    this.#headers = headers;
    this.#source = source;
  }

  data(chunk: Buffer): void {
    this.#size += chunk.length;
    if (this.#size > MAX_ANSWER_BYTES) this.#unusable(`more than ${MAX_ANSWER_BYTES} bytes`);
    else this.#chunks.push(chunk);
  }

  end(): void {
    const { exchange, alias, stream } = this.#request;
    const [first] = this.#chunks;
    const body =
      this.#chunks.length === 1 && first !== undefined ? first : Buffer.concat(this.#chunks, this.#size);
    const facts = readCompletion(body);
    if (!facts.valid) {
      this.#unusable('not a JSON object');
      return;
    }
    if (facts.isError) {
      this.#source.finish({ kind: 'failed', failure: judgeErrorObject(body.toString(), this.#headers) });
      return;
    }
    if (stream) {
      // In a streaming SDK a JSON body reads as a silent, empty answer.
      this.#unusable('a completion instead of a stream');
      return;
    }
    if (facts.usage !== null) {
      exchange.access.prompt_tokens = facts.usage.prompt;
      exchange.access.completion_tokens = facts.usage.completion;
    }
    const spliced =
      alias === undefined || facts.modelSpan === null
        ? body
        : spliceSpans(body, [{ span: facts.modelSpan, bytes: alias }]);
    exchange.access.ttft_ms = Math.round(exchange.elapsed);
    answer(exchange, 200, { 'content-type': 'application/json', ...relayedHeaders(this.#headers) }, spliced);
    this.#source.finish({ kind: 'answered', outcome: 'ok' });
  }

  break(): void {}
  dispose(): void {}

  #unusable(reason: string): void {
    this.#source.fail(new GatewayError('upstream_invalid_response', undefined, { cause: reason }));
  }
}
