// The public listener: opens an Exchange for every request, applies the edge checks, and drains for a graceful shutdown.
// connection.ts handles single connections, router.ts routes.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { ServerCertificate } from '../config/schema/listener-schema.ts';
import { GatewayError, wrapError } from '../errors.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { AcceptQueue } from './accept/accept-queue.ts';
import { ConnectionIntake } from './accept/connection-intake.ts';
import { ConnectionShedding } from './accept/connection-shedding.ts';
import { EarlyRejection } from './accept/early-rejection.ts';
import { boundAddress } from './client-address.ts';
import { Connection, ListenerState } from './connection.ts';
import { Cors } from './cors.ts';
import { Drain } from './drain.ts';
import { checkEdge } from './edge.ts';
import { toOriginForm } from './exchange/absolute-form.ts';
import type { Exchange } from './exchange/exchange.ts';
import { answerOrCut } from './exchange/response-writer.ts';
import { RunningExchanges, type RunningExchangesOptions } from './exchange/running-exchanges.ts';
import { isHandshake, responseTo, type Upgrade } from './exchange/upgrade.ts';
import type { IncomingRequest } from './incoming-request.ts';
import { createListener, type Listener, type ListenerLimits, startListening } from './listener.ts';
import { rejectMalformed } from './malformed-requests.ts';
import type { DecodeQueue } from './pieces/decode-queue.ts';
import { type Handler, type Method, Router } from './router.ts';

export interface ServerOptions extends ListenerLimits, RunningExchangesOptions {
  /** Maps the peer address and `x-forwarded-for` to the client address. */
  readonly addressOf: (peer: string, forwardedFor: string | undefined) => string;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** Serves HTTPS with this pair. Default: HTTP. */
  readonly certificate?: ServerCertificate;
  /** Default: no page of another origin has access. */
  readonly cors?: Cors;
  /** Whether the event loop is so late that a client may have left before its request is read. Default: never. */
  readonly isLate?: () => boolean;
}

export class Server {
  readonly #http: Listener;
  readonly #router: Router;
  readonly #options: ServerOptions;
  readonly #cors: Cors;
  /** Paths that accept WebSocket handshakes. */
  readonly #upgradable = new Set<string>();
  readonly #intake: ConnectionIntake;
  readonly #connections = new Map<Socket, Connection>();
  readonly #shared = new ListenerState(() => this.acceptQueue.isOverloaded);
  readonly #active: RunningExchanges;
  readonly #early: EarlyRejection;
  readonly #shedding = new ConnectionShedding();
  readonly #drain: Drain;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#cors = options.cors ?? new Cors(() => []);
    this.#active = new RunningExchanges(options);
    this.#early = new EarlyRejection(this.#shared.decodeQueue, options.metrics);
    const upgrades = (request: IncomingMessage) =>
      this.#upgradable.has(this.#router.pathOf(toOriginForm(request)));
    const server = createListener(options, (request) => upgrades(request) && isHandshake(request));
    options.metrics.overload.connectionsLimit.set(server.maxConnections);
    this.#http = server;
    this.#router = new Router((exchange, error) => this.#fail(exchange, error));
    const { certificate, logger, metrics } = options;
    this.#intake = new ConnectionIntake(server, {
      ...options,
      certificate,
      early: this.#early,
      open: () => this.#connections.size,
      onOpen: (socket) => this.#open(socket),
      onHandshakes: () => this.#countConnections(),
    });
    server.on('timeout', (socket) => this.#connections.get(socket)?.onInactive(server.timeout));
    const enter = (request: IncomingRequest, response: ServerResponse) => this.#enter(request, response);
    // The reader of the body sends 100 Continue; a request rejected before gets none.
    server.on('request', enter).on('checkContinue', enter).on('checkExpectation', enter);
    server.on('upgrade', (request, _socket, head: Buffer) => this.#enterUpgrade(request, head));
    const shared = { connections: this.#connections, active: this.#active };
    rejectMalformed(server, { ...shared, metrics });
    this.#drain = new Drain({ ...shared, http: server, intake: this.#intake, logger });
  }

  /**
   * @param path exact path; `MODEL_PATH` plus `:id` matches every path below it
   * @param handler answers the exchange; if it throws, an error response is sent, or a started response is cut
   */
  route(method: Method, path: string, handler: Handler): void {
    this.#router.add(method, path, handler);
  }

  /** @param answer as for `Router.onUnknown` */
  onUnknown(answer: (exchange: Exchange, error: GatewayError) => boolean): void {
    this.#router.onUnknown(answer);
  }

  /** Routes a path and everything below it, for GET, POST and DELETE. */
  mount(path: string, handler: Handler): void {
    this.#router.mount(path, handler);
  }

  /**
   * A GET route that also accepts WebSocket handshakes; `exchange.upgrade` is then set.
   * @param handler as for `route`; for a handshake that it accepts, it resolves when the connection has ended
   */
  routeUpgrade(path: string, handler: Handler): void {
    this.#upgradable.add(path);
    this.#router.add('GET', path, handler);
  }

  /**
   * @param port 0 picks a free one
   * @returns the bound address
   * @throws the system's error (EADDRINUSE, EACCES)
   */
  async listen(host: string, port: number): Promise<{ host: string; port: number }> {
    await startListening(this.#http, host, port, (error) =>
      this.#options.logger.error({ err: error }, 'the listener failed'),
    );
    return boundAddress(this.#http);
  }

  get acceptQueue(): AcceptQueue {
    return this.#intake.queue;
  }

  get decodeQueue(): DecodeQueue {
    return this.#shared.decodeQueue;
  }

  /** The certificate and key of TLS handshakes from now on. @throws the system's error; then nothing has changed */
  set certificate(pair: ServerCertificate) {
    this.#intake.certificate = pair;
  }

  /** Milliseconds that a response may wait for a client that does not read; applies to new connections and requests. */
  set writeStall(ms: number) {
    if (this.#http.timeout === ms) return;
    this.#http.timeout = ms;
    // Node applies the timeout to a new connection, and again with every request but the first.
    for (const connection of this.#connections.values()) connection.updateTimeout(ms);
  }

  get draining(): boolean {
    return this.#drain.hasBegun;
  }

  /** Open client connections, without those that `shed` closes. */
  get connections(): number {
    return this.#connections.size - this.#shedding.leaving;
  }

  /** Closes all connections but `keep` behind the next responses, announced by `connection: close`: their clients open others. */
  shed(keep: number): void {
    this.#shedding.order(keep);
  }

  /** Running exchanges. */
  get inFlight(): number {
    return this.#active.size;
  }

  /**
   * Graceful shutdown: reports draining, waits for load balancers to notice, stops accepting, and lets running responses complete.
   * @param delay milliseconds for which it still accepts
   * @param timeout milliseconds after the delay, at which remaining exchanges are ended with an error
   */
  drain(delay: number, timeout: number): Promise<void> {
    return this.#drain.run(delay, timeout);
  }

  /** Ends every running exchange at once; streams are cut visibly. */
  endAll(): void {
    this.#drain.cut();
  }

  /** Ends the running exchanges that match; streams are cut visibly. */
  endWhere(matches: (exchange: Exchange) => boolean, reason: GatewayError): void {
    for (const exchange of this.#active) if (matches(exchange)) this.#active.stop(exchange, reason);
  }

  #open(socket: Socket): void {
    const connection = new Connection(socket, this.#shared);
    this.#connections.set(socket, connection);
    if (this.#drain.isClosing) connection.finish();
    this.#countConnections();
    socket.once('close', () => {
      this.#connections.delete(socket);
      this.#shedding.onClose(connection);
      this.#countConnections();
    });
  }

  #countConnections(): void {
    this.#options.metrics.connections.set(this.#connections.size + this.#intake.handshakes);
  }

  #enter(request: IncomingRequest, response: ServerResponse): void {
    toOriginForm(request);
    const connection = this.#connections.get(request.socket);
    if (connection === undefined) return void request.socket.destroy();
    const mayReject = connection.current === undefined && !this.#drain.hasBegun;
    if (mayReject && this.#early.rejects(request, response)) return;
    connection.enter(() => this.#begin(connection, request, response));
  }

  #enterUpgrade(request: IncomingRequest, head: Buffer): void {
    const { socket } = request;
    const connection = this.#connections.get(socket);
    if (connection === undefined) return void socket.destroy();
    // The HTTP inactivity timeout does not apply to a WebSocket, which has its own.
    socket.setTimeout(0);
    connection.handOver();
    connection.enter(() => this.#begin(connection, request, responseTo(request), { socket, head }));
  }

  #begin(
    connection: Connection,
    request: IncomingRequest,
    response: ServerResponse,
    upgrade?: Upgrade,
  ): void {
    // Node also emits socket errors here; the response's 'close' event handles them.
    request.on('error', () => undefined);
    response.on('error', () => undefined);
    try {
      const exchange = this.#exchange(connection, request, response);
      exchange.upgrade = upgrade;
      if (this.#drain.hasBegun) connection.announceEnd();
      else this.#shedding.onRequest(connection, this.#connections.size, this.#shared.isOverloaded);
      if (connection.rejection !== undefined && !request.complete)
        this.#active.stop(exchange, connection.rejection);
      this.#cors.apply(exchange);
      // While draining, a new WebSocket session would only be cut.
      const isTooLate = this.#drain.isCut || (upgrade !== undefined && this.#drain.hasBegun);
      const rejection = isTooLate ? new GatewayError('draining') : checkEdge(request);
      if (rejection !== undefined) this.#router.rejectFraming(exchange, rejection);
      else if (request.method === 'OPTIONS') this.#router.answerOptions(exchange, this.#cors);
      else if (this.#options.isLate?.() !== true) this.#router.handle(exchange);
      else connection.whenRead(() => this.#handle(exchange));
    } catch (error) {
      this.#abandon(request, error);
    }
  }

  #handle(exchange: Exchange): void {
    if (exchange.stopReason?.code === 'client_closed') return;
    try {
      this.#router.handle(exchange);
    } catch (error) {
      this.#abandon(exchange.request, error);
    }
  }

  /** A bug in the gateway: it costs this connection only. */
  #abandon(request: IncomingMessage, error: unknown): void {
    this.#options.logger.error({ err: error }, 'failed to start a request; closing its connection');
    request.socket.destroy();
  }

  #exchange(connection: Connection, request: IncomingMessage, response: ServerResponse): Exchange {
    const forwarded = request.headers['x-forwarded-for'];
    const address = this.#options.addressOf(
      request.socket.remoteAddress ?? '',
      typeof forwarded === 'string' ? forwarded : undefined,
    );
    const exchange = this.#active.begin(request, response, address, () => connection.leave());
    connection.take(exchange);
    return exchange;
  }

  /**
   * Serves a request that came inside another one, as an event of a WebSocket: it is counted, stopped and recorded like any other.
   * @param response its 'close' ends the exchange
   */
  serveInner(
    outer: Exchange,
    request: IncomingMessage,
    response: ServerResponse,
    handler: Handler,
  ): Exchange {
    const exchange = this.#active.begin(request, response, outer.address);
    exchange.route = outer.route;
    exchange.deployment = outer.deployment;
    void this.#router.run(handler, exchange);
    return exchange;
  }

  #fail(exchange: Exchange, error: unknown): void {
    const wrapped = wrapError(error, 'internal_error');
    if (wrapped.code === 'internal_error') {
      this.#options.logger.error({ err: error, request_id: exchange.id }, 'a handler failed');
    }
    answerOrCut(exchange, wrapped);
  }
}
