// One configured upstream: its address, credentials, concurrency limit and health check. Choosing between upstreams and reading
// their responses are not its tasks.
import type { Agent } from 'node:http';
import type { UpstreamConfig } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { EchoTransport } from './echo/echo.ts';
import {
  ALWAYS_FORWARDED,
  type ClientHeaders,
  FORWARDED_TRACE,
  ForwardedHeaders,
} from './http/forwarded-headers.ts';
import { requestIdOf } from './http/header-names.ts';
import { HttpTransport } from './http/http-transport.ts';
import { OriginQuarantines } from './http/origin-quarantine.ts';
import type { Unsolicited } from './http/upstream-connection.ts';
import { UpstreamEgress } from './outbound/upstream-egress.ts';
import { providerOf, serverOf } from './provider-name.ts';
import { type Drains, shownDrain } from './state/drains.ts';
import { HealthProbe } from './state/health-probe.ts';
import type { UpstreamState } from './state/upstream-state.ts';
import type { Call, Sink, Transport } from './transport.ts';
import type { UpstreamCall } from './upstream-call.ts';
import { UpstreamCredential } from './upstream-credential.ts';
import { endpoint, joinQuery } from './upstream-query.ts';

/** Headers that differ between requests. */
const OF_REQUESTS: ReadonlySet<string> = new Set([
  'content-type',
  'accept',
  'x-request-id',
  ...Object.values(ALWAYS_FORWARDED).flat(),
  ...FORWARDED_TRACE,
]);

/** Length bound of an upstream's request id, in characters. */
const MAX_ID = 128;

/** Events that an operator should see in the log. */
export interface UpstreamEvents {
  /** Name resolution fails; addresses of an earlier lookup are used, as in `ResolverOptions`. */
  onStale?(ageMs: number, cause: unknown): void;
  /** The upstream sent unsolicited bytes; for `ms` its connections are not reused. Called once per quarantine. */
  onQuarantine?(kind: Unsolicited, ms: number): void;
  /** No new token could be fetched. @param isInForce whether the previous one is still valid */
  onTokenFailure?(error: Error, isInForce: boolean): void;
  /** The result of the health check has changed. @param reason for people */
  onHealth?(isHealthy: boolean, reason: string): void;
  /** The client certificate ends soon, or has ended. At most once a day. @param end Unix milliseconds */
  onCertificateExpiry?(end: number): void;
}

export class Upstream {
  readonly name: string;
  #config: UpstreamConfig;
  /** The provider by OpenTelemetry's conventions. */
  readonly provider: string;
  /** Address for traces; undefined for the built-in upstream. */
  readonly server: { readonly address: string; readonly port: number } | undefined;
  readonly #transport: Transport;
  /** Path below the API root → path and query. */
  readonly #paths = new Map<string, string>();
  readonly #userAgent: string;
  /** Default headers of every request. */
  #headers: Readonly<Record<string, string>> = {};
  /** The parts of `#headers` that no request overrides, and those that it may. */
  #common: Readonly<Record<string, string>> = {};
  #defaults: Readonly<Record<string, string>> = {};
  /** Shared by all upstreams of this name: after a reload the old one may still have requests in flight. */
  readonly #inFlightGauge: { readonly value: number | undefined; add(by: number): void };
  readonly #attempts: Metrics['upstreamAttempts'];
  /** Result → its counter, so that labels are looked up once. */
  readonly #outcomes = new Map<string, { inc(): void }>();
  readonly #durations: Readonly<Record<'ok' | 'failed', { observe(seconds: number): void }>>;
  readonly #credential: UpstreamCredential;
  readonly #egress: UpstreamEgress;
  /** Client headers that go to this upstream. */
  readonly forwarded: ForwardedHeaders;
  readonly #probe: HealthProbe | undefined;
  readonly #drains: Pick<Drains, 'of'>;
  #inFlight = 0;

  /**
   * @param transport replaces the configured transport
   * @param quarantines shared by the upstreams of a gateway
   * @param drains the upstreams that an operator has drained
   */
  constructor(
    name: string,
    config: UpstreamConfig,
    userAgent: string,
    metrics: Metrics,
    transport?: Transport,
    events: UpstreamEvents = {},
    quarantines = new OriginQuarantines(),
    drains: Pick<Drains, 'of'> = { of: () => undefined },
  ) {
    this.name = name;
    this.#config = config;
    this.#userAgent = userAgent;
    this.#inFlightGauge = metrics.upstreamInFlight.child({ upstream: name });
    this.#attempts = metrics.upstreamAttempts;
    this.#drains = drains;
    metrics.addUpstream(name);
    this.#inFlightGauge.add(0);
    this.#durations = {
      ok: metrics.upstreamSeconds.child({ upstream: name, result: 'ok' }),
      failed: metrics.upstreamSeconds.child({ upstream: name, result: 'failed' }),
    };
    this.provider = providerOf(name, config);
    const onExpiry = (end: number) => events.onCertificateExpiry?.(end);
    this.#egress = new UpstreamEgress({ upstream: name, config, metrics, onExpiry });
    this.server = config.kind === 'builtin' ? undefined : serverOf(config.base_url);
    if (config.kind === 'builtin') {
      this.#transport = transport ?? new EchoTransport();
    } else {
      const { origin } = new URL(config.base_url);
      this.#transport =
        transport ??
        new HttpTransport({
          origin,
          connectTimeout: config.timeouts.connect,
          connections: config.max_concurrency,
          quarantines,
          egress: this.#egress.current,
          onStale: (ageMs, cause) => events.onStale?.(ageMs, cause),
          onUnsolicited: (kind, quarantineMs) => {
            metrics.upstreamUnsolicited.inc({ upstream: name, kind });
            if (quarantineMs !== undefined) events.onQuarantine?.(kind, quarantineMs);
          },
        });
    }
    this.forwarded = forwardedTo(config);
    this.#credential = new UpstreamCredential({
      upstream: name,
      config,
      metrics,
      outbound: this.#egress.outbound,
      onChange: () => this.#setHeaders(),
      onFailure: (error, isInForce) => events.onTokenFailure?.(error, isInForce),
    });
    this.#setHeaders();
    const { health } = config;
    if (health !== undefined) {
      this.#probe = new HealthProbe({
        check: (signal) => this.#checkHealth(health.path, signal),
        intervalMs: health.interval,
        random: Math.random,
        onChange: (isHealthy, reason) => events.onHealth?.(isHealthy, reason),
      });
    }
  }

  get config(): UpstreamConfig {
    return this.#config;
  }

  /**
   * Takes a configuration that differs in credentials and certificates alone (`hasSameMeaning`). Connections, state and running
   * requests stay; new connections use the new ones.
   */
  replaceCredentials(config: UpstreamConfig): void {
    this.#config = config;
    this.#egress.replace(config);
    this.#paths.clear();
    this.#credential.replace(config);
  }

  /** Takes over the valid token of the object that this one replaces, so that its first requests need not wait for one. */
  inheritToken(previous: Upstream): void {
    this.#credential.inherit(previous.#credential);
  }

  /**
   * Waits for a valid credential; undefined when there is one, which is always so for one of the configuration.
   * @throws (rejects with) GatewayError upstream_auth_error when none can be fetched
   */
  authorize(): Promise<void> | undefined {
    return this.#credential.ready();
  }

  /** The fetched token that requests use now; undefined for a credential of the configuration. */
  get token(): string | undefined {
    return this.#credential.token;
  }

  /** The upstream rejected this token: fetches another one. @returns whether one is in force, so that a repetition makes sense */
  replaceToken(rejected: string): Promise<boolean> {
    return this.#credential.replaceToken(rejected);
  }

  #setHeaders(): void {
    const headers: Record<string, string> = {
      'content-type': 'application/json',
      // A compressed stream could not be spliced frame by frame.
      'accept-encoding': 'identity',
      'user-agent': this.#userAgent,
      ...this.#credential.headers,
    };
    this.#headers = headers;
    const entries = Object.entries(headers);
    this.#common = Object.fromEntries(entries.filter(([name]) => !OF_REQUESTS.has(name)));
    this.#defaults = Object.fromEntries(entries.filter(([name]) => OF_REQUESTS.has(name)));
  }

  /** The agent for requests of a library to `base_url`; undefined where it connects as Node.js does. */
  get agent(): Agent | undefined {
    return this.#egress.agent;
  }

  /** State of the active health check; true without one. */
  get isHealthy(): boolean {
    return this.#probe?.healthy ?? true;
  }

  get isEnabled(): boolean {
    return this.config.enabled !== false;
  }

  /** Whether it may get new requests: it is neither disabled nor drained. */
  get isInService(): boolean {
    return this.isEnabled && this.#drains.of(this.name) === undefined;
  }

  /** Its state without that of its targets. */
  describe(): Omit<UpstreamState, 'state' | 'last_failure' | 'targets'> {
    const probe = this.#probe;
    const drain = this.#drains.of(this.name);
    return {
      upstream: this.name,
      health:
        probe === undefined
          ? null
          : { ok: probe.healthy, since: probe.since.toISOString(), reason: probe.reason ?? null },
      // Of all upstreams of this name, as in the metrics.
      in_flight: this.#inFlightGauge.value ?? 0,
      max_concurrency: this.config.max_concurrency,
      credential: this.#credential.age,
      drained: drain === undefined ? null : shownDrain(drain),
    };
  }

  /** Starts the active health check and fetches the token, where they are configured. A disabled upstream is left alone. */
  start(): void {
    if (!this.isEnabled) return;
    this.#credential.start();
    this.#egress.start();
    this.#probe?.start();
  }

  /** Stops the health check, because the upstream was removed from the configuration. */
  stop(): void {
    this.#credential.stop();
    this.#egress.stop();
    this.#probe?.stop();
  }

  /** Call after `stop`, when no more requests are sent: requests in flight complete, then connections close. */
  retire(): Promise<void> {
    return this.#transport.retire();
  }

  /** Whether the upstream's text quotes a credential of the gateway; such a text must not reach a client or log. */
  quotesCredential(text: Buffer | string): boolean {
    return this.#credential.areQuotedIn(text.toString());
  }

  /** The upstream's request id, for the log. */
  requestIdIn(headers: ClientHeaders): string | undefined {
    const id = requestIdOf(headers);
    return id === undefined || this.quotesCredential(id) ? undefined : id.slice(0, MAX_ID);
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /**
   * Takes one of the `max_concurrency` slots (bulkhead); `release` frees it, once.
   * @throws GatewayError upstream_busy if all are taken, upstream_out_of_service if it is drained or disabled
   */
  acquire(): void {
    if (!this.isInService) throw new GatewayError('upstream_out_of_service');
    if (this.#inFlight >= this.config.max_concurrency) throw new GatewayError('upstream_busy');
    this.#inFlight += 1;
    this.#inFlightGauge.add(1);
  }

  /**
   * Frees the slot.
   * @param outcome result of the request: `ok` or a code of the error table
   * @param ms since it was sent, in milliseconds; undefined if it was not sent
   */
  release(outcome: string, ms?: number): void {
    if (ms !== undefined) this.#durations[outcome === 'ok' ? 'ok' : 'failed'].observe(ms / 1000);
    this.#inFlight -= 1;
    this.#inFlightGauge.add(-1);
    let counter = this.#outcomes.get(outcome);
    if (counter === undefined) {
      counter = this.#attempts.child({ upstream: this.name, outcome });
      this.#outcomes.set(outcome, counter);
    }
    counter.inc();
  }

  send(call: UpstreamCall, sink: Sink): Call {
    const { endpoint: called, body, contentType, requestId, client, accept, fresh, trace } = call;
    const { forwarded = this.forwarded, transport = this.#transport } = call;
    const { path, query, method } = called;
    const headers: Record<string, string> = { ...this.#defaults, accept, 'x-request-id': requestId };
    if (contentType !== undefined) headers['content-type'] = contentType;
    forwarded.copy(client, headers, trace === undefined);
    if (trace !== undefined) {
      headers['traceparent'] = trace.traceparent;
      if (trace.tracestate !== undefined) headers['tracestate'] = trace.tracestate;
    }
    const common = this.#common;
    if (query === undefined)
      return transport.send({ path: this.#pathOf(path), headers, common, body, fresh }, sink);
    if (method !== undefined) delete headers['content-type'];
    const own = { path: this.pathWith(path, query), headers, common, body, fresh };
    return this.#transport.send(method === undefined ? own : { ...own, method }, sink);
  }

  /**
   * Path and query at this upstream: the configured query, then the client's, which cannot override it (`joinQuery`).
   * @param suffix below the API root, without a leading slash
   */
  pathWith(suffix: string, query: string): string {
    return joinQuery(this.#makePath(suffix), query);
  }

  /** Cached per suffix; there are few. */
  #pathOf(suffix: string): string {
    let path = this.#paths.get(suffix);
    if (path === undefined) {
      path = this.#makePath(suffix);
      this.#paths.set(suffix, path);
    }
    return path;
  }

  /**
   * Headers of a piped request: the upstream's credentials and forwarded client headers, without a content type.
   * @param forwarded default: those of the upstream
   */
  headersFor(client: ClientHeaders, requestId: string, forwarded = this.forwarded): Record<string, string> {
    const { 'content-type': _, ...own } = this.#headers;
    const headers: Record<string, string> = { ...own, 'x-request-id': requestId };
    forwarded.copy(client, headers);
    return headers;
  }

  #makePath(suffix: string): string {
    const { config } = this;
    return config.kind === 'builtin'
      ? `/${suffix.replace(/^\//, '')}`
      : endpoint(config.base_url, suffix, config.query).path;
  }

  /** Sent once more with another token when the upstream rejects the one it had, as a request is. */
  async #checkHealth(path: string, signal: AbortSignal): Promise<number> {
    await this.authorize();
    const { token } = this;
    const status = await this.#requestHealth(path, signal);
    if (status !== 401 || token === undefined) return status;
    const isReplaced = await this.replaceToken(token);
    return isReplaced && !signal.aborted ? this.#requestHealth(path, signal) : status;
  }

  /** One GET with the upstream's credentials on a new connection: the pool may be full of long responses. */
  #requestHealth(path: string, signal: AbortSignal): Promise<number> {
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
    this.#credential.stop();
    this.#probe?.stop();
    return this.#transport.close();
  }
}

/** The client headers that go to an upstream. @param more of one target */
export function forwardedTo(config: UpstreamConfig, more: readonly string[] = []): ForwardedHeaders {
  if (config.kind === 'builtin') return new ForwardedHeaders();
  const configured = [...(config.forward_headers ?? []), ...more];
  return new ForwardedHeaders(configured, Object.keys(config.headers), config.protocol);
}
