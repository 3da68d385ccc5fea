// One connection to Redis, or to all nodes of a Cluster. A write probes it before use, and it is never reopened. RedisClient
// decides when to give it up.
import type { Cluster, Redis, RedisCommander } from 'ioredis';
import type { RedisAddress } from '../config/schema/redis-address.ts';
import { createCommands } from './open-redis.ts';
import { inTime } from './redis-deadline.ts';
import { classifyError, plainError } from './redis-fault.ts';

/** Commands that change the state of the shared connection or block it. */
type Unshared =
  | 'auth'
  | 'blmove'
  | 'blmpop'
  | 'blpop'
  | 'brpop'
  | 'brpoplpush'
  | 'bzmpop'
  | 'bzpopmax'
  | 'bzpopmin'
  | 'client'
  | 'monitor'
  | 'psubscribe'
  | 'quit'
  | 'reset'
  | 'select'
  | 'ssubscribe'
  | 'subscribe'
  | 'wait'
  | 'xread'
  | 'xreadgroup';

/** The commands that can be sent. In a Cluster all keys of one command have the same hash tag. */
export type RedisCommands = Omit<RedisCommander<{ type: 'default'; mapping: 'resp2' }>, Unshared>;

interface LinkOptions {
  readonly address: RedisAddress;
  /** Connect timeout, in milliseconds; three times as long with Sentinel or Cluster, where nodes are discovered first. */
  readonly connectMs: number;
  /** Deadline of the probe, in milliseconds: that of a call, or a link could pass the probe and then fail calls. */
  readonly commandMs: number;
  /** See `createCommands`. */
  readonly attempt: number;
  readonly signal: AbortSignal;
  /** Called when connected, before the probe. */
  readonly onConnected?: () => void;
}

/** The probe writes this key, to see whether writes are accepted. It expires. */
const PROBE_KEY = 'tollgate:probe';
const PROBE_MS = 10_000;

export class RedisLink {
  readonly #client: Redis | Cluster;
  #onEnd: ((cause: Error) => void) | undefined;
  #lastError: Error | undefined;
  #ended = false;

  /** Connects and probes. @throws DeadlinePassed or an error of ioredis; the connection is closed then */
  static async open(options: LinkOptions): Promise<RedisLink> {
    const { address, connectMs, commandMs, attempt, signal } = options;
    const link = new RedisLink(await createCommands(address, { connectMs, name: 'tollgate' }, attempt));
    const timeoutMs = address.kind === 'single' ? connectMs : 3 * connectMs;
    try {
      await inTime(link.#client.connect(), 'Redis', timeoutMs, signal);
      options.onConnected?.();
      // ioredis connects to a node of a Cluster with the first command for it.
      if (isCluster(link.#client)) await inTime(link.probe(), 'Redis', connectMs, signal);
      await inTime(link.probe(), 'Redis', commandMs, signal);
      if (link.#ended || link.#lastError !== undefined) throw new Error('the connection was closed');
      return link;
    } catch (error) {
      link.destroy();
      // ioredis rejects with "Connection is closed"; the 'error' event before it had the cause.
      throw link.#lastError ?? error;
    }
  }

  private constructor(client: Redis | Cluster) {
    this.#client = client;
    // An 'error' event without a listener would end the process or be printed.
    client.on('error', (error: unknown) => {
      this.#lastError = plainError(error);
    });
    client.on('close', () => this.#end());
    client.on('end', () => this.#end());
  }

  get commands(): RedisCommands {
    return this.#client;
  }

  /** Calls the listener once when the connection closes other than by `destroy`. */
  onEnd(listener: (cause: Error) => void): void {
    this.#onEnd = listener;
    if (this.#ended) listener(this.#lastError ?? new Error('the connection was closed'));
  }

  /** Rejects unless every master answers a ping and a write does not fail as unavailable. */
  async probe(): Promise<void> {
    const client = this.#client;
    const masters = isCluster(client) ? client.nodes('master') : [];
    await Promise.all(masters.map((node) => node.ping()));
    try {
      await client.set(PROBE_KEY, '1', 'PX', PROBE_MS);
    } catch (error) {
      if (classifyError(error).kind !== 'command') throw error;
    }
  }

  /** Closes the connection at once; commands in flight fail. */
  destroy(): void {
    this.#onEnd = undefined;
    this.#ended = true;
    this.#client.disconnect();
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#onEnd?.(this.#lastError ?? new Error('the connection was closed'));
  }
}

/** `instanceof` would load ioredis. */
function isCluster(client: Redis | Cluster): client is Cluster {
  return client.isCluster;
}
