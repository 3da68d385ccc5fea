// The composition root: opens the components of a gateway step by step, in the order of their dependencies. Callbacks reach the
// components that a later step opens.
import type { CompositionOptions } from './app-options.ts';
import { keyEndpoint } from './auth/key-endpoint.ts';
import { openKeys } from './auth/key-wiring.ts';
import { rotationEndpoint } from './auth/rotation-endpoint.ts';
import { Billing } from './billing/billing-wiring.ts';
import { currentOrderOf } from './billing/order-verdict.ts';
import { httpUrl } from './config/schema/addresses.ts';
import { PASSTHROUGH_PATHS } from './config/schema/endpoint-names.ts';
import { AdminConsole } from './console/admin-console.ts';
import { GatewayError } from './errors.ts';
import { maxConnections } from './http/accept/descriptors.ts';
import { AdminServer } from './http/admin/admin-listener.ts';
import { Health } from './http/admin/health.ts';
import { clientAddress } from './http/client-address.ts';
import { Cors } from './http/cors.ts';
import { loopbackCheck } from './http/loopback.ts';
import { Server } from './http/server.ts';
import { followConfiguration, type LiveConfig } from './live-config.ts';
import { VERSION } from './package-files.ts';
import { Passthrough } from './passthrough/passthrough-endpoint.ts';
import { checkRedis, StoreCheck } from './process/health-checks.ts';
import { OverloadControl } from './process/overload-control.ts';
import { recordEnd } from './process/request-end.ts';
import { openModels } from './proxy/model-wiring.ts';
import { openMetering, startOutboxThread } from './proxy/reservation/metering.ts';
import { openUpstreams } from './proxy/upstream-wiring.ts';
import { openSessions } from './realtime/realtime-wiring.ts';
import { openStore } from './store/open.ts';
import { AccessLog } from './telemetry/log/access-log.ts';
import { createMetrics } from './telemetry/metrics/all-metrics.ts';
import { openTracing } from './telemetry/traces/open-tracing.ts';
import { Outbound } from './upstream/outbound/outbound.ts';
import { DRAINS_CHANGED, REPORT_STATES } from './upstream/state/drains.ts';
import { StoreCurrency } from './usage/store-currency.ts';

/** How long shutdown waits to flush the remaining usage to the store. */
const FLUSH_MS = 5000;

/** A listening gateway. */
export type Composed = Awaited<ReturnType<typeof compose>>;

type Foundation = Awaited<ReturnType<typeof openFoundation>>;
type Front = Awaited<ReturnType<typeof openFront>>;
type Usage = Awaited<ReturnType<typeof openUsage>>;
type Products = ReturnType<typeof openProducts>;

/**
 * Opens all components and starts to listen.
 * @throws StoreOpenError, SecretError, CurrencyError or the system's error when a port is taken; resources opened before stay in `resources`
 */
export async function compose(options: CompositionOptions) {
  const { logger } = options;
  const foundation = await openFoundation(options);
  const front = await openFront(options, foundation, () => configuration.reloader.config.hash);
  const usage = await openUsage(options, foundation, front);
  const products = openProducts(options, foundation, front, usage);
  const configuration = followConfiguration(
    { ...options, isWorker: options.slot !== undefined },
    { ...foundation, server: front.server, adminServer: () => admin.server },
  );
  const admin = openAdmin(options, foundation, front, usage, configuration);
  mountRoutes(foundation, front, usage, products, admin.health);

  const adminUrl = await admin.listen();
  const url = await listen(options, front);
  configuration.start(url);
  if (foundation.store.isNew)
    logger.warn('created a new, empty store; keys issued by another store get a 401');
  foundation.routing.start();
  front.overload.start();
  products.billing.start();
  configuration.watchFiles();
  const shown = { health: admin.health, url: adminUrl, server: admin.server };
  return { foundation, front, products, configuration, url, logger, admin: shown };
}

/** Telemetry, the store, the configuration in force, and the state of upstreams. */
async function openFoundation({ config, env, logger, resources, now, random }: CompositionOptions) {
  const disk = startOutboxThread(config.static);
  resources.add('outbox thread', () => disk.abandon());
  const metrics = createMetrics();
  metrics.buildInfo.set({ version: VERSION, node: process.version }, 1);
  const outbound = new Outbound(config.dynamic.outbound);
  const tracing = await openTracing(env, {
    version: VERSION,
    logger,
    metrics,
    agent: (isTls, tls) => outbound.agent(isTls, { keepAlive: true }, tls),
  });
  resources.add('traces', () => tracing.close());
  const store = await openStore(config.static.store, { spool: disk.directory });
  resources.add('store', () => store.close());
  const currency = await StoreCurrency.open(config.dynamic.currency, store, (error) =>
    logger.error({ err: error }, 'failed to set the currency of the store'),
  );
  const upstreams = await openUpstreams({
    config: config.dynamic,
    version: VERSION,
    store: store.upstreams,
    metrics,
    logger,
    onOpen: (name, close) => resources.add(name, close),
    now,
    random,
  });
  return { metrics, outbound, tracing, store, disk, currency, ...upstreams };
}

/** The components that a request reaches first: listener, overload control and authentication. */
async function openFront(
  { config, slot, logger, resources }: CompositionOptions,
  { metrics, tracing, snapshot, store, drains, states }: Foundation,
  configHash: () => string,
) {
  const fixed = config.static;
  const keys = await openKeys({
    version: VERSION,
    config: fixed,
    store,
    logger,
    metrics,
    failuresPerMinute: () => snapshot().config.auth.failures_per_minute,
    onCompromised: (prefix) =>
      server.endWhere(({ keyPrefix }) => keyPrefix === prefix, new GatewayError('invalid_api_key')),
    async onMessage(body) {
      if (body === DRAINS_CHANGED) await drains.refresh();
      return body === REPORT_STATES
        ? JSON.stringify({ config_hash: configHash(), upstreams: states() })
        : undefined;
    },
  });
  resources.add('keys', () => keys.close());
  const accessLog = new AccessLog(logger);
  const server = new Server({
    addressOf: clientAddress(fixed.listen.trusted_proxies),
    writeStall: config.dynamic.stream.write_stall,
    keepAlive: fixed.listen.keep_alive,
    ...maxConnections(fixed, slot?.count ?? 1, logger),
    ...(config.dynamic.certificate === undefined ? {} : { certificate: config.dynamic.certificate }),
    cors: new Cors(
      () => snapshot().config.cors?.origins ?? [],
      (header) => snapshot().routes.forwarded.includes(header),
    ),
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
    queues: server,
  });
  resources.add('overload', async () => overload.stop());
  return { keys, server, overload };
}

/** Limits and the usage outbox. It is closed before Redis and the store, because closing writes to both. */
async function openUsage(
  { config, logger, resources }: CompositionOptions,
  { metrics, outbound, snapshot, store, disk }: Foundation,
  { keys }: Front,
) {
  const metering = await openMetering({
    config: config.static,
    disk,
    dynamic: () => snapshot().config,
    store,
    redis: keys.redis,
    fleet: () => keys.position,
    authenticator: keys.authenticator,
    outbound,
    planOf: async (holderId) => currentOrderOf(await store.billing.ordersOf(holderId)),
    logger,
    metrics,
  });
  resources.add('usage', () => metering.close(FLUSH_MS));
  return metering;
}

/** The request handlers: models, stored objects, sessions, pages. */
function openProducts(
  { config, logger, resources }: CompositionOptions,
  { metrics, outbound, snapshot, resilience, store }: Foundation,
  { keys: { authenticator, issuer, sealingKey }, server, overload }: Front,
  { metering, limiter }: Usage,
) {
  const common = { authenticator, snapshot, metrics, resilience };
  const models = openModels({ ...common, metering, limiter, store, logger });
  const { pipeline, objects, usageReads } = models;
  const sessions = { ...metering, limiter };
  const passthrough = new Passthrough({ ...common, objects, metering: sessions, store, logger });
  resources.add('followed usage', () => Promise.all([models.close(), passthrough.close()]));
  const billing = new Billing({
    store: store.billing,
    issuer,
    authenticator,
    config: () => snapshot().config,
    logger,
    metrics,
    isLocal: loopbackCheck(config.static.listen.trusted_proxies),
    listenHost: config.static.listen.host,
    outbound,
  });
  resources.add('billing', () => billing.close());
  return {
    models,
    mountSessions: openSessions({
      ...common,
      metering: sessions,
      usageReads,
      pipeline,
      overload,
      server,
      sealingKey,
    }),
    passthrough,
    rotate: rotationEndpoint(authenticator, issuer, () => snapshot().config.auth.max_rotation_overlap),
    currentKey: keyEndpoint(authenticator, store),
    billing,
    usageReads,
  };
}

/** Health, and the admin listener; a worker has no listener of its own. */
function openAdmin(
  { config, slot, logger, resources, env, commands }: CompositionOptions,
  { metrics, states, store }: Foundation,
  { keys, server, overload }: Front,
  metering: Usage,
  { reloader }: LiveConfig,
) {
  const storeCheck = new StoreCheck({ store, logger, writable: metrics.storeWritable });
  resources.add('store check', async () => storeCheck.stop());
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
  const desk = { upstreams: states, config: () => reloader.config, openStore: async () => store };
  const { host, port, tls, hosts = [] } = config.static.admin;
  const admin = new AdminServer(metrics, health, {
    upstreams: states,
    limits: metering.limitsOf,
    hosts,
    certificate: config.dynamic.admin_certificate,
    operators: new AdminConsole({ ...desk, metrics, logger, commands, env }),
  });
  /** @returns the URL of the listener; empty in a worker */
  const listenOn = async (): Promise<string> => {
    if (slot !== undefined) return '';
    const bound = await admin.listen(host, port);
    resources.add('admin', () => admin.close());
    return httpUrl(bound.host, bound.port, tls);
  };
  return { health, server: admin, listen: listenOn };
}

/** Registers the routes of the public listener. */
function mountRoutes(
  { metrics }: Foundation,
  { server, overload }: Front,
  metering: Usage,
  products: Products,
  health: Health,
): void {
  const { models, mountSessions, passthrough, rotate, currentKey, billing } = products;
  models.mount((method, path, handler) => {
    metrics.addRoute(path);
    server.route(method, path, overload.guard(handler));
  });
  mountSessions();
  const piped = overload.guard((exchange) => passthrough.answer(exchange));
  for (const path of PASSTHROUGH_PATHS) server.mount(path, piped);

  server.route('GET', '/health', (exchange) => health.answer(exchange));
  server.route('POST', '/admin/keys/rotate', rotate);
  server.route('GET', '/admin/keys/current', currentKey);
  server.route('GET', '/admin/usage', metering.answerUsage);
  for (const [method, path, handler] of billing.routes) server.route(method, path, handler);
  server.onUnknown((exchange, error) => billing.answerUnknown(exchange, error));
}

/** @returns the URL of the public listener */
async function listen({ config, slot }: CompositionOptions, { server }: Front): Promise<string> {
  const { host, port } = config.static.listen;
  const at = await server.listen(host, slot?.port ?? port);
  return httpUrl(at.host, at.port, config.static.listen.tls);
}
