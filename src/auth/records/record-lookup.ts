// Finds the record of a key in a 1 s cache, in Redis or in the store. Look-ups are single-flight per prefix and bounded in number.

import { withDeadline } from '../../deadline.ts';
import { RecentMap } from '../../recent-map.ts';
import { singleFlight } from '../../single-flight.ts';
import type { Prefix } from '../../store/key-record.ts';
import type { Store } from '../../store/store.ts';
import { DrainEstimate } from '../hashing/drain-estimate.ts';
import { unavailable } from '../key/auth-unavailable.ts';
import type { CheckableKey } from '../key/principal.ts';
import { type ChangeClock, type KeyNotice, STALE_MS } from './key-cache.ts';
import type { SharedRecords } from './shared-records.ts';

const MAX_RUNNING = 32;
const MAX_WAITING = 512;
/** How long a verified key waits, which can be served stale. Another one keeps its place: its caller's deadline is that of the check. */
const KNOWN_WAIT_MS = 250;
/** Estimated time of a look-up until one is measured, in milliseconds. */
const INITIAL_MS = 5;
/** Lifetime of a cached result, in milliseconds: many keys with one prefix cost one look-up in this time. */
const CACHE_MS = 1000;
const MAX_CACHED = 10_000;

export interface FoundRecord {
  readonly record: CheckableKey | undefined;
  /** Position of the change clock just before the look-up. */
  readonly position: number;
  /** Time of the look-up, in milliseconds of the injected clock. */
  readonly soughtAt: number;
  /**
   * The time for which the record is known to be valid. For Redis it is the last read of the change feed: a tombstone may be
   * missing there, and is not restored while the store is unavailable.
   */
  readonly at: number;
  /** Argon2 has run for this key, on this or another replica. */
  readonly isProved: boolean;
}

interface RecordLookupOptions {
  readonly store: Pick<Store, 'findKey'>;
  /** The records that replicas share in Redis; undefined without Redis. */
  readonly shared?: Pick<SharedRecords, 'find'> | undefined;
  readonly clock: ChangeClock;
  readonly now: () => number;
  /** Called when Redis has a tombstone: the key has ended, or its holder has changed. */
  readonly onTombstone?: (notice: KeyNotice) => void;
}

export class RecordLookup {
  readonly #parts: RecordLookupOptions;
  readonly #flight = singleFlight((prefix: Prefix, queue: Waiter[]) => this.#lookUp(prefix, queue));
  readonly #cache = new RecentMap<Prefix, FoundRecord>(MAX_CACHED);
  readonly #estimate: DrainEstimate;
  /** Verified keys take priority, so a flood of unknown keys cannot delay them. */
  readonly #waiting = { known: [] as Waiter[], unknown: [] as Waiter[] };
  #running = 0;

  constructor(parts: RecordLookupOptions) {
    this.#parts = parts;
    this.#estimate = new DrainEstimate({ slots: MAX_RUNNING, initialMs: INITIAL_MS, now: parts.now });
  }

  /**
   * @param isKnown whether the key was verified before; it takes priority
   * @throws GatewayError `auth_unavailable` when the store fails, the queue is full, or a verified key has waited for 250 ms
   */
  find(prefix: Prefix, isKnown: boolean): Promise<FoundRecord> {
    const cached = this.#findCached(prefix);
    if (cached !== undefined) return Promise.resolve(cached);
    const queue = isKnown ? this.#waiting.known : this.#waiting.unknown;
    const isFull = this.#running >= MAX_RUNNING && queue.length >= MAX_WAITING;
    if (isFull && this.#flight.running(prefix) === undefined) {
      const { known, unknown } = this.#waiting;
      const retryAfterMs = this.#estimate.retryAfterMs(this.#running + known.length + unknown.length);
      const why = 'the queue of key look-ups is full';
      return Promise.reject(unavailable('queue', why, undefined, retryAfterMs));
    }
    const found = this.#flight(prefix, queue);
    if (!isKnown) return found;
    return withDeadline(found, KNOWN_WAIT_MS, () =>
      unavailable('late', `the store did not answer within ${KNOWN_WAIT_MS} ms`),
    );
  }

  async #lookUp(prefix: Prefix, queue: Waiter[]): Promise<FoundRecord> {
    if (this.#running < MAX_RUNNING) this.#running += 1;
    else await new Promise<void>((resolve) => queue.push(resolve));
    const since = this.#parts.now();
    try {
      const found = (await this.#inRedis(prefix)) ?? (await this.#inStore(prefix));
      // Failures are not measured: their times do not show how fast the queue drains after an outage.
      this.#estimate.measured(this.#parts.now() - since);
      this.#cache.set(prefix, found);
      return found;
    } catch (error) {
      throw unavailable('store', 'the store failed', error);
    } finally {
      const next = this.#waiting.known.shift() ?? this.#waiting.unknown.shift();
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }

  async #inRedis(prefix: Prefix): Promise<FoundRecord | undefined> {
    const { shared, clock, now, onTombstone } = this.#parts;
    if (shared === undefined) return undefined;
    const position = clock.now();
    const soughtAt = now();
    const at = Math.min(soughtAt, clock.caughtUpAt);
    if (soughtAt - at > STALE_MS) return undefined;
    const answer = await shared.find(prefix);
    // Accept only an active record that is not older than the known version. Everything else comes from the store.
    if (answer.kind === 'record' && clock.allows(prefix, answer.record.version)) {
      return { record: answer.record, position, soughtAt, at, isProved: true };
    }
    if (answer.kind === 'tombstone' && clock.allows(prefix, answer.version)) {
      const kind = answer.tombstone === 'ended' ? 'revoked' : 'changed';
      onTombstone?.({ prefix, kind, version: answer.version });
    }
    return undefined;
  }

  async #inStore(prefix: Prefix): Promise<FoundRecord> {
    const { store, clock, now } = this.#parts;
    const position = clock.now();
    const at = now();
    return { record: await store.findKey(prefix), position, soughtAt: at, at, isProved: false };
  }

  #findCached(prefix: Prefix): FoundRecord | undefined {
    const found = this.#cache.get(prefix);
    if (found === undefined) return undefined;
    const { clock, now } = this.#parts;
    const isValid = now() - found.soughtAt < CACHE_MS && clock.isUnchangedSince(prefix, found.position);
    return isValid ? found : undefined;
  }
}

type Waiter = () => void;
