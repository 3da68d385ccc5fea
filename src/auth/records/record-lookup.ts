// Finds one key's record: in the memory of the last second, in Redis, in the store. Once for all who ask at the same time,
// for a bounded number of keys at once, and nobody waits longer than a request can bear.

import { withDeadline } from '../../deadline.ts';
import { RecentMap } from '../../recent-map.ts';
import type { Prefix } from '../../store/key-record.ts';
import type { Store } from '../../store/store.ts';
import { DrainEstimate } from '../hashing/drain-estimate.ts';
import { unavailable } from '../key/auth-unavailable.ts';
import type { CheckableKey } from '../key/principal.ts';
import { type ChangeClock, type KeyNotice, STALE_MS } from './key-cache.ts';
import type { SharedRecords } from './shared-records.ts';

const MAX_RUNNING = 32;
const MAX_WAITING = 512;
const WAIT_MS = 250;
/** Of one look-up, until one was measured. */
const USUAL_MS = 5;
/** Whoever tries many keys with one prefix costs one look-up in this time. */
const REMEMBER_MS = 1000;
const MAX_REMEMBERED = 10_000;

export interface FoundRecord {
  readonly record: CheckableKey | undefined;
  /** Position of the change clock just before it was asked for. */
  readonly position: number;
  /** The same moment in milliseconds of the injected clock. */
  readonly soughtAt: number;
  /**
   * As of when it is true. What Redis says is no newer than what the store last told of changes: a mark may be missing there, and
   * with the store away nobody would put it back.
   */
  readonly at: number;
  /** Argon2 has run for this key, on this or another replica. */
  readonly isProved: boolean;
}

interface RecordLookupOptions {
  readonly store: Pick<Store, 'findKey'>;
  /** Where other replicas left what they found, when there are others. */
  readonly shared?: Pick<SharedRecords, 'find'> | undefined;
  readonly clock: ChangeClock;
  readonly now: () => number;
  /** Another replica says that the key has ended, or that its holder has changed. */
  readonly onMark?: (notice: KeyNotice) => void;
}

export class RecordLookup {
  readonly #parts: RecordLookupOptions;
  readonly #flights = new Map<Prefix, Promise<FoundRecord>>();
  readonly #remembered = new RecentMap<Prefix, FoundRecord>(MAX_REMEMBERED);
  /** Keys that have proved good go first: a flood of invented ones is not to hold them up. */
  readonly #estimate: DrainEstimate;
  readonly #waiting = { known: [] as Waiter[], unknown: [] as Waiter[] };
  #running = 0;

  constructor(parts: RecordLookupOptions) {
    this.#parts = parts;
    this.#estimate = new DrainEstimate({ slots: MAX_RUNNING, initialMs: USUAL_MS, now: parts.now });
  }

  /**
   * @param isKnown whether the key that is asked about has proved good before
   * @throws GatewayError `auth_unavailable` when the store fails, is late (250 ms) or too many wait
   */
  find(prefix: Prefix, isKnown: boolean): Promise<FoundRecord> {
    const remembered = this.#recall(prefix);
    if (remembered !== undefined) return Promise.resolve(remembered);
    let flight = this.#flights.get(prefix);
    if (flight === undefined) {
      const queue = isKnown ? this.#waiting.known : this.#waiting.unknown;
      if (this.#running >= MAX_RUNNING && queue.length >= MAX_WAITING) {
        const why = 'too many look-ups of keys wait for the store';
        const { known, unknown } = this.#waiting;
        const retryAfterMs = this.#estimate.retryAfterMs(this.#running + known.length + unknown.length);
        return Promise.reject(unavailable('queue', why, undefined, retryAfterMs));
      }
      flight = this.#look(prefix, queue).finally(() => this.#flights.delete(prefix));
      this.#flights.set(prefix, flight);
    }
    return withDeadline(flight, WAIT_MS, () =>
      unavailable('late', `the store did not answer within ${WAIT_MS} ms`),
    );
  }

  async #look(prefix: Prefix, queue: Waiter[]): Promise<FoundRecord> {
    if (this.#running < MAX_RUNNING) this.#running += 1;
    else await new Promise<void>((resolve) => queue.push(resolve));
    const since = this.#parts.now();
    try {
      const found = (await this.#inRedis(prefix)) ?? (await this.#inStore(prefix));
      // Times of failures are those of an outage and say nothing about how fast the queue drains afterwards.
      this.#estimate.measured(this.#parts.now() - since);
      this.#remembered.set(prefix, found);
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
    const { shared, clock, now, onMark } = this.#parts;
    if (shared === undefined) return undefined;
    const position = clock.now();
    const soughtAt = now();
    const at = Math.min(soughtAt, clock.caughtUpAt);
    if (soughtAt - at > STALE_MS) return undefined;
    const answer = await shared.find(prefix);
    // Only an active key is believed, and only if nothing newer was heard: the store says what else there is.
    if (answer.kind === 'record' && clock.allows(prefix, answer.record.version)) {
      return { record: answer.record, position, soughtAt, at, isProved: true };
    }
    if (answer.kind === 'tombstone' && clock.allows(prefix, answer.version)) {
      const kind = answer.tombstone === 'ended' ? 'revoked' : 'changed';
      onMark?.({ prefix, kind, version: answer.version });
    }
    return undefined;
  }

  async #inStore(prefix: Prefix): Promise<FoundRecord> {
    const { store, clock, now } = this.#parts;
    const position = clock.now();
    const at = now();
    return { record: await store.findKey(prefix), position, soughtAt: at, at, isProved: false };
  }

  #recall(prefix: Prefix): FoundRecord | undefined {
    const found = this.#remembered.get(prefix);
    if (found === undefined) return undefined;
    const { clock, now } = this.#parts;
    if (now() - found.soughtAt < REMEMBER_MS && clock.holds(prefix, found.position)) return found;
    this.#remembered.delete(prefix);
    return undefined;
  }
}

type Waiter = () => void;
