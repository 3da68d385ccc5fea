// How many bad keys an address may try, or may be tried with one prefix. Of callers whose key has proved good it knows nothing.
import { MAX_RETRY_AFTER_MS } from '../errors.ts';
import { RecentMap } from '../recent-map.ts';

const MAX_SUBJECTS = 50_000;
/** The longest wait that clients read. */
const MINUTE_MS = MAX_RETRY_AFTER_MS;

interface Bucket {
  /** Failures, less what time has forgiven. */
  readonly used: number;
  /** When `used` was true, in milliseconds of the injected clock. */
  readonly at: number;
}

/** A bucket per subject that failures fill and that empties steadily within a minute. */
export class FailureLimit {
  readonly #perMinute: () => number;
  readonly #now: () => number;
  readonly #subjectOf: (text: string) => string;
  readonly #buckets = new RecentMap<string, Bucket>(MAX_SUBJECTS);

  /**
   * @param perMinute the limit at this moment; it may change with the configuration
   * @param subjectOf what counts as one, e.g. address-block.ts; it is asked only when there are failures
   */
  constructor(perMinute: () => number, now: () => number, subjectOf: (text: string) => string) {
    this.#perMinute = perMinute;
    this.#now = now;
    this.#subjectOf = subjectOf;
  }

  get size(): number {
    return this.#buckets.size;
  }

  /** Milliseconds until another failure is taken; 0 when it is now. */
  waitFor(text: string): number {
    // Nothing to compute where there are no failures, which is nearly always.
    if (this.#buckets.size === 0) return 0;
    const subject = this.#subjectOf(text);
    const used = this.#used(subject);
    if (used === 0) {
      this.#buckets.delete(subject);
      return 0;
    }
    const over = used - (this.#perMinute() - 1);
    return over <= 0 ? 0 : Math.max(1, Math.ceil((over / this.#perMinute()) * MINUTE_MS));
  }

  record(text: string): void {
    const subject = this.#subjectOf(text);
    const used = this.#used(subject) + 1;
    // Not above the limit: time already spent waiting must count.
    const bucket = { used: Math.min(used, this.#perMinute()), at: this.#now() };
    this.#buckets.set(subject, bucket);
  }

  #used(subject: string): number {
    const bucket = this.#buckets.get(subject);
    if (bucket === undefined) return 0;
    const forgiven = ((this.#now() - bucket.at) / MINUTE_MS) * this.#perMinute();
    return Math.max(0, bucket.used - forgiven);
  }
}
