// The support desk's way to running replicas: it tells them of a change, and says who has confirmed it.
import type { Announcer } from '../auth/announcer.ts';
import { KeyAnnouncer } from '../auth/fleet.ts';

import type { KeySecret } from '../auth/secret.ts';
import { SharedRecords } from '../auth/shared-records.ts';
import { RedisClient } from '../redis/client.ts';
import { type Confirmation, publish, sendAndConfirm } from '../redis/replicas.ts';
import { createLogger } from '../telemetry/logger.ts';
import { createMetrics } from '../telemetry/metrics.ts';

/** How long the last replica may take: by then none accepts the key any more, unless it is cut off from everything. */
const CONFIRM_MS = 5000;

/** What became of a message: confirmed by some or all, or not sent at all. */
export type Told =
  | { readonly kind: 'sent'; readonly confirmation: Confirmation }
  | { readonly kind: 'unsent'; readonly cause: string };

/** A connection to the Redis that replicas share. */
export class Fleet implements AsyncDisposable {
  readonly #url: string;
  readonly #redis: RedisClient;
  // What Redis does to the connection is told by the command in its own words.
  readonly #logger = createLogger(undefined, 'silent');
  #told: Told | undefined;

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

  /** For a key that ends, or whose holder changes: what became of it is in `told`. */
  get confirmingAnnouncer(): Announcer {
    return new KeyAnnouncer({ redis: this.#redis, send: (body) => this.#confirm(body) });
  }

  /** Undefined: nothing was announced yet. */
  get told(): Told | undefined {
    return this.#told;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#redis.close();
  }

  async #confirm(body: string): Promise<void> {
    const parts = { redis: this.#redis, url: this.#url, logger: this.#logger };
    try {
      this.#told = { kind: 'sent', confirmation: await sendAndConfirm(parts, body, CONFIRM_MS) };
    } catch (error) {
      this.#told = { kind: 'unsent', cause: error instanceof Error ? error.message : String(error) };
    }
  }
}

/** What replicas do from then on: 'refuse it', 'refuses the key'. */
export interface Deed {
  /** Of many, about what was just named. */
  readonly many: string;
  /** Of one. */
  readonly one: string;
}

/** Whether every running replica is known to have acted on it. Without Redis they are not asked, and read the store. */
export function isConfirmed(told: Told | undefined): boolean {
  return told === undefined || (told.kind === 'sent' && told.confirmation.missing.length === 0);
}

/** The sentence behind "PREFIX is revoked." */
export function toldText(told: Told | undefined, { many }: Deed): string {
  if (told === undefined) return `Running gateways ${many} within 1 s, 5 s at most.`;
  if (told.kind === 'unsent') return 'No replica has confirmed it.';
  const { confirmed, missing } = told.confirmation;
  const total = confirmed.length + missing.length;
  if (total === 0) return 'No replica is running.';
  const ms = Math.ceil(Math.max(0, ...confirmed.map((each) => each.ms)));
  const within = confirmed.length === 0 ? '' : ` in ${ms} ms`;
  return `${confirmed.length} of ${total} replicas ${many}${within}; hard bound 5 s.`;
}

/** Lines about what was not confirmed. */
export function warnings(told: Told | undefined, { one }: Deed): readonly string[] {
  if (told === undefined || isConfirmed(told)) return [];
  const bound =
    `A replica that reaches the store ${one} within 1 s, one that reaches neither store nor Redis within 60 s. ` +
    'Run the command again to ask once more.';
  if (told.kind === 'unsent') return [`Warning: the replicas could not be asked: ${told.cause}.`, bound];
  return [
    ...told.confirmation.missing.map(
      ({ id, seenMs }) => `Warning: not confirmed by ${id}, heard of ${Math.round(seenMs / 1000)} s before.`,
    ),
    bound,
  ];
}

/** The same for programs. */
export function toldFields(told: Told) {
  if (told.kind === 'unsent') return { confirmed: 0, error: told.cause };
  const { confirmed, missing } = told.confirmation;
  return {
    confirmed: confirmed.length,
    total: confirmed.length + missing.length,
    ms: Math.ceil(Math.max(0, ...confirmed.map((each) => each.ms))),
    missing: missing.map(({ id, seenMs }) => ({ id, last_seen_ms: Math.round(seenMs) })),
  };
}
