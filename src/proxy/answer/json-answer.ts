// A JSON answer: collected, validated, its `model` spliced, and sent with a content-length, in one write unless it is large. If the
// client requested a stream, the completion is converted to one.
import { GatewayError } from '../../errors.ts';
import { answer } from '../../http/exchange/response-writer.ts';
import { LARGE_BODY } from '../../http/pieces/body-buffer.ts';
import { BodyPacing } from '../../http/pieces/body-pacing.ts';
import type { BodyPieces } from '../../http/pieces/body-pieces.ts';
import { filteredAnswer, judgeErrorObject, relayedHeaders } from '../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import {
  contentsOf,
  isContentFilter,
  isErrorList,
  isFilteredResponse,
  type Shape,
  shapeOf,
} from '../../wire/answer-shape.ts';
import { type CompletionFacts, readCompletion } from '../../wire/chat-chunk.ts';
import { sealsIn } from '../../wire/created-objects.ts';
import { BOM, bytesStartWith } from '../../wire/sse-fields.ts';
import type { Quantities } from '../../wire/token-usage.ts';
import { tooLarge } from '../contracts/answer-bounds.ts';
import type { Endpoint } from '../contracts/endpoint.ts';
import type { Receiver, RelayRequest, Source } from '../contracts/receiver.ts';
import { type Edit, splice } from '../request/request-scan.ts';
import { tokensOf } from '../request/token-estimate.ts';
import { LargeAnswer } from './large-answer.ts';

/** The facts of a complete answer; `hasOutput` and `finish` of small ones only. */
type Facts = CompletionFacts & { readonly hasOutput?: boolean; readonly finish?: string | null };

/** Zero usage with an answer means that the upstream does not count. */
function reportedUsage({ usage }: Facts): Facts['usage'] {
  return usage?.total === 0 ? null : usage;
}

export class JsonAnswer implements Receiver {
  readonly #request: RelayRequest;
  readonly #headers: ResponseHeaders;
  readonly #source: Source;
  readonly #isLabelled: boolean;
  #chunks: Buffer[] = [];
  /** Holds the bytes of a large answer. */
  #large: LargeAnswer | undefined;
  #work: BodyPacing | undefined;
  #size = 0;
  /** An asynchronous edit is running. */
  #isEditing = false;
  #isOver = false;

  /** @param isLabelled the content-type is JSON; otherwise the body must be recognizable as an answer or an error */
  constructor(request: RelayRequest, headers: ResponseHeaders, source: Source, isLabelled = true) {
    this.#isLabelled = isLabelled;
    this.#request = request;
    this.#headers = headers;
    this.#source = source;
  }

  data(chunk: Buffer): void {
    this.#size += chunk.length;
    if (this.#size > this.#request.config.max_answer.json)
      this.#source.unrelayable(tooLarge('json', this.#request.config.max_answer));
    else if (this.#size <= LARGE_BODY) this.#chunks.push(chunk);
    else this.#addLarge(chunk);
  }

  /** Parses while the bytes arrive, with pacing: all at once, it would block the event loop. */
  #addLarge(chunk: Buffer): void {
    const began = performance.now();
    const { length } = chunk;
    this.#large ??= this.#becomeLarge();
    this.#large.push(chunk);
    this.#work ??= new BodyPacing();
    this.#work.record(length, performance.now() - began);
    this.#work.throttle(this.#source);
  }

  #becomeLarge(): LargeAnswer {
    this.#request.exchange.isLarge = true;
    const { config, buffers } = this.#request;
    const { json: limit } = config.max_answer;
    const announced = Number(this.#headers['content-length']);
    const isPlain = this.#headers['content-encoding'] === undefined && announced <= limit;
    const large = new LargeAnswer(limit, isPlain ? announced : undefined, buffers);
    for (const chunk of this.#chunks) large.push(chunk);
    this.#chunks = [];
    return large;
  }

  #whole(): { readonly body: Buffer; readonly facts: Facts } {
    if (this.#large !== undefined) return this.#large.end();
    const [first] = this.#chunks;
    const body =
      this.#chunks.length === 1 && first !== undefined ? first : Buffer.concat(this.#chunks, this.#size);
    return { body, facts: readCompletion(body) };
  }

  end(): void {
    this.#work?.end();
    const whole = this.#whole();
    const { body } = whole;
    const { facts: requested, endpoint } = this.#request;
    if (!whole.facts.valid) {
      if (isErrorList(body))
        this.#source.finish({ kind: 'failed', failure: judgeErrorObject(body.toString(), this.#headers) });
      else this.#source.unusable('not a JSON object');
      return;
    }
    const shape = shapeFor(whole.facts, body);
    const read = shape === 'error' ? { ...whole.facts, isError: true } : whole.facts;
    const facts = endpoint.factsOf?.(read) ?? read;
    if (!this.#isLabelled && shape === 'other' && !this.#isConvertible(body))
      this.#source.unusable('unknown JSON under another content-type');
    else if (facts.isError) {
      const judge = endpoint.judgeAnswer ?? judgeErrorObject;
      this.#source.finish({ kind: 'failed', failure: judge(body.toString(), this.#headers) });
    } else if (!facts.valid && !requested.stream)
      this.#source.unusable('JSON that is not an answer of this endpoint');
    else if (requested.edits === undefined && this.#source.created === undefined)
      this.#answerWith(body, facts, []);
    else void this.#answerAsync(body, facts);
  }

  /**
   * Answers after the asynchronous steps: edits in batches, and recording what the upstream stored. The client may use a new id as soon
   * as it reads it, so the record comes first.
   */
  async #answerAsync(body: Buffer, facts: Facts): Promise<void> {
    const { facts: requested, endpoint } = this.#request;
    this.#isEditing = true;
    try {
      // Usage is known already and counts however the wait ends.
      const usage = reportedUsage(facts);
      this.#source.used(usage, usage === null ? (requested.outputs ?? 0) : 0);
      const edits = (await requested.edits?.(body)) ?? [];
      const created = this.#source.created && endpoint.createdIn?.(body);
      const seals = this.#request.keepsSeals === true ? sealsIn(body) : [];
      if (created !== undefined) await this.#source.created?.({ ...created, seals });
      if (!this.#isOver) this.#answerWith(body, facts, edits);
    } catch (error) {
      if (error instanceof GatewayError && error.code === 'upstream_invalid_response')
        this.#source.unusable(error.cause);
      else this.#source.crashed(error);
    } finally {
      this.#isEditing = false;
      if (this.#isOver) this.#large?.release();
    }
  }

  /** Whether the endpoint can convert it to a stream: vendors name base64 sound differently. */
  #isConvertible(body: Buffer): boolean {
    return this.#request.facts.stream && this.#asStream(body) !== undefined;
  }

  #asStream(body: Buffer): Buffer | BodyPieces | undefined {
    const { alias, includeUsage, endpoint } = this.#request;
    return endpoint.asStream?.(withoutMark(body), alias, includeUsage);
  }

  /** A JSON answer is sent whole, so it is never partly sent. */
  broken(): undefined {
    return undefined;
  }

  dispose(): void {
    this.#isOver = true;
    this.#work?.end();
    if (!this.#isEditing) this.#large?.release();
  }

  #answerWith(body: Buffer, facts: Facts, edits: readonly Edit[]): void {
    const measured = measuredIn(this.#request.endpoint, body, facts);
    if (!this.#request.facts.stream) {
      this.#answer('application/json', this.#spliced(body, facts, edits), facts, measured);
      return;
    }
    // A streaming SDK would read a JSON body as an empty answer.
    const events = this.#asStream(body);
    if (events === undefined) {
      this.#source.used(reportedUsage(facts), 0);
      this.#source.unrelayable(
        'The upstream answered with JSON that cannot be converted to the requested stream.',
      );
    } else this.#answer('text/event-stream; charset=utf-8', events, facts, measured);
  }

  #answer(type: string, body: Buffer | BodyPieces, facts: Facts, measured: Quantities | undefined): void {
    const { exchange, facts: requested } = this.#request;
    const reported = reportedUsage(facts);
    const usage = reported ?? requested.usage ?? null;
    if (Buffer.isBuffer(body) && this.#isFiltered(facts)) {
      this.#source.used(usage, 0);
      this.#source.finish({ kind: 'failed', failure: filteredAnswer(this.#headers, body, type) });
      return;
    }
    if (!this.#source.commit()) return;
    const hasOutput = facts.hasOutput === true || (requested.outputs ?? 0) > 0;
    const isCovered = usage !== null && (usage.isInputOnly !== true || !hasOutput);
    this.#source.used(usage, isCovered ? 0 : (requested.outputs ?? tokensOf(this.#size)), 0, measured);
    exchange.markFirstOutput();
    const headers = relayedHeaders(this.#headers);
    headers['content-type'] = type;
    if (type !== 'application/json') headers['cache-control'] = 'no-cache, no-transform';
    answer(exchange, 200, headers, body);
    this.#source.finish({ kind: 'answered', outcome: 'ok' });
  }

  /** Whether the content filter left no output, and another target may be tried. */
  #isFiltered({ hasOutput, hasChoices, finish = null }: Facts): boolean {
    if (this.#request.fallbackOn?.includes('content_filter') !== true || this.#large !== undefined)
      return false;
    if (hasChoices) return hasOutput === false && isContentFilter(finish);
    return this.#chunks.length > 0 && isFilteredResponse(Buffer.concat(this.#chunks));
  }

  #spliced(body: Buffer, { modelSpan }: CompletionFacts, edits: readonly Edit[]): Buffer | BodyPieces {
    const { alias } = this.#request;
    const isRenamed = alias !== undefined && modelSpan !== null;
    return splice(body, isRenamed ? [...edits, { span: modelSpan, bytes: alias }] : edits);
  }
}

/** What the answer has beside tokens; undefined where it does not tell. */
function measuredIn({ measures }: Endpoint, body: Buffer, { contents }: Facts): Quantities | undefined {
  if (measures === undefined) return undefined;
  const { items, milliseconds } = contents ?? contentsOf(withoutMark(body));
  if (measures === 'sound') return milliseconds === 0 ? undefined : { milliseconds };
  return items === undefined ? undefined : { images: items };
}

/** A byte order mark is not part of the JSON. */
function withoutMark(body: Buffer): Buffer {
  return bytesStartWith(body, BOM, 0, body.length) ? body.subarray(BOM.length) : body;
}

/** Completions, the most frequent answers, need no further look. */
function shapeFor({ isError, hasChoices, hasFailed }: Facts, body: Buffer): Shape {
  if (isError || hasFailed === true) return 'error';
  return hasChoices ? 'answer' : shapeOf(withoutMark(body));
}
