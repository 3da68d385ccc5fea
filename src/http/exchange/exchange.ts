// One request and its response: identity, timing, facts for the access log, and the stop signal for all work on its behalf.

import { randomFillSync } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { EndpointName } from '../../config/schema/endpoint-names.ts';
import type { GatewayError } from '../../errors.ts';
import { AccessRecord } from '../../telemetry/log/access-log.ts';
import { holdsKey, maskKeys } from '../../telemetry/log/key-mask.ts';
import type { RequestSpan } from '../../telemetry/traces/tracer.ts';
import type { DecodeQueue } from '../pieces/decode-queue.ts';
import type { Upgrade } from './upgrade.ts';

/** Pattern of client request ids that are safe in log lines and headers. */
const SANE_ID = /^[A-Za-z0-9._:-]{1,128}$/;

/** A request that takes longer than this before it is sent upstream checks first whether the client is still there. */
const SLOW_MS = 100;

const NO_LISTENERS: readonly ((reason: GatewayError) => void)[] = [];

const ID_BYTES = 16;
/** Random bytes for ids, drawn in bulk: a draw costs more than the rest of an id. */
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

/** Whether the path is of Anthropic's API, or the headers are those of its clients; some send no version for the list of models. */
function isAnthropic(target: string, { headers }: IncomingMessage): boolean {
  if (headers['anthropic-version'] !== undefined || target.startsWith('/v1/messages')) return true;
  return (
    target.startsWith('/v1/models') &&
    headers['x-api-key'] !== undefined &&
    headers.authorization === undefined
  );
}

export class Exchange {
  readonly id: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The request target as sent; of Azure's clients, the one of this API that it means. */
  target: string;
  readonly address: string;
  /** The client speaks Anthropic's API, which has other headers and errors. */
  readonly isAnthropic: boolean;
  /** `performance.now()` at the request line. */
  readonly started: number = performance.now();
  /** Filled during the request, read at its end. */
  readonly access: AccessRecord;
  /** Path of the matched route; undefined if there is none. */
  route: string | undefined;
  /** The model that the path names, for Azure's clients; it takes precedence over one in the body. */
  deployment: string | undefined;
  /** Prefix of the key that authenticated the request or that it issued. */
  keyPrefix: string | undefined;
  /** Public name of the requested model, with anything that could be a key masked. */
  model: string | undefined;
  /** Whether the client requested a stream; undefined if that is not possible. */
  isStream: boolean | undefined;
  /** For metrics: the routing-table entry that serves the request, `unknown` if none does. */
  entry: string | undefined;
  /** Endpoint of a model request; undefined for others. */
  endpoint: EndpointName | undefined;
  /** Undefined without tracing. */
  span: RequestSpan | undefined;
  /** Headers of every response of this exchange, including streams and errors. Names in lower case. */
  readonly headers: Record<string, string>;
  /** Set for a handshake; its handler writes to the connection instead of the response. */
  upgrade: Upgrade | undefined;
  /** The error behind the response, for the log. */
  error: GatewayError | undefined;
  /**
   * Set by the writer of a stream: sends a no-op where the protocol allows one. Called after the client half-closed, because only
   * a write distinguishes a client that still reads from one that left.
   */
  probe: (() => void) | undefined;
  /** Set by the handler of a connection that outlives its responses: called when a drain begins, to end it between two of them. */
  onDrain: (() => void) | undefined;
  /** The complete response was handed over; it is written at the end of the tick. */
  isEnding = false;
  /** The body or response is large, so that other requests take precedence. */
  isLarge = false;
  /** The body was still arriving after the turn that read the head. */
  hasLateBody = false;
  /** Set by the connection. */
  connection: { whenRead(callback: () => void): void; readonly decodeQueue: DecodeQueue } | undefined;
  /** Index in `Exchanges`, which owns it. */
  index: number | undefined;
  #stopReason: GatewayError | undefined;
  #onStop: readonly ((reason: GatewayError) => void)[] = NO_LISTENERS;
  #answered: number | undefined;
  #firstOutputMs: number | undefined;

  constructor(request: IncomingMessage, response: ServerResponse, address: string) {
    this.request = request;
    this.response = response;
    this.target = request.url ?? '/';
    this.address = address;
    const given = request.headers['x-request-id'];
    const isSane = typeof given === 'string' && SANE_ID.test(given);
    // Clients send keys in the wrong header: log only the prefix of such an id.
    const isKept = isSane && !holdsKey(given);
    this.id = isKept ? given : newId();
    this.isAnthropic = isAnthropic(this.target, request);
    this.headers = this.isAnthropic
      ? { 'x-request-id': this.id, 'request-id': this.id }
      : { 'x-request-id': this.id };
    this.access = new AccessRecord(this.id, request.method ?? '');
    if (isSane && !isKept) this.access.client_request_id = maskKeys(given);
  }

  /** The method to route by: HEAD counts as GET (RFC 9110, 9.3.2); Node omits the body. */
  get method(): string {
    const { method = '' } = this.request;
    return method === 'HEAD' ? 'GET' : method;
  }

  /** Why the exchange was stopped: the client left, or the drain deadline passed. Undefined while it runs. */
  get stopReason(): GatewayError | undefined {
    return this.#stopReason;
  }

  /** Throws the stop reason, if any. Call between steps, so that no step starts after a stop. */
  throwIfStopped(): void {
    if (this.#stopReason !== undefined) throw this.#stopReason;
  }

  /** Settles with `work`, or rejects with the stop reason as soon as the exchange is stopped. */
  orStopped<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#stopReason !== undefined) reject(this.#stopReason);
      this.onStop(reject);
      void work.then(resolve, reject).finally(() => this.offStop(reject));
    });
  }

  /**
   * Call before work that costs money. If the request has taken long, the client may have left with its FIN still unread; the
   * promise resolves after that check. Undefined if no check is needed.
   * @throws the stop reason
   */
  checkClient(): Promise<void> | undefined {
    this.throwIfStopped();
    const { connection } = this;
    if (connection === undefined || this.elapsed < SLOW_MS) return undefined;
    return new Promise<void>((resolve) => connection.whenRead(resolve)).then(() => this.throwIfStopped());
  }

  /** Calls `listener` once on stop, with the reason; not for an earlier stop, so check `stopReason` first. */
  onStop(listener: (reason: GatewayError) => void): void {
    // Arrays that grow by `push` get room for seventeen, and `concat` is slow.
    this.#onStop = [...this.#onStop, listener];
  }

  offStop(listener: (reason: GatewayError) => void): void {
    const listeners = this.#onStop;
    const isSole = listeners.length === 1 && listeners[0] === listener;
    this.#onStop = isSole ? NO_LISTENERS : listeners.filter((each) => each !== listener);
  }

  /**
   * Stops all work for this request. No effect once the response is complete.
   * @throws the first error of a listener, after all listeners ran
   */
  stop(reason: GatewayError): void {
    if (this.#stopReason !== undefined || this.answered) return;
    this.#stopReason = reason;
    const failures: unknown[] = [];
    for (const listener of this.#onStop) {
      try {
        listener(reason);
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  /** Marks the first output to the client. Later calls do nothing. */
  markFirstOutput(): void {
    this.#firstOutputMs ??= Math.round(this.elapsed);
  }

  /** Milliseconds from the request line to the first output; undefined before it. */
  get firstOutputMs(): number | undefined {
    return this.#firstOutputMs;
  }

  /** Marks the response as complete; later activity on the connection does not count as request time. */
  markAnswered(): void {
    this.#answered ??= performance.now();
  }

  get answered(): boolean {
    return this.#answered !== undefined || this.response.writableFinished;
  }

  /** Milliseconds from the request line to now, or to the end of the response. */
  get elapsed(): number {
    return (this.#answered ?? performance.now()) - this.started;
  }
}
