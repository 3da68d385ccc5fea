// The configuration in force as requests see it, and the succession of one by the next: what is unchanged stays as an
// object with all that it has learned, what is gone ends with the last request that may still need it.
import { isDeepStrictEqual } from 'node:util';
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { Upstream, type UpstreamEvents } from '../../upstream/upstream.ts';
import type { ConfigSnapshot } from './config-snapshot.ts';
import { RouteTable } from './route-table.ts';

interface RoutingOptions {
  readonly config: DynamicConfig;
  /** `user-agent` of requests to upstreams. */
  readonly userAgent: string;
  readonly metrics: Metrics;
  /** An upstream is no part of the configuration any more; requests that began before may still use it. */
  readonly onDropped: (upstream: Upstream) => void;
  readonly logger: Logger;
}

/** One loaded configuration. It lives while it is in force, and then until the last request that began under it has ended. */
class Generation implements ConfigSnapshot {
  readonly config: DynamicConfig;
  readonly routes: RouteTable;
  readonly upstreams: ReadonlyMap<string, Upstream>;
  readonly #onOver: (generation: Generation) => void;
  #running = 0;
  #isInForce = true;

  constructor(
    config: DynamicConfig,
    upstreams: ReadonlyMap<string, Upstream>,
    onOver: (generation: Generation) => void,
  ) {
    this.config = config;
    this.upstreams = upstreams;
    this.routes = new RouteTable(config.models, upstreams, config.tiers);
    this.#onOver = onOver;
  }

  enter(): void {
    this.#running += 1;
  }

  leave(): void {
    this.#running -= 1;
    if (this.#running === 0 && !this.#isInForce) this.#onOver(this);
  }

  /** Another one has taken its place. */
  succeed(): void {
    this.#isInForce = false;
    if (this.#running === 0) this.#onOver(this);
  }
}

export class Routing {
  readonly #options: RoutingOptions;
  /** Upstream → how many living generations have it. */
  readonly #holders = new Map<Upstream, number>();
  /** No generation has them any more; what is under way there ends by its own deadlines. */
  readonly #retiring = new Set<Upstream>();
  #current: Generation;
  #isClosed = false;

  constructor(options: RoutingOptions) {
    this.#options = options;
    this.#current = this.#build(options.config, new Map());
    this.#adopt(this.#current);
  }

  /** What a request that begins now is to keep to its end. */
  get snapshot(): ConfigSnapshot {
    return this.#current;
  }

  get upstreams(): ReadonlyMap<string, Upstream> {
    return this.#current.upstreams;
  }

  /** Upstreams that are gone from the configuration and not yet closed. */
  get retiring(): number {
    return this.#holders.size + this.#retiring.size - this.#current.upstreams.size;
  }

  /**
   * Puts a configuration in force for all requests that begin from now on.
   * @throws what is wrong with it, and then nothing has changed
   */
  swap(config: DynamicConfig): void {
    if (this.#isClosed) return;
    const before = this.#current;
    const next = this.#build(config, before.upstreams);
    this.#adopt(next);
    this.#current = next;
    for (const [name, upstream] of before.upstreams) {
      if (next.upstreams.get(name) !== upstream) this.#drop(upstream);
    }
    for (const [name, upstream] of next.upstreams) {
      if (before.upstreams.get(name) !== upstream) upstream.start();
    }
    before.succeed();
  }

  /** Begins the active checks of the first configuration. */
  start(): void {
    for (const upstream of this.#current.upstreams.values()) upstream.start();
  }

  /** Ends all calls and closes all connections. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const all = [...this.#holders.keys(), ...this.#retiring];
    await Promise.all(all.map((upstream) => upstream.close()));
  }

  /** Unchanged upstreams are taken over: with their pools, breakers, averages and checks. */
  #build(config: DynamicConfig, before: ReadonlyMap<string, Upstream>): Generation {
    const { userAgent, metrics } = this.#options;
    const upstreams = new Map<string, Upstream>();
    for (const [name, wanted] of Object.entries(config.upstreams)) {
      const known = before.get(name);
      upstreams.set(
        name,
        known !== undefined && isDeepStrictEqual(known.config, wanted)
          ? known
          : new Upstream(name, wanted, userAgent, metrics, undefined, this.#eventsOf(name)),
      );
    }
    return new Generation(config, upstreams, (generation) => this.#release(generation));
  }

  #eventsOf(upstream: string): UpstreamEvents {
    const { metrics, logger } = this.#options;
    return {
      onStale(ageMs, cause) {
        metrics.config.stale.inc({ upstream });
        const about = { upstream, age_s: Math.round(ageMs / 1000), err: cause };
        logger.warn(about, 'the name of an upstream is not resolved; its last addresses are used');
      },
      onQuarantine(kind, ms) {
        const about = { upstream, kind, for_s: Math.round(ms / 1000) };
        logger.warn(
          about,
          'an upstream sent bytes that answer no request; its connections are not kept for now',
        );
      },
    };
  }

  #adopt({ upstreams }: Generation): void {
    for (const upstream of upstreams.values()) {
      this.#holders.set(upstream, (this.#holders.get(upstream) ?? 0) + 1);
    }
  }

  #drop(upstream: Upstream): void {
    upstream.stop();
    this.#options.onDropped(upstream);
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
    // What fails in closing is closed too.
    await upstream.retire().catch(() => undefined);
    this.#retiring.delete(upstream);
    const { name } = upstream;
    const living = [...this.#holders.keys(), ...this.#retiring];
    if (!living.some((other) => other.name === name)) {
      this.#options.metrics.upstreamInFlight.forget({ upstream: name });
    }
  }
}
