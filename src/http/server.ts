// The public listener: Node's HTTP server with the edge rules in front of Fastify's router. It opens an Exchange for
// every request, serves one request per connection at a time, and closes it all down again. It knows no route.
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as setTimer } from 'node:timers/promises';
import { type FastifyInstance, fastify } from 'fastify';
import { errorBody, GatewayError, wrapError } from '../errors.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { boundAddress } from './address.ts';
import { answerError } from './answer.ts';
import { ALLOWED_METHODS, checkEdge } from './edge.ts';
import { Exchange } from './exchange.ts';

export interface ServerOptions {
  /** From the peer's address and `x-forwarded-for` to the client's address. */
  readonly addressOf: (peer: string, forwardedFor: string | undefined) => string;
  /** Called once for every exchange when its connection or answer has ended. */
  readonly onEnd: (exchange: Exchange) => void;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** Milliseconds that an answer may wait for a client that does not read. Default 60 s. */
  readonly writeStall?: number;
}

const MAX_HEADER_BYTES = 16 * 1024;
const HEADERS_TIMEOUT_MS = 10_000;
/** Longer than the 60 s after which common load balancers drop idle connections: whoever closes last, loses no request. */
const KEEP_ALIVE_MS = 75_000;
/** A client that takes nothing of its answer for this long has left without saying so. */
const WRITE_STALL_MS = 60_000;
const REQUESTS_PER_CONNECTION = 1_000;
const MAX_CONNECTIONS = 16_384;

/** Requests that arrived on a connection before the one in front of them was answered. */
interface Connection {
  current: Exchange | undefined;
  readonly waiting: (() => void)[];
}

export class Server {
  readonly #app: FastifyInstance;
  /** Path → methods, to tell a wrong method from a wrong path. */
  readonly #methods = new Map<string, string[]>();
  readonly #http: http.Server;
  readonly #options: ServerOptions;
  readonly #connections = new Map<Socket, Connection>();
  readonly #active = new Set<Exchange>();
  #draining = false;
  /** Aborts when the drain is to be cut short. */
  readonly #hurry = new AbortController();

  constructor(options: ServerOptions) {
    this.#options = options;
    const server = http.createServer({
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: HEADERS_TIMEOUT_MS,
      // The body has its own deadline between pieces (body.ts); a large one on a slow line is no fault.
      requestTimeout: 0,
      keepAliveTimeout: KEEP_ALIVE_MS,
      connectionsCheckingInterval: 1_000,
      insecureHTTPParser: false,
      // Checked at the edge, where the refusal gets a body.
      requireHostHeader: false,
      noDelay: true,
    });
    // Otherwise Node truncates silently; the edge counts and refuses.
    server.maxHeadersCount = 0;
    server.maxRequestsPerSocket = REQUESTS_PER_CONNECTION;
    server.maxConnections = MAX_CONNECTIONS;
    // A client that half-closed may still read its answer. Node's property for this has no type.
    Object.assign(server, { httpAllowHalfOpen: true });
    this.#http = server;

    this.#app = fastify({
      serverFactory: (route) => {
        const enter = (request: IncomingMessage, response: ServerResponse) =>
          this.#enter(request, response, route);
        server.on('request', enter);
        // 100 Continue is sent by whoever reads the body, and not at all if the request is refused before.
        server.on('checkContinue', enter);
        server.on('checkExpectation', enter);
        return server;
      },
      rewriteUrl: (request) => routePath(request.url ?? '/'),
      clientErrorHandler: (error, socket) => this.#refuseMalformed(error, socket),
      frameworkErrors: (error, request) =>
        answerError(Exchange.of(request.raw), wrapError(error, 'invalid_http')),
      return503OnClosing: false,
      exposeHeadRoutes: false,
      logger: false,
    });
    // Bodies are read by the handlers, as bytes.
    this.#app.removeAllContentTypeParsers();
    this.#app.addContentTypeParser('*', (_request, _payload, done) => done(null));
    this.#app.setErrorHandler((error, request, reply) => {
      reply.hijack();
      this.#fail(Exchange.of(request.raw), error);
    });
    this.#app.setNotFoundHandler((request, reply) => {
      reply.hijack();
      const methods = this.#methods.get(request.url);
      if (methods === undefined) answerError(Exchange.of(request.raw), new GatewayError('unknown_url'));
      else {
        const allow = methods.join(', ');
        const refusal = new GatewayError('method_not_allowed', `This URL is for ${allow} requests.`);
        answerError(Exchange.of(request.raw), refusal, { allow });
      }
    });
    server.on('connection', (socket: Socket) => this.#open(socket));
    server.setTimeout(options.writeStall ?? WRITE_STALL_MS, (socket) => this.#onInactive(socket));
  }

  /**
   * @param path an exact path; `MODEL_PATH` plus `:id` stands for every path below it
   * @param handler answers the exchange; what it throws is answered as an error, or cuts an answer that has begun
   */
  route(method: 'GET' | 'POST', path: string, handler: (exchange: Exchange) => void | Promise<void>): void {
    const methods = this.#methods.get(path);
    if (methods === undefined) this.#methods.set(path, [method]);
    else methods.push(method);
    this.#app.route({
      method,
      url: path,
      handler: async (request, reply) => {
        reply.hijack();
        const exchange = Exchange.of(request.raw);
        exchange.access.route = path;
        try {
          await handler(exchange);
        } catch (error) {
          this.#fail(exchange, error);
        }
      },
    });
  }

  /**
   * @param port 0 takes a free one
   * @returns the address it listens on
   * @throws the system's error (EADDRINUSE, EACCES)
   */
  async listen(host: string, port: number): Promise<{ host: string; port: number }> {
    await this.#app.listen({ host, port, backlog: 1024, listenTextResolver: () => '' });
    return boundAddress(this.#http);
  }

  get draining(): boolean {
    return this.#draining;
  }

  /** Answers still under way. */
  get inFlight(): number {
    return this.#active.size;
  }

  /**
   * Says that it is going, waits until load balancers have seen it, stops accepting, lets running answers end.
   * @param delay milliseconds in which it still accepts
   * @param timeout milliseconds after that, at which what still runs is ended, truthfully
   */
  async drain(delay: number, timeout: number): Promise<void> {
    this.#draining = true;
    await setTimer(delay, undefined, { signal: this.#hurry.signal }).catch(() => undefined);
    const closed = new Promise<void>((resolve) => this.#http.close(() => resolve()));
    this.#http.closeIdleConnections();
    const deadline = setTimeout(() => this.endAll(), this.#hurry.signal.aborted ? 0 : timeout);
    await closed;
    clearTimeout(deadline);
    await this.#app.close();
  }

  /** Ends every running exchange at once; a stream is cut so that its client can tell. */
  endAll(): void {
    this.#hurry.abort();
    for (const exchange of this.#active) exchange.stop(new GatewayError('draining'));
    // Whoever has not closed by now (an unread answer, a client that sends nothing) is cut off.
    setTimeout(() => this.#http.closeAllConnections(), 1_000).unref();
  }

  #open(socket: Socket): void {
    const connection: Connection = { current: undefined, waiting: [] };
    this.#connections.set(socket, connection);
    this.#options.metrics.connections.set(this.#connections.size);
    socket.on('end', () => this.#probe(connection));
    socket.once('close', () => {
      this.#connections.delete(socket);
      this.#options.metrics.connections.set(this.#connections.size);
      // Requests that never began have no answer to miss.
      connection.waiting.length = 0;
    });
  }

  /** No byte moved on this connection for a while: an idle one is closed, and so is one whose answer is not read. */
  #onInactive(socket: Socket): void {
    const working = this.#connections.get(socket)?.current !== undefined;
    if (working && socket.writableLength === 0) socket.setTimeout(this.#http.timeout);
    else socket.destroy();
  }

  /**
   * The client sent FIN: it either left or half-closed and still reads. Only a write can tell, so send the one thing that
   * HTTP allows before an answer; a client that left replies with RST. Once an answer streams, its own bytes do this.
   */
  #probe({ current }: Connection): void {
    if (current === undefined || current.response.headersSent || current.request.httpVersionMinor === 0)
      return;
    current.response.writeProcessing();
  }

  /** At most one request is in flight on a connection; pipelined ones wait their turn, and no more of them are read. */
  #enter(request: IncomingMessage, response: ServerResponse, route: Route): void {
    const connection = this.#connections.get(request.socket);
    if (connection === undefined) {
      request.socket.destroy();
    } else if (connection.current === undefined) {
      this.#begin(connection, request, response, route);
    } else {
      connection.waiting.push(() => this.#begin(connection, request, response, route));
      request.socket.pause();
    }
  }

  #begin(connection: Connection, request: IncomingMessage, response: ServerResponse, route: Route): void {
    const { addressOf, metrics } = this.#options;
    const forwarded = request.headers['x-forwarded-for'];
    const peer = request.socket.remoteAddress ?? '';
    const exchange = new Exchange(
      request,
      response,
      addressOf(peer, typeof forwarded === 'string' ? forwarded : undefined),
    );
    connection.current = exchange;
    this.#active.add(exchange);
    metrics.requestsInFlight.set(this.#active.size);
    response.once('close', () => this.#end(connection, exchange));
    // Node emits socket errors on the request too once the client is gone; 'close' of the response tells the same.
    request.on('error', ignore);
    response.on('error', ignore);
    if (this.#draining) response.shouldKeepAlive = false;

    const refusal = checkEdge(request);
    if (refusal !== undefined) this.#refuse(exchange, refusal);
    else if (request.headers.expect !== undefined && !/^100-continue$/i.test(request.headers.expect)) {
      this.#refuse(exchange, new GatewayError('expectation_failed'));
    } else route(request, response);
  }

  #fail(exchange: Exchange, error: unknown): void {
    const wrapped = wrapError(error, 'internal_error');
    if (wrapped.code === 'internal_error') {
      this.#options.logger.error({ err: error, request_id: exchange.id }, 'a handler failed');
    }
    if (exchange.response.headersSent) {
      exchange.error ??= wrapped;
      exchange.access.outcome = wrapped.code;
      exchange.response.destroy();
    } else answerError(exchange, wrapped);
  }

  /** A request that breaks a rule of the edge also loses its connection: what follows cannot be trusted to be framed. */
  #refuse(exchange: Exchange, refusal: GatewayError): void {
    const headers: Record<string, string> = { connection: 'close' };
    if (refusal.code === 'method_not_allowed') headers['allow'] = ALLOWED_METHODS;
    answerError(exchange, refusal, headers);
  }

  #end(connection: Connection, exchange: Exchange): void {
    const { metrics, onEnd, logger } = this.#options;
    if (!exchange.response.writableFinished) exchange.stop(new GatewayError('client_closed'));
    this.#active.delete(exchange);
    metrics.requestsInFlight.set(this.#active.size);
    try {
      onEnd(exchange);
    } catch (error) {
      logger.error({ err: error }, 'the access log failed');
    }
    connection.current = undefined;
    const next = connection.waiting.shift();
    if (next !== undefined) next();
    else if (!exchange.request.socket.destroyed) exchange.request.socket.resume();
  }

  /** What llhttp refuses never becomes a request; Node's own answer would have no body. */
  #refuseMalformed(error: Error & { code?: string }, socket: Socket): void {
    if (socket.destroyed || error.code === 'ECONNRESET') {
      socket.destroy();
      return;
    }
    // An answer is under way on this connection: anything written now would be spliced into it.
    if (this.#connections.get(socket)?.current !== undefined || !socket.writable) {
      socket.destroy();
      return;
    }
    const refusal =
      error.code === 'HPE_HEADER_OVERFLOW'
        ? new GatewayError('headers_too_large')
        : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
          ? new GatewayError('request_timeout')
          : new GatewayError('invalid_http');
    const body = errorBody(refusal);
    const head = [
      `HTTP/1.1 ${refusal.status} ${http.STATUS_CODES[refusal.status]}`,
      'content-type: application/json',
      `content-length: ${Buffer.byteLength(body)}`,
      'connection: close',
    ];
    socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
    this.#options.metrics.requests.inc({ route: 'malformed', status: refusal.status });
    setTimeout(() => socket.destroy(), 1_000).unref();
  }
}

type Route = (request: IncomingMessage, response: ServerResponse) => void;

function ignore(): void {}

/** Where a model's id stands in the path: it may hold `/`, `:` and percent-encoding, so it is not the router's to read. */
export const MODEL_PATH = '/v1/models/';

/**
 * The path to route on: without the query, never decoded. An encoded letter elsewhere is another path, which does not
 * exist, so that no two spellings reach one handler.
 */
function routePath(url: string): string {
  const query = url.indexOf('?');
  const path = query === -1 ? url : url.slice(0, query);
  if (path.startsWith(MODEL_PATH) && path.length > MODEL_PATH.length) return `${MODEL_PATH}:id`;
  return path.includes('%') ? '/-/unknown' : path;
}
