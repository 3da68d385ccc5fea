// Exponential backoff with jitter, so that replicas do not reconnect at the same time.

/** How a connection is made, and made again. */
export interface ConnectionTimes {
  /** Timeout of one attempt and of each answer in it, in milliseconds. */
  readonly connectMs: number;
  /** Maximum wait of `start`, in milliseconds. */
  readonly startMs: number;
  /** Wait before the first reconnect, in milliseconds, doubled with each attempt. */
  readonly firstRetryMs: number;
  /** Maximum wait before a reconnect, in milliseconds. */
  readonly maxRetryMs: number;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** From 0 (included) to 1 (excluded). */
  readonly random: () => number;
}

export const CONNECTION_TIMES: ConnectionTimes = {
  connectMs: 1000,
  startMs: 1000,
  firstRetryMs: 50,
  maxRetryMs: 1000,
  now: () => performance.now(),
  random: Math.random,
};

export interface BackoffOptions {
  /** Wait before the first try, in milliseconds. */
  readonly firstMs: number;
  readonly maxMs: number;
  /** After success for this long, in milliseconds, the backoff starts over; before that, the next outage continues it. */
  readonly resetMs: number;
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

  /** Number of attempts since the backoff last started over. */
  get tries(): number {
    return this.#tries;
  }

  /** Records a success. It does not reset the wait at once, because a flapping server costs a deadline each time. */
  succeeded(): void {
    this.#worksSince = this.#options.now();
  }

  /** The next wait, in milliseconds: random between half and all of a delay that doubles. */
  next(): number {
    const { firstMs, maxMs, resetMs, now, random } = this.#options;
    if (this.#worksSince !== undefined && now() - this.#worksSince >= resetMs) this.#tries = 0;
    this.#worksSince = undefined;
    const delay = Math.min(maxMs, firstMs * 2 ** this.#tries);
    this.#tries = Math.min(this.#tries + 1, 30);
    return delay * (1 - random() / 2);
  }
}
