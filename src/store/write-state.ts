// Whether the store can be written, as its last writes show. Real writes report here; where none did for a while, a check makes a
// tiny one. So a probe that comes often costs the store little, and says what a client that writes would hear.

/** After a write that worked, none is made for a check in this time. */
const GOOD_MS = 5000;
/** After one that did not, the next check waits this long. */
const BAD_MS = 1000;

interface WriteStateOptions {
  /** Makes a tiny write, in bounded time. What it comes to is reported by it, as by every write. */
  readonly write: () => Promise<unknown>;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

export class WriteState {
  readonly #write: () => Promise<unknown>;
  readonly #now: () => number;
  #last: { readonly at: number; readonly error: Error | undefined } | undefined;
  #checking: Promise<void> | undefined;

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
   * @param isCertain whether every other write would fail as well; where it is not, the next check makes one
   */
  failed(error: Error, isCertain: boolean): void {
    if (isCertain) this.#last = { at: this.#now(), error };
    // What failed before is no news; what worked before is none any more.
    else if (this.#last?.error === undefined) this.#last = undefined;
  }

  /** Resolves when the store can be written. Rejects with what the last write failed with. */
  check(): Promise<void> {
    const last = this.#last;
    const age = this.#now() - (last?.at ?? Number.NEGATIVE_INFINITY);
    if (last?.error === undefined ? age < GOOD_MS : age < BAD_MS) {
      return last?.error === undefined ? Promise.resolve() : Promise.reject(last.error);
    }
    this.#checking ??= this.#check().finally(() => {
      this.#checking = undefined;
    });
    return this.#checking;
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
