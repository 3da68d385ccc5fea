// One request to one target: sends it, keeps its deadlines, and hands the answer to whoever can read it. It ends exactly
// once, whatever happens, and then nothing of it is left: no timer, no listener, no place at the upstream.
import { GatewayError } from '../errors.ts';
import { type Failure, failure, judgeRefusal, mediaType } from '../upstream/outcome.ts';
import type { Call, Delivery, ResponseHeaders, Sink } from '../upstream/transport.ts';
import { Completion } from './completion.ts';
import type { AttemptResult, ChatRequest, Receiver, Source } from './receiver.ts';
import type { Target } from './route-table.ts';
import { StreamRelay } from './stream-relay.ts';

/** An error's text is read to this size; beyond it, it is no error object. */
const MAX_ERROR_BYTES = 1024 * 1024;

/** How long the end of a body may take after its last frame: enough for the final chunk, so that the connection is kept. */
const LAST_FRAME_MS = 500;

export class Attempt implements Sink {
  readonly #request: ChatRequest;
  readonly #target: Target;
  #call: Call | undefined;
  #receiver: Receiver | undefined;
  #timer: NodeJS.Timeout | undefined;
  #total: NodeJS.Timeout | undefined;
  #settle: ((result: AttemptResult) => void) | undefined;
  #phase: Phase = 'headers';

  constructor(request: ChatRequest, target: Target) {
    this.#request = request;
    this.#target = target;
  }

  /**
   * @param body the complete body in the target's words
   * @throws nothing: every trouble is a result
   */
  run(body: Buffer): Promise<AttemptResult> {
    const { exchange, stream } = this.#request;
    const { upstream, model } = this.#target;
    try {
      upstream.acquire();
    } catch (error) {
      return Promise.resolve(
        failed(failure(error instanceof GatewayError ? error : new GatewayError('upstream_busy'), true)),
      );
    }
    exchange.access.upstream = upstream.name;
    exchange.access.upstream_model = model;
    return new Promise((resolve) => {
      this.#settle = resolve;
      exchange.onStop(this.#onStop);
      this.#arm('headers');
      this.#total = setTimeout(this.#onTotal, upstream.config.timeouts.total);
      this.#call = upstream.send(body, exchange.id, exchange.request.headers, stream, this);
    });
  }

  onHead(status: number, headers: ResponseHeaders): void {
    const { exchange, stream } = this.#request;
    exchange.access.upstream_status = status;
    const id = headers['x-request-id'];
    if (typeof id === 'string') exchange.access.upstream_request_id = id.slice(0, 128);

    const type = mediaType(headers);
    const coding = headers['content-encoding'];
    if (status === 200 && coding !== undefined && coding !== 'identity') {
      this.#fail(unusable(`content-encoding ${String(coding)} unasked`), true);
    } else if (status !== 200) {
      this.#receiver = new Refusal(status, headers, (refusal) => this.#finish(failed(refusal)));
    } else if (stream && type === 'text/event-stream') {
      this.#receiver = new StreamRelay(this.#request, headers, this.#source());
    } else if (isJson(type)) {
      this.#receiver = new Completion(this.#request, headers, this.#source());
    } else {
      this.#fail(unusable(`content-type ${type || 'missing'}`), true);
      return;
    }
    this.#arm(this.#receiver instanceof StreamRelay ? 'first_token' : 'idle');
  }

  onData(chunk: Buffer): void {
    // A stream tells itself what counts as progress: comments do not.
    if (!(this.#receiver instanceof StreamRelay)) this.#timer?.refresh();
    this.#receiver?.data(chunk);
  }

  onEnd(): void {
    this.#receiver?.end();
  }

  onError(error: GatewayError, delivery: Delivery): void {
    // After the head of a stream nothing has reached the client yet; before it, the upstream may already be working.
    this.#fail(error, delivery === 'not_sent' || this.#receiver !== undefined);
  }

  #source(): Source {
    return {
      // While the client does not read, the upstream's silence is not its own.
      pause: () => {
        clearTimeout(this.#timer);
        this.#call?.pause();
      },
      resume: () => {
        this.#arm('idle');
        this.#call?.resume();
      },
      progress: () => this.#progress(),
      lastFrame: () => this.#arm('end'),
      fail: (error) => this.#fail(error, true),
      finish: (result) => this.#finish(result),
    };
  }

  /** Output arrived: from now on it is the silence between outputs that is limited. */
  #progress(): void {
    if (this.#phase === 'idle') this.#timer?.refresh();
    else this.#arm('idle');
  }

  #arm(phase: Phase): void {
    if (this.#settle === undefined) return;
    const { timeouts } = this.#target.upstream.config;
    clearTimeout(this.#timer);
    this.#phase = phase;
    const ms = {
      headers: timeouts.headers,
      first_token: timeouts.first_token,
      idle: timeouts.idle,
      end: LAST_FRAME_MS,
    };
    this.#timer = setTimeout(this.#onDeadline, ms[phase]);
  }

  readonly #onDeadline = () => {
    if (this.#phase === 'end') this.#receiver?.end();
    else
      this.#fail(
        new GatewayError('upstream_timeout', undefined, { cause: `deadline: ${this.#phase}` }),
        true,
      );
  };

  readonly #onTotal = () => {
    this.#fail(new GatewayError('upstream_timeout', undefined, { cause: 'deadline: total' }), false);
  };

  readonly #onStop = () => {
    this.#fail(this.#request.exchange.stopReason ?? new GatewayError('client_closed'), false);
  };

  /** Ends the attempt from this side, or because the upstream broke. */
  #fail(error: GatewayError, next: boolean): void {
    if (this.#settle === undefined) return;
    if (this.#receiver?.committed === true) {
      this.#receiver.break(error);
      this.#finish({ kind: 'answered', outcome: error.code });
    } else this.#finish(failed(failure(error, next)));
  }

  #finish(result: AttemptResult): void {
    const settle = this.#settle;
    if (settle === undefined) return;
    this.#settle = undefined;
    clearTimeout(this.#timer);
    clearTimeout(this.#total);
    this.#request.exchange.offStop(this.#onStop);
    this.#receiver?.dispose();
    this.#call?.abort();
    const { upstream } = this.#target;
    upstream.release();
    const outcome = result.kind === 'answered' ? result.outcome : result.failure.error.code;
    this.#request.exchange.access.outcome = outcome;
    this.#request.metrics.upstreamAttempts.inc({ upstream: upstream.name, outcome });
    if (result.kind === 'answered' && outcome !== 'ok') {
      this.#request.metrics.streamsBroken.inc({ upstream: upstream.name, cause: outcome });
    }
    settle(result);
  }
}

/** What the attempt waits for, each with its deadline. */
type Phase = 'headers' | 'first_token' | 'idle' | 'end';

/** Collects an answer that is not a 200, to be judged as a whole. */
class Refusal implements Receiver {
  readonly committed = false;
  readonly #status: number;
  readonly #headers: ResponseHeaders;
  readonly #done: (failure: Failure) => void;
  readonly #chunks: Buffer[] = [];
  #size = 0;

  constructor(status: number, headers: ResponseHeaders, done: (failure: Failure) => void) {
    this.#status = status;
    this.#headers = headers;
    this.#done = done;
  }

  data(chunk: Buffer): void {
    this.#size += chunk.length;
    if (this.#size > MAX_ERROR_BYTES) this.#done(judgeRefusal(this.#status, this.#headers, Buffer.alloc(0)));
    else this.#chunks.push(chunk);
  }

  end(): void {
    this.#done(judgeRefusal(this.#status, this.#headers, Buffer.concat(this.#chunks)));
  }

  break(): void {}
  dispose(): void {}
}

function failed(cause: Failure): AttemptResult {
  return { kind: 'failed', failure: cause };
}

function unusable(reason: string): GatewayError {
  return new GatewayError('upstream_invalid_response', undefined, { cause: reason });
}

function isJson(type: string): boolean {
  return type === 'application/json' || type.endsWith('+json');
}
