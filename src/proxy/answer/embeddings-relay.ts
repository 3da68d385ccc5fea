// The relay of a large embeddings answer, piece by piece in constant memory: the API's largest request yields 81 MiB. A small one is
// a completion like any other, validated before the client receives it.
import type { GatewayError } from '../../errors.ts';
import { BodyPacing } from '../../http/pieces/body-pacing.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import { tooLarge } from '../contracts/answer-bounds.ts';
import type { AttemptResult, Receiver, RelayRequest, Source } from '../contracts/receiver.ts';
import { EmbeddingsScan } from './embeddings-scan.ts';
import { readUsable } from './error-reader.ts';
import { JsonAnswer } from './json-answer.ts';
import { ClientStream } from './stream/client-stream.ts';

/** Larger answers are streamed. Errors are smaller, so they are still answered as errors. */
const MAX_HELD_BYTES = 1024 * 1024;

export class EmbeddingsRelay implements Receiver {
  readonly #request: RelayRequest;
  readonly #source: Source;
  readonly #completion: JsonAnswer;
  readonly #client: ClientStream;
  readonly #scan: EmbeddingsScan;
  /** Undefined once the way of relaying is decided. */
  #held: Buffer[] | undefined = [];
  /** From content-length; a coded answer is larger once decoded. */
  readonly #announced: number;
  #size = 0;
  #work: BodyPacing | undefined;
  /** Resumes only if both the pacing and the client's backpressure allow it. */
  readonly #pace = {
    pause: () => this.#source.pause(),
    resume: () => {
      if (!this.#client.isPaused) this.#source.resume();
    },
  };

  constructor(request: RelayRequest, headers: ResponseHeaders, source: Source, isLabelled: boolean) {
    this.#request = request;
    this.#source = source;
    this.#announced = Number(headers['content-length'] ?? 0);
    this.#completion = new JsonAnswer(request, headers, source, isLabelled);
    this.#client = new ClientStream(request, headers, source, 'application/json');
    this.#scan = new EmbeddingsScan(request.alias, request.facts.edits !== undefined);
  }

  data(chunk: Buffer): void {
    this.#size += chunk.length;
    if (this.#held === undefined) {
      if (this.#client.isOpen) this.#pass(chunk);
      else this.#completion.data(chunk);
      return;
    }
    this.#held.push(chunk);
    if (this.#size > MAX_HELD_BYTES) this.#decide(this.#held);
  }

  end(): void {
    this.#work?.end();
    const held = this.#held ?? [];
    if (this.#client.isOpen) {
      if (!this.#scan.isWhole) this.#source.incomplete('the JSON is incomplete');
      else {
        this.#client.end();
        this.#source.finish({ kind: 'answered', outcome: 'ok' });
      }
      return;
    }
    this.#held = undefined;
    for (const piece of held) this.#completion.data(piece);
    this.#completion.end();
  }

  broken(error: GatewayError): AttemptResult | undefined {
    const client = this.#client;
    if (!client.isOpen) return this.#completion.broken();
    if (error.code === 'client_closed') client.drop();
    else if (!client.isOver) client.cut(error, undefined);
    return { kind: 'answered', outcome: error.code };
  }

  dispose(): void {
    this.#work?.end();
    this.#completion.dispose();
    this.#client.dispose();
    if (!this.#client.isOpen) return;
    const { usage } = this.#scan;
    this.#source.used(usage?.total === 0 ? null : usage, 0);
  }

  /** Chooses the way of relaying, once the answer is larger than any error. */
  #decide(held: readonly Buffer[]): void {
    this.#held = undefined;
    if (this.#announced > this.#request.config.max_answer.embeddings) {
      this.#source.unrelayable(tooLarge('embeddings', this.#request.config.max_answer));
      return;
    }
    const pieces = readUsable(this.#source, () => held.flatMap((piece) => this.#scan.next(piece)));
    if (pieces !== undefined && this.#scan.hasData) {
      this.#request.exchange.isLarge = true;
      this.#request.exchange.markFirstOutput();
      this.#client.passAll(pieces);
      // From here on no other target is tried.
      this.#client.open();
    } else if (pieces !== undefined) for (const piece of held) this.#completion.data(piece);
  }

  #pass(chunk: Buffer): void {
    if (this.#client.isOver) return;
    if (this.#size > this.#request.config.max_answer.embeddings) {
      this.#source.unrelayable(tooLarge('embeddings', this.#request.config.max_answer));
      return;
    }
    const began = performance.now();
    const pieces = readUsable(this.#source, () => this.#scan.next(chunk));
    if (pieces === undefined) return;
    this.#client.passAll(pieces);
    this.#work ??= new BodyPacing();
    this.#work.record(chunk.length, performance.now() - began);
    this.#work.throttle(this.#pace);
  }
}
