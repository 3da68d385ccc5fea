// The replicas of a fleet: who is there, messages to all of them, and who has confirmed one. What a message says is the
// sender's and the receivers' matter.
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { z } from 'zod';
import type { Logger } from '../telemetry/log/logger.ts';
import { readForeign } from './foreign-text.ts';
import type { RedisClient, RedisScript } from './redis-client.ts';
import { inTime } from './redis-deadline.ts';
import { Subscription } from './subscription.ts';

const CHANNEL = 'tollgate:changes';
const REGISTRY = 'tollgate:replicas';
/** What a replica announces about itself, one key each: a replica of an older version writes none. */
const ABOUT = 'tollgate:replica:';
const HEARTBEAT_MS = 1000;
/** A replica that was heard of in this time serves: Redis may have been late for some of it. */
const SERVING_MS = 15_000;
/**
 * A replica that was not heard of for so long accepts nothing any more that it would have to be told about. Until then it is
 * counted, because from here one that is cut off and one that was killed look the same.
 */
const REMEMBERED_MS = 65_000;

/** By Redis's clock, so that those of the replicas need not agree. */
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
 * Changes that a replica can act on. Every version acts on the end of a key, so that has no name here. A replica that
 * announces nothing is older than these names and knows none of them.
 */
const CAPABILITIES = ['tier', 'suspension'] as const;
export type Capability = (typeof CAPABILITIES)[number];

const About = z.object({ version: z.string().max(64), understands: z.array(z.string()).readonly() });

const Envelope = z.object({
  body: z.string(),
  ack: z
    .string()
    .regex(/^tollgate:ack:[0-9a-f]{24}$/)
    .optional(),
});

interface ReplicasOptions {
  readonly redis: RedisClient;
  /** Of the same Redis, for a connection that listens. */
  readonly url: string;
  readonly logger: Logger;
  /** Of Tollgate, announced to the support desk. */
  readonly version: string;
  readonly onMessage: (body: string) => void;
  /** From now on messages may be missed. */
  readonly onLost: () => void;
  /** From now on none is missed. */
  readonly onRestored: () => void;
}

/** This process as one of the replicas. */
export class Replicas {
  /** Tells replicas apart, for support: host, process, and chance, because both can come again. */
  readonly id = `${hostname()}:${process.pid}:${randomBytes(3).toString('hex')}`;
  readonly #redis: RedisClient;
  readonly #heartbeat: RedisScript;
  readonly #subscription: Subscription;
  readonly #about: string;
  readonly #onMessage: (body: string) => void;
  #timer: NodeJS.Timeout | undefined;
  #serving: readonly string[] = [];

  constructor({ redis, url, logger, version, onMessage, onLost, onRestored }: ReplicasOptions) {
    this.#redis = redis;
    this.#about = JSON.stringify({ version, understands: CAPABILITIES } satisfies z.input<typeof About>);
    this.#onMessage = onMessage;
    this.#heartbeat = redis.script(HEARTBEAT);
    this.#subscription = new Subscription({
      url,
      logger,
      channels: [CHANNEL],
      onMessage: (_, text) => this.#receive(text),
      onLost,
      onRestored: () => {
        // Whoever sends a message from now on has to count this replica.
        void this.#beat();
        onRestored();
      },
    });
  }

  get isLinked(): boolean {
    return this.#subscription.isLinked;
  }

  /** Where this one stands among the replicas that served when Redis was last asked. */
  get place(): { readonly index: number; readonly count: number } {
    const index = this.#serving.indexOf(this.id);
    return index === -1
      ? { index: this.#serving.length, count: this.#serving.length + 1 }
      : { index, count: this.#serving.length };
  }

  /** Resolves when messages are heard, or after a moment: a Redis that is away keeps no gateway from starting. */
  async start(): Promise<void> {
    await this.#subscription.start();
    this.#timer = setInterval(() => void this.#beat(), HEARTBEAT_MS);
    this.#timer.unref();
  }

  /** Leaves the fleet, so that nobody waits for this one. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#subscription.close();
    await this.#redis.run((commands) => commands.zrem(REGISTRY, this.id)).catch(() => {});
  }

  /** To all replicas, this one included. @throws RedisUnavailable, RedisCommandError */
  async send(body: string): Promise<void> {
    await publish(this.#redis, { body });
  }

  async #beat(): Promise<void> {
    // A replica that hears nothing says nothing, and so is missed by whoever waits for its confirmation.
    if (!this.#subscription.isLinked) return;
    try {
      // Before it is counted, so that no command takes it for an old one. A key of its own: in a cluster, two keys of one
      // script would have to be in one slot.
      await this.#redis.run((commands) =>
        commands.set(aboutKey(this.id), this.#about, 'PX', 2 * REMEMBERED_MS),
      );
      const serving = await this.#heartbeat([REGISTRY], [this.id, REMEMBERED_MS, SERVING_MS]);
      this.#serving = readIds(serving).sort();
    } catch {
      // Redis is away. The next beat says it again.
    }
  }

  #receive(text: string): void {
    const envelope = readForeign(Envelope, text);
    if (envelope === undefined) return;
    this.#onMessage(envelope.body);
    const { ack } = envelope;
    if (ack !== undefined) this.#redis.run((commands) => commands.publish(ack, this.id)).catch(() => {});
  }
}

interface SeenReplica {
  readonly id: string;
  /** Milliseconds since it was last heard of. */
  readonly seenMs: number;
}

/** What came of a message that all replicas were to confirm. */
export interface Confirmation {
  readonly confirmed: readonly { readonly id: string; readonly ms: number }[];
  readonly missing: readonly SeenReplica[];
  /** Replicas whose confirmation would mean nothing: they do not know this kind of change. */
  readonly incapable: readonly { readonly id: string; readonly version: string | undefined }[];
}

/**
 * Sends a message to all replicas and waits until each that can act on it has confirmed that it has.
 *
 * @param deadlineMs how long to wait for the last one
 * @param needs what a replica must understand to act on it; left out where every version does
 * @throws RedisUnavailable, RedisCommandError when nothing was sent
 */
export async function sendAndConfirm(
  { redis, url, logger }: { readonly redis: RedisClient; readonly url: string; readonly logger: Logger },
  body: string,
  deadlineMs: number,
  needs?: Capability,
): Promise<Confirmation> {
  const ack = `tollgate:ack:${randomBytes(12).toString('hex')}`;
  const confirmed = new Map<string, number>();
  const missing = new Map<string, number>();
  const incapable = new Map<string, string | undefined>();
  const check = async (id: string): Promise<void> => {
    if (needs === undefined) return;
    const about = await aboutOf(redis, id);
    if (about?.understands.includes(needs) !== true) incapable.set(id, about?.version);
  };
  let begun = 0;
  let settle = () => {};
  const all = new Promise<void>((resolve) => {
    settle = resolve;
  });
  const subscription = new Subscription({
    url,
    logger,
    channels: [ack],
    onMessage: (_, id) => {
      if (!confirmed.has(id)) confirmed.set(id, performance.now() - begun);
      missing.delete(id);
      if (missing.size === 0) settle();
    },
  });
  // A Redis that is away is found out by this, before anybody waits for a connection that listens.
  await redis.run((commands) => commands.ping());
  try {
    await subscription.start();
    const seen = await replicasSeen(redis);
    await Promise.all(seen.map(({ id }) => check(id)));
    // The answer of one that cannot act on the message is not waited for.
    for (const { id, seenMs } of seen) if (!incapable.has(id)) missing.set(id, seenMs);
    const isSeen = new Set(seen.map(({ id }) => id));
    begun = performance.now();
    await publish(redis, { body, ack });
    // Without anybody to wait for, there is nothing to wait for.
    if (missing.size > 0) await inTime(all, 'a replica', deadlineMs).catch(() => {});
    // One that has joined since.
    await Promise.all([...confirmed.keys()].filter((id) => !isSeen.has(id)).map(check));
    for (const id of incapable.keys()) confirmed.delete(id);
  } finally {
    await subscription.close();
  }
  return {
    confirmed: Array.from(confirmed, ([id, ms]) => ({ id, ms })),
    missing: Array.from(missing, ([id, seenMs]) => ({ id, seenMs })),
    incapable: Array.from(incapable, ([id, version]) => ({ id, version })),
  };
}

function aboutKey(id: string): string {
  return `${ABOUT}${id}`;
}

/** @returns undefined for a replica that announces nothing */
async function aboutOf(redis: RedisClient, id: string): Promise<z.output<typeof About> | undefined> {
  const text = await redis.run((commands) => commands.get(aboutKey(id)));
  return text === null ? undefined : readForeign(About, text);
}

function readIds(answer: unknown): string[] {
  return z.array(z.string()).catch([]).parse(answer);
}

/** Replicas that were heard of in the last 65 s. */
async function replicasSeen(redis: RedisClient): Promise<readonly SeenReplica[]> {
  const answer = await redis.script(REPLICAS)([REGISTRY], [REMEMBERED_MS]);
  const cells = z.array(z.string()).parse(answer);
  return cells.flatMap((id, index) =>
    index % 2 === 0 ? [{ id, seenMs: Math.max(0, Number(cells[index + 1])) }] : [],
  );
}

/** Sends a message to all replicas. @throws RedisUnavailable, RedisCommandError */
export async function publish(
  redis: RedisClient,
  envelope: { readonly body: string; readonly ack?: string },
): Promise<void> {
  await redis.run((commands) => commands.publish(CHANNEL, JSON.stringify(envelope)));
}
