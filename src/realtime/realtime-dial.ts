// One attempt to open a session at one target: the handshake, through http-proxy-3, up to the 101 or a failure. realtime-session.ts owns
// the connection after that.
//
// http-proxy-3 gets a `Line` as the client's socket. Its relay of error responses is replaced, so that they are classified like those of
// other endpoints.
import { createHash } from 'node:crypto';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { createProxyServer } from 'http-proxy-3';
import type { Timeouts } from '../config/schema/timeouts.ts';
import { startDeadline } from '../deadline.ts';
import { GatewayError } from '../errors.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { withoutCredential } from '../proxy/answer/error-reader.ts';
import {
  certainBlame,
  type Failure,
  failure,
  judgeErrorResponse,
  relayedHeaders,
  unauthorized,
  unconnected,
} from '../upstream/error-outcome.ts';
import { TCP_KEEP_ALIVE_MS } from '../upstream/http/connection-pool.ts';
import { proxyErrorCode } from '../upstream/http/http-transport.ts';
import { askAuthorized, proxiedRequest, proxyOptions } from '../upstream/proxied-request.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { Line, type UpstreamEnd } from './client-line.ts';
import { EchoSession } from './realtime-echo.ts';

/** RFC 6455, 1.3. */
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
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
  /** Path and query at the upstream. */
  readonly path: string;
  readonly protocols: readonly string[];
  /** Name of the model at the target. */
  readonly model: string;
  /** Milliseconds until the deadline of the retries. */
  readonly maxMs: number;
}

export type Dialled =
  | { readonly kind: 'open'; readonly line: Line; readonly socket: UpstreamEnd }
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
    return await askAuthorized(upstream, exchange, () => dial(order), isTokenRejected);
  } catch (error) {
    const { stopReason } = exchange;
    const cause = stopReason === undefined ? unauthorized(error) : failure(stopReason, false);
    return { kind: 'failed', failure: cause };
  }
}

function dial(order: DialOrder): Promise<Dialled> {
  return new Promise((resolve) => new Dial(order, resolve).begin());
}

class Dial {
  readonly #order: DialOrder;
  readonly #line = new Line();
  readonly #resolve: (result: Dialled) => void;
  #request: ClientRequest | undefined;
  #hasConnected = false;
  #stopDeadline = () => {};
  #isOver = false;

  constructor(order: DialOrder, resolve: (result: Dialled) => void) {
    this.#order = order;
    this.#resolve = resolve;
  }

  begin(): void {
    const { exchange, upstream, timeouts, maxMs } = this.#order;
    const { config } = upstream;
    if (config.kind !== 'http') {
      this.#echo();
      return;
    }
    exchange.onStop(this.#onStop);
    const { connect, headers = HANDSHAKE_MS } = timeouts;
    const ms = connect + headers;
    this.#stopDeadline = startDeadline(Math.min(ms, maxMs), () => {
      const late = new GatewayError('upstream_timeout', undefined, { cause: 'deadline: headers' });
      const judged = failure(late, true);
      // No model runs before the answer, so the upstream is at fault unless the retry deadline shortened its time.
      this.#fail(ms <= maxMs ? { ...judged, blame: certainBlame(late.code) } : judged);
    });
    const proxy = createProxyServer({});
    proxy.on('proxyReqWs', (request) => this.#prepare(request));
    // The session handles errors of the line.
    proxy.on('error', () => undefined);
    const options = proxyOptions(config.base_url, connect);
    try {
      proxy.ws(this.#handshake(), this.#line, NO_BYTES, options, (error) => this.#onError(error));
    } catch (error) {
      this.#onError(error);
    }
    // Replaces the relay of error responses.
    this.#request?.removeAllListeners('response').once('response', (response) => this.#onRefusal(response));
  }

  /** The built-in model runs in this process. */
  #echo(): void {
    const { exchange, protocols, model } = this.#order;
    const protocol = protocols.includes('realtime') ? 'realtime' : undefined;
    const headers = this.#accepted(acceptOf(exchange), protocol, {});
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
    this.#note(101, {});
    this.#end({ kind: 'open', line: this.#line, socket: this.#line });
    new EchoSession(this.#line, model).begin(
      `HTTP/1.1 101 Switching Protocols\r\n${lines.join('\r\n')}\r\n\r\n`,
    );
  }

  /** The headers of the 101 to the client. */
  #accepted(
    accept: string,
    protocol: string | undefined,
    headers: IncomingMessage['headers'],
  ): Record<string, string> {
    return {
      connection: 'Upgrade',
      upgrade: 'websocket',
      'sec-websocket-accept': accept,
      ...(protocol === undefined ? {} : { 'sec-websocket-protocol': protocol }),
      ...relayedHeaders(headers),
      ...this.#order.exchange.headers,
    };
  }

  /** The handshake for the upstream: the client's Sec-WebSocket-Key and the headers on the allow-lists. */
  #handshake(): IncomingMessage {
    const { exchange, upstream, path, protocols } = this.#order;
    const { headers } = exchange.request;
    return proxiedRequest('GET', path, {
      ...upstream.headersFor(headers, exchange.id),
      connection: 'Upgrade',
      upgrade: 'websocket',
      'sec-websocket-version': '13',
      'sec-websocket-key': headers['sec-websocket-key'] ?? '',
      ...(protocols.length === 0 ? {} : { 'sec-websocket-protocol': protocols.join(', ') }),
    });
  }

  #prepare(request: ClientRequest): void {
    this.#request = request;
    request.once('socket', (socket) => {
      socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
      if (!socket.connecting) this.#hasConnected = true;
      else socket.once('connect', () => (this.#hasConnected = true));
    });
    // This listener runs before the one of http-proxy-3, which writes the head of the answer to the line.
    request.once('upgrade', (response, socket) => this.#onUpgrade(response, socket));
  }

  #onUpgrade(response: IncomingMessage, socket: Duplex): void {
    const { exchange, protocols } = this.#order;
    const { headers } = response;
    const accept = headers['sec-websocket-accept'];
    const protocol = headers['sec-websocket-protocol'];
    const problem =
      headers.upgrade?.toLowerCase() !== 'websocket' || accept !== acceptOf(exchange)
        ? 'the 101 response accepts another handshake'
        : protocol !== undefined && !protocols.includes(protocol)
          ? 'the 101 response selects a subprotocol that was not offered'
          : headers['sec-websocket-extensions'] !== undefined
            ? 'the 101 response selects an extension that was not offered'
            : undefined;
    if (this.#isOver || problem !== undefined || !(socket instanceof Socket) || accept === undefined) {
      socket.destroy();
      this.#fail(failure(new GatewayError('upstream_invalid_response', undefined, { cause: problem }), true));
      return;
    }
    // http-proxy-3 writes these headers to the line.
    response.headers = this.#accepted(accept, protocol, headers);
    this.#note(101, headers);
    this.#end({ kind: 'open', line: this.#line, socket });
  }

  #onRefusal(response: IncomingMessage): void {
    const { statusCode = 0, headers } = response;
    this.#note(statusCode, headers);
    const chunks: Buffer[] = [];
    let size = 0;
    const judge = (body: Buffer) =>
      this.#fail(withoutCredential(judgeErrorResponse(statusCode, headers, body), this.#order.upstream));
    this.#stopDeadline();
    // If the body does not arrive, the status alone classifies the error.
    this.#stopDeadline = startDeadline(ERROR_MS, () => judge(NO_BYTES));
    response.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_ERROR_BYTES) judge(NO_BYTES);
      else chunks.push(chunk);
    });
    response.once('end', () => judge(Buffer.concat(chunks)));
    response.once('error', () => judge(NO_BYTES));
  }

  #note(status: number, headers: IncomingMessage['headers']): void {
    const { exchange, upstream } = this.#order;
    const { access } = exchange;
    access.upstream_status = status;
    access.upstream_request_id = upstream.requestIdIn(headers);
  }

  #onError(cause: unknown): void {
    const error = new GatewayError(proxyErrorCode(cause), undefined, { cause });
    this.#fail(this.#hasConnected ? failure(error, true) : unconnected(error));
  }

  readonly #onStop = () => {
    const reason = this.#order.exchange.stopReason ?? new GatewayError('client_closed');
    this.#fail(failure(reason, false));
  };

  #fail(cause: Failure): void {
    if (this.#isOver) return;
    this.#end({ kind: 'failed', failure: cause });
    this.#request?.destroy();
    this.#line.destroy();
  }

  #end(result: Dialled): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stopDeadline();
    this.#order.exchange.offStop(this.#onStop);
    this.#resolve(result);
  }
}

function acceptOf({ request }: Exchange): string {
  return createHash('sha1')
    .update(`${request.headers['sec-websocket-key'] ?? ''}${GUID}`)
    .digest('base64');
}
