// How quickly a target has answered of late: a decaying average of the times to its first token, and the time that most of
// them did not exceed. It takes no times itself.

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
  #recent: RecentTimes | undefined;

  /** @param now monotonic milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** @param ms from the request sent to its first token; of one that never had one, how long it was waited for */
  observe(ms: number): void {
    if (!isTime(ms)) return;
    const now = this.#now();
    const average = this.#average;
    if (average === undefined || ms >= average) this.#average = ms;
    else {
      const kept = Math.exp(-Math.max(0, now - this.#at) / DECAY_MS);
      this.#average = average * kept + ms * (1 - kept);
    }
    this.#at = now;
    this.#recent?.add(now, ms);
  }

  /**
   * A request was ended before its first token for no fault of the target: it would have taken longer than this, and nobody
   * knows how much. Less than what is usual is no news, and would make the target look quick. More is: whatever it would
   * have become, its place among the slow ones is the same. To leave it out would make the percentile sink with each request
   * that was overtaken, and more of them would be.
   * @param ms from the request sent
   */
  observeAtLeast(ms: number): void {
    if (!isTime(ms)) return;
    const { value } = this;
    if (value === undefined || ms > value) {
      this.#average = ms;
      this.#at = this.#now();
    }
    const usual = this.#recent?.p95(this.#now());
    if (usual !== undefined && ms >= usual) this.#recent?.add(this.#now(), ms);
  }

  /** Milliseconds; undefined when nothing is known. */
  get value(): number | undefined {
    if (this.#average === undefined) return undefined;
    const silence = this.#now() - this.#at - DECAY_MS;
    return silence <= 0 ? this.#average : this.#average * Math.exp(-silence / DECAY_MS);
  }

  /**
   * The 95th percentile of the last 128 times within the last five minutes, at least 10 ms; undefined when there are fewer
   * than 20. Single times are kept from the first question on: most targets are never asked it.
   */
  get p95(): number | undefined {
    this.#recent ??= new RecentTimes();
    const usual = this.#recent.p95(this.#now());
    return usual === undefined ? undefined : Math.max(MIN_MS, usual);
  }
}

/** Below this it is the noise of timers and networks that would be compared. */
const MIN_MS = 10;

const SAMPLES = 128;
const MIN_SAMPLES = 20;
const MAX_AGE_MS = 5 * 60_000;
/** A percentile is made anew at most once in this time, however many requests ask for it. */
const FRESH_MS = 1000;

/** The last times, in a ring. */
class RecentTimes {
  readonly #times = new Float64Array(SAMPLES);
  readonly #at = new Float64Array(SAMPLES);
  /** Ever added. */
  #count = 0;
  #known: { readonly ms: number | undefined; readonly at: number; readonly count: number } | undefined;

  add(now: number, ms: number): void {
    const slot = this.#count % SAMPLES;
    this.#times[slot] = ms;
    this.#at[slot] = now;
    this.#count += 1;
  }

  p95(now: number): number | undefined {
    const known = this.#known;
    const isFresh = known !== undefined && now - known.at < FRESH_MS;
    // Where there were too few, the next one may be the one that was missing.
    if (isFresh && (known.ms !== undefined || known.count === this.#count)) return known.ms;
    this.#known = { ms: this.#percentile(now), at: now, count: this.#count };
    return this.#known.ms;
  }

  #percentile(now: number): number | undefined {
    const kept = Math.min(this.#count, SAMPLES);
    const young = this.#times
      .subarray(0, kept)
      .filter((_, slot) => now - (this.#at[slot] ?? 0) <= MAX_AGE_MS);
    if (young.length < MIN_SAMPLES) return undefined;
    young.sort();
    return young[Math.ceil(young.length * 0.95) - 1];
  }
}

function isTime(ms: number): boolean {
  return ms >= 0 && Number.isFinite(ms);
}
