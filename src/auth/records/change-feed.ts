// Polls the store's change feed, so that revocations by other processes apply here too. Messages over Redis are faster but can
// be lost; the feed is reliable, and a verified key that is not in it counts as confirmed. While it cannot be read, the 5 s lifetime of
// cache entries bounds the delay.

import { Repeat } from '../../repeat.ts';
import { type SingleFlight, singleFlight } from '../../single-flight.ts';
import type { KeyChange } from '../../store/key-record.ts';
import type { Store } from '../../store/store.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import type { KeyListener } from './key-cache.ts';

const INTERVAL_MS = 500;
const BATCH = 500;
/** Keys without an event that one poll announces. */
const ANNOUNCED_AT_ONCE = 100;
/** Number of changes to read again at the start: records in Redis may be older than the most recent changes. */
const LOOK_BACK = 1000;

interface ChangeFeedOptions {
  readonly store: Pick<Store, 'lastChange' | 'changesAfter' | 'announceChanges'>;
  readonly listener: Pick<KeyListener, 'changed' | 'caughtUp' | 'lost'>;
  /** Called after the listener for each change since the start. */
  readonly onChange?: (change: KeyChange) => void;
  readonly metrics: Pick<Metrics, 'keyChanges' | 'keyLag' | 'keyPollFailures'>;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** Pause between two polls in milliseconds, for tests. */
  readonly intervalMs?: number;
}

export class ChangeFeed {
  readonly #parts: ChangeFeedOptions;
  readonly #now: () => number;
  #last = 0;
  /** The change with the id `#last`; undefined when there was none. */
  #newest: KeyChange | undefined;
  readonly #polls = new Repeat(() => this.poll().then(() => this.#intervalMs));
  readonly #intervalMs: number;

  constructor(parts: ChangeFeedOptions) {
    this.#parts = parts;
    this.#now = parts.now ?? (() => performance.now());
    this.#intervalMs = parts.intervalMs ?? INTERVAL_MS;
  }

  /**
   * Records the position of the feed and starts to poll. Await it before the first key is checked: entries that are cached
   * earlier could miss a change.
   *
   * @throws GatewayError `store_unavailable`
   */
  async start(): Promise<void> {
    const { listener } = this.#parts;
    const at = this.#now();
    await this.#begin();
    listener.caughtUp(at);
    this.#polls.start(this.#intervalMs);
  }

  /** Polls now. Never rejects: a failure is counted, and the next poll follows after the interval. */
  readonly poll: SingleFlight<[], void> = singleFlight(() => this.#read());

  /** Stops polling. Resolves when the running poll has ended. */
  async stop(): Promise<void> {
    await this.#polls.stop();
    await this.poll.running();
  }

  async #begin(): Promise<void> {
    const { store, listener } = this.#parts;
    this.#last = await store.lastChange();
    this.#newest = undefined;
    for (const change of await store.changesAfter(Math.max(0, this.#last - LOOK_BACK), LOOK_BACK)) {
      listener.changed(change);
      this.#last = Math.max(this.#last, change.id);
      this.#newest = change;
    }
  }

  async #read(): Promise<void> {
    const { store, listener, onChange, metrics } = this.#parts;
    try {
      const at = this.#now();
      // Before the changes, so that those are complete if nothing is left to announce.
      const isAnnounced = await this.#announce();
      for (;;) {
        const newest = this.#newest;
        const [first, ...rest] = await store.changesAfter(
          newest === undefined ? this.#last : newest.id - 1,
          BATCH,
        );
        // A database that was restored, or took over without the latest commits, may use ids again.
        if (newest !== undefined && !isSame(first, newest)) {
          listener.lost();
          await this.#begin();
          return;
        }
        const changes = newest === undefined && first !== undefined ? [first, ...rest] : rest;
        for (const change of changes) {
          if (listener.changed(change)) {
            metrics.keyChanges.inc({ kind: change.kind });
            observeLag(metrics.keyLag, 'poll', change.at);
          }
          onChange?.(change);
          this.#last = change.id;
          this.#newest = change;
        }
        const isEnd = rest.length < BATCH - 1;
        if (isEnd && isAnnounced) listener.caughtUp(at);
        if (isEnd || this.#polls.isStopped) return;
      }
    } catch {
      metrics.keyPollFailures.inc();
    }
  }

  /** @returns whether every change that was committed before has an event */
  async #announce(): Promise<boolean> {
    const now = new Date().toISOString();
    try {
      return (await this.#parts.store.announceChanges(now, ANNOUNCED_AT_ONCE)) < ANNOUNCED_AT_ONCE;
    } catch {
      // Changes are still read where the store cannot be written. Keys are looked up meanwhile.
      return false;
    }
  }
}

function isSame(a: KeyChange | undefined, b: KeyChange): boolean {
  return a?.id === b.id && a.prefix === b.prefix && a.version === b.version && a.at === b.at;
}

/** Records the delay of a change, by the wall clocks of both processes. @param at RFC 3339 */
export function observeLag(lag: Metrics['keyLag'], via: 'message' | 'poll', at: string): void {
  const ms = Date.now() - Date.parse(at);
  if (Number.isFinite(ms)) lag.observe({ via }, Math.max(0, ms) / 1000);
}
