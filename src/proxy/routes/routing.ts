// The current configuration, and its replacement on reload: unchanged upstreams keep their object and state; removed ones close
// after the last request that may use them.
import { isDeepStrictEqual } from 'node:util';
import type { DynamicConfig, UpstreamConfig } from '../../config/schema/config-schema.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { OriginQuarantines } from '../../upstream/http/origin-quarantine.ts';
import type { Drains } from '../../upstream/state/drains.ts';
import { Upstream, type UpstreamEvents } from '../../upstream/upstream.ts';
import { hasSameMeaning } from '../../upstream/upstream-credential.ts';
import type { ConfigSnapshot } from './config-snapshot.ts';
import { RouteTable } from './route-table.ts';

interface RoutingOptions {
  readonly config: DynamicConfig;
  /** `user-agent` of requests to upstreams. */
  readonly userAgent: string;
  readonly metrics: Metrics;
  /** The upstream left the configuration; running requests may still use it. */
  readonly onRemoved: (upstream: Upstream) => void;
  /** The result of the health check of an upstream has changed, or a reload has changed its `enabled`. */
  readonly onState?: (
    upstream: string,
    what: 'healthy' | 'unhealthy' | 'enabled' | 'disabled',
    reason: string,
  ) => void;
  /** The upstreams that an operator has drained. */
  readonly drains: Pick<Drains, 'of'>;
  readonly logger: Logger;
}

/** One loaded configuration. It lives while it is current, and then until its last request ends. */
class Generation implements ConfigSnapshot {
  readonly config: DynamicConfig;
  readonly routes: RouteTable;
  readonly upstreams: ReadonlyMap<string, Upstream>;
  readonly #onUnused: (generation: Generation) => void;
  #running = 0;
  #isCurrent = true;

  constructor(
    config: DynamicConfig,
    upstreams: ReadonlyMap<string, Upstream>,
    onUnused: (generation: Generation) => void,
  ) {
    this.config = config;
    this.upstreams = upstreams;
    this.routes = new RouteTable(config.models, upstreams, config.tiers, config.prices);
    this.#onUnused = onUnused;
  }

  enter(): void {
    this.#running += 1;
  }

  leave(): void {
    this.#running -= 1;
    if (this.#running === 0 && !this.#isCurrent) this.#onUnused(this);
  }

  /** Another generation has replaced it. */
  replaced(): void {
    this.#isCurrent = false;
    if (this.#running === 0) this.#onUnused(this);
  }
}

export class Routing {
  readonly #options: RoutingOptions;
  readonly #quarantines = new OriginQuarantines();
  /** Upstream → number of living generations that have it. */
  readonly #holders = new Map<Upstream, number>();
  /** In no living generation; their remaining calls end by their own deadlines. */
  readonly #retiring = new Set<Upstream>();
  #current: Generation;
  #isClosed = false;

  constructor(options: RoutingOptions) {
    this.#options = options;
    this.#current = this.#build(options.config, new Map());
    this.#retain(this.#current);
  }

  /** The snapshot for a new request, which keeps it to its end. */
  get snapshot(): ConfigSnapshot {
    return this.#current;
  }

  get upstreams(): ReadonlyMap<string, Upstream> {
    return this.#current.upstreams;
  }

  /** Upstreams removed from the configuration but not closed yet. */
  get retiring(): number {
    return this.#holders.size + this.#retiring.size - this.#current.upstreams.size;
  }

  /**
   * Applies a configuration to all new requests.
   * @throws the error of an invalid configuration; nothing has changed then
   */
  swap(config: DynamicConfig): void {
    if (this.#isClosed) return;
    const before = this.#current;
    const next = this.#build(config, before.upstreams);
    this.#retain(next);
    this.#current = next;
    for (const [name, upstream] of next.upstreams) {
      const wanted = config.upstreams[name];
      if (wanted !== undefined && !isDeepStrictEqual(upstream.config, wanted)) {
        upstream.replaceCredentials(wanted);
      }
    }
    for (const [name, upstream] of before.upstreams) {
      if (next.upstreams.get(name) !== upstream) this.#remove(upstream);
    }
    for (const [name, upstream] of next.upstreams) {
      const previous = before.upstreams.get(name);
      if (previous !== upstream) upstream.start();
      if (previous !== undefined && previous.isEnabled !== upstream.isEnabled)
        this.#options.onState?.(
          name,
          upstream.isEnabled ? 'enabled' : 'disabled',
          'the configuration has changed',
        );
    }
    before.replaced();
  }

  /** Starts the active health checks of the first configuration. */
  start(): void {
    for (const upstream of this.#current.upstreams.values()) upstream.start();
  }

  /** Ends all calls and closes all connections. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const all = [...this.#holders.keys(), ...this.#retiring];
    await Promise.all(all.map((upstream) => upstream.close()));
  }

  /** Reuses upstreams that have changed in credentials at most, with their pools, breakers, averages and checks. */
  #build(config: DynamicConfig, before: ReadonlyMap<string, Upstream>): Generation {
    const upstreams = new Map<string, Upstream>();
    for (const [name, wanted] of Object.entries(config.upstreams)) {
      const known = before.get(name);
      if (known !== undefined && hasSameMeaning(known.config, wanted)) {
        upstreams.set(name, known);
        continue;
      }
      const created = this.#open(name, wanted);
      if (known !== undefined) created.inheritToken(known);
      upstreams.set(name, created);
    }
    return new Generation(config, upstreams, (generation) => this.#release(generation));
  }

  #open(name: string, config: UpstreamConfig): Upstream {
    const { userAgent, metrics, drains } = this.#options;
    const events = this.#eventsOf(name);
    return new Upstream(name, config, userAgent, metrics, undefined, events, this.#quarantines, drains);
  }

  #eventsOf(upstream: string): UpstreamEvents {
    const { metrics, logger, onState } = this.#options;
    return {
      onHealth: (isHealthy, reason) => onState?.(upstream, isHealthy ? 'healthy' : 'unhealthy', reason),
      onStale(ageMs, cause) {
        metrics.staleAddresses.inc({ upstream });
        const about = { upstream, age_s: Math.round(ageMs / 1000), err: cause };
        logger.warn(about, 'failed to resolve the host name of an upstream; using its last addresses');
      },
      onTokenFailure(err, isInForce) {
        const about = { upstream, err };
        if (isInForce)
          logger.warn(
            about,
            'failed to renew the token of an upstream; keeping the present one until it expires',
          );
        else
          logger.error(
            about,
            'failed to fetch a token for an upstream; requests to it fail until one is there',
          );
      },
      onCertificateExpiry(end) {
        const about = { upstream, expires_at: new Date(end).toISOString() };
        logger.warn(
          about,
          'the client certificate for an upstream has expired or will soon; replace its files',
        );
      },
      onQuarantine(kind, ms) {
        const about = { upstream, kind, for_s: Math.round(ms / 1000) };
        logger.warn(about, 'an upstream sent unsolicited bytes; its connections are not reused for now');
      },
    };
  }

  #retain({ upstreams }: Generation): void {
    for (const upstream of upstreams.values()) {
      this.#holders.set(upstream, (this.#holders.get(upstream) ?? 0) + 1);
    }
  }

  #remove(upstream: Upstream): void {
    upstream.stop();
    this.#options.onRemoved(upstream);
  }

  #release({ upstreams }: Generation): void {
    for (const upstream of upstreams.values()) {
      const holders = (this.#holders.get(upstream) ?? 1) - 1;
      if (holders > 0) this.#holders.set(upstream, holders);
      else {
        this.#holders.delete(upstream);
        void this.#retire(upstream);
      }
    }
  }

  async #retire(upstream: Upstream): Promise<void> {
    if (this.#isClosed) return;
    this.#retiring.add(upstream);
    // An upstream whose close fails counts as closed.
    await upstream.retire().catch(() => undefined);
    this.#retiring.delete(upstream);
    const { name } = upstream;
    const living = [...this.#holders.keys(), ...this.#retiring];
    if (!living.some((other) => other.name === name)) {
      this.#options.metrics.upstreamInFlight.forget({ upstream: name });
    }
  }
}
