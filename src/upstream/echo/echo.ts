// The built-in `echo` upstream: a small in-process model with an OpenAI-compatible API, for trials and tests. It returns vendor-like
// responses and errors, reads no headers and stores only its last responses. This file delivers the answers; the files beside it
// make them.
import { GatewayError, wrapError } from '../../errors.ts';
import { isSource } from '../../http/pieces/body-source.ts';
import type { Call, Delivery, Sink, Transport, UpstreamRequest } from '../transport.ts';
import { type EchoAnswer, EchoFault, type EchoRequest, readEchoBody } from './echo-answer.ts';
import { chat, complete } from './echo-completions.ts';
import { answerForm, isEchoForm } from './echo-forms.ts';
import { draw, embed, moderate, speak } from './echo-others.ts';
import { EchoResponses } from './echo-responses.ts';
import { classifyTexts, detokenize, rerank, score, tokenize } from './echo-scores.ts';

const NO_BYTES: Buffer = Buffer.alloc(0);

interface EchoOptions {
  /** Delay in milliseconds before each piece of a response. Default 20. */
  readonly delay?: number;
}

type Respond = (request: EchoRequest) => EchoAnswer;

export class EchoTransport implements Transport {
  readonly #delay: number;
  readonly #calls = new Set<EchoCall>();
  readonly #responses = new EchoResponses();
  /** Path below the API root → its handler. */
  readonly #endpoints: ReadonlyMap<string, readonly [respond: Respond, defaultModel?: string]> = new Map([
    ['/chat/completions', [chat]],
    ['/completions', [complete]],
    ['/embeddings', [embed]],
    ['/moderations', [moderate, 'omni-moderation-latest']],
    ['/responses', [(request: EchoRequest) => this.#responses.create(request)]],
    ['/images/generations', [(request: EchoRequest) => draw(request), 'dall-e-2']],
    ['/images/edits', [(request: EchoRequest) => draw(request, 'image_edit'), 'dall-e-2']],
    ['/audio/speech', [speak]],
    ['/rerank', [rerank]],
    ['/score', [score]],
    ['/classify', [classifyTexts]],
    ['/v1/classify', [classifyTexts]],
    ['/tokenize', [tokenize]],
    ['/detokenize', [detokenize]],
  ]);
  #closed = false;

  constructor({ delay = 20 }: EchoOptions = {}) {
    this.#delay = delay;
  }

  send(request: UpstreamRequest, sink: Sink): Call {
    const call = new EchoCall(this.#delay, sink, () => this.#calls.delete(call));
    this.#calls.add(call);
    const [path = ''] = request.path.split('?', 1);
    if (this.#closed) void call.run(Promise.reject(new GatewayError('upstream_unreachable')), 'not_sent');
    else if (isEchoForm(path, request))
      void call.run(this.#answerForm(path, request, sink, call), 'body_lost');
    else void call.run(this.#answer(path, request).catch(answerOfFault), 'maybe_sent');
    return call;
  }

  async #answer(path: string, request: UpstreamRequest): Promise<EchoAnswer> {
    const body = isSource(request.body) ? (request.body.toBuffer?.() ?? NO_BYTES) : request.body;
    const [respond, defaultModel] = this.#endpoints.get(path) ?? [];
    if (respond !== undefined) return respond(readEchoBody(body, unixTime(), defaultModel));
    const stored = this.#responses.answer(request);
    if (stored === undefined) throw new EchoFault(`There is no ${path} here.`, null, null, 404);
    return stored;
  }

  /** Forms are read as they arrive, with backpressure. */
  async #answerForm(path: string, request: UpstreamRequest, sink: Sink, call: EchoCall): Promise<EchoAnswer> {
    // No sink call before `send` has returned.
    await undefined;
    if (!call.isOver) sink.onUpload?.();
    const answer = await answerForm(path, request, unixTime()).catch(answerOfFault);
    if (!call.isOver) sink.onSent?.();
    return answer;
  }

  async retire(): Promise<void> {
    this.#closed = true;
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const call of this.#calls) call.abort();
  }
}

/** In seconds. */
function unixTime(): number {
  return Math.floor(Date.now() / 1000);
}

function answerOfFault(error: unknown): EchoAnswer {
  if (error instanceof EchoFault) return error.answer;
  throw error;
}

/** Delivers one response to a sink, one part per timer, so that nothing arrives inside `send` or while paused. */
class EchoCall implements Call {
  readonly #delay: number;
  readonly #sink: Sink;
  readonly #onOver: () => void;
  #timer: NodeJS.Timeout | undefined;
  #isPaused = false;
  #schedule = () => {};
  isOver = false;

  constructor(delay: number, sink: Sink, onOver: () => void) {
    this.#delay = delay;
    this.#sink = sink;
    this.#onOver = onOver;
  }

  /** @param delivery of the request if there is no answer */
  async run(answer: Promise<EchoAnswer>, delivery: Delivery): Promise<void> {
    const sink = this.#sink;
    const found = await answer.catch((error: unknown) => wrapError(error, 'internal_error'));
    await this.#ready(0);
    if (found instanceof GatewayError) {
      this.abort();
      sink.onError(found, delivery);
      return;
    }
    sink.onHead(found.status, found.headers);
    for (const part of found.parts) {
      // The delay models thinking before output; head and end come at once.
      await this.#ready(this.#delay);
      sink.onData(part);
    }
    await this.#ready(0);
    this.abort();
    sink.onEnd();
  }

  pause(): void {
    this.#isPaused = true;
    this.#schedule();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#schedule();
  }

  abort(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#schedule();
    this.#onOver();
  }

  /** Resolves after `ms` without a pause; never after `abort`. */
  #ready(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#schedule = () => {
        clearTimeout(this.#timer);
        if (!this.#isPaused && !this.isOver) this.#timer = setTimeout(resolve, ms);
      };
      this.#schedule();
    });
  }
}
