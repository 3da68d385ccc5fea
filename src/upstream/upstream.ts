// One configured upstream: its address, credentials, concurrency limit and health check. Choosing between upstreams and reading
// their responses are not its tasks.
import type { Agent } from 'node:http';
import type { UpstreamConfig } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { EchoTransport } from './echo/echo.ts';
import { type ClientHeaders, ForwardedHeaders } from './http/forwarded-headers.ts';
import { requestIdOf } from './http/header-names.ts';
import { HttpTransport } from './http/http-transport.ts';
import { OriginQuarantines } from './http/origin-quarantine.ts';
import type { Unsolicited } from './http/upstream-connection.ts';
import { UpstreamHeaders } from './http/upstream-headers.ts';
import { UpstreamEgress } from './outbound/upstream-egress.ts';
import { providerOf, serverOf } from './provider-name.ts';
import { Bulkhead } from './state/bulkhead.ts';
import { type Drains, shownDrain } from './state/drains.ts';
import { HealthProbe } from './state/health-probe.ts';
import type { UpstreamState } from './state/upstream-state.ts';
import type { Call, Sink, Transport } from './transport.ts';
import type { UpstreamCall } from './upstream-call.ts';
import { UpstreamCredential } from './upstream-credential.ts';
import { UpstreamPaths } from './upstream-query.ts';

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
  #paths: UpstreamPaths;
  readonly #headers: UpstreamHeaders;
  readonly #bulkhead: Bulkhead;
  readonly credential: UpstreamCredential;
  readonly #egress: UpstreamEgress;
  /** Client headers that go to this upstream. */
  readonly forwarded: ForwardedHeaders;
  readonly #probe: HealthProbe | undefined;
  readonly #drains: Pick<Drains, 'of'>;

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
    this.#headers = new UpstreamHeaders(userAgent);
    this.#paths = new UpstreamPaths(config);
    this.#bulkhead = new Bulkhead(name, metrics);
    this.#drains = drains;
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
    this.credential = new UpstreamCredential({
      upstream: name,
      config,
      metrics,
      outbound: this.#egress.outbound,
      onChange: () => this.#headers.replace(this.credential.headers),
      onFailure: (error, isInForce) => events.onTokenFailure?.(error, isInForce),
    });
    this.#headers.replace(this.credential.headers);
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
    this.#paths = new UpstreamPaths(config);
    this.credential.replace(config);
  }

  /** Takes over the valid token of the object that this one replaces, so that its first requests need not wait for one. */
  inheritToken(previous: Upstream): void {
    this.credential.inherit(previous.credential);
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
      in_flight: this.#bulkhead.inFlightOfName,
      max_concurrency: this.config.max_concurrency,
      credential: this.credential.age,
      drained: drain === undefined ? null : shownDrain(drain),
    };
  }

  /** Starts the active health check and fetches the token, where they are configured. A disabled upstream is left alone. */
  start(): void {
    if (!this.isEnabled) return;
    this.credential.start();
    this.#egress.start();
    this.#probe?.start();
  }

  /** Stops the health check, because the upstream was removed from the configuration. */
  stop(): void {
    this.credential.stop();
    this.#egress.stop();
    this.#probe?.stop();
  }

  /** Call after `stop`, when no more requests are sent: requests in flight complete, then connections close. */
  retire(): Promise<void> {
    return this.#transport.retire();
  }

  /** Whether the upstream's text quotes a credential of the gateway; such a text must not reach a client or log. */
  quotesCredential(text: Buffer | string): boolean {
    return this.credential.areQuotedIn(text.toString());
  }

  /** The upstream's request id, for the log. */
  requestIdIn(headers: ClientHeaders): string | undefined {
    const id = requestIdOf(headers);
    return id === undefined || this.quotesCredential(id) ? undefined : id.slice(0, MAX_ID);
  }

  get inFlight(): number {
    return this.#bulkhead.inFlight;
  }

  /**
   * Takes one of the `max_concurrency` slots (bulkhead); `release` frees it, once.
   * @throws GatewayError upstream_busy if all are taken, upstream_out_of_service if it is drained or disabled
   */
  acquire(): void {
    if (!this.isInService) throw new GatewayError('upstream_out_of_service');
    this.#bulkhead.acquire(this.config.max_concurrency);
  }

  /** Frees the slot, as `Bulkhead.release`. */
  release(outcome: string, ms?: number): void {
    this.#bulkhead.release(outcome, ms);
  }

  send(call: UpstreamCall, sink: Sink): Call {
    const { endpoint: called, body, client, fresh, forwarded = this.forwarded } = call;
    const { path, query, method } = called;
    const headers = this.#headers.of(call, client, forwarded);
    const { common } = this.#headers;
    if (query === undefined) {
      const { transport = this.#transport } = call;
      return transport.send({ path: this.#paths.of(path), headers, common, body, fresh }, sink);
    }
    if (method !== undefined) delete headers['content-type'];
    const own = { path: this.pathWith(path, query), headers, common, body, fresh };
    return this.#transport.send(method === undefined ? own : { ...own, method }, sink);
  }

  /**
   * Path and query at this upstream: the configured query, then the client's, which cannot override it (`joinQuery`).
   * @param suffix below the API root, without a leading slash
   */
  pathWith(suffix: string, query: string): string {
    return this.#paths.with(suffix, query);
  }

  /**
   * Headers of a piped request: the upstream's credentials and forwarded client headers, without a content type.
   * @param forwarded default: those of the upstream
   */
  headersFor(client: ClientHeaders, requestId: string, forwarded = this.forwarded): Record<string, string> {
    const headers = { ...this.#headers.withoutBody, 'x-request-id': requestId };
    forwarded.copy(client, headers);
    return headers;
  }

  /** Sent once more with another token when the upstream rejects the one it had, as a request is. */
  async #checkHealth(path: string, signal: AbortSignal): Promise<number> {
    const { credential } = this;
    await credential.ready();
    const { token } = credential;
    const status = await this.#requestHealth(path, signal);
    if (status !== 401 || token === undefined) return status;
    const isReplaced = await credential.replaceToken(token);
    return isReplaced && !signal.aborted ? this.#requestHealth(path, signal) : status;
  }

  /** One GET with the upstream's credentials on a new connection: the pool may be full of long responses. */
  #requestHealth(path: string, signal: AbortSignal): Promise<number> {
    return new Promise((resolve, reject) => {
      const headers = this.#headers.withoutBody;
      const call = this.#transport.send(
        { method: 'GET', path, headers, body: Buffer.alloc(0), fresh: true },
        { onHead: resolve, onData: () => {}, onEnd: () => {}, onError: reject },
      );
      signal.addEventListener('abort', () => call.abort(), { once: true });
    });
  }

  close(): Promise<void> {
    this.credential.stop();
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
