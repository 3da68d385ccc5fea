// What the outbox tells its operator: usage that is not counted, and faults of the store and the disk, each at most once per some seconds.
import type { Logger } from '../../telemetry/log/logger.ts';

type UsageDropReason = 'memory' | 'spool_full' | 'refused' | 'too_old' | 'closed';

/** For metrics. */
export interface DroppedUsage {
  /** Requests whose usage is not counted. */
  onDropped(reason: UsageDropReason, requests: number): void;
}

/** The same message is logged once per this time. */
const LOG_EVERY_MS = 10_000;
/** Messages that are remembered; they contain ids of batches and names of files. */
const MAX_MESSAGES = 100;

export class OutboxLog {
  readonly #logger: Logger;
  readonly #events: DroppedUsage;
  readonly #logged = new Map<string, { at: number; requests: number }>();

  constructor(logger: Logger, events: DroppedUsage) {
    this.#logger = logger;
    this.#events = events;
  }

  dropped(reason: UsageDropReason, requests: number): void {
    this.#events.onDropped(reason, requests);
    this.#log(`dropped ${reason}`, requests, (dropped) =>
      this.#logger.error({ reason, requests: dropped }, 'usage is not counted'),
    );
  }

  warn(message: string, error?: unknown): void {
    this.#log(message, 0, () => this.#logger.warn(error === undefined ? {} : { err: error }, message));
  }

  /** Logs the first time at once, then the sum once per `LOG_EVERY_MS`. */
  #log(about: string, requests: number, write: (requests: number) => void): void {
    const now = performance.now();
    const before = this.#logged.get(about);
    const sum = (before?.requests ?? 0) + requests;
    if (before !== undefined && now - before.at < LOG_EVERY_MS) {
      before.requests = sum;
      return;
    }
    if (this.#logged.size > MAX_MESSAGES) this.#logged.clear();
    this.#logged.set(about, { at: now, requests: 0 });
    write(sum);
  }
}
