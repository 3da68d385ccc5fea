// One request and its answer, from the first byte to the last: identity, times, what the access log will say, and the
// one signal by which everything that works for it learns that it is over.

import { randomFillSync } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { EndpointName } from '../../config/schema/endpoint-names.ts';
import { GatewayError } from '../../errors.ts';
import { AccessRecord } from '../../telemetry/log/access-log.ts';
import { holdsKey, maskKeys } from '../../telemetry/log/key-mask.ts';
import type { RequestSpan } from '../../telemetry/traces/tracer.ts';
import type { Upgrade } from './upgrade.ts';

/** A client's own id is kept if it can stand in a log line and a header without harm. */
const SANE_ID = /^[A-Za-z0-9._:-]{1,128}$/;

/** A client is looked for again when its request was not ready to be sent to an upstream within this time. */
const SLOW_MS = 100;
/** Under overload, what was not ready by then makes room for requests whose clients will still be there. */
const STALE_MS = 1_000;
const STALE_RETRY_MS = 2_000;
/** A body of this size comes with its head. */
const SMALL_BYTES = 64 * 1024;

const ID_BYTES = 16;
/** Random bytes for ids, drawn for many at once: each draw costs more than all the rest of an id. */
const reserve = Buffer.alloc(256 * ID_BYTES);
let reserveAt = reserve.length;

function newId(): string {
  if (reserveAt === reserve.length) {
    randomFillSync(reserve);
    reserveAt = 0;
  }
  const start = reserveAt;
  reserveAt += ID_BYTES;
  return `req_${reserve.toString('hex', start, reserveAt)}`;
}

export class Exchange {
  readonly id: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The request target as it was sent: the router sees a rewritten one. */
  readonly target: string;
  readonly address: string;
  /** `performance.now()` at the request line. */
  readonly started: number = performance.now();
  /** Written by everyone who learns something, read once the request has ended. */
  readonly access: AccessRecord;
  /** The path of the route that serves the request; undefined where none does. */
  route: string | undefined;
  /** Of the key with which the request was authenticated, or that was issued by it. */
  keyPrefix: string | undefined;
  /** The public name of the model that was asked for, without what could be a key in it. */
  model: string | undefined;
  /** Whether the client asked for a stream; undefined where that cannot be asked for. */
  isStream: boolean | undefined;
  /** For metrics: the entry of the routing table that serves the request, `unknown` where none does. */
  entry: string | undefined;
  /** What a request for a model asks of it; undefined for others. */
  endpoint: EndpointName | undefined;
  /** Undefined where nothing is traced. */
  span: RequestSpan | undefined;
  /** Headers that every answer of this exchange carries, a stream's and an error's too. Names in lower case. */
  readonly headers: Record<string, string>;
  /** Set for a handshake: whoever takes it writes to the connection itself and no answer. */
  upgrade: Upgrade | undefined;
  /** The error behind the answer, for the log. */
  error: GatewayError | undefined;
  /**
   * Set by whoever writes a stream: sends something that means nothing, at a place where it may stand. Called when the
   * client has ended its side, because only a write tells a client that still reads from one that left.
   */
  probe: (() => void) | undefined;
  /** All of the answer was handed over; it is written at the end of the turn. */
  isEnding = false;
  /** Its body, or its answer, is so large that others are served before it. */
  isLarge = false;
  /** Set by the connection that it came on. */
  connection: { readonly isOverloaded: boolean; whenRead(callback: () => void): void } | undefined;
  /** Where it is among those under way; for exchanges.ts alone. */
  place: number | undefined;
  #stopReason: GatewayError | undefined;
  #onStop: (() => void)[] = [];
  #answered: number | undefined;
  #firstOutputMs: number | undefined;

  constructor(request: IncomingMessage, response: ServerResponse, address: string) {
    this.request = request;
    this.response = response;
    this.target = request.url ?? '/';
    this.address = address;
    const given = request.headers['x-request-id'];
    const isSane = typeof given === 'string' && SANE_ID.test(given);
    // Clients send keys in the wrong header: such an id is in the log by its prefix alone.
    const isKept = isSane && !holdsKey(given);
    this.id = isKept ? given : newId();
    this.headers = { 'x-request-id': this.id };
    this.access = new AccessRecord(this.id, request.method ?? '');
    if (isSane && !isKept) this.access.client_request_id = maskKeys(given);
  }

  /** The method of the handler: RFC 9110, 9.3.2, HEAD is GET without the body, which Node leaves out. */
  get method(): string {
    const { method = '' } = this.request;
    return method === 'HEAD' ? 'GET' : method;
  }

  /** Why no one waits for the answer any more: the client left, or the drain deadline passed. Undefined while someone does. */
  get stopReason(): GatewayError | undefined {
    return this.#stopReason;
  }

  /** Throws the reason if the exchange was stopped: called between steps, so that none begins for nobody. */
  throwIfStopped(): void {
    if (this.#stopReason !== undefined) throw this.#stopReason;
  }

  /**
   * To be called before work that costs money begins: if the request has taken long so far, its client may have left, and the
   * FIN is still to be read. Undefined if it has not.
   * @throws as `throwIfStopped`; GatewayError overloaded (rejects) where its client would soon give up
   */
  checkClient(): Promise<void> | undefined {
    this.throwIfStopped();
    const { connection } = this;
    if (connection === undefined || this.elapsed < SLOW_MS) return undefined;
    return new Promise<void>((resolve) => connection.whenRead(resolve)).then(() => {
      this.throwIfStopped();
      if (connection.isOverloaded && this.elapsed > STALE_MS && this.#cameWhole)
        throw new GatewayError('overloaded', undefined, { retryAfterMs: STALE_RETRY_MS });
    });
  }

  /** Whether it waited for the gateway, and not for a body that its client was still sending. */
  get #cameWhole(): boolean {
    return Number(this.request.headers['content-length'] ?? 0) < SMALL_BYTES;
  }

  /** Calls `listener` once when the exchange is stopped; not called if it was before, so check `stopReason` first. */
  onStop(listener: () => void): void {
    this.#onStop.push(listener);
  }

  offStop(listener: () => void): void {
    const at = this.#onStop.indexOf(listener);
    if (at !== -1) this.#onStop.splice(at, 1);
  }

  /**
   * Tells everyone who works for this request to end it. Without effect once the answer is complete.
   * @throws what a listener throws, after all of them were called
   */
  stop(reason: GatewayError): void {
    if (this.#stopReason !== undefined || this.answered) return;
    this.#stopReason = reason;
    const failures: unknown[] = [];
    for (const listener of this.#onStop.splice(0)) {
      try {
        listener();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  /** The first output is about to be sent to the client. Later calls do nothing. */
  markFirstOutput(): void {
    this.#firstOutputMs ??= Math.round(this.elapsed);
  }

  /** Milliseconds from the request line to the first output; undefined while there is none. */
  get firstOutputMs(): number | undefined {
    return this.#firstOutputMs;
  }

  /** The client has its answer; what still happens on the connection is not the request's time. */
  markAnswered(): void {
    this.#answered ??= performance.now();
  }

  get answered(): boolean {
    return this.#answered !== undefined || this.response.writableFinished;
  }

  /** Milliseconds since the request line, or from it to the end of the answer. */
  get elapsed(): number {
    return (this.#answered ?? performance.now()) - this.started;
  }
}
