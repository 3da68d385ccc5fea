// The admin listener: metrics, probes and the state of the targets, on an address of its own that is not for the public.
import http, { type ServerResponse } from 'node:http';
import { boundAddress } from '../client-address.ts';
import { AdminHosts } from '../own-host.ts';
import { limitConnections } from './admin-connections.ts';
import { type HealthReport, isReady } from './health.ts';

const WRONG_HOST =
  'unknown host: ask by address, by a name without dots, or by a name that is listed in admin.hosts\n';

/** What this process knows of one model at one upstream. `GET /upstreams` answers with a JSON array of these. */
export interface TargetState {
  /** The name of the upstream in the configuration. */
  readonly upstream: string;
  /** The model as the upstream calls it. */
  readonly model: string;
  /** Of its circuit breaker. */
  readonly state: 'closed' | 'open' | 'half_open';
  /** Requests that it is working on for this process. */
  readonly in_flight: number;
  /** For how many milliseconds from now it is left alone; left out when it may be asked now. */
  readonly until_ms?: number;
}

interface AdminOptions {
  /** The targets that were asked since they were configured. Without it there is no `/upstreams`. */
  readonly upstreams?: () => readonly TargetState[] | Promise<readonly TargetState[]>;
  /** Names by which it may be asked, beyond those that no page of somebody else's can have (`AdminHosts`). Default: none. */
  readonly hosts?: readonly string[];
}

/** Of a process, or of several that answer as one. */
interface MetricsPage {
  readonly registry: { readonly contentType: string; metrics(): Promise<string> };
}

export class AdminServer {
  readonly #server: http.Server;

  constructor(
    metrics: MetricsPage,
    health: { report(): Promise<HealthReport> },
    { upstreams, hosts = [] }: AdminOptions = {},
  ) {
    const pages: Readonly<Record<string, (response: ServerResponse) => Promise<void>>> = {
      '/metrics': async (response) => {
        send(response, 200, metrics.registry.contentType, await metrics.registry.metrics());
      },
      // Alive is whoever can answer this; a process that cannot reach its store is not helped by a restart.
      '/livez': async (response) => send(response, 200, 'text/plain', 'ok\n'),
      '/readyz': async (response) => {
        const report = await health.report();
        send(response, isReady(report) ? 200 : 503, 'application/json', `${JSON.stringify(report)}\n`);
      },
      ...(upstreams && {
        '/upstreams': async (response: ServerResponse) =>
          send(response, 200, 'application/json', `${JSON.stringify(await upstreams())}\n`),
      }),
    };
    const names = new AdminHosts(hosts);
    this.#server = http.createServer(
      { requestTimeout: 5_000, headersTimeout: 5_000, connectionsCheckingInterval: 1_000 },
      (request, response) => {
        const path = request.url?.split('?', 1)[0] ?? '/';
        const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
        if (!names.accepts(request.headers.host)) send(response, 421, 'text/plain', WRONG_HOST);
        else if (page === undefined) send(response, 404, 'text/plain', 'not found\n');
        else if (request.method !== 'GET' && request.method !== 'HEAD') {
          response.setHeader('allow', 'GET, HEAD');
          send(response, 405, 'text/plain', 'only GET\n');
        } else page(response).catch(() => send(response, 500, 'text/plain', 'failed\n'));
      },
    );
    limitConnections(this.#server);
  }

  /** @throws the system's error (EADDRINUSE, EACCES) */
  listen(host: string, port: number): Promise<{ host: string; port: number }> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ host, port }, () => {
        this.#server.off('error', reject);
        // What accept() reports later (no descriptors left, say) ends no process.
        this.#server.on('error', () => undefined);
        resolve(boundAddress(this.#server));
      });
    });
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
