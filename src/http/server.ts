// The public listener: it opens an Exchange for every request, holds it against the rules of the edge, and closes it all
// down again. What happens on one connection is in connection.ts, which handler answers in router.ts.
import type http from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setImmediate as nextTurn, setTimeout as setTimer } from 'node:timers/promises';
import { GatewayError, wrapError } from '../errors.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { Tracing } from '../telemetry/traces/tracer.ts';
import { AcceptQueue } from './accept/accept-queue.ts';
import { backlogLength } from './accept/backlog.ts';
import { interceptConnections, rejectLate } from './accept/late-connection.ts';
import { boundAddress } from './client-address.ts';
import { Connection, type WaitingRoom } from './connection.ts';
import { Cors } from './cors.ts';
import { ALLOWED_METHODS, checkEdge, edgeRejectionFor } from './edge.ts';
import { Exchange } from './exchange/exchange.ts';
import { Exchanges } from './exchange/exchanges.ts';
import { answerError } from './exchange/response-writer.ts';
import { isHandshake, responseTo, type Upgrade } from './exchange/upgrade.ts';
import { createListener, type ListenerLimits, startListening } from './listener.ts';
import { exchangeBegan, exchangeEnded } from './pieces/body-pacing.ts';
import { type Handler, type Method, Router } from './router.ts';

export { MODEL_PATH, RESPONSE_PATH } from './router.ts';

export interface ServerOptions extends ListenerLimits {
  /** From the peer's address and `x-forwarded-for` to the client's address. */
  readonly addressOf: (peer: string, forwardedFor: string | undefined) => string;
  /** Called once for every exchange when its connection or answer has ended. */
  readonly onEnd: (exchange: Exchange) => void;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** Default: nothing is traced. */
  readonly tracing?: Pick<Tracing, 'begin'>;
  /** Origins of pages that browsers may call from, or `*`; asked for every request. Default: none. */
  readonly corsOrigins?: () => readonly string[];
  /** Whether the event loop is so late that a client may have left before its request is read. Default: never. */
  readonly isLate?: () => boolean;
}

/** Pipelined requests that wait, over all connections. */
const MAX_WAITING = 10_000;
/** After everything was told to end, this long until sockets are cut. */
const CUT_MS = 1_000;
/** Between two lines of the log that say the same about connections. */
const LOG_EVERY_MS = 10_000;

/** The client went away, or the socket broke: nobody is left to answer. */
const GONE = new Set(['ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ECONNABORTED']);

export class Server {
  readonly #http: http.Server;
  readonly #router: Router;
  readonly #options: ServerOptions;
  readonly #cors: Cors;
  /** Paths on which a handshake is taken. */
  readonly #upgradable = new Set<string>();
  /** Of the connections that wait to be accepted. */
  readonly acceptQueue: AcceptQueue;
  readonly #isLate: () => boolean;
  readonly #isOverloaded = () => this.acceptQueue.isOverloaded;
  readonly #connections = new Map<Socket, Connection>();
  readonly #room: WaitingRoom = { places: MAX_WAITING };
  readonly #active = new Exchanges();
  readonly #inFlightCell: { set(value: number): void };
  #draining = false;
  #dropped = 0;
  /** Answers that a drain did not wait for. */
  #cut = 0;
  #droppedLoggedAt = Number.NEGATIVE_INFINITY;
  /** Aborts when the drain is to be cut short. */
  readonly #hurry = new AbortController();

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#cors = new Cors(options.corsOrigins ?? (() => []));
    this.#isLate = options.isLate ?? (() => false);
    this.#inFlightCell = options.metrics.requestsInFlight.cell({});
    const server = createListener(
      options,
      (request) => this.#upgradable.has(this.#router.pathOf(request.url ?? '/')) && isHandshake(request),
    );
    options.metrics.overload.connectionsLimit.set(server.maxConnections);
    this.#http = server;
    const length = () => backlogLength(server.address());
    this.acceptQueue = new AcceptQueue({ length, open: () => this.#connections.size });
    this.#router = new Router((exchange, error) => this.#fail(exchange, error));
    interceptConnections(server, (socket, read) => this.#accept(socket, read));
    server.on('drop', () => this.#onDrop());
    server.on('timeout', (socket) => this.#connections.get(socket)?.onInactive(server.timeout));
    const enter = (request: IncomingMessage, response: ServerResponse) => this.#enter(request, response);
    server.on('request', enter);
    server.on('upgrade', (request, _socket, head: Buffer) => this.#enterUpgrade(request, head));
    // 100 Continue is sent by whoever reads the body, and not at all if the request is refused before.
    server.on('checkContinue', enter).on('checkExpectation', enter);
    server.on('clientError', (error: Error & { code?: string }, socket: Socket) =>
      this.#refuseMalformed(error, socket),
    );
    // Node's parser takes what follows CONNECT for another protocol, so this never becomes a request.
    server.on('connect', (_request, socket: Socket) => {
      this.#say(socket, new GatewayError('method_not_allowed', 'This is no proxy.'));
      socket.resume();
    });
  }

  /**
   * @param path an exact path; `MODEL_PATH` plus `:id` stands for every path below it
   * @param handler answers the exchange; what it throws is answered as an error, or cuts an answer that has begun
   */
  route(method: Method, path: string, handler: Handler): void {
    this.#router.add(method, path, handler);
  }

  /** Everything at a path and below it, whatever the method (of GET, POST and DELETE). */
  mount(path: string, handler: Handler): void {
    this.#router.mount(path, handler);
  }

  /**
   * A GET route on which a client may also ask for a WebSocket: then the exchange has `upgrade`.
   * @param handler as for `route`; of a handshake that it takes, it resolves when the connection has ended
   */
  routeUpgrade(path: string, handler: Handler): void {
    this.#upgradable.add(path);
    this.#router.add('GET', path, handler);
  }

  /**
   * @param port 0 takes a free one
   * @returns the address it listens on
   * @throws the system's error (EADDRINUSE, EACCES)
   */
  async listen(host: string, port: number): Promise<{ host: string; port: number }> {
    await startListening(this.#http, host, port, (error) =>
      this.#options.logger.error({ err: error }, 'the listener failed'),
    );
    return boundAddress(this.#http);
  }

  /** Milliseconds that an answer may wait for a client that does not read; for connections and requests that come. */
  set writeStall(ms: number) {
    if (this.#http.timeout === ms) return;
    this.#http.timeout = ms;
    // Node gives a connection its time when it is opened, and again with every request but the first.
    for (const connection of this.#connections.values()) connection.renewPatience(ms);
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
    const { logger } = this.#options;
    logger.info({ in_flight: this.#active.size, delay_ms: delay, timeout_ms: timeout }, 'draining');
    // Who asks in the delay is told that this connection ends, as is who waits for an answer already.
    for (const connection of this.#connections.values()) connection.announceEnd();
    await setTimer(delay, undefined, { signal: this.#hurry.signal }).catch(() => undefined);
    if (this.#http.listening) {
      const closed = new Promise<void>((resolve) => this.#http.close(() => resolve()));
      for (const connection of this.#connections.values()) connection.finish();
      const deadline = setTimeout(() => this.endAll(), this.#hurry.signal.aborted ? 0 : timeout);
      await closed;
      clearTimeout(deadline);
      // The listener counts sockets, and closes before the last of them has told its exchange.
      while (this.#active.size > 0) await nextTurn();
    }
    logger.info({ cut: this.#cut }, 'drained');
  }

  /** Ends every running exchange at once; a stream is cut so that its client can tell. */
  endAll(): void {
    this.#hurry.abort();
    this.#cut += this.#active.size;
    for (const exchange of this.#active) this.#stop(exchange, new GatewayError('draining'));
    // Whoever has not closed by now (an unread answer, a client that sends nothing) is cut off.
    setTimeout(() => {
      for (const socket of this.#connections.keys()) socket.destroy();
    }, CUT_MS).unref();
  }

  /** Ends the running exchanges for which `matches` holds; a stream is cut so that its client can tell. */
  endWhere(matches: (exchange: Exchange) => boolean, reason: GatewayError): void {
    for (const exchange of this.#active) if (matches(exchange)) this.#stop(exchange, reason);
  }

  #accept(socket: Socket, read: () => void): void {
    const serve = () => {
      this.#open(socket);
      read();
    };
    if (this.acceptQueue.accept()) rejectLate(socket, serve, this.#options.metrics);
    else serve();
  }

  #open(socket: Socket): void {
    this.#connections.set(socket, new Connection(socket, this.#room, this.#isOverloaded));
    this.#options.metrics.connections.set(this.#connections.size);
    socket.once('close', () => {
      this.#connections.delete(socket);
      this.#options.metrics.connections.set(this.#connections.size);
    });
  }

  #enter(request: IncomingMessage, response: ServerResponse): void {
    const connection = this.#connections.get(request.socket);
    if (connection === undefined) request.socket.destroy();
    else connection.enter(() => this.#begin(connection, request, response));
  }

  #enterUpgrade(request: IncomingMessage, head: Buffer): void {
    const { socket } = request;
    const connection = this.#connections.get(socket);
    if (connection === undefined) {
      socket.destroy();
      return;
    }
    // Silence has another meaning now, and its own deadline.
    socket.setTimeout(0);
    connection.handOver();
    connection.enter(() => this.#begin(connection, request, responseTo(request), { socket, head }));
  }

  #begin(
    connection: Connection,
    request: IncomingMessage,
    response: ServerResponse,
    upgrade?: Upgrade,
  ): void {
    // Node emits socket errors on the request too once the client is gone; 'close' of the response tells the same.
    request.on('error', ignore);
    response.on('error', ignore);
    try {
      const exchange = this.#exchange(connection, request, response);
      exchange.upgrade = upgrade;
      if (this.#draining) connection.announceEnd();
      if (connection.refusal !== undefined && !request.complete) this.#stop(exchange, connection.refusal);
      this.#cors.apply(exchange);
      // A session would only be cut, so while draining none begins.
      const isLate = this.#hurry.signal.aborted || (upgrade !== undefined && this.#draining);
      const rejection = isLate ? new GatewayError('draining') : checkEdge(request);
      if (rejection !== undefined) this.#refuse(exchange, rejection);
      else if (request.method === 'OPTIONS') this.#answerOptions(exchange);
      else if (!this.#isLate()) this.#router.handle(exchange);
      else connection.whenRead(() => this.#handle(exchange));
    } catch (error) {
      this.#giveUp(request, error);
    }
  }

  #handle(exchange: Exchange): void {
    if (exchange.stopReason?.code === 'client_closed') return;
    try {
      this.#router.handle(exchange);
    } catch (error) {
      this.#giveUp(exchange.request, error);
    }
  }

  /** A fault of the gateway: it costs this connection and no other. */
  #giveUp(request: IncomingMessage, error: unknown): void {
    this.#options.logger.error({ err: error }, 'a request could not be begun');
    request.socket.destroy();
  }

  #exchange(connection: Connection, request: IncomingMessage, response: ServerResponse): Exchange {
    const { addressOf, tracing } = this.#options;
    const forwarded = request.headers['x-forwarded-for'];
    const address = addressOf(
      request.socket.remoteAddress ?? '',
      typeof forwarded === 'string' ? forwarded : undefined,
    );
    const exchange = new Exchange(request, response, address);
    exchange.span = tracing?.begin(request);
    if (exchange.span !== undefined) exchange.access.trace_id = exchange.span.traceId;
    connection.take(exchange);
    this.#active.add(exchange);
    exchangeBegan();
    this.#inFlightCell.set(this.#active.size);
    response.once('close', () => this.#end(connection, exchange));
    return exchange;
  }

  #answerOptions(exchange: Exchange): void {
    if (!this.#cors.enabled) {
      this.#router.refuse(exchange);
      return;
    }
    const methods = this.#router.methodsOf(exchange.target);
    this.#cors.answerOptions(
      exchange,
      methods === undefined ? ALLOWED_METHODS : `${methods.join(', ')}, OPTIONS`,
    );
  }

  /** A request that breaks a rule of the edge also loses its connection: what follows cannot be trusted to be framed. */
  #refuse(exchange: Exchange, rejection: GatewayError): void {
    const headers: Record<string, string> = { connection: 'close' };
    if (rejection.code === 'method_not_allowed') {
      headers['allow'] = this.#router.methodsOf(exchange.target)?.join(', ') ?? ALLOWED_METHODS;
    }
    answerError(exchange, rejection, headers);
  }

  #fail(exchange: Exchange, error: unknown): void {
    const wrapped = wrapError(error, 'internal_error');
    if (wrapped.code === 'internal_error') {
      this.#options.logger.error({ err: error, request_id: exchange.id }, 'a handler failed');
    }
    if (exchange.response.headersSent) {
      exchange.error ??= wrapped;
      exchange.access.outcome = wrapped.code;
      // Also after a complete answer: then there is nothing to cut.
      if (!exchange.isEnding && !exchange.response.writableEnded) exchange.response.destroy();
    } else answerError(exchange, wrapped);
  }

  #stop(exchange: Exchange, reason: GatewayError): void {
    try {
      exchange.stop(reason);
    } catch (error) {
      this.#options.logger.error({ err: error, request_id: exchange.id }, 'a request could not be stopped');
    }
  }

  #end(connection: Connection, exchange: Exchange): void {
    const { onEnd, logger } = this.#options;
    if (!exchange.answered) this.#stop(exchange, new GatewayError('client_closed'));
    this.#active.delete(exchange);
    exchangeEnded(exchange);
    this.#inFlightCell.set(this.#active.size);
    try {
      onEnd(exchange);
    } catch (error) {
      logger.error({ err: error }, 'the access log failed');
    }
    connection.leave();
  }

  /** What llhttp refuses never becomes a request; Node's own answer would have no body. */
  #refuseMalformed(error: Error & { code?: string }, socket: Socket): void {
    const connection = this.#connections.get(socket);
    if (connection === undefined || GONE.has(error.code ?? '')) {
      socket.destroy();
      return;
    }
    // Each further piece of what could not be parsed is reported again.
    if (connection.refusal !== undefined) return;
    const { current } = connection;
    const unfinished = current !== undefined && !current.request.complete;
    // Nothing was ever asked (a connection opened ahead of need, a probe of the port), or the client ended in the middle of
    // its body: it left.
    if (socket.bytesRead === 0 || (unfinished && error.code === 'HPE_INVALID_EOF_STATE')) {
      socket.destroy();
      return;
    }
    const rejection = edgeRejectionFor(error.code);
    if (unfinished) {
      // Its body cannot be read to the end. Whoever reads it answers, if that has not been done.
      this.#stop(current, rejection);
    } else this.#say(socket, rejection);
  }

  #say(socket: Socket, rejection: GatewayError): void {
    if (this.#connections.get(socket)?.refuse(rejection) === true) {
      this.#options.metrics.recordUnread('malformed', rejection);
    }
  }

  #onDrop(): void {
    this.#dropped += 1;
    this.#options.metrics.connectionsDropped.inc();
    const now = performance.now();
    if (now - this.#droppedLoggedAt < LOG_EVERY_MS) return;
    this.#droppedLoggedAt = now;
    const limit = this.#http.maxConnections;
    this.#options.logger.warn(
      { dropped: this.#dropped, limit },
      'connections are refused: too many are open',
    );
  }
}

function ignore(): void {}
