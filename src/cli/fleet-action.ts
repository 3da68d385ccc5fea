// Broadcasts a key change from the support desk to the running replicas, and reports their confirmations.

import type { KeySecret } from '../auth/hashing/hashing-secret.ts';
import { KeyAnnouncer } from '../auth/records/key-broadcast.ts';
import { SharedRecords } from '../auth/records/shared-records.ts';
import { type BroadcastProgress, type Confirmation, publish, sendAndConfirm } from '../redis/broadcast.ts';
import { RedisClient } from '../redis/redis-client.ts';
import type { Capability } from '../redis/replicas.ts';
import { createLogger } from '../telemetry/log/logger.ts';
import { createMetrics } from '../telemetry/metrics/all-metrics.ts';

/** Timeout of confirmations. By then no replica accepts the key, unless it reaches neither Redis nor the store. */
const CONFIRM_MS = 5000;
/** Deadline of a call to Redis: an operator waits longer than a request, perhaps on a slow link. */
const COMMAND_MS = 1000;

/** The result of a broadcast: sent, with its confirmations, or not sent. */
type BroadcastResult =
  | { readonly kind: 'sent'; readonly confirmation: Confirmation }
  | { readonly kind: 'unsent'; readonly cause: string };

/** A connection to the Redis that replicas share. */
export class Fleet implements AsyncDisposable {
  readonly #url: string;
  readonly #redis: RedisClient;
  // Silent: the command reports connection errors itself.
  readonly #logger = createLogger(undefined, 'silent');
  readonly #onProgress: ((progress: BroadcastProgress) => void) | undefined;
  #result: BroadcastResult | undefined;

  /**
   * @param url `redis` of the configuration
   * @param onProgress of the broadcasts with confirmations
   */
  static async open(url: string, onProgress?: (progress: BroadcastProgress) => void): Promise<Fleet> {
    const fleet = new Fleet(url, onProgress);
    await fleet.#redis.start();
    return fleet;
  }

  private constructor(url: string, onProgress: ((progress: BroadcastProgress) => void) | undefined) {
    this.#url = url;
    this.#onProgress = onProgress;
    this.#redis = new RedisClient({ url, logger: this.#logger, commandMs: COMMAND_MS });
  }

  /** For an issued key; it does not wait for confirmations. */
  announcer(secret: KeySecret): KeyAnnouncer {
    const redis = this.#redis;
    const shared = new SharedRecords({ redis, secret, metrics: createMetrics() });
    return new KeyAnnouncer({ redis, shared, send: (body) => publish(redis, { body }) });
  }

  /**
   * For a key that ends or whose holder changes; `result` has the outcome.
   * @param needs capability that a replica needs to act on it; undefined when every version can
   */
  confirmingAnnouncer(needs?: Capability): KeyAnnouncer {
    return new KeyAnnouncer({ redis: this.#redis, send: (body) => this.send(body, needs) });
  }

  /** Undefined before a broadcast. */
  get result(): BroadcastResult | undefined {
    return this.#result;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#redis.close();
  }

  /**
   * Sends a message to all replicas; its outcome is `result` from then on. Never rejects.
   * @param needs capability that a replica needs to act on it; undefined when every version can
   * @param deadlineMs maximum wait for the last answer
   */
  async send(body: string, needs: Capability | undefined, deadlineMs = CONFIRM_MS): Promise<BroadcastResult> {
    const parts = { redis: this.#redis, url: this.#url, logger: this.#logger, onProgress: this.#onProgress };
    try {
      this.#result = { kind: 'sent', confirmation: await sendAndConfirm(parts, body, deadlineMs, needs) };
    } catch (error) {
      this.#result = { kind: 'unsent', cause: error instanceof Error ? error.message : String(error) };
    }
    return this.#result;
  }
}

/** Verb phrases for what replicas do with the change: 'reject it', 'rejects the key'. */
export interface FleetAction {
  /** Plural, with a pronoun. */
  readonly many: string;
  /** Singular. */
  readonly one: string;
  /** The capability that an older replica may lack: 'suspension'. */
  readonly what: string;
  /** What a replica does that reaches neither store nor Redis. Default: it obeys within 60 s. */
  readonly cutOff?: string;
}

/** Whether every running replica has confirmed. Always true without Redis, where replicas read the store. */
export function isConfirmed(result: BroadcastResult | undefined): boolean {
  if (result === undefined) return true;
  if (result.kind === 'unsent') return false;
  const { missing, incapable } = result.confirmation;
  return missing.length === 0 && incapable.length === 0;
}

/** The sentence after "PREFIX is revoked." */
export function broadcastText(result: BroadcastResult | undefined, many: FleetAction['many']): string {
  if (result === undefined) return `Running gateways ${many} within 1 s, 5 s at most.`;
  if (result.kind === 'unsent') return 'No replica has confirmed it.';
  const { confirmed, incapable } = result.confirmation;
  const total = totalOf(result.confirmation);
  if (total === 0) return 'No replica is running.';
  const ms = Math.ceil(Math.max(0, ...confirmed.map((each) => each.ms)));
  const within = confirmed.length === 0 ? '' : ` in ${ms} ms`;
  // The bound holds only for replicas with this capability.
  const bound = incapable.length === 0 ? '; hard bound 5 s' : '';
  return `${confirmed.length} of ${total} replicas ${many}${within}${bound}.`;
}

/** What is missing of the confirmations, and by when these replicas obey nevertheless; undefined where that says nothing. */
function shortfall(
  result: BroadcastResult,
  { one, what, cutOff = 'within 60 s' }: FleetAction,
): { readonly problems: readonly string[]; readonly bound: string | undefined } {
  const bound = `A replica that reaches the store ${one} within 1 s, one that reaches neither store nor Redis ${cutOff}.`;
  if (result.kind === 'unsent')
    return { problems: [`failed to notify the replicas: ${result.cause}.`], bound };
  const { missing, incapable } = result.confirmation;
  const problems = [
    ...incapable.map(
      ({ id, version }) =>
        `replica ${id} (${version ?? 'an older version'}) does not support ${what}; it ignores this change until it is upgraded or stopped.`,
    ),
    ...missing.map(
      ({ id, seenMs }) => `not confirmed by ${id}, last seen ${Math.round(seenMs / 1000)} s ago.`,
    ),
  ];
  return { problems, bound: missing.length === 0 ? undefined : bound };
}

/** Warnings about missing confirmations. */
export function warnings(result: BroadcastResult | undefined, action: FleetAction): readonly string[] {
  if (result === undefined || isConfirmed(result)) return [];
  const { problems, bound } = shortfall(result, action);
  return [
    ...problems.map((each) => `Warning: ${each}`),
    ...(bound === undefined ? [] : [`${bound} Run the command again to retry.`]),
  ];
}

function totalOf({ confirmed, missing, incapable }: Confirmation): number {
  return confirmed.length + missing.length + incapable.length;
}

/** The result as `--json` shows it. */
export function broadcastFields(result: BroadcastResult, action: FleetAction) {
  const { problems, bound = null } = shortfall(result, action);
  const own = isConfirmed(result) ? {} : { problems, bound };
  if (result.kind === 'unsent') return { confirmed: 0, error: result.cause, ...own };
  const { confirmed, missing, incapable } = result.confirmation;
  const each = confirmed.map(({ id, ms }) => ({ id, ms: Math.ceil(ms) }));
  return {
    confirmed: confirmed.length,
    total: totalOf(result.confirmation),
    ms: Math.max(0, ...each.map(({ ms }) => ms)),
    confirmed_by: each,
    missing: missing.map(({ id, seenMs }) => ({ id, last_seen_ms: Math.round(seenMs) })),
    incapable: incapable.map(({ id, version }) => ({ id, version: version ?? null })),
    ...own,
  };
}
