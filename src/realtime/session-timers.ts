// The timers of a session: its lifetime, its waits for an end, and the idle time since bytes were last received.
export class SessionTimers {
  readonly #timers = new Set<NodeJS.Timeout>();
  #movedAt = performance.now();
  #idle: NodeJS.Timeout | undefined;

  /** Bytes were received. */
  moved(): void {
    this.#movedAt = performance.now();
  }

  /** @param act called once, after `ms` milliseconds */
  after(ms: number, act: () => void): void {
    this.#timers.add(setTimeout(act, ms));
  }

  /** One timer: received bytes only move the deadline that it computes when due. @param ms without bytes */
  watchIdle(ms: number, onIdle: () => void): void {
    const left = this.#movedAt + ms - performance.now();
    if (left <= 0) onIdle();
    else this.#idle = setTimeout(() => this.watchIdle(ms, onIdle), Math.ceil(left));
  }

  clear(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    clearTimeout(this.#idle);
  }
}
