// The days on which keys are used, written to the store in batches. A process that is killed loses those of the last minute.
import { singleFlight } from '../single-flight.ts';
import type { Prefix } from '../store/key-record.ts';
import type { OrganisationStore } from '../store/organisation-record.ts';
import type { Logger } from '../telemetry/log/logger.ts';

const FLUSH_MS = 60_000;
/** Keys that wait for the store. More are recorded on their next use after a flush. */
const MAX_PENDING = 100_000;
/** Keys of one write: about 100 ms on a busy machine, because triggers write each key into the table that searches read. */
const BATCH = 1_000;
const DAY_MS = 86_400_000;

interface KeyUsesOptions {
  readonly store: Pick<OrganisationStore, 'recordUses'>;
  readonly logger: Pick<Logger, 'warn'>;
}

export class KeyUses {
  readonly #options: KeyUsesOptions;
  readonly #pending = new Map<Prefix, string>();
  readonly #timer: NodeJS.Timeout;

  constructor(options: KeyUsesOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.flush(), FLUSH_MS).unref();
  }

  /**
   * Call it for each use.
   * @param usedOn the day that an earlier call returned for this key; undefined for the first
   * @returns the day of this use, as days since 1970
   */
  record(prefix: Prefix, usedOn: number | undefined): number {
    const now = Date.now();
    const day = Math.floor(now / DAY_MS);
    if (day === usedOn) return day;
    if (this.#pending.size >= MAX_PENDING) return usedOn ?? -1;
    this.#pending.set(prefix, new Date(now).toISOString().slice(0, 10));
    return day;
  }

  /** Writes what is pending. Never rejects: what the store does not take is written with the next flush. */
  readonly flush = singleFlight(() => this.#write());

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.flush.running();
    await this.flush();
  }

  async #write(): Promise<void> {
    while (this.#pending.size > 0) {
      const batch = new Map<Prefix, string>();
      for (const [prefix, day] of this.#pending) {
        if (batch.size === BATCH) break;
        batch.set(prefix, day);
      }
      try {
        await this.#options.store.recordUses(batch);
      } catch (error) {
        this.#options.logger.warn(
          { err: error, keys: this.#pending.size },
          'failed to record the last use of keys; trying again in a minute',
        );
        return;
      }
      for (const [prefix, day] of batch) if (this.#pending.get(prefix) === day) this.#pending.delete(prefix);
    }
  }
}
