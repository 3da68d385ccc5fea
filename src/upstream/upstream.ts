// One configured upstream: where it is, how the gateway presents itself there, and how much it has under way.
// It does not choose between upstreams and does not read what they answer.
import type { UpstreamConfig } from '../config/schema.ts';
import { GatewayError } from '../errors.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { EchoTransport } from './echo.ts';
import { type Call, HttpTransport, type Sink, type Transport } from './transport.ts';

/** Client headers that mean something to an upstream and carry no credential or address; all others stay here. */
const FORWARDED = ['openai-beta', 'x-client-request-id', 'traceparent', 'tracestate'] as const;

export type ClientHeaders = Readonly<Record<string, string | string[] | undefined>>;

export class Upstream {
  readonly name: string;
  readonly config: UpstreamConfig;
  readonly #transport: Transport;
  readonly #path: string;
  /** What every request carries; made once, copied with the few that differ. */
  readonly #headers: Readonly<Record<string, string>>;
  readonly #metrics: Metrics;
  #inFlight = 0;

  constructor(name: string, config: UpstreamConfig, userAgent: string, metrics: Metrics) {
    this.name = name;
    this.config = config;
    this.#metrics = metrics;
    const headers: Record<string, string> = {
      'content-type': 'application/json',
      // A coded stream could not be spliced frame by frame.
      'accept-encoding': 'identity',
      'user-agent': userAgent,
    };
    if (config.kind === 'builtin') {
      this.#transport = new EchoTransport();
      this.#path = '/chat/completions';
    } else {
      const { origin, path } = endpoint(config.base_url, 'chat/completions', config.query);
      this.#path = path;
      this.#transport = new HttpTransport({
        origin,
        connectTimeout: config.timeouts.connect,
        connections: config.max_concurrency,
      });
      if (config.api_key !== undefined) headers['authorization'] = `Bearer ${config.api_key}`;
      for (const [field, value] of Object.entries(config.headers)) headers[field.toLowerCase()] = value;
    }
    this.#headers = headers;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /**
   * Takes one of the `max_concurrency` places; each taken place is given back once by `release`.
   * @throws GatewayError upstream_busy if there is none
   */
  acquire(): void {
    if (this.#inFlight >= this.config.max_concurrency) throw new GatewayError('upstream_busy');
    this.#inFlight += 1;
    this.#metrics.upstreamInFlight.set({ upstream: this.name }, this.#inFlight);
  }

  release(): void {
    this.#inFlight -= 1;
    this.#metrics.upstreamInFlight.set({ upstream: this.name }, this.#inFlight);
  }

  /**
   * Sends a chat completion.
   * @param body the complete JSON body, already in this upstream's words
   * @param client the client's headers, of which an allow-list is passed on
   */
  send(body: Buffer, requestId: string, client: ClientHeaders, stream: boolean, sink: Sink): Call {
    const headers: Record<string, string> = {
      ...this.#headers,
      accept: stream ? 'text/event-stream' : 'application/json',
      'x-request-id': requestId,
    };
    for (const field of FORWARDED) {
      const value = client[field];
      if (typeof value === 'string') headers[field] = value;
    }
    return this.#transport.send({ path: this.#path, headers, body }, sink);
  }

  close(): Promise<void> {
    return this.#transport.close();
  }
}

/**
 * Joins an API root and an endpoint: one slash between them, the root's own query kept, configured parameters after it.
 * @param baseUrl the API root, with or without a slash at its end, e.g. `https://host/v1?x=1`
 * @param suffix the endpoint's path below the root, without a slash in front
 */
export function endpoint(
  baseUrl: string,
  suffix: string,
  query: Readonly<Record<string, string>>,
): { origin: string; path: string } {
  const url = new URL(baseUrl);
  const root = url.pathname.replace(/\/+$/, '');
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return { origin: url.origin, path: `${root}/${suffix}${url.search}` };
}
