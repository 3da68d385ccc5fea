// Limits failed authentication per address and per key prefix. Valid keys do not pass through here.
import { MAX_RETRY_AFTER_MS } from '../errors.ts';
import { RecentMap } from '../recent-map.ts';

const MAX_SUBJECTS = 50_000;
/** The longest wait that clients read. */
const MINUTE_MS = MAX_RETRY_AFTER_MS;

interface Bucket {
  /** Failures minus what has drained since. */
  readonly used: number;
  /** Time of `used`, in milliseconds of the injected clock. */
  readonly at: number;
}

/** A leaky bucket per subject: failures fill it, and it drains steadily within a minute. */
export class FailureLimit {
  readonly #perMinute: () => number;
  readonly #now: () => number;
  readonly #subjectOf: (text: string) => string;
  readonly #buckets = new RecentMap<string, Bucket>(MAX_SUBJECTS);

  /**
   * @param perMinute returns the current limit, which can change with the configuration
   * @param subjectOf maps a text to the subject to count, such as `addressBlock`; called only when there are failures
   */
  constructor(perMinute: () => number, now: () => number, subjectOf: (text: string) => string) {
    this.#perMinute = perMinute;
    this.#now = now;
    this.#subjectOf = subjectOf;
  }

  get size(): number {
    return this.#buckets.size;
  }

  /** Milliseconds until another failure is allowed; 0 when it is allowed now. */
  waitFor(text: string): number {
    // Fast path: nearly always there are no failures.
    if (this.#buckets.size === 0) return 0;
    const subject = this.#subjectOf(text);
    const used = this.#used(subject);
    if (used === 0) {
      this.#buckets.delete(subject);
      return 0;
    }
    const over = used - (this.#perMinute() - 1);
    return over <= 0 ? 0 : Math.ceil((over / this.#perMinute()) * MINUTE_MS);
  }

  record(text: string): void {
    const subject = this.#subjectOf(text);
    const used = this.#used(subject) + 1;
    // Capped at the limit, so that time already waited counts.
    const bucket = { used: Math.min(used, this.#perMinute()), at: this.#now() };
    this.#buckets.set(subject, bucket);
  }

  #used(subject: string): number {
    const bucket = this.#buckets.get(subject);
    if (bucket === undefined) return 0;
    const drained = ((this.#now() - bucket.at) / MINUTE_MS) * this.#perMinute();
    return Math.max(0, bucket.used - drained);
  }
}
