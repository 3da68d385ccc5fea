// One configured upstream: where it is, how the gateway presents itself there, and how much it has under way.
// It does not choose between upstreams and does not read what they answer.
import type { UpstreamConfig } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import type { BodySource } from '../http/pieces/body-source.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { TraceContext } from '../telemetry/traces/tracer.ts';
import { Credentials } from './credentials.ts';
import { EchoTransport } from './echo/echo.ts';
import { HealthProbe } from './health-probe.ts';
import { connectionNames } from './http/header-names.ts';
import { HttpTransport } from './http/http-transport.ts';
import type { Unsolicited } from './http/upstream-connection.ts';
import { providerOf, serverOf } from './provider-name.ts';
import type { Call, Sink, Transport } from './transport.ts';
import { joinQuery } from './upstream-query.ts';

/** Client headers that mean something to an upstream and carry no credential or address; all others stay here. */
const FORWARDED = ['openai-beta', 'x-client-request-id'] as const;
/** Passed on as they come where this process traces nothing; otherwise its own span stands in between. */
const FORWARDED_TRACE = ['traceparent', 'tracestate'] as const;
/** What each request says for itself, or may. */
const OF_REQUESTS: ReadonlySet<string> = new Set([
  'content-type',
  'accept',
  'x-request-id',
  ...FORWARDED,
  ...FORWARDED_TRACE,
]);

/** Of an upstream's id of a request, in characters. */
const MAX_ID = 128;

type ClientHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** What of the upstream's API is called. */
interface CallTarget {
  /** Below the API root, without a slash in front. */
  readonly path: string;
  /** Default POST. */
  readonly method?: 'GET' | 'DELETE';
  /** Of a path that belongs to one request alone: the client's query, without its `?`. */
  readonly query?: string;
}

/** One request for an upstream. */
interface UpstreamCall {
  readonly endpoint: CallTarget;
  /** The complete body, already in this upstream's words. */
  readonly body: Buffer | BodySource;
  /** As it stands in a header. Default: JSON. */
  readonly contentType?: string | undefined;
  readonly requestId: string;
  /** The client's headers, of which an allow-list is passed on. */
  readonly client: ClientHeaders;
  /** Media types of the answer, as they stand in a header. */
  readonly accept: string;
  /** On a connection of its own, because a kept one has just failed. */
  readonly fresh: boolean;
  /** The span of this call, instead of the client's. */
  readonly trace?: TraceContext | undefined;
}

/** What an operator should hear of. */
export interface UpstreamEvents {
  /** Its name is not resolved at present, as in `ResolverOptions`. */
  onStale?(ageMs: number, cause: unknown): void;
  /** It sent bytes that answer no request, and for so long its connections are not kept. Once for each time that this begins. */
  onQuarantine?(kind: Unsolicited, ms: number): void;
}

export class Upstream {
  readonly name: string;
  readonly config: UpstreamConfig;
  /** Whose API it is, as OpenTelemetry's conventions name it. */
  readonly provider: string;
  /** Where it is, for traces; undefined where that is this process. */
  readonly server: { readonly address: string; readonly port: number } | undefined;
  readonly #transport: Transport;
  /** Path below the API root → path and query. */
  readonly #paths = new Map<string, string>();
  /** What every request carries unless it says otherwise. */
  readonly #headers: Readonly<Record<string, string>>;
  /** Of them those that no request says otherwise, and the others. */
  readonly #common: Readonly<Record<string, string>>;
  readonly #defaults: Readonly<Record<string, string>>;
  /** Of all upstreams that have this name: while one that was changed still answers, it and its successor. */
  readonly #inFlightGauge: { add(by: number): void };
  readonly #healthyGauge: Metrics['upstreamHealthy'];
  readonly #attempts: Metrics['upstreamAttempts'];
  /** Outcome → its counter, so that labels are looked up once. */
  readonly #outcomes = new Map<string, { inc(): void }>();
  readonly #durations: Readonly<Record<'ok' | 'failed', { observe(seconds: number): void }>>;
  readonly #credentials: Credentials;
  readonly #probe: HealthProbe | undefined;
  #inFlight = 0;

  /**
   * @param transport instead of the one that the configuration asks for
   */
  constructor(
    name: string,
    config: UpstreamConfig,
    userAgent: string,
    metrics: Metrics,
    transport?: Transport,
    events: UpstreamEvents = {},
  ) {
    this.name = name;
    this.config = config;
    this.#inFlightGauge = metrics.upstreamInFlight.cell({ upstream: name });
    this.#healthyGauge = metrics.upstreamHealthy;
    this.#attempts = metrics.upstreamAttempts;
    this.#durations = {
      ok: metrics.upstreamSeconds.cell({ upstream: name, result: 'ok' }),
      failed: metrics.upstreamSeconds.cell({ upstream: name, result: 'failed' }),
    };
    this.provider = providerOf(name, config);
    this.server = config.kind === 'builtin' ? undefined : serverOf(config.base_url);
    const headers: Record<string, string> = {
      'content-type': 'application/json',
      // A coded stream could not be spliced frame by frame.
      'accept-encoding': 'identity',
      'user-agent': userAgent,
    };
    if (config.kind === 'builtin') {
      this.#transport = transport ?? new EchoTransport();
    } else {
      const { origin } = new URL(config.base_url);
      // `increase` misses the first count of a series that begins with it.
      for (const kind of ['idle', 'unsent', 'surplus']) {
        metrics.upstreamUnsolicited.inc({ upstream: name, kind }, 0);
      }
      this.#transport =
        transport ??
        new HttpTransport({
          origin,
          connectTimeout: config.timeouts.connect,
          connections: config.max_concurrency,
          onStale: (ageMs, cause) => events.onStale?.(ageMs, cause),
          onUnsolicited: (kind, quarantineMs) => {
            metrics.upstreamUnsolicited.inc({ upstream: name, kind });
            if (quarantineMs !== undefined) events.onQuarantine?.(kind, quarantineMs);
          },
        });
      if (config.api_key !== undefined) headers['authorization'] = `Bearer ${config.api_key}`;
      for (const [field, value] of Object.entries(config.headers)) headers[field.toLowerCase()] = value;
    }
    this.#headers = headers;
    const entries = Object.entries(headers);
    this.#common = Object.fromEntries(entries.filter(([name]) => !OF_REQUESTS.has(name)));
    this.#defaults = Object.fromEntries(entries.filter(([name]) => OF_REQUESTS.has(name)));
    this.#credentials = new Credentials(config);
    const { health } = config;
    if (health !== undefined) {
      this.#probe = new HealthProbe({
        check: (signal) => this.#checkHealth(health.path, signal),
        intervalMs: health.interval,
        random: Math.random,
        onChange: (healthy) => this.#healthyGauge.set({ upstream: name }, healthy ? 1 : 0),
      });
    }
  }

  /** What the active checks last found; true where there are none. */
  get isHealthy(): boolean {
    return this.#probe?.healthy ?? true;
  }

  /** Begins the active checks, if there are any. */
  start(): void {
    if (this.#probe === undefined) return;
    this.#healthyGauge.set({ upstream: this.name }, 1);
    this.#probe.start();
  }

  /** It is no part of the configuration any more: the active checks end, and what they found is not shown any more. */
  stop(): void {
    this.#probe?.stop();
    this.#healthyGauge.remove({ upstream: this.name });
  }

  /** After `stop`, when nobody can send to it any more: what is under way goes on to its end, then connections are closed. */
  retire(): Promise<void> {
    return this.#transport.retire();
  }

  /** Whether a text of the upstream quotes what the gateway authenticates with: it reaches no client and no log. */
  quotesCredential(text: Buffer | string): boolean {
    return this.#credentials.areQuotedIn(text.toString());
  }

  /** The upstream's own id of a request, for the log. */
  requestIdIn({ 'x-request-id': id }: ClientHeaders): string | undefined {
    if (typeof id !== 'string' || this.quotesCredential(id)) return undefined;
    return id.slice(0, MAX_ID);
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
    this.#inFlightGauge.add(1);
  }

  /**
   * Gives the place back.
   * @param outcome how the request ended: `ok` or a code of the error table
   * @param ms since it was sent, in milliseconds; undefined when it was not
   */
  release(outcome: string, ms?: number): void {
    if (ms !== undefined) this.#durations[outcome === 'ok' ? 'ok' : 'failed'].observe(ms / 1000);
    this.#inFlight -= 1;
    this.#inFlightGauge.add(-1);
    let counter = this.#outcomes.get(outcome);
    if (counter === undefined) {
      counter = this.#attempts.cell({ upstream: this.name, outcome });
      this.#outcomes.set(outcome, counter);
    }
    counter.inc();
  }

  send(call: UpstreamCall, sink: Sink): Call {
    const { endpoint: called, body, contentType, requestId, client, accept, fresh, trace } = call;
    const { path, query, method } = called;
    const headers: Record<string, string> = { ...this.#defaults, accept, 'x-request-id': requestId };
    if (contentType !== undefined) headers['content-type'] = contentType;
    const named = connectionNames(client);
    pass(client, FORWARDED, named, headers);
    if (trace === undefined) pass(client, FORWARDED_TRACE, named, headers);
    else {
      headers['traceparent'] = trace.traceparent;
      if (trace.tracestate !== undefined) headers['tracestate'] = trace.tracestate;
    }
    const common = this.#common;
    if (query === undefined)
      return this.#transport.send({ path: this.#pathOf(path), headers, common, body, fresh }, sink);
    if (method !== undefined) delete headers['content-type'];
    const own = { path: this.pathWith(path, query), headers, common, body, fresh };
    return this.#transport.send(method === undefined ? own : { ...own, method }, sink);
  }

  /**
   * Path and query at this upstream, with the client's query behind the configured one, which it cannot write over
   * (`joinQuery`).
   * @param suffix below the API root, without a slash in front
   */
  pathWith(suffix: string, query: string): string {
    return joinQuery(this.#makePath(suffix), query);
  }

  /** Few paths are ever asked for, so each is put together once. */
  #pathOf(suffix: string): string {
    let path = this.#paths.get(suffix);
    if (path === undefined) {
      path = this.#makePath(suffix);
      this.#paths.set(suffix, path);
    }
    return path;
  }

  /**
   * Headers of a request that is piped: the upstream's credentials, and of the client's the few that every request takes
   * along. Nothing that says what the body is.
   */
  headersFor(client: ClientHeaders, requestId: string): Record<string, string> {
    const { 'content-type': _, ...own } = this.#headers;
    const headers: Record<string, string> = { ...own, 'x-request-id': requestId };
    const named = connectionNames(client);
    for (const field of FORWARDED) {
      const value = client[field];
      if (typeof value === 'string' && named?.has(field) !== true) headers[field] = value;
    }
    return headers;
  }

  #makePath(suffix: string): string {
    const { config } = this;
    return config.kind === 'builtin' ? `/${suffix}` : endpoint(config.base_url, suffix, config.query).path;
  }

  /** One GET with the upstream's own credentials, on a connection of its own: the pool may be full of long answers. */
  #checkHealth(path: string, signal: AbortSignal): Promise<number> {
    return new Promise((resolve, reject) => {
      const { 'content-type': _, ...headers } = this.#headers;
      const call = this.#transport.send(
        { method: 'GET', path, headers, body: Buffer.alloc(0), fresh: true },
        { onHead: resolve, onData: () => {}, onEnd: () => {}, onError: reject },
      );
      signal.addEventListener('abort', () => call.abort(), { once: true });
    });
  }

  close(): Promise<void> {
    this.#probe?.stop();
    return this.#transport.close();
  }
}

function pass(
  from: ClientHeaders,
  fields: readonly string[],
  named: ReadonlySet<string> | undefined,
  to: Record<string, string>,
): void {
  for (const field of fields) {
    const value = from[field];
    if (typeof value === 'string' && named?.has(field) !== true) to[field] = value;
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
  // Appended, because to set one parameter would write the others anew.
  const added = new URLSearchParams({ ...query }).toString();
  const search = [url.search.slice(1), added].filter((part) => part !== '').join('&');
  return { origin: url.origin, path: `${root}/${suffix}${search === '' ? '' : `?${search}`}` };
}
