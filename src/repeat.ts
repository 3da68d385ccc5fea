// Work that repeats in the background: one time after the other, with a pause before each.

export class Repeat {
  readonly #work: () => Promise<number>;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #isStopped = false;

  /** @param work never rejects; returns milliseconds until the next time */
  constructor(work: () => Promise<number>) {
    this.#work = work;
  }

  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** @param ms until the first time. It does not keep the process alive */
  start(ms: number): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => {
      this.#running = this.#work().then((next) => this.start(next));
    }, ms).unref();
  }

  /** Resolves when the work under way has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }
}
