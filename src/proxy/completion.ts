// A JSON answer: collected, checked to be whole, its `model` spliced, and sent as one write with its length. Where the
// client asked for a stream, it gets the completion as one.
import { answer } from '../http/answer.ts';
import { judgeErrorObject, relayedHeaders } from '../upstream/outcome.ts';
import type { ResponseHeaders } from '../upstream/transport.ts';
import { type CompletionFacts, readCompletion } from './chunk.ts';
import { asStream } from './conversion.ts';
import { tokensOf } from './estimate.ts';
import type { ChatRequest, Receiver, Source } from './receiver.ts';
import { spliceSpans } from './request-scan.ts';

/** Larger than any completion that a model produces; images in base64 included. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export class Completion implements Receiver {
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
    if (this.#size > MAX_ANSWER_BYTES) this.#source.unusable(`more than ${MAX_ANSWER_BYTES} bytes`);
    else this.#chunks.push(chunk);
  }

  end(): void {
    const [first] = this.#chunks;
    const body =
      this.#chunks.length === 1 && first !== undefined ? first : Buffer.concat(this.#chunks, this.#size);
    const facts = readCompletion(body);
    if (!facts.valid) this.#source.unusable('not a JSON object');
    else if (facts.isError) {
      this.#source.finish({ kind: 'failed', failure: judgeErrorObject(body.toString(), this.#headers) });
    } else if (this.#request.stream) this.#answerStream(body, facts);
    else this.#answer('application/json', this.#spliced(body, facts), facts);
  }

  /** A JSON answer is sent whole, so there is no moment at which it has begun and not ended. */
  broken(): undefined {
    return undefined;
  }

  dispose(): void {}

  /** In a streaming SDK a JSON body would read as a silent, empty answer. */
  #answerStream(body: Buffer, facts: CompletionFacts): void {
    const { alias, includeUsage } = this.#request;
    const events = asStream(body, alias, includeUsage);
    if (events === undefined) this.#source.unusable('a JSON answer without choices instead of a stream');
    else this.#answer('text/event-stream; charset=utf-8', events, facts);
  }

  #answer(type: string, body: Buffer, { usage }: CompletionFacts): void {
    const { exchange } = this.#request;
    if (this.#source.rivalry?.claim() === false) return;
    if (usage !== null) {
      exchange.access.prompt_tokens = usage.prompt;
      exchange.access.completion_tokens = usage.completion;
    }
    this.#source.used(usage, tokensOf(this.#size));
    exchange.access.ttft_ms = Math.round(exchange.elapsed);
    const cache = type === 'application/json' ? {} : { 'cache-control': 'no-cache, no-transform' };
    answer(exchange, 200, { 'content-type': type, ...cache, ...relayedHeaders(this.#headers) }, body);
    this.#source.finish({ kind: 'answered', outcome: 'ok' });
  }

  #spliced(body: Buffer, { modelSpan }: CompletionFacts): Buffer {
    const { alias } = this.#request;
    if (alias === undefined || modelSpan === null) return body;
    return spliceSpans(body, [{ span: modelSpan, bytes: alias }]);
  }
}
