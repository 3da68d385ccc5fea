// Key changes between replicas: a tombstone in Redis for a key that has ended or changed, and a message to all replicas that may
// have cached it. Both can be lost. The change feed of the store (change-feed.ts) compensates, and restores the tombstone.
import { z } from 'zod';
import { RecentMap } from '../../recent-map.ts';
import { parseUntrusted } from '../../redis/foreign-text.ts';
import type { RedisClient } from '../../redis/redis-client.ts';
import { singleFlight } from '../../single-flight.ts';
import { CHANGE_KINDS, type ChangeKind, isPrefix, type Prefix } from '../../store/key-record.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import type { CheckableKey } from '../key/principal.ts';
import { observeLag } from './change-feed.ts';
import type { Announcement, KeyListener } from './key-cache.ts';
import { KeyTombstones, type SharedRecords, type Tombstone } from './shared-records.ts';

/** Maximum number of tombstones to write again after a reconnect, because Redis may have lost them. */
const MAX_TOMBSTONES = 1000;

const Notice = z.object({
  prefix: z.string(),
  kind: z.enum(CHANGE_KINDS),
  version: z.int().min(1),
  at: z.string(),
});

/** One key, or several keys of a holder. */
const Message = z.union([Notice, z.array(Notice)]);

interface KeyAnnouncerOptions {
  readonly redis: Pick<RedisClient, 'script'>;
  /** Sends a message to all replicas. */
  readonly send: (body: string) => Promise<unknown>;
  /** The records of active keys in Redis; omitted when the secret is not available. */
  readonly shared?: Pick<SharedRecords, 'publish' | 'replace'> | undefined;
}

/**
 * Announces changes by this process: the tombstone first, so that replicas find it when the message makes them look. Its methods
 * never reject and do not block for long: processes that they cannot reach read the change feed.
 */
export class KeyAnnouncer {
  readonly #parts: KeyAnnouncerOptions;
  readonly #tombstones: KeyTombstones;

  constructor(parts: KeyAnnouncerOptions) {
    this.#parts = parts;
    this.#tombstones = new KeyTombstones(parts.redis);
  }

  /** @param record the record of an issued key */
  async announce({ prefix, kind, version, at }: Announcement, record?: CheckableKey): Promise<void> {
    const tombstone = tombstoneOf(kind);
    if (tombstone !== undefined) await this.#tombstones.write(tombstone, prefix, version);
    else if (record !== undefined) await this.#parts.shared?.publish(record);
    await this.#send({ prefix, kind, version, at });
  }

  /**
   * Announces a change of a holder in one message for all of its keys.
   * @param records current records of its active keys
   * @param at RFC 3339, UTC
   */
  async announceChanged(records: readonly CheckableKey[], at: string): Promise<void> {
    await Promise.all(records.map((record) => this.#replace(record)));
    const notices = records.map(({ prefix, version }) => ({ prefix, kind: 'changed', version, at }) as const);
    await this.#send(notices);
  }

  /** Without the secret it writes a tombstone, and replicas read the record from the store. */
  async #replace(record: CheckableKey): Promise<void> {
    if ((await this.#parts.shared?.replace(record)) === true) return;
    await this.#tombstones.write('changed', record.prefix, record.version);
  }

  async #send(message: z.input<typeof Message>): Promise<void> {
    try {
      await this.#parts.send(JSON.stringify(message));
    } catch {
      // Redis is unavailable. Replicas read the change feed.
    }
  }
}

interface KeyBroadcastOptions {
  readonly redis: RedisClient;
  readonly listener: Pick<KeyListener, 'changed'>;
  readonly metrics: Pick<Metrics, 'keyChanges' | 'keyLag'>;
}

/** Receives changes by other processes, and restores missing tombstones in Redis. */
export class KeyBroadcast {
  readonly #parts: KeyBroadcastOptions;
  readonly #tombstones: KeyTombstones;
  readonly #recent = new RecentMap<Prefix, { readonly tombstone: Tombstone; readonly version: number }>(
    MAX_TOMBSTONES,
  );
  readonly #repair = singleFlight(() => this.#writeAll());

  constructor(parts: KeyBroadcastOptions) {
    this.#parts = parts;
    this.#tombstones = new KeyTombstones(parts.redis);
    parts.redis.onUp(() => void this.#repair());
  }

  /** Handles a message of another process. It only invalidates caches, so it need not be trusted. */
  receive(text: string): void {
    const { listener, metrics } = this.#parts;
    for (const change of readNotices(text)) {
      if (!listener.changed(change)) continue;
      metrics.keyChanges.inc({ kind: change.kind });
      observeLag(metrics.keyLag, 'message', change.at);
    }
  }

  /** Restores the tombstone of a change in the feed, in case Redis was unavailable or has lost it. */
  async onFeedChange({ prefix, kind, version }: Announcement): Promise<void> {
    const tombstone = tombstoneOf(kind);
    if (tombstone === undefined) return;
    this.#recent.set(prefix, { tombstone, version });
    await this.#tombstones.write(tombstone, prefix, version);
  }

  async #writeAll(): Promise<void> {
    for (const [prefix, { tombstone, version }] of [...this.#recent]) {
      if (!(await this.#tombstones.write(tombstone, prefix, version))) return;
    }
  }
}

/** The tombstone for a change; undefined for a new key. */
function tombstoneOf(kind: ChangeKind): Tombstone | undefined {
  if (kind === 'issued') return undefined;
  return kind === 'changed' ? 'changed' : 'ended';
}

function readNotices(text: string): readonly Announcement[] {
  const message = parseUntrusted(Message, text) ?? [];
  return [message].flat().flatMap(({ prefix, ...rest }) => (isPrefix(prefix) ? [{ ...rest, prefix }] : []));
}
