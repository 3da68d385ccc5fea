// What replicas tell each other about keys: a mark in Redis that a key has ended, and a message to everyone who remembers it.
// Both can get lost. The change feed of the store (changes.ts) is what makes up for that, and repairs the mark.
import { z } from 'zod';
import { RecentMap } from '../recent-map.ts';
import type { RedisClient } from '../redis/client.ts';
import { readForeign } from '../redis/foreign.ts';
import { isPrefix, type Prefix } from '../store/record.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { KeyListener } from './cache.ts';
import type { CheckableKey } from './caller.ts';
import { observeLag } from './changes.ts';
import type { Announcement, Announcer } from './issuer.ts';
import { EndedMarks, type SharedRecords } from './shared-records.ts';

/** Marks that are written again when Redis comes back, from which it may have lost them. */
const MAX_ENDED = 1000;

const Notice = z.object({
  prefix: z.string(),
  kind: z.enum(['issued', 'rotated', 'revoked']),
  version: z.int().min(1),
  at: z.string(),
});

export interface KeyAnnouncerParts {
  readonly redis: Pick<RedisClient, 'script'>;
  /** Sends a message to all replicas. */
  readonly send: (body: string) => Promise<void>;
  /** Where records of issued keys go; left out where the secret is not known. */
  readonly shared?: Pick<SharedRecords, 'keep'>;
}

/** Tells of what this process did: first the mark, so that whoever looks again after the message finds it. */
export class KeyAnnouncer implements Announcer {
  readonly #parts: KeyAnnouncerParts;
  readonly #marks: EndedMarks;

  constructor(parts: KeyAnnouncerParts) {
    this.#parts = parts;
    this.#marks = new EndedMarks(parts.redis);
  }

  async announce({ prefix, kind, version, at }: Announcement, record?: CheckableKey): Promise<void> {
    const { send, shared } = this.#parts;
    if (kind !== 'issued') await this.#marks.mark(prefix, version);
    else if (record !== undefined) await shared?.keep(record);
    try {
      await send(JSON.stringify({ prefix, kind, version, at }));
    } catch {
      // Redis is away. Whoever does not hear of it reads the feed.
    }
  }
}

export interface KeyFleetParts {
  readonly redis: RedisClient;
  readonly listener: Pick<KeyListener, 'changed'>;
  readonly metrics: Pick<Metrics, 'keyChanges' | 'keyLag'>;
}

/** Hears what others did, and keeps the marks in Redis complete. */
export class KeyFleet {
  readonly #parts: KeyFleetParts;
  readonly #marks: EndedMarks;
  readonly #ended = new RecentMap<Prefix, number>(MAX_ENDED);
  #repairing: Promise<void> | undefined;

  constructor(parts: KeyFleetParts) {
    this.#parts = parts;
    this.#marks = new EndedMarks(parts.redis);
    parts.redis.onUp(() => this.#repair());
  }

  /** A message of another process. It only makes this one look again, so it need not be believed. */
  heard(text: string): void {
    const { listener, metrics } = this.#parts;
    const change = readNotice(text);
    if (change === undefined || !listener.changed(change)) return;
    metrics.keyChanges.inc({ kind: change.kind });
    observeLag(metrics.keyLag, 'message', change.at);
  }

  /** Read in the feed. Whoever ended the key has marked it too, unless Redis was away or has forgotten it since. */
  async ended({ prefix, kind, version }: Announcement): Promise<void> {
    if (kind === 'issued') return;
    this.#ended.set(prefix, version);
    await this.#marks.mark(prefix, version);
  }

  #repair(): void {
    this.#repairing ??= this.#markAll().finally(() => {
      this.#repairing = undefined;
    });
  }

  async #markAll(): Promise<void> {
    for (const [prefix, version] of [...this.#ended]) {
      if (!(await this.#marks.mark(prefix, version))) return;
    }
  }
}

function readNotice(text: string): Announcement | undefined {
  const notice = readForeign(Notice, text);
  if (notice === undefined || !isPrefix(notice.prefix)) return undefined;
  return { ...notice, prefix: notice.prefix };
}
