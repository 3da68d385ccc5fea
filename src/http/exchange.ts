// One request and its answer, from the first byte to the last: identity, times, what the access log will say, and the
// one signal by which everything that works for it learns that it is over.
import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { GatewayError } from '../errors.ts';
import type { AccessFields } from '../telemetry/access-log.ts';

/** A client's own id is kept if it can stand in a log line and a header without harm. */
const SANE_ID = /^[A-Za-z0-9._:-]{1,128}$/;

const exchanges = new WeakMap<IncomingMessage, Exchange>();

export class Exchange {
  readonly id: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The request target as it was sent: the router sees a rewritten one. */
  readonly target: string;
  readonly address: string;
  /** `performance.now()` at the request line. */
  readonly started: number = performance.now();
  readonly access: AccessFields = {};
  /** The error behind the answer, for the log. */
  error: GatewayError | undefined;
  #stopReason: GatewayError | undefined;
  #onStop: (() => void)[] = [];

  constructor(request: IncomingMessage, response: ServerResponse, address: string) {
    this.request = request;
    this.response = response;
    this.target = request.url ?? '/';
    this.address = address;
    const given = request.headers['x-request-id'];
    this.id =
      typeof given === 'string' && SANE_ID.test(given) ? given : `req_${randomBytes(16).toString('hex')}`;
    exchanges.set(request, this);
  }

  /** The exchange that the server opened for this request. */
  static of(request: IncomingMessage): Exchange {
    const exchange = exchanges.get(request);
    if (exchange === undefined) throw new GatewayError('internal_error', undefined, { cause: 'no exchange' });
    return exchange;
  }

  /** Why no one waits for the answer any more: the client left, or the drain deadline passed. Undefined while someone does. */
  get stopReason(): GatewayError | undefined {
    return this.#stopReason;
  }

  /** Throws the reason if the exchange was stopped: called between steps, so that none begins for nobody. */
  throwIfStopped(): void {
    if (this.#stopReason !== undefined) throw this.#stopReason;
  }

  /** Calls `listener` once when the exchange is stopped; not called if it was before, so check `stopReason` first. */
  onStop(listener: () => void): void {
    this.#onStop.push(listener);
  }

  offStop(listener: () => void): void {
    this.#onStop = this.#onStop.filter((other) => other !== listener);
  }

  /** Tells everyone who works for this request to end it. Without effect once the answer is complete. */
  stop(reason: GatewayError): void {
    if (this.#stopReason !== undefined || this.response.writableFinished) return;
    this.#stopReason = reason;
    for (const listener of this.#onStop.splice(0)) listener();
  }

  /** Milliseconds since the request line. */
  get elapsed(): number {
    return performance.now() - this.started;
  }
}
