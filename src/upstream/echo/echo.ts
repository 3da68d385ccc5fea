// The built-in `echo` upstream: a small in-process model with an OpenAI-compatible API, for trials and tests. It returns vendor-like
// responses and errors, reads no headers and stores only its last responses. echo-chat.ts, echo-others.ts and echo-forms.ts hold
// the endpoints.
import { GatewayError, wrapError } from '../../errors.ts';
import { isSource } from '../../http/pieces/body-source.ts';
import type { Call, Sink, Transport, UpstreamRequest } from '../transport.ts';
import { answerChat } from './echo-chat.ts';
import { answerForm, isEchoForm } from './echo-forms.ts';
import { EchoMemory } from './echo-memory.ts';
import { ECHO_ENDPOINTS } from './echo-others.ts';
import { type EchoEvent, echoErrorAnswer } from './echo-shapes.ts';

const NO_BYTES: Buffer = Buffer.alloc(0);

interface EchoOptions {
  /** Delay in milliseconds before the response, and between pieces of a stream. Default 20. */
  readonly delay?: number;
  /** Unix time in seconds for `created`. */
  readonly clock?: () => number;
}

export class EchoTransport implements Transport {
  readonly #delay: number;
  readonly #clock: () => number;
  readonly #calls = new Set<EchoCall>();
  readonly #memory = new EchoMemory();
  #closed = false;

  constructor(options: EchoOptions = {}) {
    this.#delay = options.delay ?? 20;
    this.#clock = options.clock ?? (() => Math.floor(Date.now() / 1000));
  }

  send(request: UpstreamRequest, sink: Sink): Call {
    const call = new EchoCall(this.#delay, sink, () => this.#calls.delete(call));
    this.#calls.add(call);
    const [path = ''] = request.path.split('?', 1);
    if (this.#closed) call.start([{ kind: 'error', error: new GatewayError('upstream_unreachable') }]);
    else if (isEchoForm(path, request)) void this.#answerForm(path, request, sink, call);
    else call.start(this.#answer(path, request));
    return call;
  }

  /** Forms are read as they arrive, with backpressure. */
  async #answerForm(path: string, request: UpstreamRequest, sink: Sink, call: EchoCall): Promise<void> {
    try {
      // No sink call before `send` has returned.
      await undefined;
      if (!call.isOver) sink.onUpload?.();
      const events = await answerForm(path, request, this.#clock());
      if (call.isOver) return;
      sink.onSent?.();
      call.start(events);
    } catch (error) {
      if (call.isOver) return;
      call.abort();
      sink.onError(wrapError(error, 'internal_error'), 'body_lost');
    }
  }

  async retire(): Promise<void> {
    this.#closed = true;
  }

  #answer(path: string, request: UpstreamRequest): EchoEvent[] {
    const body = isSource(request.body) ? (request.body.toBuffer?.() ?? NO_BYTES) : request.body;
    const respond = path === '/chat/completions' ? answerChat : ECHO_ENDPOINTS.get(path);
    if (respond !== undefined) return respond(body, this.#clock(), this.#memory);
    const stored = this.#memory.answer(request);
    if (stored !== undefined) return stored;
    return echoErrorAnswer(
      { kind: 'echo_error', message: `There is no ${path} here.`, param: null, code: null },
      404,
    );
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const call of this.#calls) call.abort();
  }
}

/** Delivers one response to a sink, one event per timer, so that nothing arrives inside `send` or while paused. */
class EchoCall implements Call {
  #events: EchoEvent[] = [];
  readonly #delay: number;
  readonly #sink: Sink;
  readonly #onOver: () => void;
  #timer: NodeJS.Timeout | undefined;
  #paused = true;
  #isReady = false;
  #over = false;

  constructor(delay: number, sink: Sink, onOver: () => void) {
    this.#delay = delay;
    this.#sink = sink;
    this.#onOver = onOver;
  }

  get isOver(): boolean {
    return this.#over;
  }

  /** Starts the response. Call once. */
  start(events: EchoEvent[]): void {
    this.#events = events;
    this.#isReady = true;
    this.resume();
  }

  pause(): void {
    this.#paused = true;
    clearTimeout(this.#timer);
  }

  resume(): void {
    if (this.#over || !this.#paused || !this.#isReady) return;
    this.#paused = false;
    this.#schedule();
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    clearTimeout(this.#timer);
    this.#onOver();
  }

  #schedule(): void {
    // The delay models thinking before output; head and end come at once.
    const waits = this.#events[0]?.kind === 'data';
    // A sink may pause and resume within a call: never have two timers.
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#next(), waits ? this.#delay : 0);
  }

  #next(): void {
    const event = this.#events.shift();
    if (event === undefined || event.kind === 'error') {
      this.abort();
      if (event === undefined) this.#sink.onEnd();
      else this.#sink.onError(event.error, 'not_sent');
      return;
    }
    if (event.kind === 'head') this.#sink.onHead(event.status, event.headers);
    else this.#sink.onData(event.bytes);
    if (!this.#paused && !this.#over) this.#schedule();
  }
}
