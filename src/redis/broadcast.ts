// Messages to all replicas of a fleet, and the wait for their acknowledgements. replicas.ts receives them.
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { z } from 'zod';
import type { Logger } from '../telemetry/log/logger.ts';
import type { RedisClient } from './redis-client.ts';
import { inTime } from './redis-deadline.ts';
import {
  type Capability,
  CHANNEL,
  type Envelope,
  findDescription,
  HEARTBEAT_MS,
  replicasSeen,
  type SeenReplica,
} from './replicas.ts';
import { Subscription } from './subscription.ts';

/** The result of a broadcast with acknowledgements. */
export interface Confirmation {
  readonly confirmed: readonly { readonly id: string; readonly ms: number; readonly reply?: string }[];
  readonly missing: readonly SeenReplica[];
  /** Replicas that acknowledge without effect: their version does not support this kind of change. */
  readonly incapable: readonly { readonly id: string; readonly version: string | undefined }[];
}

/** How a broadcast goes on: for whom it waits, and each that has acknowledged. */
export type BroadcastProgress =
  | { readonly kind: 'waiting'; readonly ids: readonly string[] }
  | { readonly kind: 'confirmed'; readonly id: string; readonly ms: number };

interface BroadcastParts {
  readonly redis: RedisClient;
  /** The URL of the same Redis, for the subscription. */
  readonly url: string;
  readonly logger: Logger;
  readonly onProgress?: ((progress: BroadcastProgress) => void) | undefined;
}

/**
 * Sends a message to all replicas and waits until each capable one has acknowledged that it has applied it.
 *
 * @param deadlineMs maximum wait for the last acknowledgement
 * @param needs the capability that a replica needs; omitted when every version has it
 * @throws RedisUnavailable, RedisCommandError when nothing was sent
 */
export async function sendAndConfirm(
  { redis, url, logger, onProgress }: BroadcastParts,
  body: string,
  deadlineMs: number,
  needs?: Capability,
): Promise<Confirmation> {
  const ack = `tollgate:ack:${randomBytes(12).toString('hex')}`;
  const confirmed = new Map<string, { readonly ms: number; readonly reply?: string }>();
  const missing = new Map<string, number>();
  const incapable = new Map<string, string | undefined>();
  const check = async (id: string): Promise<void> => {
    if (needs === undefined) return;
    let description = await findDescription(redis, id);
    if (description === undefined) {
      // Either an older version, or a Redis that has lost its data: the next heartbeat writes it again.
      await delay(HEARTBEAT_MS + 200);
      description = await findDescription(redis, id);
    }
    if (description?.understands.includes(needs) !== true) incapable.set(id, description?.version);
  };
  let sentAt = 0;
  let onAnswer = () => {};
  const waitUntil = async (isDone: () => boolean, maxMs: number): Promise<void> => {
    if (isDone()) return;
    const done = new Promise<void>((resolve) => {
      onAnswer = () => isDone() && resolve();
    });
    await inTime(done, 'a replica', maxMs).catch(() => {});
  };
  const subscription = new Subscription({
    url,
    logger,
    channel: ack,
    onMessage: (text) => {
      const at = text.indexOf('\n');
      const id = at === -1 ? text : text.slice(0, at);
      const ms = performance.now() - sentAt;
      if (!confirmed.has(id)) confirmed.set(id, at === -1 ? { ms } : { ms, reply: text.slice(at + 1) });
      if (missing.delete(id)) onProgress?.({ kind: 'confirmed', id, ms });
      onAnswer();
    },
  });
  // Fails fast while Redis is unavailable, before the wait for a subscription.
  await redis.run((commands) => commands.ping());
  try {
    await subscription.start();
    const seen = await replicasSeen(redis);
    await Promise.all(seen.map(({ id }) => check(id)));
    // Do not wait for incapable replicas.
    for (const { id, seenMs } of seen) if (!incapable.has(id)) missing.set(id, seenMs);
    const isSeen = new Set(seen.map(({ id }) => id));
    onProgress?.({ kind: 'waiting', ids: [...missing.keys()] });
    sentAt = performance.now();
    const subscribers = await publish(redis, { body, ack });
    await waitUntil(() => missing.size === 0, deadlineMs);
    // A Redis that has lost its data knows the subscribers at once, and their registrations after the next heartbeat.
    await waitUntil(() => confirmed.size >= subscribers, Math.min(deadlineMs, HEARTBEAT_MS));
    // One that has joined since.
    await Promise.all([...confirmed.keys()].filter((id) => !isSeen.has(id)).map(check));
    for (const id of incapable.keys()) confirmed.delete(id);
  } finally {
    await subscription.close();
  }
  return {
    confirmed: Array.from(confirmed, ([id, answer]) => ({ id, ...answer })),
    missing: Array.from(missing, ([id, seenMs]) => ({ id, seenMs })),
    incapable: Array.from(incapable, ([id, version]) => ({ id, version })),
  };
}

/**
 * Sends a message to all replicas, including this one.
 * @returns how many subscribers Redis sent it to; in a Cluster those of one node
 * @throws RedisUnavailable, RedisCommandError
 */
export function publish(redis: RedisClient, envelope: z.input<typeof Envelope>): Promise<number> {
  return redis.run((commands) => commands.publish(CHANNEL, JSON.stringify(envelope)));
}
