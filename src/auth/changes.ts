// Follows the store's change feed, so that a key that another process ended stops here too. Notices come from nowhere else in
// a single-store set-up; that L1 entries live 5 s bounds what happens when the store cannot be asked.
import type { Store } from '../store/store.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { KeyListener } from './cache.ts';

const INTERVAL_MS = 500;
const BATCH = 500;

export interface KeyChangesParts {
  readonly store: Pick<Store, 'lastChange' | 'changesAfter'>;
  readonly listener: Pick<KeyListener, 'changed'>;
  readonly metrics: Pick<Metrics, 'keyChanges' | 'keyPollFailures'>;
  /** Pause between two polls in milliseconds, for tests. */
  readonly intervalMs?: number;
}

export class KeyChanges {
  readonly #parts: KeyChangesParts;
  #last = 0;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> | undefined;
  #stopped = false;

  constructor(parts: KeyChangesParts) {
    this.#parts = parts;
  }

  /**
   * Notes where the feed stands and begins to follow it. To be awaited before the first key is checked: what is cached
   * before that could miss a change.
   *
   * @throws GatewayError `store_unavailable`
   */
  async start(): Promise<void> {
    this.#last = await this.#parts.store.lastChange();
    this.#schedule();
  }

  /** Reads the feed now. Never rejects: a store that does not answer is counted, and asked again after the interval. */
  poll(): Promise<void> {
    this.#polling ??= this.#read().finally(() => {
      this.#polling = undefined;
    });
    return this.#polling;
  }

  /** Resolves when no poll runs any more, and none will. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#polling;
  }

  #schedule(): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => {
      void this.poll().then(() => this.#schedule());
    }, this.#parts.intervalMs ?? INTERVAL_MS);
    this.#timer.unref();
  }

  async #read(): Promise<void> {
    const { store, listener, metrics } = this.#parts;
    try {
      for (;;) {
        const changes = await store.changesAfter(this.#last, BATCH);
        for (const { id, prefix, kind } of changes) {
          listener.changed(prefix, kind);
          metrics.keyChanges.inc({ kind });
          this.#last = id;
        }
        if (changes.length < BATCH || this.#stopped) return;
      }
    } catch {
      metrics.keyPollFailures.inc();
    }
  }
}
