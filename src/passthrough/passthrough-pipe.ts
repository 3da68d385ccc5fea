// Pipes one call to an upstream through http-proxy-3, up to the head of the answer. passthrough-endpoint.ts decides what may be sent and
// which parts of the answer are returned.
import { type ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { Readable, Transform, type TransformCallback } from 'node:stream';
import { startDeadline } from '../deadline.ts';
import { GatewayError, wrapError } from '../errors.ts';
import { bodyTooLarge } from '../http/body/read-body.ts';
import type { Exchange } from '../http/exchange/exchange.ts';
import { LARGE_BODY } from '../http/pieces/body-buffer.ts';
import { BodyPacing } from '../http/pieces/body-pacing.ts';
import { wrapConnectionError } from '../upstream/http/transport-error.ts';
import { TCP_KEEP_ALIVE_MS } from '../upstream/outbound/dialer.ts';
import type { Upstream } from '../upstream/upstream.ts';

/** Maximum silence of a client within a body in milliseconds, as for other bodies. */
const SILENCE_MS = 30_000;
/** How long a call that creates something may take after its client has left. */
const KEPT_MS = 10_000;

/** Loads what sends a call. It brings HTTP/2, which nothing else here needs, so a start does not wait for it. */
export const loadProxy = () => import('http-proxy-3');

interface PipeOrder {
  readonly exchange: Exchange;
  readonly upstream: Upstream;
  readonly method: string;
  /** Path and query at the upstream. */
  readonly path: string;
  /** Without framing headers, which are added here. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: PipedBody;
  /** The call goes on when the client leaves: what it creates has to be known. Default false. */
  readonly isKept?: boolean | undefined;
}

/** The client's body, which is streamed. */
export interface StreamedBody {
  /** As announced, in bytes. */
  readonly size: number | undefined;
  /** Maximum size in bytes. */
  readonly limit: number;
  /** Called before the last bytes; an error ends the call. */
  readonly confirm: () => unknown;
}

/** @throws GatewayError request_too_large for an announced size */
export function streamedBody(
  { request }: Exchange,
  limit: number,
  confirm: StreamedBody['confirm'],
): StreamedBody {
  const { 'content-length': declared } = request.headers;
  const size = declared === undefined ? undefined : Number(declared);
  if (size !== undefined && size > limit) throw bodyTooLarge(limit);
  return { size, limit, confirm };
}

/** The whole body, a body that is made while it is sent, or the client's. */
export type PipedBody = Buffer | Readable | StreamedBody;

/** An answer whose head has arrived. */
export interface PipedAnswer {
  readonly response: IncomingMessage;
  /** Maximum milliseconds between two pieces. */
  readonly idle: number;
  /** As of the order. */
  readonly isKept: boolean;
  /** Ends the call; without effect on an answer that has ended. */
  abort(): void;
}

/** @throws GatewayError (rejects) of the upstream or of the client's body, or the stop reason of the exchange */
export function pipe(order: PipeOrder): Promise<PipedAnswer> {
  return new Pipe(order).begin();
}

/** Counts the client's bytes, enforces the limit, has the last ones confirmed, and records when they arrived. */
class Counted extends Transform {
  readonly #body: StreamedBody;
  readonly #onFault: (error: unknown) => void;
  readonly #work = new BodyPacing();
  size = 0;
  movedAt = performance.now();

  constructor(body: StreamedBody, onFault: (error: unknown) => void) {
    super();
    this.#body = body;
    this.#onFault = onFault;
    this.on('error', () => undefined);
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.size += chunk.length;
    this.movedAt = performance.now();
    if (this.size > this.#body.limit) {
      this.#onFault(bodyTooLarge(this.#body.limit));
      return;
    }
    this.#work.record(chunk.length);
    if (this.size === this.#body.size) this.#confirm(() => done(null, chunk));
    else if (this.#work.isDue) this.#work.pause(() => done(null, chunk));
    else done(null, chunk);
  }

  override _flush(done: TransformCallback): void {
    this.#confirm(() => done());
  }

  #confirm(then: () => void): void {
    Promise.resolve().then(this.#body.confirm).then(then, this.#onFault);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#work.end();
    done(error);
  }
}

class Pipe {
  readonly #order: PipeOrder;
  readonly #answered = Promise.withResolvers<PipedAnswer>();
  #request: ClientRequest | undefined;
  #counted: Counted | undefined;
  #stopWaiting = () => {};
  #isOver = false;
  #isAborted = false;

  constructor(order: PipeOrder) {
    this.#order = order;
  }

  begin(): Promise<PipedAnswer> {
    this.#send().catch((cause: unknown) => this.#fail(wrapError(cause, 'internal_error')));
    return this.#answered.promise;
  }

  async #send(): Promise<void> {
    const { exchange, upstream, body } = this.#order;
    const { config } = upstream;
    const { connect, headers = config.timeouts.total, idle } = config.timeouts;
    if (exchange.stopReason !== undefined) {
      this.#fail(exchange.stopReason);
      return;
    }
    if (config.kind !== 'http') {
      this.#fail(new GatewayError('internal_error', undefined, { cause: 'a builtin' }));
      return;
    }
    exchange.onStop(this.#onStop);
    const buffer = this.#body(idle);
    const { createProxyServer } = await loadProxy();
    if (this.#isOver) return;
    const proxy = createProxyServer({});
    proxy.on('proxyReq', (request) => {
      this.#request = request;
      if (this.#isAborted) request.destroy();
      request.once('socket', (socket) => socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS));
      // The request is sent; now wait for the answer.
      request.once('finish', () => this.#await(headers));
    });
    proxy.on('proxyRes', (response) => this.#onHead(response));
    proxy.on('error', this.#onError);
    proxy.on('econnreset', this.#onError);
    const options = {
      target: new URL(config.base_url).origin,
      changeOrigin: true,
      prependPath: false,
      // Keep the path unchanged instead of parsing and rebuilding it.
      toProxy: true,
      ...(upstream.agent === undefined ? {} : { agent: upstream.agent }),
      // http-proxy-3 would forward every header, and would leave the client waiting after a cut answer.
      selfHandleResponse: true,
      connectTimeout: connect,
      buffer,
    };
    if (Buffer.isBuffer(body)) this.#await(connect + headers);
    else if (body instanceof Readable) this.#await(config.timeouts.total);
    const request = this.#facade();
    // http-proxy-3 needs a response, but nothing is written to it: `selfHandleResponse` is set.
    proxy.web(request, new ServerResponse(request), options, this.#onError);
  }

  /** A request that the gateway built, so that no other header of the client is forwarded. */
  #facade(): IncomingMessage {
    const { exchange, method, path, headers, body } = this.#order;
    const request = new IncomingMessage(new Socket());
    request.method = method;
    request.url = path;
    request.httpVersion = '1.1';
    request.httpVersionMajor = 1;
    request.httpVersionMinor = 1;
    request.headers = { ...headers, ...framing(exchange, body) };
    return request;
  }

  #body(idle: number): Readable {
    const { exchange, body } = this.#order;
    if (Buffer.isBuffer(body)) return Readable.from(body.length === 0 ? [] : [body]);
    if (body instanceof Readable) return body.on('error', this.#onBodyError);
    const counted = new Counted(body, (error) => this.#fail(wrapError(error, 'internal_error')));
    this.#counted = counted;
    const { request, response } = exchange;
    // RFC 9110, 10.1.1: sent only now, when the request can no longer be rejected before its body.
    if (request.headers.expect !== undefined && request.httpVersionMinor === 1) response.writeContinue();
    request.pipe(counted);
    this.#watch(counted, idle);
    return counted;
  }

  /** Fails the call if the client stops sending or the upstream stops reading. */
  #watch(counted: Counted, idle: number): void {
    const isFull = counted.readableLength > 0 || counted.writableFinished;
    const left = counted.movedAt + (isFull ? idle : SILENCE_MS) - performance.now();
    if (left <= 0) this.#fail(new GatewayError(isFull ? 'upstream_timeout' : 'request_timeout'));
    else this.#wait(Math.min(Math.ceil(left), 1000), () => this.#watch(counted, idle));
  }

  #await(ms: number): void {
    if (this.#isOver) return;
    this.#wait(ms, () =>
      this.#fail(new GatewayError('upstream_timeout', undefined, { cause: 'deadline: headers' })),
    );
  }

  /** Replaces the previous deadline. */
  #wait(ms: number, then: () => void): void {
    this.#stopWaiting();
    this.#stopWaiting = startDeadline(ms, then);
  }

  #onHead(response: IncomingMessage): void {
    if (this.#isOver) return;
    this.#end();
    response.on('error', () => undefined);
    const abort = () => this.#abort();
    const isWhole = this.#counted === undefined || this.#order.exchange.request.complete;
    // An upstream that answers before the end of the body needs no more of it.
    if (!isWhole) this.#release();
    const { upstream, isKept = false } = this.#order;
    this.#answered.resolve({ response, abort, idle: upstream.config.timeouts.idle, isKept });
  }

  readonly #onStop = (reason: GatewayError): void => {
    if (this.#order.isKept !== true || reason.code !== 'client_closed') this.#fail(reason);
    else this.#wait(KEPT_MS, () => this.#fail(reason));
  };

  readonly #onError = (cause: Error) => {
    this.#fail(wrapConnectionError(cause));
  };

  /** The body that is made here comes from another call, which failed. */
  readonly #onBodyError = (cause: Error) => {
    this.#fail(wrapError(cause, 'upstream_invalid_response'));
  };

  readonly #fail = (error: GatewayError): void => {
    if (this.#isOver) return;
    this.#end();
    this.#abort();
    this.#answered.reject(error);
  };

  #end(): void {
    this.#isOver = true;
    this.#stopWaiting();
    const { exchange } = this.#order;
    exchange.offStop(this.#onStop);
    if (this.#counted === undefined) return;
    exchange.access.bytes_in = this.#counted.size;
    exchange.isLarge = this.#counted.size > LARGE_BODY;
  }

  #abort(): void {
    this.#isAborted = true;
    this.#release();
    this.#request?.destroy();
  }

  /** Detaches the client's body; the code that answers discards the rest. */
  #release(): void {
    if (this.#counted === undefined) return;
    this.#order.exchange.request.unpipe(this.#counted);
    this.#counted.destroy();
  }
}

function framing({ request }: Exchange, body: PipeOrder['body']): Record<string, string> {
  if (Buffer.isBuffer(body)) return { 'content-length': String(body.length) };
  const length = body instanceof Readable ? undefined : request.headers['content-length'];
  return length === undefined ? { 'transfer-encoding': 'chunked' } : { 'content-length': length };
}
