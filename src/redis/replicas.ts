// The replicas of a fleet: their registry, and what each does with a message. broadcast.ts sends the messages, whose content belongs
// to their sender and receivers.
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { z } from 'zod';
import type { Logger } from '../telemetry/log/logger.ts';
import { parseUntrusted } from './foreign-text.ts';
import type { RedisClient } from './redis-client.ts';
import type { RedisScript } from './redis-script.ts';
import { Subscription } from './subscription.ts';

export const CHANNEL = 'tollgate:changes';
const REGISTRY = 'tollgate:replicas';
/** Prefix of each replica's own key with its description. Older versions write none. */
const DESCRIPTION_PREFIX = 'tollgate:replica:';
export const HEARTBEAT_MS = 1000;
/** A replica with a heartbeat within this time counts as serving; Redis may have been late for part of it. */
const SERVING_MS = 15_000;
/**
 * A replica without a heartbeat for this long has expired all its cached keys. Until then it counts, because a
 * disconnected replica and a killed one look the same.
 */
const RETAINED_MS = 65_000;

/** Redis's clock, so that clocks of replicas need not agree. */
const NOW = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)`;

const HEARTBEAT = {
  name: 'heartbeat',
  keys: 1,
  lua: `${NOW}
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2] * 2)
return redis.call('ZRANGEBYSCORE', KEYS[1], now - ARGV[3], '+inf')`,
} as const;

const REPLICAS = {
  name: 'replicas',
  keys: 1,
  lua: `${NOW}
local found = {}
local entries = redis.call('ZRANGEBYSCORE', KEYS[1], now - ARGV[1], '+inf', 'WITHSCORES')
for i = 1, #entries, 2 do
  found[i] = entries[i]
  found[i + 1] = tostring(now - tonumber(entries[i + 1]))
end
return found`,
} as const;

/**
 * Kinds of change that a replica can apply. Every version applies a revocation, so it has no name here. A replica without a
 * description supports none of these.
 */
const CAPABILITIES = ['tier', 'suspension', 'upstreams'] as const;
export type Capability = (typeof CAPABILITIES)[number];

const Description = z.object({ version: z.string().max(64), understands: z.array(z.string()).readonly() });

const Ids = z.array(z.string());

export const Envelope = z.object({
  body: z.string(),
  ack: z
    .string()
    .regex(/^tollgate:ack:[0-9a-f]{24}$/)
    .optional(),
});

interface ReplicasOptions {
  readonly redis: RedisClient;
  /** The URL of the same Redis, for the subscription. */
  readonly url: string;
  readonly logger: Logger;
  /** Version of Tollgate, announced for support. */
  readonly version: string;
  /** Applies a message, which is acknowledged afterwards. @returns what to answer, for a question */
  readonly onMessage: (body: string) => Promise<string | undefined> | undefined;
  /** Called when messages may be missed from now on. */
  readonly onLost: () => void;
  /** Called when none is missed from now on. */
  readonly onRestored: () => void;
}

/** This process as one of the replicas. */
export class Replicas {
  /** Identifies the replica for support: host, process and random bytes, because the first two can repeat. */
  readonly id = `${hostname()}:${process.pid}:${randomBytes(3).toString('hex')}`;
  readonly #options: ReplicasOptions;
  readonly #heartbeat: RedisScript;
  readonly #subscription: Subscription;
  #timer: NodeJS.Timeout | undefined;
  #serving: readonly string[] = [];

  constructor(options: ReplicasOptions) {
    const { redis, url, logger, onLost, onRestored } = options;
    this.#options = options;
    this.#heartbeat = redis.script(HEARTBEAT);
    this.#subscription = new Subscription({
      url,
      logger,
      channel: CHANNEL,
      onMessage: (text) => this.#receive(text),
      onLost,
      onRestored: () => {
        // Senders have to count this replica from now on.
        void this.#sendHeartbeat();
        onRestored();
      },
    });
  }

  get isLinked(): boolean {
    return this.#subscription.isLinked;
  }

  /** The position of this replica among those that served at the last heartbeat. */
  get position(): { readonly index: number; readonly count: number } {
    const index = this.#serving.indexOf(this.id);
    return index === -1
      ? { index: this.#serving.length, count: this.#serving.length + 1 }
      : { index, count: this.#serving.length };
  }

  /** Resolves when subscribed, or after 1 s: an unavailable Redis does not keep the gateway from starting. */
  async start(): Promise<void> {
    await this.#subscription.start();
    this.#timer = setInterval(() => void this.#sendHeartbeat(), HEARTBEAT_MS);
    this.#timer.unref();
  }

  /** Leaves the fleet, so that no sender waits for this replica's acknowledgement. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#subscription.close();
    await this.#options.redis.run((commands) => commands.zrem(REGISTRY, this.id)).catch(() => {});
  }

  async #sendHeartbeat(): Promise<void> {
    // Without a subscription send no heartbeat, so that senders report this replica as missing.
    if (!this.#subscription.isLinked) return;
    const { redis, version } = this.#options;
    try {
      // Write the description before the registration, or senders would take this replica for an old version. It needs
      // a command of its own: in a Cluster all keys of one script have to be in one slot.
      const description = { version, understands: CAPABILITIES } satisfies z.input<typeof Description>;
      const text = JSON.stringify(description);
      await redis.run((commands) => commands.set(descriptionKey(this.id), text, 'PX', 2 * RETAINED_MS));
      const serving = await this.#heartbeat([REGISTRY], [this.id, RETAINED_MS, SERVING_MS]);
      this.#serving = Ids.parse(serving).sort();
    } catch {
      // Redis is unavailable. The next heartbeat tries again.
    }
  }

  #receive(text: string): void {
    const envelope = parseUntrusted(Envelope, text);
    if (envelope === undefined) return;
    const { redis, onMessage } = this.#options;
    const { ack, body } = envelope;
    const acknowledge = async (reply: string | undefined) => {
      if (ack === undefined) return;
      const text = reply === undefined ? this.id : `${this.id}\n${reply}`;
      await redis.run((commands) => commands.publish(ack, text));
    };
    // Not acknowledged when it failed: the sender then reports this replica.
    Promise.resolve(onMessage(body))
      .then(acknowledge)
      .catch(() => {});
  }
}

export interface SeenReplica {
  readonly id: string;
  /** Milliseconds since its last heartbeat. */
  readonly seenMs: number;
}

function descriptionKey(id: string): string {
  return `${DESCRIPTION_PREFIX}${id}`;
}

/** @returns undefined for a replica without a description */
export async function findDescription(
  redis: RedisClient,
  id: string,
): Promise<z.output<typeof Description> | undefined> {
  const text = await redis.run((commands) => commands.get(descriptionKey(id)));
  return text === null ? undefined : parseUntrusted(Description, text);
}

/** Replicas with a heartbeat in the last 65 s. */
export async function replicasSeen(redis: RedisClient): Promise<readonly SeenReplica[]> {
  const answer = await redis.script(REPLICAS)([REGISTRY], [RETAINED_MS]);
  const cells = Ids.parse(answer);
  return cells.flatMap((id, index) =>
    index % 2 === 0 ? [{ id, seenMs: Math.max(0, Number(cells[index + 1])) }] : [],
  );
}
