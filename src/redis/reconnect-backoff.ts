// How long to wait before the next connection: longer from try to try, up to a limit, with a part left to chance so that
// replicas do not come back in step.

export interface BackoffOptions {
  /** Wait before the first try, in milliseconds. */
  readonly firstMs: number;
  /** No wait is longer. */
  readonly longestMs: number;
  /** What has worked for so long is taken as well; before that, the next outage goes on where the last one ended. */
  readonly calmMs: number;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** From 0 (included) to 1 (excluded). */
  readonly random: () => number;
}

export class Backoff {
  readonly #options: BackoffOptions;
  #tries = 0;
  #worksSince: number | undefined;

  constructor(options: BackoffOptions) {
    this.#options = options;
  }

  /** How many tries there have been since things were last well. */
  get tries(): number {
    return this.#tries;
  }

  /** A try succeeded. One that works only now and then costs a deadline each time, so that the wait is not forgotten at once. */
  succeeded(): void {
    this.#worksSince = this.#options.now();
  }

  /** How long to wait now, in milliseconds: between half and all of a time that doubles. */
  next(): number {
    const { firstMs, longestMs, calmMs, now, random } = this.#options;
    if (this.#worksSince !== undefined && now() - this.#worksSince >= calmMs) this.#tries = 0;
    this.#worksSince = undefined;
    const whole = Math.min(longestMs, firstMs * 2 ** this.#tries);
    this.#tries = Math.min(this.#tries + 1, 30);
    return whole * (1 - random() / 2);
  }
}
