// The support desk's way to running replicas: it tells them of a change, and says who has confirmed it.

import type { KeySecret } from '../auth/hashing/hashing-secret.ts';
import type { Announcer } from '../auth/records/announcer.ts';
import { KeyAnnouncer } from '../auth/records/key-broadcast.ts';
import { SharedRecords } from '../auth/records/shared-records.ts';
import { RedisClient } from '../redis/redis-client.ts';
import { type Capability, type Confirmation, publish, sendAndConfirm } from '../redis/replicas.ts';
import { createLogger } from '../telemetry/log/logger.ts';
import { createMetrics } from '../telemetry/metrics/all-metrics.ts';

/** How long the last replica may take: by then none accepts the key any more, unless it is cut off from everything. */
const CONFIRM_MS = 5000;

/** What became of a message: confirmed by some or all, or not sent at all. */
type BroadcastResult =
  | { readonly kind: 'sent'; readonly confirmation: Confirmation }
  | { readonly kind: 'unsent'; readonly cause: string };

/** A connection to the Redis that replicas share. */
export class Fleet implements AsyncDisposable {
  readonly #url: string;
  readonly #redis: RedisClient;
  // What Redis does to the connection is told by the command in its own words.
  readonly #logger = createLogger(undefined, 'silent');
  #told: BroadcastResult | undefined;

  /** @param url `redis` of the configuration */
  static async open(url: string): Promise<Fleet> {
    const fleet = new Fleet(url);
    await fleet.#redis.start();
    return fleet;
  }

  private constructor(url: string) {
    this.#url = url;
    this.#redis = new RedisClient({ url, logger: this.#logger });
  }

  /** For a key that is issued: nobody waits for a confirmation. */
  announcer(secret: KeySecret): Announcer {
    const redis = this.#redis;
    const shared = new SharedRecords({ redis, secret, metrics: createMetrics() });
    return new KeyAnnouncer({ redis, shared, send: (body) => publish(redis, { body }) });
  }

  /**
   * For a key that ends, or whose holder changes: what became of it is in `told`.
   * @param needs what a replica must understand to act on it; left out where every version does
   */
  confirmingAnnouncer(needs?: Capability): Announcer {
    return new KeyAnnouncer({ redis: this.#redis, send: (body) => this.#confirm(body, needs) });
  }

  /** Undefined: nothing was announced yet. */
  get told(): BroadcastResult | undefined {
    return this.#told;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#redis.close();
  }

  async #confirm(body: string, needs: Capability | undefined): Promise<void> {
    const parts = { redis: this.#redis, url: this.#url, logger: this.#logger };
    try {
      this.#told = { kind: 'sent', confirmation: await sendAndConfirm(parts, body, CONFIRM_MS, needs) };
    } catch (error) {
      this.#told = { kind: 'unsent', cause: error instanceof Error ? error.message : String(error) };
    }
  }
}

/** What replicas do from then on: 'refuse it', 'refuses the key'. */
interface FleetAction {
  /** Of many, about what was just named. */
  readonly many: string;
  /** Of one. */
  readonly one: string;
  /** What a replica may be too old to know: 'suspension'. */
  readonly what: string;
}

/** Whether every running replica is known to have acted on it. Without Redis they are not asked, and read the store. */
export function isConfirmed(told: BroadcastResult | undefined): boolean {
  if (told === undefined) return true;
  if (told.kind === 'unsent') return false;
  const { missing, incapable } = told.confirmation;
  return missing.length === 0 && incapable.length === 0;
}

/** The sentence behind "PREFIX is revoked." */
export function broadcastText(told: BroadcastResult | undefined, many: FleetAction['many']): string {
  if (told === undefined) return `Running gateways ${many} within 1 s, 5 s at most.`;
  if (told.kind === 'unsent') return 'No replica has confirmed it.';
  const { confirmed, incapable } = told.confirmation;
  const total = totalOf(told.confirmation);
  if (total === 0) return 'No replica is running.';
  const ms = Math.ceil(Math.max(0, ...confirmed.map((each) => each.ms)));
  const within = confirmed.length === 0 ? '' : ` in ${ms} ms`;
  // The bound is that of replicas that know this kind of change.
  const bound = incapable.length === 0 ? '; hard bound 5 s' : '';
  return `${confirmed.length} of ${total} replicas ${many}${within}${bound}.`;
}

/** Lines about what was not confirmed. */
export function warnings(told: BroadcastResult | undefined, { one, what }: FleetAction): readonly string[] {
  if (told === undefined || isConfirmed(told)) return [];
  const bound =
    `A replica that reaches the store ${one} within 1 s, one that reaches neither store nor Redis within 60 s. ` +
    'Run the command again to ask once more.';
  if (told.kind === 'unsent') return [`Warning: the replicas could not be asked: ${told.cause}.`, bound];
  const { missing, incapable } = told.confirmation;
  return [
    ...incapable.map(
      ({ id, version }) =>
        `Warning: replica ${id} (${version ?? 'an older version'}) does not know ${what}; it does not act on this before it is upgraded or stopped.`,
    ),
    ...missing.map(
      ({ id, seenMs }) => `Warning: not confirmed by ${id}, heard of ${Math.round(seenMs / 1000)} s before.`,
    ),
    ...(missing.length === 0 ? [] : [bound]),
  ];
}

function totalOf({ confirmed, missing, incapable }: Confirmation): number {
  return confirmed.length + missing.length + incapable.length;
}

/** The same for programs. */
export function broadcastFields(told: BroadcastResult) {
  if (told.kind === 'unsent') return { confirmed: 0, error: told.cause };
  const { confirmed, missing, incapable } = told.confirmation;
  return {
    confirmed: confirmed.length,
    total: totalOf(told.confirmation),
    ms: Math.ceil(Math.max(0, ...confirmed.map((each) => each.ms))),
    missing: missing.map(({ id, seenMs }) => ({ id, last_seen_ms: Math.round(seenMs) })),
    incapable: incapable.map(({ id, version }) => ({ id, version: version ?? null })),
  };
}
