// From an address in the configuration to an ioredis object that is not connected yet. Every option that bounds a wait or
// forbids a second try is here; when to connect, and when to give up a connection, is decided by who made it.
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { type RedisAddress, type RedisNode, readRedisAddress } from '../config/schema/redis-address.ts';

interface ConnectionLimits {
  /** Longest time for a connection to be accepted, in milliseconds. */
  readonly connectMs: number;
  /** What `CLIENT LIST` shows. */
  readonly name: string;
}

/** Until the first TCP keep-alive probe, in milliseconds. */
const KEEP_ALIVE_MS = 10_000;
/** A socket that is given up does not wait for the other side, which may be gone. */
const DISCONNECT_MS = 1;
/** A node that has moved is learned from its answer; this is for those that nobody asks. */
const SLOTS_REFRESH_MS = 30_000;

/**
 * The address in a URL that the configuration has accepted.
 * @throws Error for one that it would have refused; the text does not quote it
 */
export function parseRedisUrl(url: string): RedisAddress {
  const reading = readRedisAddress(url);
  if (!reading.ok) throw new Error(`the Redis URL ${reading.fault}`);
  return reading.value;
}

/**
 * A client for commands.
 * @param turn which of several nodes is asked first; another one for every try, or one that is silent would take all the time
 */
export function createCommands(
  address: RedisAddress,
  limits: ConnectionLimits,
  turn: number,
): Redis | Cluster {
  if (address.kind !== 'cluster') return createSingle(address, limits, turn);
  return new Cluster(rotate(address.nodes, turn), {
    lazyConnect: true,
    enableOfflineQueue: false,
    clusterRetryStrategy: null,
    clusterNodeRetryStrategy: null,
    maxRedirections: 3,
    // A node that is gone, or a Cluster that is down, is found out by the first command, and no command waits for its return.
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    retryDelayOnTryAgain: 20,
    slotsRefreshTimeout: limits.connectMs,
    slotsRefreshInterval: SLOTS_REFRESH_MS,
    // Certificates are for names, so names are kept where there are any.
    ...(address.tls ? { dnsLookup: (host: string, done: DnsDone) => done(null, host) } : {}),
    redisOptions: common(address, limits),
  });
}

/** A client for one connection to subscribe with. Any node of a Cluster will do: they pass every message on to each other. */
export function createSubscriber(address: RedisAddress, limits: ConnectionLimits, turn: number): Redis {
  return createSingle(address, limits, turn);
}

type DnsDone = (error: null, address: string) => void;

function createSingle(address: RedisAddress, limits: ConnectionLimits, turn: number): Redis {
  const options = common(address, limits);
  const nodes = rotate(address.nodes, turn);
  if (address.kind === 'sentinel') {
    return new Redis({
      ...options,
      db: address.db,
      name: address.name,
      role: 'master',
      sentinels: nodes,
      sentinelRetryStrategy: () => null,
      sentinelCommandTimeout: limits.connectMs,
      // The answer to INFO tells whether it is a master still.
      enableReadyCheck: true,
      ...(address.tls ? { enableTLSForSentinelMode: true, sentinelTLS: {} } : {}),
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
    // What is not sent now is refused now. A connection that ended is not mended but replaced, so that nothing of the old one
    // (a queue, a half answer, a node that was master) reaches the new one.
    enableOfflineQueue: false,
    retryStrategy: null,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    // The first write tells whether the data are loaded.
    enableReadyCheck: false,
    disableClientInfo: true,
    // Proxies in front of Redis know this one.
    protocol: 2,
    ...(address.username === undefined ? {} : { username: address.username }),
    ...(address.password === undefined ? {} : { password: address.password }),
    ...(address.tls ? { tls: {} } : {}),
  } satisfies RedisOptions;
}

function rotate(nodes: readonly RedisNode[], turn: number): RedisNode[] {
  const first = turn % nodes.length;
  return [...nodes.slice(first), ...nodes.slice(0, first)].map(({ host, port }) => ({ host, port }));
}
