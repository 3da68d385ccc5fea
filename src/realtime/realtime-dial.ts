// One attempt to open a session at one target: the handshake, up to the 101 or a failure. realtime-session.ts owns the connection after
// that. The gateway builds the request, so that no other header of the client is forwarded.
import type { ClientRequest, IncomingMessage } from 'node:http';
import { type Duplex, duplexPair } from 'node:stream';
import type { Timeouts } from '../config/check/timeouts.ts';
import { startDeadline, withDeadline } from '../deadline.ts';
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { wholeBody } from '../http/pieces/body-buffer.ts';
import { withoutCredential } from '../proxy/answer/error-reader.ts';
import { askAuthorized, directRequest } from '../upstream/direct-request.ts';
import {
  certainBlame,
  type Failure,
  failure,
  judgeErrorResponse,
  relayedHeaders,
  unauthorized,
  unconnected,
} from '../upstream/error-outcome.ts';
import type { ForwardedHeaders } from '../upstream/http/forwarded-headers.ts';
import { wrapConnectionError } from '../upstream/http/transport-error.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { EchoSession } from './realtime-echo.ts';
import { acceptedHead, handshakeHeaders, problemOf101 } from './websocket/websocket-handshake.ts';

/** Maximum size of an error response, and the time to read it in milliseconds. */
const MAX_ERROR_BYTES = 1024 * 1024;
const ERROR_MS = 5_000;
/** Default deadline for the answer to a handshake. No model runs before it. */
const HANDSHAKE_MS = 60_000;
const NO_BYTES = Buffer.alloc(0);

interface DialOrder {
  readonly exchange: Exchange;
  readonly upstream: Upstream;
  readonly timeouts: Timeouts;
  /** Client headers for the target. Default: those of the upstream. */
  readonly forwarded?: ForwardedHeaders | undefined;
  /** Path and query at the upstream. */
  readonly path: string;
  readonly protocols: readonly string[];
  /** Name of the model at the target. */
  readonly model: string;
  /** Milliseconds until the deadline of the retries. */
  readonly maxMs: number;
}

export type Dialled =
  /** @param head of the 101 for the client */
  | { readonly kind: 'open'; readonly head: string; readonly upstream: Duplex }
  | { readonly kind: 'failed'; readonly failure: Failure };

/**
 * Dials with a valid credential, and once more with a new token if the upstream rejects the current one.
 * @throws nothing: every error is a result. A stopped exchange ends it with the stop reason.
 */
export async function dialAuthorized(order: DialOrder): Promise<Dialled> {
  const { upstream, exchange } = order;
  const isTokenRejected = (result: Dialled) =>
    result.kind === 'failed' && result.failure.isTokenRejected === true;
  try {
    return await askAuthorized(upstream, exchange, () => new Dial(order).begin(), isTokenRejected);
  } catch (error) {
    const { stopReason } = exchange;
    const cause = stopReason === undefined ? unauthorized(error) : failure(stopReason, false);
    return { kind: 'failed', failure: cause };
  }
}

class Dial {
  readonly #order: DialOrder;
  readonly #dialled = Promise.withResolvers<Dialled>();
  #request: ClientRequest | undefined;
  #hasConnected = false;
  #stopDeadline = () => {};
  #isOver = false;

  constructor(order: DialOrder) {
    this.#order = order;
  }

  begin(): Promise<Dialled> {
    this.#begin();
    return this.#dialled.promise;
  }

  #begin(): void {
    const { exchange, upstream, timeouts, path, maxMs } = this.#order;
    if (upstream.config.kind !== 'http') {
      this.#echo();
      return;
    }
    exchange.onStop(this.#onStop);
    const { connect, headers = HANDSHAKE_MS } = timeouts;
    const ms = connect + headers;
    this.#stopDeadline = startDeadline(Math.min(ms, maxMs), () => {
      const judged = failure(late('headers'), true);
      // No model runs before the answer, so the upstream is at fault unless the retry deadline shortened its time.
      this.#fail(ms <= maxMs ? { ...judged, blame: certainBlame(judged.error.code) } : judged);
    });
    try {
      this.#request = directRequest(upstream, { method: 'GET', path, headers: this.#handshake() }, connect)
        .once('socket', (socket) => {
          this.#hasConnected = !socket.connecting;
          socket.once('connect', () => (this.#hasConnected = true));
        })
        .once('upgrade', (response, socket, head) => this.#onUpgrade(response, socket, head))
        .once('response', (response) => void this.#onResponse(response))
        .on('error', (cause) => this.#onError(cause));
      this.#request.end();
    } catch (error) {
      this.#onError(error);
    }
  }

  /** The built-in model runs in this process. */
  #echo(): void {
    const { protocols, model } = this.#order;
    const [upstream, server] = duplexPair();
    new EchoSession(server, model).begin();
    this.#open(upstream, protocols.includes('realtime') ? 'realtime' : undefined, {});
  }

  #open(upstream: Duplex, protocol: string | undefined, headers: IncomingMessage['headers']): void {
    this.#note(101, headers);
    const { exchange } = this.#order;
    const own = { ...relayedHeaders(headers), ...exchange.headers };
    const head = acceptedHead(exchange.request.headers, protocol, own);
    this.#end({ kind: 'open', head, upstream });
  }

  /** The client's Sec-WebSocket-Key, and the headers on the allow-lists. */
  #handshake(): Record<string, string> {
    const { exchange, upstream, forwarded, protocols } = this.#order;
    const { headers } = exchange.request;
    return {
      ...upstream.headersFor(headers, exchange.id, forwarded),
      ...handshakeHeaders(keyOf(exchange) ?? '', protocols),
    };
  }

  #onUpgrade(response: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { exchange, protocols } = this.#order;
    const { headers } = response;
    const problem = problemOf101(headers, keyOf(exchange), protocols);
    if (this.#isOver || problem !== undefined) {
      socket.destroy();
      this.#fail(failure(new GatewayError('upstream_invalid_response', undefined, { cause: problem }), true));
      return;
    }
    if (head.length > 0) socket.unshift(head);
    this.#open(socket, headers['sec-websocket-protocol'], headers);
  }

  /** An error response instead of a session. */
  async #onResponse(response: IncomingMessage): Promise<void> {
    const { statusCode = 0, headers } = response;
    this.#note(statusCode, headers);
    this.#stopDeadline();
    // If the body does not arrive, the status alone classifies the error.
    const body = await withDeadline(collect(response), ERROR_MS, () => late('error body')).catch(
      () => NO_BYTES,
    );
    this.#fail(withoutCredential(judgeErrorResponse(statusCode, headers, body), this.#order.upstream));
  }

  #note(status: number, headers: IncomingMessage['headers']): void {
    const { exchange, upstream } = this.#order;
    const { access } = exchange;
    access.upstream_status = status;
    access.upstream_request_id = upstream.requestIdIn(headers);
  }

  #onError(cause: unknown): void {
    const error = wrapConnectionError(cause);
    this.#fail(
      this.#hasConnected && error.code !== 'upstream_tls' ? failure(error, true) : unconnected(error),
    );
  }

  readonly #onStop = (reason: GatewayError) => this.#fail(failure(reason, false));

  #fail(cause: Failure): void {
    if (this.#isOver) return;
    this.#end({ kind: 'failed', failure: cause });
    this.#request?.destroy();
  }

  #end(result: Dialled): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stopDeadline();
    this.#order.exchange.offStop(this.#onStop);
    this.#dialled.resolve(result);
  }
}

/** The body; empty if it is too large. */
export async function collect(response: IncomingMessage): Promise<Buffer> {
  return (await wholeBody(response, MAX_ERROR_BYTES)) ?? NO_BYTES;
}

function late(which: string): GatewayError {
  return new GatewayError('upstream_timeout', undefined, { cause: `deadline: ${which}` });
}

function keyOf({ request }: Exchange): string | undefined {
  return request.headers['sec-websocket-key'];
}
