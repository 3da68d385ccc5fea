// Latency of one target: a decaying average and the 95th percentile of its times to first token. The caller measures the times.

/** Time constant: a sample loses about two thirds of its weight within it. */
const DECAY_MS = 10_000;

/**
 * Peak EWMA: rises at once and falls slowly, so that a target that becomes slow loses traffic before many requests wait for it.
 * It decays without samples, so that a slow target is tried again.
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

  /** @param ms from the request sent to its first token, or to the end of the wait if none came */
  observe(ms: number): void {
    if (!isTime(ms)) return;
    const now = this.#now();
    const average = this.#average;
    if (average === undefined || ms >= average) this.#average = ms;
    else {
      const decay = Math.exp(-Math.max(0, now - this.#at) / DECAY_MS);
      this.#average = average * decay + ms * (1 - decay);
    }
    this.#at = now;
    this.#recent?.add(now, ms);
  }

  /**
   * Records a request that was ended before its first token through no fault of the target (a censored sample). Below the
   * average it says nothing and would make the target look fast, so it is ignored. Above the percentile it counts: dropping it
   * would lower the percentile with each hedged request, which would cause more hedging.
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

  /** Milliseconds; undefined if unknown. */
  get value(): number | undefined {
    if (this.#average === undefined) return undefined;
    const silence = this.#now() - this.#at - DECAY_MS;
    return silence <= 0 ? this.#average : this.#average * Math.exp(-silence / DECAY_MS);
  }

  /**
   * The 95th percentile of the last 128 times within five minutes, at least 10 ms; undefined with fewer than 20. Samples are
   * kept from the first read on: most targets never need them.
   */
  get p95(): number | undefined {
    this.#recent ??= new RecentTimes();
    const usual = this.#recent.p95(this.#now());
    return usual === undefined ? undefined : Math.max(MIN_MS, usual);
  }
}

/** Lower values are noise of timers and networks. */
const MIN_MS = 10;

const SAMPLES = 128;
const MIN_SAMPLES = 20;
const MAX_AGE_MS = 5 * 60_000;
/** The percentile is computed at most once per this time. */
const FRESH_MS = 1000;

/** Ring buffer of the last samples. */
class RecentTimes {
  readonly #times = new Float64Array(SAMPLES);
  readonly #at = new Float64Array(SAMPLES);
  /** Samples ever added. */
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
    // With too few samples, the next one may complete the minimum.
    if (isFresh && (known.ms !== undefined || known.count === this.#count)) return known.ms;
    this.#known = { ms: this.#percentile(now), at: now, count: this.#count };
    return this.#known.ms;
  }

  #percentile(now: number): number | undefined {
    const count = Math.min(this.#count, SAMPLES);
    const young = this.#times
      .subarray(0, count)
      .filter((_, slot) => now - (this.#at[slot] ?? 0) <= MAX_AGE_MS);
    if (young.length < MIN_SAMPLES) return undefined;
    young.sort();
    return young[Math.ceil(young.length * 0.95) - 1];
  }
}

function isTime(ms: number): boolean {
  return ms >= 0 && Number.isFinite(ms);
}
