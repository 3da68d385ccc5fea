// The gateway as one object: start from a configuration file, reload, close. composition.ts wires its components.
import type { AppOptions } from './app-options.ts';
import type { KeyIssuer } from './auth/key-issuer.ts';
import type { Billing } from './billing/billing-wiring.ts';
import { type Composed, compose } from './composition.ts';
import { parseBytes } from './config/load-config.ts';
import type { Config } from './config/schema/config-schema.ts';
import { readConfigFile } from './config/source/config-file.ts';
import { ReferencedFiles } from './config/source/referenced-files.ts';
import { Lifecycle } from './process/lifecycle.ts';
import type { LoadedConfig, WorkerMember } from './process/worker.ts';
import { createLogger } from './telemetry/log/logger.ts';
import type { Metrics } from './telemetry/metrics/all-metrics.ts';
import type { BreakerSnapshot } from './upstream/breaker/circuit-breaker.ts';

export type { AppOptions } from './app-options.ts';

/** A running gateway. */
export interface App {
  /** The configuration in force; a reload changes its dynamic part. */
  readonly config: Config;
  /** `http://host:port` of the public listener; https with TLS. */
  readonly url: string;
  /** Empty in a worker. */
  readonly adminUrl: string;
  readonly member: WorkerMember;
  readonly issuer: KeyIssuer;
  readonly metrics: Metrics;
  /** Orders and payments. */
  readonly billing: Billing;
  /** State of the circuit breaker of a model at an upstream; undefined before the first request. */
  breaker(upstream: string, model: string): BreakerSnapshot | undefined;
  /** Requests in flight. */
  readonly inFlight: number;
  /** As of `Server`. */
  readonly connections: number;
  /** Upstreams removed from the configuration that are still draining or closing. */
  readonly retiring: number;
  /** Loads the code that a start does not need. An upgrade in place takes its files away, and what is loaded stays. */
  loadRest(): Promise<unknown>;
  /** Reloads the configuration file now, even if unchanged. Resolves when it was applied or rejected. */
  reload(): Promise<void>;
  /**
   * Shuts down gracefully: stops accepting requests and drains those in flight for at most `drain.timeout`. A second call ends them
   * at once; both calls resolve when everything is closed.
   * @returns whether every resource closed cleanly
   */
  close(): Promise<boolean>;
}

/**
 * Starts everything, and stops what was started if one step fails.
 * @throws ConfigError, StoreOpenError, SecretError or the system's error when a port is taken
 */
export async function startApp(options: AppOptions): Promise<App> {
  const loaded = options.loaded ?? loadFiles(options.configFile, options.env);
  const logger = options.logger ?? createLogger();
  const resources = new Lifecycle();
  try {
    return appOf(await compose({ ...options, ...loaded, logger, resources }), resources);
  } catch (error) {
    await resources.close();
    throw error;
  }
}

/** Reads and checks a configuration file and the files that it refers to. @throws ConfigError */
export function loadFiles(configFile: string, env: NodeJS.ProcessEnv): LoadedConfig {
  const source = readConfigFile(configFile);
  const files = new ReferencedFiles(configFile);
  return { config: parseBytes(source.bytes, configFile, env, files), source, files };
}

function appOf(composed: Composed, resources: Lifecycle): App {
  const { foundation, front, products, configuration, admin, logger } = composed;
  const { metrics, routing, resilience, states } = foundation;
  const { server, keys } = front;
  const { reloader, watch } = configuration;
  let closing: Promise<boolean> | undefined;
  const close = async (): Promise<boolean> => {
    watch.stop();
    const { delay, timeout } = routing.snapshot.config.drain;
    const endsAt = performance.now() + delay + timeout;
    await server.drain(delay, timeout);
    await products.usageReads.close(endsAt - performance.now());
    const failures = await resources.close();
    for (const [name, error] of failures)
      logger.error({ part: name, err: error }, 'failed to close a resource');
    return failures.size === 0;
  };
  return {
    get config() {
      return reloader.config;
    },
    url: composed.url,
    adminUrl: admin.url,
    member: {
      reload: (bytes, files) => configuration.replace(bytes, files),
      markRejected: () => reloader.markRejected(),
      health: () => admin.health.report(),
      shed: (keep) => server.shed(keep),
      report: async () => ({ samples: await metrics.registry.getMetricsAsJSON(), upstreams: states() }),
    },
    issuer: keys.issuer,
    metrics,
    billing: products.billing,
    breaker(name, model) {
      const upstream = routing.upstreams.get(name);
      return upstream && resilience.statuses.peek(upstream, model)?.breaker.snapshot();
    },
    get inFlight() {
      return server.inFlight;
    },
    get connections() {
      return server.connections;
    },
    get retiring() {
      return routing.retiring;
    },
    loadRest: () => Promise.all([configuration.loadRest(), admin.server.load()]),
    async reload() {
      if (closing === undefined) await watch.check();
      else logger.warn({ file: reloader.config.file }, 'ignoring the reload: shutting down');
    },
    close() {
      if (closing !== undefined) {
        server.endAll();
        products.usageReads.endAll();
      }
      closing ??= close();
      return closing;
    },
  };
}
