// How quickly a target has answered of late: a decaying average of the times to its first token. It takes no times itself.

/** Within this time a sample loses about two thirds of its weight. */
const DECAY_MS = 10_000;

/**
 * An average that believes bad news at once and good news slowly ("peak EWMA"): a target that has become slow is left
 * before many requests have waited for it. After a silence it fades, so that a slow target is tried again some time.
 */
export class LatencyAverage {
  readonly #now: () => number;
  #average: number | undefined;
  #at = 0;

  /** @param now monotonic milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** @param ms from the request sent to its first token; of one that never had one, how long it was waited for */
  observe(ms: number): void {
    if (!(ms >= 0 && Number.isFinite(ms))) return;
    const now = this.#now();
    const average = this.#average;
    if (average === undefined || ms >= average) this.#average = ms;
    else {
      const kept = Math.exp(-Math.max(0, now - this.#at) / DECAY_MS);
      this.#average = average * kept + ms * (1 - kept);
    }
    this.#at = now;
  }

  /** Milliseconds; undefined when nothing is known. */
  get value(): number | undefined {
    if (this.#average === undefined) return undefined;
    const silence = this.#now() - this.#at - DECAY_MS;
    return silence <= 0 ? this.#average : this.#average * Math.exp(-silence / DECAY_MS);
  }
}
