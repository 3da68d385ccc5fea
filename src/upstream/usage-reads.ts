// Bounded reads of upstream responses after the client has left, to obtain the usage that is still to come. Owns their number,
// duration and shutdown; the relay or session interprets the data.
import { setImmediate as nextTick } from 'node:timers/promises';

/** Usage follows the finish reason within a second; a longer wait would occupy the holder's slot for nothing. */
export const USAGE_READ_MS = 5_000;
/** Bytes per read. The last event of a response repeats all of its output. */
export const MAX_USAGE_READ_BYTES = 8 * 1024 * 1024;
/** Concurrent reads. Each occupies an upstream connection and a slot of its holder. */
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

/** `refused`: the bound was reached. */
export type UsageReadResult = 'reported' | 'missing' | 'refused';

/** A running read. End it exactly once. */
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
   * @param stop ends the read; called once on timeout, and never after `end`
   * @returns undefined if the bound is reached
   */
  begin(stop: () => void): UsageRead | undefined {
    if (this.#isClosed || this.#running.size >= this.#maxReads) {
      this.#metrics?.results.inc({ result: 'refused' });
      return undefined;
    }
    const timer = setTimeout(stop, this.#maxMs);
    this.#running.add(stop);
    this.#updateGauge();
    return {
      end: (isReported) => {
        clearTimeout(timer);
        if (!this.#running.delete(stop)) return;
        this.#updateGauge();
        this.#metrics?.results.inc({ result: isReported ? 'reported' : 'missing' });
        if (this.#running.size === 0) this.#onIdle?.();
      },
    };
  }

  /**
   * Admits no more reads and waits for running ones; resolves when their usage has been counted.
   * @param ms deadline in milliseconds, after which they are ended
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
    // Their requests settle in the following promise callbacks.
    await nextTick();
    await nextTick();
  }

  /** Ends all reads now and admits no more. */
  endAll(): void {
    this.#isClosed = true;
    for (const stop of [...this.#running]) stop();
  }

  #updateGauge(): void {
    this.#metrics?.running.set(this.#running.size);
  }
}
