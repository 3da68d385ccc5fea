// The call of one attempt at its upstream: it holds the slot there, knows what was sent and when, and lets the connection be reused.
import { wrapError } from '../../errors.ts';
import { batchWrite } from '../../http/exchange/write-batch.ts';
import type { BodySource } from '../../http/pieces/body-source.ts';
import type { AttemptSpan } from '../../telemetry/traces/tracer.ts';
import { type Failure, failure } from '../../upstream/error-outcome.ts';
import type { Call, Sink } from '../../upstream/transport.ts';
import type { RelayRequest, ResultCode } from '../contracts/receiver.ts';
import type { Target } from '../routes/route-table.ts';
import { END_MS } from './attempt-deadlines.ts';

export class AttemptCall {
  readonly #request: RelayRequest;
  readonly #target: Target;
  /** Part of the request may have reached the upstream. */
  isSent = false;
  /** Monotonic milliseconds: when all of it was sent; before that, when the attempt was made. */
  sentAt = 0;
  #call: Call | undefined;
  /** Runs between the end of the attempt and the end of the upstream's body. */
  #lingering: NodeJS.Timeout | undefined;
  #isEnded = false;

  constructor(request: RelayRequest, target: Target) {
    this.#request = request;
    this.#target = target;
  }

  /** Takes a slot at the upstream. @returns why there is none */
  acquire(): Failure | undefined {
    this.sentAt = performance.now();
    try {
      this.#target.upstream.acquire();
      return undefined;
    } catch (error) {
      return { ...failure(wrapError(error, 'upstream_busy'), true), skipsRetryBudget: true };
    }
  }

  /** @param fresh use a new connection */
  send(body: Buffer | BodySource, fresh: boolean, trace: AttemptSpan | undefined, sink: Sink): void {
    const { exchange, endpoint, contentType, facts } = this.#request;
    const { upstream, forwarded } = this.#target;
    const accept = facts.stream ? 'text/event-stream' : (endpoint.accept ?? 'application/json');
    const sent = { endpoint, body, contentType, accept, fresh, forwarded, trace };
    const client = exchange.request.headers;
    const transport = endpoint.session?.transportOf(upstream);
    this.#call = upstream.send({ ...sent, requestId: exchange.id, client, transport }, sink);
  }

  /** All of the request was sent. @returns when */
  sent(): number {
    this.isSent = true;
    this.sentAt = performance.now();
    return this.sentAt;
  }

  /** Since `sentAt`. */
  get elapsedMs(): number {
    return performance.now() - this.sentAt;
  }

  pause(): void {
    this.#call?.pause();
  }

  resume(): void {
    this.#call?.resume();
  }

  /**
   * Gives the slot back.
   * @param isReusable wait for the end of the upstream's body, so that the connection can be used again
   * @param now monotonic milliseconds
   */
  finish(result: ResultCode | 'superseded', isReusable: boolean, now: number): void {
    if (isReusable) {
      // Most bodies end in the same tick: those need no timer.
      batchWrite(() => {
        if (!this.#isEnded) this.#lingering = setTimeout(() => this.#call?.abort(), END_MS);
      });
      this.#call?.resume();
    } else this.#call?.abort();
    this.#target.upstream.release(result, this.isSent ? now - this.sentAt : undefined);
  }

  /** The upstream's body ended after `finish`. */
  ended(): void {
    this.#isEnded = true;
    clearTimeout(this.#lingering);
  }
}
