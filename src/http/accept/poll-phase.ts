// Defers work past the next poll phase of the event loop, in which pending socket data is read: libuv reads a FIN behind a request
// one tick after the request.

/** Work per tick, so that new data is read before the next batch. */
const BUDGET_MS = 2;
const MAX_PER_TICK = 64;

export class PollPhase {
  readonly #waiting: (() => void)[] = [];
  #isActive = false;
  /** End of the current check phase's budget; 0 before its first callback. */
  #deadline = 0;

  /** Calls back after the next poll phase, in FIFO order; under load after a later one. */
  after(callback: () => void): void {
    this.#waiting.push(callback);
    if (this.#isActive) return;
    this.#isActive = true;
    // This immediate may run in the same tick; those set by it run after the next poll phase.
    setImmediate(this.#scheduleTick);
  }

  readonly #scheduleTick = (): void => {
    // One immediate per callback, because promise callbacks run in between and count towards the budget.
    for (let count = Math.min(this.#waiting.length, MAX_PER_TICK); count > 0; count -= 1)
      setImmediate(this.#continueOne);
    setImmediate(this.#endTick);
  };

  readonly #continueOne = (): void => {
    const now = performance.now();
    if (this.#deadline === 0) this.#deadline = now + BUDGET_MS;
    if (now <= this.#deadline) this.#waiting.shift()?.();
  };

  readonly #endTick = (): void => {
    this.#deadline = 0;
    if (this.#waiting.length > 0) this.#scheduleTick();
    else this.#isActive = false;
  };
}
