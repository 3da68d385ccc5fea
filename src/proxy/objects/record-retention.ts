// Retention of the records of created objects: each new record may trigger the deletion of a batch of old ones. It logs store
// failures, rate-limited.
import type { Logger } from '../../telemetry/log/logger.ts';

/** The longest retention of responses and items among known vendors. */
const RETENTION_MS = 30 * 24 * 3_600_000;
const DELETE_EVERY_MS = 10 * 60_000;
const BATCH = 1000;
const LOG_EVERY_MS = 10_000;

interface RecordRetentionOptions {
  /**
   * Deletes records.
   * @param before RFC 3339; older records are deleted
   * @param limit per call
   * @returns the number of deleted records
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

  /** Call with each new record. Deletes old ones if due, in the background. @param now wall clock, ms */
  onRecord(now: number): void {
    if (now < this.#dueAt) return;
    this.#dueAt = now + DELETE_EVERY_MS;
    this.#options
      .remove(new Date(now - RETENTION_MS).toISOString(), BATCH)
      .then((count) => {
        // More are due: continue with the next record, so that deletion keeps up.
        if (count >= BATCH) this.#dueAt = 0;
      })
      .catch((error: unknown) => this.warn(error));
  }

  /** Logs a store failure, at most once per interval. */
  warn(error: unknown): void {
    const now = performance.now();
    if (now - this.#loggedAt < LOG_EVERY_MS) return;
    this.#loggedAt = now;
    this.#options.logger.warn({ err: error }, this.#options.message);
  }
}
