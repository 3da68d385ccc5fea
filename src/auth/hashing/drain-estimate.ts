// The wait for callers that a full queue rejects: until the queue, and those who were turned away
// before it, have been served. It estimates from measured times and blocks no caller: one that returns sooner and finds
// room is served.

/** The wait, in milliseconds. */
export const MIN_DRAIN_MS = 1000;
export const MAX_DRAIN_MS = 30_000;
/** A wait is stretched by up to this share of itself, so that callers do not return all at once. */
const JITTER = 0.5;
/** Weight of the newest measurement. */
const ALPHA = 0.1;

interface DrainEstimateOptions {
  /** How many are served at once. */
  readonly slots: number;
  /** Milliseconds for one, until one was measured. */
  readonly initialMs: number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** From 0 up to 1, without 1. */
  readonly random?: () => number;
}

export class DrainEstimate {
  readonly #slots: number;
  readonly #now: () => number;
  readonly #random: () => number;
  #serviceMs: number;
  /** When the last of those who were turned away would have been served. */
  #servedAt = Number.NEGATIVE_INFINITY;

  constructor({ slots, initialMs, now, random }: DrainEstimateOptions) {
    this.#slots = slots;
    this.#serviceMs = initialMs;
    this.#now = now ?? (() => performance.now());
    this.#random = random ?? Math.random;
  }

  /** Takes in how long one was served, without its wait. */
  measured(ms: number): void {
    if (ms >= 0 && ms < Number.POSITIVE_INFINITY) this.#serviceMs += ALPHA * (ms - this.#serviceMs);
  }

  /**
   * Call it for each rejected caller: it reserves the next turn, so that the next caller reads a later one.
   * @param ahead how many are being served or wait in the queue
   * @returns milliseconds, from MIN_MS to MAX_MS
   */
  retryAfterMs(ahead: number): number {
    const now = this.#now();
    const each = this.#serviceMs / this.#slots;
    const longest = MAX_DRAIN_MS / (1 + JITTER);
    const turn = Math.max(this.#servedAt, now + ahead * each) + each;
    // Bounded, so that callers that keep returning too early cannot delay others for longer.
    this.#servedAt = Math.min(turn, now + longest);
    const wait = Math.max(MIN_DRAIN_MS, this.#servedAt - now);
    return Math.round(wait * (1 + JITTER * this.#random()));
  }
}
