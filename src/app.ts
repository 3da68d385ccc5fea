// The gateway as one object: started from a configuration file, reloaded, closed. What it consists of is in composition.ts.
import type { KeyIssuer } from './auth/key-issuer.ts';
import type { Billing } from './billing/billing-wiring.ts';
import { type AppOptions, type Composed, compose } from './composition.ts';
import { parseBytes } from './config/load-config.ts';
import type { Config } from './config/schema/config-schema.ts';
import { readConfigFile } from './config/source/config-file.ts';
import { Lifecycle } from './process/lifecycle.ts';
import type { WorkerMember } from './process/worker.ts';
import { createLogger } from './telemetry/log/logger.ts';
import type { Metrics } from './telemetry/metrics/all-metrics.ts';
import type { BreakerSnapshot } from './upstream/circuit-breaker.ts';

export { type AppOptions, VERSION } from './composition.ts';

/** A running gateway. */
export interface App {
  /** The one in force: its dynamic part changes with the file. */
  readonly config: Config;
  /** `http://host:port` of the public listener. */
  readonly url: string;
  /** Empty in a worker. */
  readonly adminUrl: string;
  readonly member: WorkerMember;
  readonly issuer: KeyIssuer;
  readonly metrics: Metrics;
  /** Orders and payments. */
  readonly billing: Billing;
  /** How the breaker of a model at an upstream stands; undefined when it was never asked. */
  breaker(upstream: string, model: string): BreakerSnapshot | undefined;
  /** Answers under way. */
  readonly inFlight: number;
  /** Upstreams that are gone from the configuration and still answer, or are being closed. */
  readonly retiring: number;
  /** Reads the configuration file now, whatever the watch thinks of it. Resolves when it is in force or was refused. */
  reload(): Promise<void>;
  /**
   * Stops accepting and lets running answers end, at most for `drain.timeout`. Calling it again ends them at once; both
   * calls resolve when everything is closed.
   * @returns whether every part closed as it should
   */
  close(): Promise<boolean>;
}

/**
 * Starts everything, and stops what was started if one step fails.
 * @throws ConfigError, StoreOpenError, SecretError or the system's error when a port is taken
 */
export async function startApp(options: AppOptions): Promise<App> {
  const source = options.loaded?.source ?? readConfigFile(options.configFile);
  const config = options.loaded?.config ?? parseBytes(source.bytes, options.configFile, options.env);
  const logger = options.logger ?? createLogger();
  const resources = new Lifecycle();
  try {
    return appOf(await compose({ ...options, config, source, logger, resources }), resources);
  } catch (error) {
    await resources.close();
    throw error;
  }
}

function appOf(composed: Composed, resources: Lifecycle): App {
  const { foundation, front, products, configuration, admin, logger } = composed;
  const { metrics, routing, resilience } = foundation;
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
      logger.error({ part: name, err: error }, 'a part could not be closed');
    return failures.size === 0;
  };
  return {
    get config() {
      return reloader.config;
    },
    url: composed.url,
    adminUrl: admin.url,
    member: {
      take: (bytes) => reloader.take(bytes),
      refuse: () => reloader.refuse(),
      health: () => admin.health.report(),
      report: async () => ({ samples: await metrics.registry.getMetricsAsJSON(), targets: admin.targets() }),
    },
    issuer: keys.issuer,
    metrics,
    billing: products.billing,
    breaker(name, model) {
      const upstream = routing.upstreams.get(name);
      return upstream && resilience.standings.peek(upstream, model)?.breaker.snapshot();
    },
    get inFlight() {
      return server.inFlight;
    },
    get retiring() {
      return routing.retiring;
    },
    async reload() {
      if (closing === undefined) await watch.check();
      else
        logger.warn(
          { file: reloader.config.file },
          'the configuration is not read again: the process is shutting down',
        );
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
