// A JSON answer: collected, checked to be whole, its `model` spliced, and sent as one write with its length. Where the
// client asked for a stream, it gets the completion as one.
import { GatewayError } from '../errors.ts';
import { answer } from '../http/answer.ts';
import { judgeErrorObject, relayedHeaders } from '../upstream/outcome.ts';
import type { ResponseHeaders } from '../upstream/transport.ts';
import type { CompletionFacts } from './chunk.ts';
import { tokensOf } from './estimate.ts';
import type { Receiver, RelayRequest, Source } from './receiver.ts';
import { type Edit, spliceSpans } from './request-scan.ts';

/** Larger than any completion that a model produces; images in base64 included. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export class Completion implements Receiver {
  readonly #request: RelayRequest;
  readonly #headers: ResponseHeaders;
  readonly #source: Source;
  readonly #chunks: Buffer[] = [];
  #size = 0;
  #isOver = false;

  constructor(request: RelayRequest, headers: ResponseHeaders, source: Source) {
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
    const { ask, endpoint, stream } = this.#request;
    const facts = endpoint.readAnswer(body);
    if (!facts.valid) this.#source.unusable('not a JSON object of this endpoint');
    else if (facts.isError) {
      const judge = endpoint.judgeAnswer ?? judgeErrorObject;
      this.#source.finish({ kind: 'failed', failure: judge(body.toString(), this.#headers) });
    } else if (stream) this.#answerStream(body, facts);
    else if (ask.edits === undefined && this.#source.made === undefined) {
      this.#answer('application/json', this.#spliced(body, facts, []), facts);
    } else void this.#answerLater(body, facts);
  }

  /**
   * What is to be changed takes its turns, and what the upstream has stored can be asked for as soon as its id is told: so where it is
   * is noted first.
   */
  async #answerLater(body: Buffer, facts: CompletionFacts): Promise<void> {
    const { ask, endpoint } = this.#request;
    try {
      // It is known already, whatever becomes of the wait.
      this.#source.used(facts.usage, ask.outputs ?? 0);
      const edits = (await ask.edits?.(body)) ?? [];
      const id = this.#source.made && endpoint.madeIn?.(body);
      if (id !== undefined) await this.#source.made?.(id);
      if (!this.#isOver) this.#answer('application/json', this.#spliced(body, facts, edits), facts);
    } catch (error) {
      if (error instanceof GatewayError && error.code === 'upstream_invalid_response')
        this.#source.unusable(error.cause);
      else this.#source.crashed(error);
    }
  }

  /** A JSON answer is sent whole, so there is no moment at which it has begun and not ended. */
  broken(): undefined {
    return undefined;
  }

  dispose(): void {
    this.#isOver = true;
  }

  /** In a streaming SDK a JSON body would read as a silent, empty answer. */
  #answerStream(body: Buffer, facts: CompletionFacts): void {
    const { alias, includeUsage, endpoint } = this.#request;
    const events = endpoint.asStream?.(body, alias, includeUsage);
    if (events === undefined) this.#source.unusable('a JSON answer that cannot be the stream it should be');
    else this.#answer('text/event-stream; charset=utf-8', events, facts);
  }

  #answer(type: string, body: Buffer, facts: CompletionFacts): void {
    const { exchange, ask } = this.#request;
    const usage = facts.usage ?? ask.usage ?? null;
    if (this.#source.rivalry?.claim() === false) return;
    if (usage !== null) {
      exchange.access.prompt_tokens = usage.prompt;
      exchange.access.completion_tokens = usage.completion;
    }
    this.#source.used(usage, ask.outputs ?? tokensOf(this.#size));
    exchange.access.ttft_ms = Math.round(exchange.elapsed);
    const headers = relayedHeaders(this.#headers);
    headers['content-type'] = type;
    if (type !== 'application/json') headers['cache-control'] = 'no-cache, no-transform';
    answer(exchange, 200, headers, body);
    this.#source.finish({ kind: 'answered', outcome: 'ok' });
  }

  #spliced(body: Buffer, { modelSpan }: CompletionFacts, edits: readonly Edit[]): Buffer {
    const { alias } = this.#request;
    if (alias === undefined || modelSpan === null)
      return edits.length === 0 ? body : spliceSpans(body, edits);
    return spliceSpans(body, [...edits, { span: modelSpan, bytes: alias }]);
  }
}
