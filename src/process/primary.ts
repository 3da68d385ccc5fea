// The primary process of several workers: reads the configuration, runs the admin listener, and forwards reloads and shutdown.
// It serves no requests, and opens the store only for the console.
import cluster from 'node:cluster';
import { httpUrl } from '../config/schema/addresses.ts';
import type { Config } from '../config/schema/config-schema.ts';
import { AdminConsole } from '../console/admin-console.ts';
import type { CommandRunner } from '../console/console-desk.ts';
import { AdminServer } from '../http/admin/admin-listener.ts';
import { type HealthReport, statusOf } from '../http/admin/health.ts';
import { loadDriver, openStore } from '../store/open.ts';
import type { Store } from '../store/store.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { createMetrics } from '../telemetry/metrics/all-metrics.ts';
import { mergeUpstreams } from '../upstream/state/upstream-state.ts';
import { outboxDirectory } from '../usage/outbox/default-directory.ts';
import { Reloader } from './config-reload.ts';
import { ConfigWatch } from './config-watch.ts';
import type { LoadedConfig } from './worker.ts';
import { MergedMetrics, mergeChecks } from './worker-merge.ts';
import { Workers, type WorkerTimes } from './workers.ts';

/** Timeout of a worker's report for an admin page. */
const REPORT_TIMEOUT_MS = 2_000;
/** Time after the drain for closing sockets, flushing usage and closing resources. */
const CLOSE_MS = 30_000;

interface PrimaryOptions extends LoadedConfig {
  /** Number of workers. */
  readonly count: number;
  readonly env: NodeJS.ProcessEnv;
  readonly logger: Logger;
  readonly version: string;
  /** Script of the workers, and its arguments. */
  readonly exec: string;
  readonly args: readonly string[];
  /** The command line, for the API of the admin listener. */
  readonly commands?: CommandRunner;
  /** Receives log lines of the workers. */
  readonly onLines: (lines: string) => void;
  readonly times?: WorkerTimes;
}

/** A running primary; the command line uses it like the gateway of a single process. */
export interface Primary {
  readonly config: Config;
  readonly url: string;
  readonly adminUrl: string;
  readonly workers: number;
  readonly inFlight: number;
  /** As of `App`. */
  loadRest(): Promise<unknown>;
  reload(): Promise<void>;
  close(): Promise<boolean>;
}

/**
 * Starts the workers. Resolves when the first one serves.
 * @throws WorkersStartError, or the system's error when the admin port is taken
 */
export async function startPrimary(options: PrimaryOptions): Promise<Primary> {
  const { config: first, source, files, count, env, logger, version } = options;
  const started = performance.now();
  setUpCluster(options);
  const metrics = createMetrics();
  metrics.buildInfo.set({ version, node: process.version }, 1);
  const merged = new MergedMetrics();
  const firstFiles = files.contents(first.files);
  let closing: Promise<boolean> | undefined;

  const reloader = new Reloader({
    config: first,
    env,
    files,
    bytes: source.bytes,
    apply: () => undefined,
    logger,
    metrics: metrics.config,
  });
  const workers = new Workers({
    count,
    begin: () => ({
      file: first.file,
      first: source.bytes,
      firstFiles,
      bytes: reloader.bytes,
      files: files.contents(reloader.config.files),
      isRejected: reloader.isRejected,
    }),
    port: first.static.listen.port,
    logger,
    metrics: metrics.workers,
    onLines: options.onLines,
    onExited: ({ samples }) => merged.addExited(samples),
    ...(options.times === undefined ? {} : { times: options.times }),
  });
  const watch = new ConfigWatch({
    source,
    files,
    reloader,
    logger,
    metrics: metrics.config,
    onApplied: (bytes) => {
      const { hash, files: paths, dynamic } = reloader.config;
      admin.certificate = dynamic.admin_certificate;
      workers.broadcast({ kind: 'config', bytes, files: files.contents(paths), hash });
    },
    onRejected: () => workers.broadcast({ kind: 'rejected' }),
  });

  const report = async (): Promise<HealthReport> => {
    const { serving, count } = workers;
    const checks = mergeChecks([
      ...serving.flatMap(({ health }) => health ?? []),
      {
        checks: {
          config: reloader.isRejected ? 'degraded' : 'ok',
          workers: serving.length >= count ? 'ok' : serving.length > 0 ? 'degraded' : 'failed',
        },
      },
    ]);
    return {
      status: statusOf(checks, closing !== undefined),
      version,
      uptime_s: Math.floor((performance.now() - started) / 1000),
      config_hash: reloader.config.hash,
      checks,
      ...(serving.some(({ health }) => health?.ready === false) && { ready: false as const }),
    };
  };
  const { registry } = metrics;
  const { admin: at } = first.static;
  const upstreams = async () => {
    const reports = await workers.reports(REPORT_TIMEOUT_MS);
    return mergeUpstreams(reports.map((each) => each.upstreams));
  };
  let store: Store | undefined;
  const metricsText = async () => {
    const own = await registry.getMetricsAsJSON();
    // Last: a worker that exits from now on is in these reports and not yet in the exited sums.
    const reports = await workers.reports(REPORT_TIMEOUT_MS);
    return merged.page(
      reports.map(({ samples }) => samples),
      own,
    );
  };
  const admin = new AdminServer(
    { registry: { contentType: registry.contentType, metrics: metricsText } },
    { report },
    {
      upstreams,
      operators: new AdminConsole({
        config: () => reloader.config,
        openStore: async () => {
          store = await openStore(first.static.store, { spool: outboxDirectory(first.static) });
          return store;
        },
        metrics,
        metricsText,
        upstreams,
        commands: options.commands,
        env,
        logger,
      }),
      hosts: at.hosts ?? [],
      certificate: first.dynamic.admin_certificate,
    },
  );
  const adminAt = await admin.listen(at.host, at.port);
  let url: string;
  try {
    url = await workers.start();
  } catch (error) {
    await admin.close();
    throw error;
  }
  watch.start();

  const close = async (): Promise<boolean> => {
    watch.stop();
    const { delay, timeout } = reloader.config.dynamic.drain;
    logger.info(
      { in_flight: workers.inFlight, delay_ms: delay, timeout_ms: timeout },
      'draining the workers',
    );
    const isClean = await workers.close(delay + timeout + CLOSE_MS);
    await admin.close();
    await store?.close();
    return isClean;
  };
  return {
    get config() {
      return reloader.config;
    },
    url,
    adminUrl: httpUrl(adminAt.host, adminAt.port, at.tls),
    workers: workers.count,
    get inFlight() {
      return workers.inFlight;
    },
    loadRest: () => Promise.all([admin.load(), loadDriver(first.static.store)]),
    async reload() {
      if (closing === undefined) await watch.check();
      else logger.warn({ file: first.file }, 'ignoring the reload: shutting down');
    },
    close() {
      if (closing !== undefined) workers.broadcast({ kind: 'close' });
      closing ??= close();
      return closing;
    },
  };
}

function setUpCluster({ exec, args }: PrimaryOptions): void {
  // Workers accept from the shared listening socket. With round-robin, connections handed to a hung worker would be lost without a
  // close, and workers could not drain without the primary.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  cluster.setupPrimary({
    exec,
    args: [...args],
    // The primary writes all log lines: several writers to one pipe could interleave lines.
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    serialization: 'advanced',
  });
}
