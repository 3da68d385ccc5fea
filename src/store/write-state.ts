// Tracks whether the store accepts writes. Real writes report their results; without a recent one, a check makes a small write.
// Frequent health checks therefore cost little and show what a client's write would get.

import { singleFlight } from '../single-flight.ts';

/** A successful write answers checks for this long, in milliseconds. */
const GOOD_MS = 5000;
/** A failed write answers checks for this long, in milliseconds. */
const BAD_MS = 1000;

interface WriteStateOptions {
  /** Makes a small write in bounded time and reports its result here, as every write does. */
  readonly write: () => Promise<unknown>;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

export class WriteState {
  readonly #write: () => Promise<unknown>;
  readonly #now: () => number;
  #last: { readonly at: number; readonly error: Error | undefined } | undefined;
  readonly #checked = singleFlight(() => this.#check());

  constructor({ write, now = () => performance.now() }: WriteStateOptions) {
    this.#write = write;
    this.#now = now;
  }

  /** A write was committed. */
  succeeded(): void {
    this.#last = { at: this.#now(), error: undefined };
  }

  /**
   * A write failed.
   * @param isCertain whether every other write would fail too; otherwise the next check makes a write
   */
  failed(error: Error, isCertain: boolean): void {
    if (isCertain) this.#last = { at: this.#now(), error };
    // An uncertain failure keeps an earlier failure and discards an earlier success.
    else if (this.#last?.error === undefined) this.#last = undefined;
  }

  /** Resolves when the store accepts writes. Rejects with the error of the last write. */
  check(): Promise<void> {
    const last = this.#last;
    const age = this.#now() - (last?.at ?? Number.NEGATIVE_INFINITY);
    if (last?.error === undefined ? age < GOOD_MS : age < BAD_MS) {
      return last?.error === undefined ? Promise.resolve() : Promise.reject(last.error);
    }
    return this.#checked();
  }

  async #check(): Promise<void> {
    try {
      await this.#write();
      this.succeeded();
    } catch (error) {
      const failure = error instanceof Error ? error : new Error(String(error));
      this.failed(failure, true);
      throw failure;
    }
  }
}
