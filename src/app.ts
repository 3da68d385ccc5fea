// The composition root: from a configuration file to running parts, in the order in which they need each other, and back.
import { readFileSync } from 'node:fs';
import type { KeyIssuer } from './auth/key-issuer.ts';
import { openKeys } from './auth/key-wiring.ts';
import { RotationEndpoint } from './auth/rotation-endpoint.ts';
import { Billing } from './billing/billing-wiring.ts';
import { currentOrderOf } from './billing/current-order.ts';
import { parseBytes } from './config/load-config.ts';
import { httpUrl } from './config/schema/addresses.ts';
import { type Config, PASSTHROUGH_PATHS, type StaticConfig } from './config/schema/config-schema.ts';
import { type FileBytes, readConfigFile } from './config/source/config-file.ts';
import { FileWatch } from './config/watch-config.ts';
import { GatewayError } from './errors.ts';
import { connectionsWithin, descriptorLimit } from './http/accept/descriptors.ts';
import { AdminServer } from './http/admin/admin-listener.ts';
import { Health } from './http/admin/health.ts';
import { SpoolRoom } from './http/body/upload-spool.ts';
import { clientAddress } from './http/client-address.ts';
import { loopbackCheck } from './http/loopback.ts';
import { BufferPool } from './http/pieces/buffer-pool.ts';
import type { Handler, Method } from './http/router.ts';
import { MODEL_PATH, Server } from './http/server.ts';
import { Passthrough } from './passthrough/passthrough-endpoint.ts';
import { Reloader } from './process/config-reload.ts';
import { checkRedis, StoreCheck, targetStatesOf } from './process/health-checks.ts';
import { Lifecycle } from './process/lifecycle.ts';
import { OverloadControl } from './process/overload-control.ts';
import { recordEnd } from './process/request-end.ts';
import type { WorkerMember, WorkerSlot } from './process/worker.ts';
import { Resilience } from './proxy/attempts/resilience.ts';
import { MODEL_ENDPOINTS } from './proxy/endpoints/form-endpoints.ts';
import { ModelsEndpoint } from './proxy/models-endpoint.ts';
import { ObjectOwners } from './proxy/objects/object-owners.ts';
import { StoredResponses } from './proxy/objects/stored-responses.ts';
import { Pipeline } from './proxy/pipeline.ts';
import { openMetering } from './proxy/reservation/metering.ts';
import { Routing } from './proxy/routes/routing.ts';
import { STORED_ROUTES, StoredResponseCalls } from './proxy/stored-response-calls.ts';
import { Realtime } from './realtime/realtime-endpoint.ts';
import { openStore } from './store/open.ts';
import { AccessLog } from './telemetry/log/access-log.ts';
import { createLogger, type Logger } from './telemetry/log/logger.ts';
import { createMetrics, type Metrics } from './telemetry/metrics/all-metrics.ts';
import { openTracing } from './telemetry/traces/open-tracing.ts';
import type { BreakerSnapshot } from './upstream/circuit-breaker.ts';
import { UsageReads } from './upstream/usage-reads.ts';
import { outboxDirectory } from './usage/outbox/default-directory.ts';

export const VERSION = readVersion();

/** How long the end of the process waits for the store to take what was used. */
const FLUSH_MS = 5000;

/** Uploads that may be in files at once: beside `max_body` it bounds what they take of the disk. */
const KEPT_UPLOADS = 32;

export interface AppOptions {
  readonly configFile: string;
  readonly env: NodeJS.ProcessEnv;
  readonly logger?: Logger;
  /** Whether it looks for changes of the file by itself. Default true; false where somebody else calls `reload`. */
  readonly watch?: boolean;
  /** What was read from the file already. Default: it is read now. */
  readonly loaded?: { readonly config: Config; readonly source: FileBytes };
  /** Of a worker: it has no admin listener, and hears of its file and its end from its primary alone. */
  readonly slot?: WorkerSlot;
  /** Monotonic milliseconds for cool-downs and the retry budget. Default: the process's own clock. */
  readonly now?: () => number;
  /** From 0 (included) to 1 (excluded), for the choice between targets and for jitter. */
  readonly random?: () => number;
}

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
 * Starts everything, and stops what was started if one part cannot.
 * @throws ConfigError, StoreOpenError, SecretError or the system's error when a port is taken
 */
export async function startApp(options: AppOptions): Promise<App> {
  const source = options.loaded?.source ?? readConfigFile(options.configFile);
  const config = options.loaded?.config ?? parseBytes(source.bytes, options.configFile, options.env);
  const logger = options.logger ?? createLogger();
  const parts = new Lifecycle();
  try {
    return await compose(options, { config, source, logger, parts });
  } catch (error) {
    await parts.close();
    throw error;
  }
}

interface Beginning {
  readonly config: Config;
  readonly source: FileBytes;
  readonly logger: Logger;
  /** Takes each part as soon as it is open. */
  readonly parts: Lifecycle;
}

async function compose(
  { now, random, env, slot, watch: isWatching = slot === undefined }: AppOptions,
  { config: first, source, logger, parts }: Beginning,
): Promise<App> {
  const metrics = createMetrics();
  metrics.buildInfo.set({ version: VERSION, node: process.version }, 1);
  const tracing = await openTracing(env, { version: VERSION, logger, metrics });
  parts.add('traces', () => tracing.close());
  // What needs a restart, and what every request asks for anew.
  const fixed = first.static;
  const routing = new Routing({
    config: first.dynamic,
    userAgent: `tollgate/${VERSION}`,
    metrics,
    onDropped: (upstream) => resilience.retire(upstream),
    logger,
  });
  parts.add('upstreams', () => routing.close());
  const snapshot = () => routing.snapshot;
  const store = await openStore(fixed.store, { spool: outboxDirectory(fixed) });
  parts.add('store', () => store.close());
  const storeCheck = new StoreCheck({ store, logger, writable: metrics.storeWritable });
  parts.add('store check', async () => storeCheck.stop());

  const keys = await openKeys({
    version: VERSION,
    config: fixed,
    store,
    logger,
    metrics,
    failuresPerMinute: () => snapshot().config.auth.failures_per_minute,
    onCompromised: (prefix) =>
      server.endWhere(({ keyPrefix }) => keyPrefix === prefix, new GatewayError('invalid_api_key')),
  });
  parts.add('keys', () => keys.close());
  const { authenticator, issuer } = keys;

  const accessLog = new AccessLog(logger);
  const server = new Server({
    addressOf: clientAddress(fixed.listen.trusted_proxies),
    writeStall: first.dynamic.stream.write_stall,
    keepAlive: fixed.listen.keep_alive,
    ...maxConnections(fixed, slot?.count ?? 1, logger),
    corsOrigins: () => snapshot().config.cors?.origins ?? [],
    onEnd: (exchange) => recordEnd(exchange, accessLog, metrics),
    logger,
    metrics,
    tracing,
    isLate: () => overload.isLate,
  });
  const overload = new OverloadControl({
    limits: () => snapshot().config.overload,
    logger,
    metrics: metrics.overload,
    acceptQueue: server.acceptQueue,
  });
  parts.add('overload', async () => overload.stop());
  const health = new Health({
    version: VERSION,
    configHash: () => reloader.config.hash,
    draining: () => server.draining,
    needed: ['store'],
    checks: {
      config: () => (reloader.isRejected ? 'degraded' : 'ok'),
      load: () => (overload.isOverloaded ? 'degraded' : 'ok'),
      store: () => storeCheck.check(),
      ...(keys.redis === undefined ? {} : { redis: () => checkRedis(keys, metering) }),
    },
  });
  const resilience = new Resilience({
    metrics,
    share: () => snapshot().config.retry.budget,
    ...(now === undefined ? {} : { now }),
    ...(random === undefined ? {} : { random }),
  });
  const metering = await openMetering({
    config: fixed,
    store: store.usage,
    redis: keys.redis,
    fleet: () => keys.place,
    authenticator,
    limitsOf: (tier) => snapshot().config.tiers[tier] ?? {},
    planOf: async (holderId) => currentOrderOf(await store.billing.ordersOf(holderId)),
    logger,
    metrics,
  });
  // Before Redis and the store: what was reserved and used is still to be told to them.
  parts.add('usage', () => metering.close(FLUSH_MS));
  const { accounts, limiter } = metering;
  const stored = new StoredResponses({ store: store.responses, logger });
  const room = new SpoolRoom({
    limit: KEPT_UPLOADS,
    gauges: { files: metrics.uploadFiles, bytes: metrics.uploadFileBytes },
    onTrouble: (cause) => logger.warn({ err: cause }, 'an upload could not be kept in a temporary file'),
  });
  const buffers = new BufferPool({ gauge: metrics.slabBytes });
  const usageReads = new UsageReads({ metrics: metrics.usageReads });
  const objects = new ObjectOwners({ store: store.objects, logger });
  const road = {
    ...{ authenticator, snapshot, metrics, resilience, accounts },
    ...{ stored, objects, room, buffers, usageReads },
  };
  const pipeline = new Pipeline(road);
  const storedCalls = new StoredResponseCalls(road);
  const sessions = { limiter, outbox: accounts.outbox, metrics };
  const realtime = new Realtime({
    authenticator,
    snapshot,
    metrics,
    resilience,
    accounts: sessions,
    usageReads,
  });
  const passthrough = new Passthrough({
    authenticator,
    snapshot,
    objects,
    accounts: sessions,
  });
  const models = new ModelsEndpoint(authenticator, snapshot, limiter);
  const rotation = new RotationEndpoint(authenticator, issuer);
  const billing = new Billing({
    store: store.billing,
    issuer,
    authenticator,
    config: () => snapshot().config,
    logger,
    metrics,
    isLocal: loopbackCheck(fixed.listen.trusted_proxies),
    listenHost: fixed.listen.host,
  });
  parts.add('billing', () => billing.close());
  const v1 = (method: Method, path: string, handler: Handler) =>
    server.route(method, path, overload.guard(handler));
  for (const endpoint of MODEL_ENDPOINTS) {
    v1('POST', `/v1/${endpoint.path}`, (exchange) => pipeline.answer(exchange, endpoint));
  }
  for (const path of PASSTHROUGH_PATHS)
    server.mount(
      path,
      overload.guard((exchange) => passthrough.answer(exchange)),
    );
  server.routeUpgrade(
    '/v1/realtime',
    overload.guard((exchange) => realtime.answer(exchange)),
  );
  for (const { method, path, action } of STORED_ROUTES) {
    v1(method, path, (exchange) => storedCalls.answer(exchange, action));
  }
  v1('GET', '/v1/models', (exchange) => models.list(exchange));
  v1('GET', `${MODEL_PATH}:id`, (exchange) => models.retrieve(exchange));
  server.route('GET', '/health', (exchange) => health.answer(exchange));
  server.route('POST', '/admin/keys/rotate', (exchange) => rotation.answer(exchange));
  server.route('GET', '/admin/usage', (exchange) => metering.endpoint.answer(exchange));
  for (const [method, path, handler] of billing.routes) server.route(method, path, handler);

  /** Where requests find a configuration once its address can be named. */
  let url: string | undefined;
  const apply = ({ dynamic }: Config) => {
    // Nobody could name a port that the system chose.
    const isFree = fixed.listen.port === 0 && new URL(dynamic.public_url).port === '0';
    routing.swap(isFree && url !== undefined ? { ...dynamic, public_url: url } : dynamic);
    server.writeStall = dynamic.stream.write_stall;
  };
  const isEcho = slot !== undefined;
  const reloader = new Reloader({ config: first, env, apply, logger, metrics: metrics.config, isEcho });
  const watch = new FileWatch({
    file: first.file,
    known: source.bytes,
    onContent: (bytes) => reloader.take(bytes),
    onUnreadable: (error) => reloader.reject(error),
    onBlind: (cause) =>
      logger.warn({ file: first.file, err: cause }, 'the configuration file cannot be watched; it is polled'),
  });

  const targets = () =>
    [...routing.upstreams.values()].flatMap((upstream) => targetStatesOf(upstream, resilience));
  const admin = new AdminServer(metrics, health, { upstreams: targets, hosts: fixed.admin.hosts ?? [] });
  let adminUrl = '';
  if (slot === undefined) {
    const bound = await admin.listen(fixed.admin.host, fixed.admin.port);
    adminUrl = httpUrl(bound.host, bound.port);
    parts.add('admin', () => admin.close());
  }
  const at = await server.listen(fixed.listen.host, slot?.port ?? fixed.listen.port);
  url = httpUrl(at.host, at.port);
  apply(first);
  if (store.isNew)
    logger.warn('made a new store, which holds no keys; keys of another store are answered with 401');
  routing.start();
  overload.start();
  billing.start();
  // What came through a pipe cannot be read a second time.
  if (source.isRegular && isWatching) watch.start();

  let closing: Promise<boolean> | undefined;
  const close = async (): Promise<boolean> => {
    watch.stop();
    const { delay, timeout } = snapshot().config.drain;
    const endsAt = performance.now() + delay + timeout;
    await server.drain(delay, timeout);
    await usageReads.close(endsAt - performance.now());
    const failures = await parts.close();
    for (const [part, error] of failures) logger.error({ part, err: error }, 'a part could not be closed');
    return failures.size === 0;
  };
  return {
    get config() {
      return reloader.config;
    },
    url,
    adminUrl,
    member: {
      take: (bytes) => reloader.take(bytes),
      refuse: () => reloader.refuse(),
      health: () => health.report(),
      report: async () => ({ samples: await metrics.registry.getMetricsAsJSON(), targets: targets() }),
    },
    issuer,
    metrics,
    billing,
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
        logger.warn({ file: first.file }, 'no configuration is read any more: the process is shutting down');
    },
    close() {
      if (closing !== undefined) {
        server.endAll();
        usageReads.endAll();
      }
      closing ??= close();
      return closing;
    },
  };
}

/** What the operator asks for, with a word where it is more than the open files of the process allow. */
function maxConnections(
  { listen }: StaticConfig,
  workers: number,
  logger: Logger,
): { maxConnections?: number } {
  if (listen.max_connections === undefined) return {};
  const max_connections = Math.ceil(listen.max_connections / workers);
  const open_files = descriptorLimit();
  const advised = connectionsWithin(open_files);
  if (max_connections > advised) {
    const words = 'listen.max_connections leaves too few open files for connections to upstreams';
    logger.warn({ max_connections, open_files, advised }, words);
  }
  return { maxConnections: max_connections };
}

function readVersion(): string {
  const file: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  const version: unknown =
    typeof file === 'object' && file !== null ? Reflect.get(file, 'version') : undefined;
  return typeof version === 'string' ? version : 'unknown';
}
