// `GET /v1/responses` as a WebSocket: the handshake, and what the responses of one connection share. Each `response.create` takes the
// steps of `POST /v1/responses`; responses-connection.ts reads and writes the events.
import type { Authenticator } from '../../auth/authenticator.ts';
import { identify, offeredKey } from '../../auth/identify.ts';
import type { Principal } from '../../auth/key/principal.ts';
import { GatewayError } from '../../errors.ts';
import type { Exchange } from '../../http/exchange/exchange.ts';
import { UPGRADE_REQUIRED_HEADERS, upgradeRejectionOf } from '../../http/exchange/upgrade.ts';
import type { Handler } from '../../http/router.ts';
import type { Server } from '../../http/server.ts';
import type { Endpoint, ResponseOrigin, SocketSession } from '../../proxy/contracts/endpoint.ts';
import { RESPONSES_EVENT } from '../../proxy/endpoints/json-endpoints.ts';
import type { ConfigSnapshot } from '../../proxy/routes/config-snapshot.ts';
import type { Route, RouteTable, Target } from '../../proxy/routes/route-table.ts';
import { RecentMap } from '../../recent-map.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { readProtocols } from '../realtime-request.ts';
import { recordSessionEnd } from '../websocket/session-end.ts';
import { acceptedHead } from '../websocket/websocket-handshake.ts';
import { LargeEvents } from './large-events.ts';
import { ResponsesConnection } from './responses-connection.ts';
import { UpstreamSocket } from './upstream-socket.ts';

/** Responses of a connection that a later one may continue although they are not stored. */
const MAX_KNOWN = 256;

export interface ResponsesSocketsOptions {
  readonly authenticator: Authenticator;
  readonly snapshot: () => ConfigSnapshot;
  readonly metrics: Pick<Metrics, 'responsesSockets'>;
  /** Answers one request for a response. */
  readonly pipeline: { answer(exchange: Exchange, endpoint: Endpoint): Promise<void> };
  readonly overload: { guard(handler: Handler): Handler };
  readonly server: Pick<Server, 'serveInner'>;
}

export class ResponsesSockets {
  readonly #large = new LargeEvents();
  readonly #options: ResponsesSocketsOptions;

  constructor(options: ResponsesSocketsOptions) {
    this.#options = options;
  }

  /** Resolves when the connection ended or was rejected. */
  async answer(exchange: Exchange): Promise<void> {
    const { authenticator, snapshot, metrics, pipeline, overload, server } = this.#options;
    const { request, upgrade, access, headers } = exchange;
    if (upgrade === undefined) throw rejectionOf(exchange);
    const offered = readProtocols(request.headers['sec-websocket-protocol']);
    const authorization = offeredKey(request.headers) ?? offered.authorization;
    const principal = await identify(authenticator, exchange, 'good', authorization);
    exchange.throwIfStopped();
    const { config, routes } = snapshot();
    routes.checkEndpoint(principal, 'responses');
    if (!isOffered(routes, principal)) {
      headers['upgrade'] = 'HTTP/1.1';
      throw new GatewayError('websocket_not_offered');
    }
    exchange.endpoint = 'responses';
    const session = new ConnectionState(config.max_answer.frame, (code) => connection.upstreamClosed(code));
    const handler = overload.guard((inner) => pipeline.answer(inner, { ...RESPONSES_EVENT, session }));
    const [protocol] = offered.forwarded.filter((each) => each === 'realtime');
    const connection: ResponsesConnection = new ResponsesConnection({
      exchange,
      upgrade,
      authorization: authorization ?? '',
      head: acceptedHead(request.headers, protocol, headers),
      limits: { ...config.realtime, writeStall: config.stream.write_stall, maxEvent: config.max_body },
      enterLarge: (onTurn) => this.#large.enter(principal.holderId, onTurn),
      serve: (inner) => server.serveInner(exchange, inner.request, inner.response, handler),
      onEnd: (end) => {
        access.responses = connection.responses;
        recordSessionEnd(exchange, end, connection);
      },
    });
    exchange.response.statusCode = 101;
    metrics.responsesSockets.inc();
    try {
      await connection.run();
    } finally {
      metrics.responsesSockets.dec();
      session.end();
    }
  }
}

/** Of anything but a handshake. */
function rejectionOf({ request, headers }: Exchange): GatewayError {
  if (request.headers.upgrade === undefined) {
    headers['allow'] = 'POST';
    return new GatewayError('method_not_allowed', 'This URL is for POST requests and for WebSockets.');
  }
  Object.assign(headers, UPGRADE_REQUIRED_HEADERS);
  return upgradeRejectionOf(request) ?? new GatewayError('upgrade_required');
}

/** Whether this key may use a model whose responses come over a WebSocket. */
function isOffered(routes: RouteTable, principal: Principal): boolean {
  return [...routes.names(principal), ...routes.patterns(principal)].some((name) => {
    const route = routes.find(name);
    const hasEndpoint = route !== undefined && routes.endpointsOf(route, principal).includes('responses');
    return hasEndpoint && route.targets.some(({ upstream }) => takesSockets(upstream));
  });
}

function takesSockets({ config }: Upstream): boolean {
  return config.kind === 'builtin' || config.websocket === true;
}

/** What the responses of one client connection share. */
class ConnectionState implements SocketSession {
  readonly #maxEvent: number;
  readonly #onClosed: (code: number) => void;
  /** By name: a reload replaces an upstream. */
  readonly #sockets = new Map<string, UpstreamSocket>();
  readonly #known = new RecentMap<string, ResponseOrigin>(MAX_KNOWN);
  /** The upstream of the last response. */
  #last: string | undefined;

  /** @param onClosed the upstream of the last response ended its connection */
  constructor(maxEvent: number, onClosed: (code: number) => void) {
    this.#maxEvent = maxEvent;
    this.#onClosed = onClosed;
  }

  usable(route: Route): Route {
    const targets = route.targets.filter(({ upstream }) => takesSockets(upstream));
    if (targets.length === route.targets.length) return route;
    if (targets.length > 0) return { ...route, targets };
    const message =
      'The upstreams of this model have no WebSockets. Send plain requests to POST /v1/responses.';
    throw new GatewayError('websocket_not_offered', message, { param: 'model' });
  }

  transportOf(upstream: Upstream): UpstreamSocket | undefined {
    const { name, config } = upstream;
    this.#last = name;
    if (config.kind === 'builtin') return undefined;
    const known = this.#sockets.get(name);
    if (known?.upstream === upstream) return known;
    known?.retire();
    const onClosed = (code: number) => {
      if (this.#last === name && this.#sockets.get(name) === socket) this.#onClosed(code);
    };
    const socket: UpstreamSocket = new UpstreamSocket({ upstream, maxEvent: this.#maxEvent, onClosed });
    this.#sockets.set(name, socket);
    return socket;
  }

  made(id: string, { upstream: { name }, model }: Target): void {
    this.#known.set(id, { upstream: name, upstreamModel: model });
  }

  find(id: string): ResponseOrigin | undefined {
    return this.#known.get(id);
  }

  /** The client's connection has ended. */
  end(): void {
    for (const socket of this.#sockets.values()) socket.retire();
  }
}
