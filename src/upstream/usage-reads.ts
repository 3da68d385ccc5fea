// Upstreams that are read on for a moment after the client has left, because only the usage of its answer is still to come. It
// owns how many there may be, how long, and their end when the process ends; what is read is for the relay or the session.
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Usage follows the finish reason within a second; a reader that waited longer would hold its holder's slot for nothing. */
export const USAGE_READ_MS = 5_000;
/** Of one upstream after its client has left. The last event of a response repeats all of its output. */
export const MAX_USAGE_READ_BYTES = 8 * 1024 * 1024;
/** At once. Each holds a connection to an upstream and a slot of its holder. */
const MAX_USAGE_READS = 256;

interface UsageReadsOptions {
  readonly metrics?:
    | {
        readonly running: { set(count: number): void };
        readonly results: { inc(labels: { result: UsageReadResult }): void };
      }
    | undefined;
  readonly maxReads?: number;
  readonly maxMs?: number;
}

/** `refused`: too many ran already. */
export type UsageReadResult = 'reported' | 'missing' | 'refused';

/** One of them. To be ended exactly once. */
export interface UsageRead {
  end(isReported: boolean): void;
}

export class UsageReads {
  readonly #metrics: UsageReadsOptions['metrics'];
  readonly #maxReads: number;
  readonly #maxMs: number;
  readonly #running = new Set<() => void>();
  #isClosed = false;
  #onIdle: (() => void) | undefined;

  constructor({ metrics, maxReads = MAX_USAGE_READS, maxMs = USAGE_READ_MS }: UsageReadsOptions = {}) {
    this.#metrics = metrics;
    this.#maxReads = maxReads;
    this.#maxMs = maxMs;
  }

  /**
   * @param stop ends the reading; called once when its time is over, and never after `end`
   * @returns undefined when there is no room for another one
   */
  begin(stop: () => void): UsageRead | undefined {
    if (this.#isClosed || this.#running.size >= this.#maxReads) {
      this.#metrics?.results.inc({ result: 'refused' });
      return undefined;
    }
    const timer = setTimeout(stop, this.#maxMs);
    this.#running.add(stop);
    this.#tell();
    return {
      end: (isReported) => {
        clearTimeout(timer);
        if (!this.#running.delete(stop)) return;
        this.#tell();
        this.#metrics?.results.inc({ result: isReported ? 'reported' : 'missing' });
        if (this.#running.size === 0) this.#onIdle?.();
      },
    };
  }

  /**
   * Lets running ones end, then ends them; no other begins. Resolves when what they read has been counted.
   * @param ms at most so long
   */
  async close(ms: number): Promise<void> {
    if (this.#running.size > 0 && !this.#isClosed) {
      const idle = new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
      const deadline = setTimeout(() => this.endAll(), Math.max(0, ms));
      await idle;
      clearTimeout(deadline);
    }
    this.endAll();
    // Their requests settle in the promises that follow.
    await nextTurn();
    await nextTurn();
  }

  /** Ends all of them now; no other begins. */
  endAll(): void {
    this.#isClosed = true;
    for (const stop of [...this.#running]) stop();
  }

  #tell(): void {
    this.#metrics?.running.set(this.#running.size);
  }
}
