// A lock for one writer and many readers that take turns: readers who wait get in after each write, and the next write begins when
// they are done. So neither a backlog of writes nor a flood of reads keeps the other out.

export class PhaseLock {
  #readers = 0;
  #isWriting = false;
  #writes = 0;
  readonly #waitingReaders: (() => void)[] = [];
  #waitingWriter: (() => void) | undefined;

  /**
   * Runs `work` and keeps nobody waiting.
   * @returns undefined where something was written meanwhile, or was being written already
   */
  async glance<T>(work: () => Promise<T>): Promise<T | undefined> {
    if (this.#isWriting) return undefined;
    const before = this.#writes;
    const result = await work();
    return this.#writes === before ? result : undefined;
  }

  /** Runs `work` while nothing is written. */
  async read<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isWriting || this.#waitingWriter !== undefined) {
      await new Promise<void>((resolve) => this.#waitingReaders.push(resolve));
    } else {
      this.#readers += 1;
    }
    try {
      return await work();
    } finally {
      this.#readers -= 1;
      if (this.#readers === 0) this.#letWriterIn();
    }
  }

  /** Runs `work` while nobody reads. One at a time: the next call comes after this one has settled. */
  async write<T>(work: () => Promise<T>): Promise<T> {
    if (this.#readers > 0) await new Promise<void>((resolve) => (this.#waitingWriter = resolve));
    this.#isWriting = true;
    this.#writes += 1;
    try {
      return await work();
    } finally {
      this.#isWriting = false;
      this.#letReadersIn();
    }
  }

  #letWriterIn(): void {
    const writer = this.#waitingWriter;
    this.#waitingWriter = undefined;
    // Before the writer goes on, so that no reader slips in between.
    if (writer !== undefined) this.#isWriting = true;
    writer?.();
  }

  /** Counts them at once, so that the next write waits for all of them. */
  #letReadersIn(): void {
    const readers = this.#waitingReaders.splice(0);
    this.#readers += readers.length;
    for (const enter of readers) enter();
  }
}
