// How long records of what upstreams made for holders are kept: old ones are deleted in batches, as new ones come. Failures of
// the store are logged here, at most once in a while.
import type { Logger } from '../../telemetry/log/logger.ts';

/** As long as the best known vendor keeps responses and their items. */
const RETENTION_MS = 30 * 24 * 3_600_000;
const DELETE_EVERY_MS = 10 * 60_000;
const BATCH = 1000;
const LOG_EVERY_MS = 10_000;

interface RecordRetentionOptions {
  /**
   * Deletes records.
   * @param before RFC 3339; older ones are deleted
   * @param limit the most that one call deletes
   * @returns how many were deleted
   */
  readonly remove: (before: string, limit: number) => Promise<number>;
  readonly logger: Pick<Logger, 'warn'>;
  /** Logged when the store fails. */
  readonly message: string;
}

export class RecordRetention {
  readonly #options: RecordRetentionOptions;
  #dueAt = 0;
  #loggedAt = Number.NEGATIVE_INFINITY;

  constructor(options: RecordRetentionOptions) {
    this.#options = options;
  }

  /** To be called with each new record. Deletes old ones if it is time, and waits for nothing. @param now wall clock, ms */
  onRecord(now: number): void {
    if (now < this.#dueAt) return;
    this.#dueAt = now + DELETE_EVERY_MS;
    this.#options
      .remove(new Date(now - RETENTION_MS).toISOString(), BATCH)
      .then((count) => {
        // More are due: with the next record, so that as many go as come.
        if (count >= BATCH) this.#dueAt = 0;
      })
      .catch((error: unknown) => this.warn(error));
  }

  /** Logs a failure of the store, unless that was done a moment ago. */
  warn(error: unknown): void {
    const now = performance.now();
    if (now - this.#loggedAt < LOG_EVERY_MS) return;
    this.#loggedAt = now;
    this.#options.logger.warn({ err: error }, this.#options.message);
  }
}
