// The configuration in force: applied at the start, and whenever its file changes, to the components that it reaches while they run.
import { tierWatch } from './auth/records/unoffered-tiers.ts';
import { stripePackage } from './billing/stripe/stripe-package.ts';
import type { Config, DynamicConfig } from './config/schema/config-schema.ts';
import type { FileContents } from './config/source/referenced-files.ts';
import type { AdminServer } from './http/admin/admin-listener.ts';
import type { Server } from './http/server.ts';
import { loadProxy } from './passthrough/passthrough-pipe.ts';
import { Reloader } from './process/config-reload.ts';
import { ConfigWatch } from './process/config-watch.ts';
import type { LoadedConfig } from './process/worker.ts';
import type { Routing } from './proxy/routes/routing.ts';
import type { Store } from './store/store.ts';
import type { Logger } from './telemetry/log/logger.ts';
import type { Metrics } from './telemetry/metrics/all-metrics.ts';
import { loadHttpClient, type Outbound } from './upstream/outbound/outbound.ts';
import type { StoreCurrency } from './usage/store-currency.ts';

interface LiveConfigOptions extends LoadedConfig {
  readonly env: NodeJS.ProcessEnv;
  readonly logger: Logger;
  readonly isWorker: boolean;
  /** Whether to watch the file for changes. Default: true, except in a worker. */
  readonly watch?: boolean;
}

/** What a reload changes. */
interface LiveComponents {
  readonly metrics: Metrics;
  readonly outbound: Outbound;
  readonly routing: Routing;
  readonly currency: StoreCurrency;
  readonly store: Pick<Store, 'organisation'>;
  readonly server: Server;
  readonly adminServer: () => AdminServer;
}

export type LiveConfig = ReturnType<typeof followConfiguration>;

/**
 * Loads the packages that only some configurations need, before their first use: an upgrade in place takes files away, and what is
 * loaded stays. Those of tokens are loaded by the fetch with which an upstream starts.
 */
async function loadPackages({ passthrough, budgets, billing }: DynamicConfig): Promise<void> {
  if (billing?.provider === 'stripe') stripePackage();
  await Promise.all([passthrough && loadProxy(), budgets.webhook && loadHttpClient()]);
}

/** Applies the configuration now and whenever its file changes. */
export function followConfiguration(
  { config, env, source, files, logger, isWorker, watch: isWatching = !isWorker }: LiveConfigOptions,
  { metrics, outbound, routing, currency, store, server, adminServer }: LiveComponents,
) {
  let url: string | undefined;
  const warnOfTiers = tierWatch(store.organisation, logger);
  const apply = ({ dynamic }: Config) => {
    currency.reload(dynamic.currency);
    const { certificate } = dynamic;
    if (certificate !== undefined) server.certificate = certificate;
    adminServer().certificate = dynamic.admin_certificate;
    // An operator cannot name a port that the system chooses.
    const isFree = config.static.listen.port === 0 && new URL(dynamic.public_url).port === '0';
    routing.swap(isFree && url !== undefined ? { ...dynamic, public_url: url } : dynamic);
    outbound.replace(dynamic.outbound);
    void warnOfTiers(dynamic.tiers);
    server.writeStall = dynamic.stream.write_stall;
  };
  const common = { files, logger, metrics: metrics.config };
  const reloader = new Reloader({
    ...common,
    config,
    env,
    bytes: source.bytes,
    apply(next) {
      apply(next);
      loadPackages(next.dynamic).catch((err) =>
        logger.error({ err }, 'failed to load what the configuration needs; restart the gateway'),
      );
    },
    isQuiet: isWorker,
  });
  const watch = new ConfigWatch({ ...common, source, reloader });
  return {
    reloader,
    watch,
    /** Applies what a primary sends to its worker. */
    replace(bytes: Buffer, contents: FileContents) {
      files.replace(contents);
      reloader.reload(bytes);
    },
    /** @param address URL of the public listener */
    start(address: string) {
      url = address;
      apply(config);
    },
    /** Loads what the configuration in force needs and the start left. */
    loadRest: () => loadPackages(reloader.config.dynamic),
    watchFiles() {
      if (isWatching) watch.start();
    },
  };
}
