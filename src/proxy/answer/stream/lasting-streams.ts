// Counts the streams that are open to clients for longer than a tick, and notices when many begin. What is done then is the process's.

/** What so many streams keep is copied in some two milliseconds. */
const STEP = 32;

export class LastingStreams {
  #count = 0;
  #nextCall = STEP;
  /**
   * Called at the end of a tick in which `STEP` more streams were open than at the last call, or than at the fewest since then.
   * Requests that only follow each other never cause a call.
   */
  onGrowth: (() => void) | undefined;

  began(): void {
    this.#count += 1;
    if (this.#count < this.#nextCall) return;
    this.#nextCall = this.#count + STEP;
    // The writes of this tick go first.
    if (this.onGrowth !== undefined) queueMicrotask(this.onGrowth);
  }

  ended(): void {
    this.#count -= 1;
    this.#nextCall = Math.min(this.#nextCall, this.#count + STEP);
  }
}

/** Those of this process, because the heap is, too. */
export const lastingStreams: LastingStreams = new LastingStreams();
