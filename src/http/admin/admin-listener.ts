// The admin listener: metrics, probes and states of upstreams, on an address that must not be public.
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import https from 'node:https';
import type { ServerCertificate } from '../../config/schema/listener-schema.ts';
import { boundAddress } from '../client-address.ts';
import { toOriginForm } from '../exchange/absolute-form.ts';
import { startListening } from '../listener.ts';
import { adminHostCheck } from '../own-host.ts';
import { limitConnections } from './admin-connections.ts';
import { type HealthReport, isReady } from './health.ts';

const WRONG_HOST = 'unknown host: use an address, a name without dots, or a name listed in admin.hosts\n';

interface AdminOptions {
  /** The states of all upstreams, for JSON. Without it, `/upstreams` does not exist. */
  readonly upstreams?: () => readonly object[] | Promise<readonly object[]>;
  /** The limits of a key or a holder with a model, for JSON; undefined for an unknown one. Without it, `/limits` does not exist. */
  readonly limits?: (whose: string, model: string | undefined) => Promise<readonly object[] | undefined>;
  /** Pages and an API of their own, with their own methods. Default: none. */
  readonly operators?: {
    owns(path: string): boolean;
    answer(request: IncomingMessage, response: ServerResponse): Promise<void>;
    load(): Promise<void>;
  };
  /** Accepted host names besides those that no foreign page can have (`adminHostCheck`). Default: none. */
  readonly hosts?: readonly string[];
  /** Serves HTTPS with this pair. Default: HTTP. */
  readonly certificate?: ServerCertificate | undefined;
}

/** Metrics of one process, or of several workers combined. */
interface MetricsPage {
  readonly registry: { readonly contentType: string; metrics(): Promise<string> };
}

export class AdminServer {
  readonly #server: http.Server | https.Server;
  readonly #operators: AdminOptions['operators'];

  constructor(
    metrics: MetricsPage,
    health: { report(): Promise<HealthReport> },
    { upstreams, limits, operators, hosts = [], certificate }: AdminOptions = {},
  ) {
    const pages: Readonly<Record<string, (response: ServerResponse, query: string) => Promise<void>>> = {
      '/metrics': async (response) => {
        send(response, 200, metrics.registry.contentType, await metrics.registry.metrics());
      },
      // Liveness means being able to answer: a restart does not help if the store is unreachable.
      '/livez': async (response) => send(response, 200, 'text/plain', 'ok\n'),
      '/readyz': async (response) => {
        const report = await health.report();
        send(response, isReady(report) ? 200 : 503, 'application/json', `${JSON.stringify(report)}\n`);
      },
      ...(upstreams && {
        '/upstreams': async (response: ServerResponse) =>
          send(response, 200, 'application/json', `${JSON.stringify(await upstreams())}\n`),
      }),
      ...(limits && {
        '/limits': async (response: ServerResponse, query: string) => {
          const given = new URLSearchParams(query);
          const found = await limits(given.get('of') ?? '', given.get('model') ?? undefined);
          if (found === undefined) send(response, 404, 'text/plain', 'no such key or holder\n');
          else send(response, 200, 'application/json', `${JSON.stringify(found)}\n`);
        },
      }),
    };
    const isOwnHost = adminHostCheck(hosts);
    const times = { requestTimeout: 5_000, headersTimeout: 5_000, connectionsCheckingInterval: 1_000 };
    const answer = (request: IncomingMessage, response: ServerResponse): void => {
      toOriginForm(request);
      const [path = '/', query = ''] = request.url?.split('?') ?? [];
      const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
      if (!isOwnHost(request.headers.host)) send(response, 421, 'text/plain', WRONG_HOST);
      else if (operators?.owns(path) === true) void operators.answer(request, response);
      else if (page === undefined) send(response, 404, 'text/plain', 'not found\n');
      else if (request.method !== 'GET' && request.method !== 'HEAD') {
        response.setHeader('allow', 'GET, HEAD');
        send(response, 405, 'text/plain', 'method not allowed: use GET\n');
      } else page(response, query).catch(() => send(response, 500, 'text/plain', 'failed\n'));
    };
    this.#operators = operators;
    this.#server =
      certificate === undefined
        ? http.createServer(times, answer)
        : https.createServer(
            { ...times, ...certificate, minVersion: 'TLSv1.2', handshakeTimeout: 5_000 },
            answer,
          );
    limitConnections(this.#server);
  }

  /** The pair of TLS handshakes from now on; without effect on a listener without TLS. @throws the system's error */
  set certificate(pair: ServerCertificate | undefined) {
    if (pair !== undefined && 'setSecureContext' in this.#server)
      this.#server.setSecureContext({ ...pair, minVersion: 'TLSv1.2' });
  }

  /** @throws the system's error (EADDRINUSE, EACCES) */
  async listen(host: string, port: number): Promise<{ host: string; port: number }> {
    await startListening(this.#server, host, port, () => undefined);
    return boundAddress(this.#server);
  }

  /** Loads what the pages of operators need, where somebody can ask for them. */
  async load(): Promise<void> {
    if (this.#server.listening) await this.#operators?.load();
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }
}

function send(response: ServerResponse, status: number, type: string, body: string): void {
  if (response.headersSent) return;
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(body) });
  response.end(body);
}
