// What replicas tell each other about keys: a mark in Redis that a key has ended or changed, and a message to everyone who remembers it.
// Both can get lost. The change feed of the store (change-feed.ts) is what makes up for that, and repairs the mark.
import { z } from 'zod';
import { RecentMap } from '../../recent-map.ts';
import { parseUntrusted } from '../../redis/foreign-text.ts';
import type { RedisClient } from '../../redis/redis-client.ts';
import { CHANGE_KINDS, type ChangeKind, isPrefix, type Prefix } from '../../store/key-record.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import type { CheckableKey } from '../key/principal.ts';
import type { Announcement, Announcer } from './announcer.ts';
import { observeLag } from './change-feed.ts';
import type { KeyListener } from './key-cache.ts';
import { KeyTombstones, type SharedRecords, type Tombstone } from './shared-records.ts';

/** Marks that are written again when Redis comes back, from which it may have lost them. */
const MAX_MARKED = 1000;

const Notice = z.object({
  prefix: z.string(),
  kind: z.enum(CHANGE_KINDS),
  version: z.int().min(1),
  at: z.string(),
});

/** Of one key, or of several keys of a holder. */
const Message = z.union([Notice, z.array(Notice)]);

interface KeyAnnouncerOptions {
  readonly redis: Pick<RedisClient, 'script'>;
  /** Sends a message to all replicas. */
  readonly send: (body: string) => Promise<void>;
  /** Where records of active keys go; left out where the secret is not known. */
  readonly shared?: Pick<SharedRecords, 'keep' | 'succeed'>;
}

/** Tells of what this process did: first the mark, so that whoever looks again after the message finds it. */
export class KeyAnnouncer implements Announcer {
  readonly #parts: KeyAnnouncerOptions;
  readonly #tombstones: KeyTombstones;

  constructor(parts: KeyAnnouncerOptions) {
    this.#parts = parts;
    this.#tombstones = new KeyTombstones(parts.redis);
  }

  async announce({ prefix, kind, version, at }: Announcement, record?: CheckableKey): Promise<void> {
    const tombstone = markOf(kind);
    if (tombstone !== undefined) await this.#tombstones.mark(tombstone, prefix, version);
    else if (record !== undefined) await this.#parts.shared?.keep(record);
    await this.#send({ prefix, kind, version, at });
  }

  async announceChanged(records: readonly CheckableKey[], at: string): Promise<void> {
    await Promise.all(records.map((record) => this.#replace(record)));
    const notices = records.map(({ prefix, version }) => ({ prefix, kind: 'changed', version, at }) as const);
    await this.#send(notices);
  }

  /** Without the secret there is a mark, and whoever needs the record reads the store. */
  async #replace(record: CheckableKey): Promise<void> {
    if ((await this.#parts.shared?.succeed(record)) === true) return;
    await this.#tombstones.mark('changed', record.prefix, record.version);
  }

  async #send(message: z.input<typeof Message>): Promise<void> {
    try {
      await this.#parts.send(JSON.stringify(message));
    } catch {
      // Redis is away. Whoever does not hear of it reads the feed.
    }
  }
}

interface KeyBroadcastOptions {
  readonly redis: RedisClient;
  readonly listener: Pick<KeyListener, 'changed'>;
  readonly metrics: Pick<Metrics, 'keyChanges' | 'keyLag'>;
}

/** Hears what others did, and keeps the marks in Redis complete. */
export class KeyBroadcast {
  readonly #parts: KeyBroadcastOptions;
  readonly #tombstones: KeyTombstones;
  readonly #marked = new RecentMap<Prefix, { readonly tombstone: Tombstone; readonly version: number }>(
    MAX_MARKED,
  );
  #repairing: Promise<void> | undefined;

  constructor(parts: KeyBroadcastOptions) {
    this.#parts = parts;
    this.#tombstones = new KeyTombstones(parts.redis);
    parts.redis.onUp(() => this.#repair());
  }

  /** A message of another process. It only makes this one look again, so it need not be believed. */
  heard(text: string): void {
    const { listener, metrics } = this.#parts;
    for (const change of readNotices(text)) {
      if (!listener.changed(change)) continue;
      metrics.keyChanges.inc({ kind: change.kind });
      observeLag(metrics.keyLag, 'message', change.at);
    }
  }

  /** Read in the feed. Whoever changed the key has marked it too, unless Redis was away or has forgotten it since. */
  async read({ prefix, kind, version }: Announcement): Promise<void> {
    const tombstone = markOf(kind);
    if (tombstone === undefined) return;
    this.#marked.set(prefix, { tombstone, version });
    await this.#tombstones.mark(tombstone, prefix, version);
  }

  #repair(): void {
    this.#repairing ??= this.#markAll().finally(() => {
      this.#repairing = undefined;
    });
  }

  async #markAll(): Promise<void> {
    for (const [prefix, { tombstone, version }] of [...this.#marked]) {
      if (!(await this.#tombstones.mark(tombstone, prefix, version))) return;
    }
  }
}

/** What a change leaves in Redis; a new key leaves no mark. */
function markOf(kind: ChangeKind): Tombstone | undefined {
  if (kind === 'issued') return undefined;
  return kind === 'changed' ? 'changed' : 'ended';
}

function readNotices(text: string): readonly Announcement[] {
  const message = parseUntrusted(Message, text) ?? [];
  return [message].flat().flatMap(({ prefix, ...rest }) => (isPrefix(prefix) ? [{ ...rest, prefix }] : []));
}
