// One connection to Redis (to all nodes, where it is a Cluster), from the first packet to its end: it is proven by a write
// before anybody uses it, and never mended. Who decides that it is over is the client.
import { Cluster, type Redis, type RedisCommander } from 'ioredis';
import type { RedisAddress } from '../config/schema/redis-address.ts';
import { createCommands } from './open-redis.ts';
import { inTime } from './redis-deadline.ts';
import { classifyError, plainError } from './redis-fault.ts';

/** Commands that change what the shared connection is, or hold it up for all others. */
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

/** What can be asked of Redis. In a Cluster all keys of one command have the same hash tag. */
export type RedisCommands = Omit<RedisCommander<{ type: 'default'; mapping: 'resp2' }>, Unshared>;

interface LinkOptions {
  readonly address: RedisAddress;
  /** Longest time until it is connected; where nodes have to be found first, three times as long. */
  readonly connectMs: number;
  /** Longest time for an answer to the write that proves it: as long as for a request, or it would be found well and fail. */
  readonly commandMs: number;
  /** See `createCommands`. */
  readonly turn: number;
  /** Gives the try up. */
  readonly signal: AbortSignal;
  /** Redis has answered, in whatever time. */
  readonly onHeard?: () => void;
}

/** Written to find out whether writes are taken. It expires by itself. */
const PROBE_KEY = 'tollgate:probe';
const PROBE_MS = 10_000;

export class RedisLink {
  readonly #client: Redis | Cluster;
  #onEnd: ((cause: Error) => void) | undefined;
  #lastError: Error | undefined;
  #ended = false;

  /**
   * Connects, and proves that writes are taken.
   * @throws DeadlinePassed, or what ioredis throws; nothing of the try is left then
   */
  static async open(options: LinkOptions): Promise<RedisLink> {
    const { address, connectMs, commandMs, turn, signal } = options;
    const link = new RedisLink(createCommands(address, { connectMs, name: 'tollgate' }, turn));
    const patience = address.kind === 'single' ? connectMs : 3 * connectMs;
    try {
      await inTime(link.#client.connect(), 'Redis', patience, signal);
      options.onHeard?.();
      // The nodes of a Cluster are connected to by the first command for each.
      if (link.#client instanceof Cluster) await inTime(link.prove(), 'Redis', connectMs, signal);
      await inTime(link.prove(), 'Redis', commandMs, signal);
      if (link.#ended || link.#lastError !== undefined) throw new Error('the connection ended');
      return link;
    } catch (error) {
      link.destroy();
      // ioredis rejects with "Connection is closed"; why it was closed came before.
      throw link.#lastError ?? error;
    }
  }

  private constructor(client: Redis | Cluster) {
    this.#client = client;
    // An 'error' that nobody listens to would end the process or be printed.
    client.on('error', (error: unknown) => {
      this.#lastError = plainError(error);
    });
    client.on('close', () => this.#end());
    client.on('end', () => this.#end());
  }

  get commands(): RedisCommands {
    return this.#client;
  }

  /** Calls back once when the connection ends by itself. */
  onEnd(listener: (cause: Error) => void): void {
    this.#onEnd = listener;
    if (this.#ended) listener(this.#lastError ?? new Error('the connection ended'));
  }

  /** Rejects unless every master answers and a write is taken, or refused for a reason that holds for this command alone. */
  async prove(): Promise<void> {
    const client = this.#client;
    const masters = client instanceof Cluster ? client.nodes('master') : [];
    await Promise.all(masters.map((node) => node.ping()));
    try {
      await client.set(PROBE_KEY, '1', 'PX', PROBE_MS);
    } catch (error) {
      if (classifyError(error).kind !== 'command') throw error;
    }
  }

  /** Ends it at once, whatever is under way. */
  destroy(): void {
    this.#onEnd = undefined;
    this.#ended = true;
    this.#client.disconnect();
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#onEnd?.(this.#lastError ?? new Error('the connection ended'));
  }
}
