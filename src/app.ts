// The composition root: from a configuration file to running parts, in the order in which they need each other, and back.
import { readFileSync } from 'node:fs';
import type { Issuer } from './auth/issuer.ts';
import { type Keys, openKeys } from './auth/keys.ts';
import { Rotation } from './auth/rotation.ts';
import { answerAccount } from './billing/account-page.ts';
import { Checkout } from './billing/checkout.ts';
import { answerPricing } from './billing/pricing.ts';
import { loadConfig } from './config/load.ts';
import { type Config, PASSTHROUGH_PATHS } from './config/schema.ts';
import { GatewayError } from './errors.ts';
import { clientAddress } from './http/address.ts';
import { AdminServer, type TargetState } from './http/admin.ts';
import type { Exchange } from './http/exchange.ts';
import { Health } from './http/health.ts';
import { MODEL_PATH, Server } from './http/server.ts';
import { JSON_ENDPOINTS } from './proxy/endpoints.ts';
import { type Metering, openMetering } from './proxy/metering.ts';
import { Models } from './proxy/models.ts';
import { Passthrough } from './proxy/passthrough.ts';
import { Pipeline, type Snapshot } from './proxy/pipeline.ts';
import { Realtime } from './proxy/realtime.ts';
import { Resilience } from './proxy/resilience.ts';
import { RouteTable } from './proxy/route-table.ts';
import { StoredResponses } from './proxy/stored.ts';
import { STORED_ROUTES, StoredCalls } from './proxy/stored-calls.ts';
import { openStore } from './store/open.ts';
import type { Store } from './store/store.ts';
import { type AccessRecord, logAccess } from './telemetry/access-log.ts';
import { createLogger, type Logger } from './telemetry/logger.ts';
import { createMetrics, type Metrics } from './telemetry/metrics.ts';
import type { BreakerSnapshot } from './upstream/breaker.ts';
import { Upstream } from './upstream/upstream.ts';

export const VERSION = readVersion();

/** How long the end of the process waits for the store to take what was used. */
const FLUSH_MS = 5000;

export interface AppOptions {
  readonly configFile: string;
  readonly env: NodeJS.ProcessEnv;
  readonly logger?: Logger;
  /** Monotonic milliseconds for cool-downs and the retry budget. Default: the process's own clock. */
  readonly now?: () => number;
  /** From 0 (included) to 1 (excluded), for the choice between targets and for jitter. */
  readonly random?: () => number;
}

/** A running gateway. */
export interface App {
  readonly config: Config;
  /** `http://host:port` of the public listener. */
  readonly url: string;
  readonly adminUrl: string;
  readonly issuer: Issuer;
  readonly metrics: Metrics;
  /** How the breaker of a model at an upstream stands; undefined when it was never asked. */
  breaker(upstream: string, model: string): BreakerSnapshot | undefined;
  /** Answers under way. */
  readonly inFlight: number;
  /**
   * Stops accepting and lets running answers end, at most for `drain.timeout`. Calling it again ends them at once; both
   * calls resolve when everything is closed.
   */
  close(): Promise<void>;
}

/**
 * Starts everything, and stops what was started if one part cannot.
 * @throws ConfigError, StoreOpenError, SecretError or the system's error when a port is taken
 */
export async function startApp(options: AppOptions): Promise<App> {
  const config = loadConfig(options.configFile, options.env);
  const logger = options.logger ?? createLogger();
  const opened: (() => Promise<unknown>)[] = [];
  const closeAll = async () => {
    for (const close of opened.splice(0).reverse()) await close();
  };
  try {
    return await compose(options, config, logger, (close) => opened.push(close), closeAll);
  } catch (error) {
    await closeAll();
    throw error;
  }
}

async function compose(
  { now, random }: AppOptions,
  config: Config,
  logger: Logger,
  opened: (close: () => Promise<unknown>) => void,
  closeAll: () => Promise<void>,
): Promise<App> {
  const metrics = createMetrics();
  const store = await openStore(config.static.store);
  opened(() => store.close());

  const { dynamic } = config;
  const keys = await openKeys({
    config: config.static,
    store,
    logger,
    metrics,
    failuresPerMinute: () => dynamic.auth.failures_per_minute,
    onCompromised: (prefix) =>
      server.endWhere(({ access }) => access.key_prefix === prefix, new GatewayError('invalid_api_key')),
  });
  opened(() => keys.close());
  const { authenticator, issuer } = keys;

  const upstreams = new Map(
    Object.entries(dynamic.upstreams).map(([name, upstream]) => [
      name,
      new Upstream(name, upstream, `tollgate/${VERSION}`, metrics),
    ]),
  );
  opened(() => Promise.all([...upstreams.values()].map((upstream) => upstream.close())));
  let current: Snapshot = {
    config: dynamic,
    routes: new RouteTable(dynamic.models, upstreams, dynamic.tiers),
  };
  for (const upstream of upstreams.values()) upstream.start();
  const snapshot = () => current;

  const server = new Server({
    addressOf: clientAddress(config.static.listen.trusted_proxies),
    writeStall: dynamic.stream.write_stall,
    corsOrigins: () => snapshot().config.cors?.origins ?? [],
    onEnd: (exchange) => record(exchange, logger, metrics),
    logger,
    metrics,
  });
  const health = new Health({
    version: VERSION,
    configHash: () => config.hash,
    draining: () => server.draining,
    checks: {
      store: () => checkStore(store),
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
    config: config.static,
    store: store.usage,
    redis: keys.redis,
    authenticator,
    limitsOf: (tier) => snapshot().config.tiers[tier] ?? {},
    logger,
    metrics,
  });
  // Before Redis and the store: what was reserved and used is still to be told to them.
  opened(() => metering.close(FLUSH_MS));
  const { accounts, limiter } = metering;
  const stored = new StoredResponses({ store: store.responses, logger });
  const road = { authenticator, snapshot, metrics, resilience, accounts, stored, objects: store.objects };
  const pipeline = new Pipeline(road);
  const storedCalls = new StoredCalls(road);
  const sessions = { limiter, ledger: accounts.ledger, metrics };
  const realtime = new Realtime({ authenticator, snapshot, metrics, resilience, accounts: sessions });
  const passthrough = new Passthrough({
    authenticator,
    config: () => snapshot().config,
    upstreams,
    store: store.objects,
    accounts: sessions,
  });
  const models = new Models(authenticator, snapshot, limiter);
  const rotation = new Rotation(authenticator, issuer);
  const checkout = new Checkout(issuer, () => snapshot().config);
  for (const endpoint of JSON_ENDPOINTS) {
    server.route('POST', `/v1/${endpoint.path}`, (exchange) => pipeline.answer(exchange, endpoint));
  }
  for (const path of PASSTHROUGH_PATHS) server.mount(path, (exchange) => passthrough.answer(exchange));
  server.routeUpgrade('/v1/realtime', (exchange) => realtime.answer(exchange));
  for (const { method, path, action } of STORED_ROUTES) {
    server.route(method, path, (exchange) => storedCalls.answer(exchange, action));
  }
  server.route('GET', '/v1/models', (exchange) => models.list(exchange));
  server.route('GET', `${MODEL_PATH}:id`, (exchange) => models.retrieve(exchange));
  server.route('GET', '/health', (exchange) => health.answer(exchange));
  server.route('POST', '/admin/keys/rotate', (exchange) => rotation.answer(exchange));
  server.route('GET', '/admin/usage', (exchange) => metering.endpoint.answer(exchange));
  server.route('GET', '/pricing', (exchange) => answerPricing(exchange, snapshot().config));
  server.route('GET', '/account', (exchange) => answerAccount(exchange, snapshot().config));
  server.route('POST', '/checkout', (exchange) => checkout.answer(exchange));

  const targets = () => [...upstreams.values()].flatMap((upstream) => statesOf(upstream, resilience));
  const admin = new AdminServer(metrics, health, { upstreams: targets });
  const adminAt = await admin.listen(config.static.admin.host, config.static.admin.port);
  opened(() => admin.close());
  const at = await server.listen(config.static.listen.host, config.static.listen.port);
  if (config.static.listen.port === 0 && new URL(dynamic.public_url).port === '0') {
    // Nobody could name the port before it was taken.
    current = { ...current, config: { ...dynamic, public_url: urlOf(at) } };
  }

  for (const { line, message } of config.warnings) logger.warn({ file: config.file, line }, message);
  let closing: Promise<void> | undefined;
  return {
    config,
    url: urlOf(at),
    adminUrl: urlOf(adminAt),
    issuer,
    metrics,
    breaker(name, model) {
      const upstream = upstreams.get(name);
      return upstream && resilience.standings.peek(upstream, model)?.breaker.snapshot();
    },
    get inFlight() {
      return server.inFlight;
    },
    close() {
      if (closing !== undefined) server.endAll();
      closing ??= server.drain(dynamic.drain.delay, dynamic.drain.timeout).then(closeAll);
      return closing;
    },
  };
}

/** The gateway serves verified keys for a while without its store, so a store that is away degrades and does not fail it. */
async function checkStore(store: Store): Promise<'ok' | 'degraded'> {
  try {
    await store.ping();
    return 'ok';
  } catch {
    return 'degraded';
  }
}

/** Without Redis, or without the messages that come through it, replicas go on by themselves. */
function checkRedis({ redis, isLinked }: Keys, { isDegraded }: Metering): 'ok' | 'degraded' {
  return redis?.isUp === true && isLinked && !isDegraded ? 'ok' : 'degraded';
}

/** How the targets at one upstream are doing, for the admin listener. */
function statesOf(upstream: Upstream, { standings, now }: Resilience): TargetState[] {
  return Array.from(standings.known(upstream), ([model, { breaker }]) => {
    const { state, inFlight, refusal } = breaker.snapshot();
    const about = { upstream: upstream.name, model, state, in_flight: inFlight };
    return refusal === undefined
      ? about
      : { ...about, until_ms: Math.max(1, Math.ceil(refusal.until - now())) };
  });
}

/** What is left of a request when it has ended: a line of the access log and the counters. */
function record(exchange: Exchange, logger: Logger, metrics: Metrics): void {
  const { access, request, response, stopReason, error } = exchange;
  const status = stopReason?.code === 'client_closed' ? stopReason.status : response.statusCode;
  const route = access.route ?? 'none';
  const line: AccessRecord = {
    request_id: exchange.id,
    method: request.method ?? '',
    status,
    duration_ms: Math.round(exchange.elapsed),
    ...access,
    outcome: stopReason?.code ?? access.outcome ?? 'ok',
  };
  logAccess(logger, line, error?.cause);
  metrics.requests.inc({ route, status });
  metrics.requestSeconds.observe({ route }, exchange.elapsed / 1000);
}

function urlOf({ host, port }: { host: string; port: number }): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function readVersion(): string {
  const file: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  const version: unknown =
    typeof file === 'object' && file !== null ? Reflect.get(file, 'version') : undefined;
  return typeof version === 'string' ? version : 'unknown';
}
