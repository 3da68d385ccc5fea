// Creates ioredis clients, not connected yet, from an address in the configuration. All options for timeouts and against
// retries are here; the callers decide when to connect and disconnect. ioredis is loaded with the first client: a gateway
// without Redis does without its 5 MB.
import type { Cluster, Redis, RedisOptions } from 'ioredis';
import { type RedisAddress, type RedisNode, readRedisAddress } from '../config/schema/redis-address.ts';

interface ConnectionLimits {
  /** Connect timeout, in milliseconds. */
  readonly connectMs: number;
  readonly name: string;
}

/** Until the first TCP keep-alive probe, in milliseconds. */
const KEEP_ALIVE_MS = 10_000;
/** An abandoned socket does not wait for the peer, which may be gone. */
const DISCONNECT_MS = 1;
/** A redirection reports a moved slot; the refresh covers slots without traffic. */
const SLOTS_REFRESH_MS = 30_000;

/** Parses a URL that the configuration has accepted. @throws Error for an invalid URL; the message does not quote it */
export function parseRedisUrl(url: string): RedisAddress {
  const reading = readRedisAddress(url);
  if (!reading.ok) throw new Error(`the Redis URL ${reading.fault}`);
  return reading.value;
}

/**
 * Creates a client for commands.
 * @param attempt selects the node to try first; without the rotation one silent node would use up every attempt's time
 */
export async function createCommands(
  address: RedisAddress,
  limits: ConnectionLimits,
  attempt: number,
): Promise<Redis | Cluster> {
  if (address.kind !== 'cluster') return createSingle(address, limits, attempt);
  const { Cluster } = await import('ioredis');
  return new Cluster(rotate(address.nodes, attempt), {
    lazyConnect: true,
    enableOfflineQueue: false,
    clusterRetryStrategy: null,
    clusterNodeRetryStrategy: null,
    maxRedirections: 3,
    // Fail fast: no command waits for a lost node or a Cluster that is down.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    retryDelayOnTryAgain: 20,
    slotsRefreshTimeout: limits.connectMs,
    slotsRefreshInterval: SLOTS_REFRESH_MS,
    // Certificates are issued for host names, so do not resolve them to addresses.
    ...(address.tls ? { dnsLookup: (host: string, done: DnsDone) => done(null, host) } : {}),
    redisOptions: common(address, limits),
  });
}

type DnsDone = (error: null, address: string) => void;

/**
 * Creates a client of one server, or of one node of a Cluster. Any node will do for a subscription: nodes forward every
 * message to each other.
 */
export async function createSingle(
  address: RedisAddress,
  limits: ConnectionLimits,
  attempt: number,
): Promise<Redis> {
  const { Redis } = await import('ioredis');
  const options = common(address, limits);
  const nodes = rotate(address.nodes, attempt);
  if (address.kind === 'sentinel') {
    const { tls, username, password } = address.sentinel;
    return new Redis({
      ...options,
      db: address.db,
      name: address.name,
      role: 'master',
      sentinels: nodes,
      sentinelRetryStrategy: () => null,
      sentinelCommandTimeout: limits.connectMs,
      // The ready check reads INFO, which shows whether the node is still a master.
      enableReadyCheck: true,
      ...(address.tls ? { enableTLSForSentinelMode: true } : {}),
      ...(tls ? { sentinelTLS: {} } : {}),
      ...(username === undefined ? {} : { sentinelUsername: username }),
      ...(password === undefined ? {} : { sentinelPassword: password }),
    });
  }
  return new Redis({
    ...options,
    ...(nodes[0] ?? {}),
    ...(address.kind === 'single' ? { db: address.db } : {}),
  });
}

function common(address: RedisAddress, { connectMs, name }: ConnectionLimits) {
  return {
    lazyConnect: true,
    connectionName: name,
    connectTimeout: connectMs,
    disconnectTimeout: DISCONNECT_MS,
    keepAlive: KEEP_ALIVE_MS,
    noDelay: true,
    // Commands that cannot be sent now fail now. A closed connection is replaced, never reopened, so that no state of it
    // (a queue, a partial reply, a former master) reaches the next one.
    enableOfflineQueue: false,
    retryStrategy: null,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    // The probe's write shows whether the data set is loaded.
    enableReadyCheck: false,
    disableClientInfo: true,
    // Proxies in front of Redis support RESP2.
    protocol: 2,
    ...(address.username === undefined ? {} : { username: address.username }),
    ...(address.password === undefined ? {} : { password: address.password }),
    ...(address.tls ? { tls: {} } : {}),
  } satisfies RedisOptions;
}

function rotate(nodes: readonly RedisNode[], attempt: number): RedisNode[] {
  const first = attempt % nodes.length;
  return [...nodes.slice(first), ...nodes.slice(0, first)].map(({ host, port }) => ({ host, port }));
}
