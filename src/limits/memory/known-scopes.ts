// The scopes that the limiter in memory remembers: a bound on those without running requests.
import type { LimitMetrics } from '../limiter.ts';
import type { ScopeCounters } from './scope-counters.ts';

/** Those with running requests are passed over; a new scope looks at no more than this many. */
const MAX_STEPS = 16;
/** By this factor more are remembered while the minutes of the longest idle are not over: about 600 bytes each. */
const MINUTE_FACTOR = 3;

export class KnownScopes {
  readonly #maxScopes: number;
  readonly #gauge: LimitMetrics['limitHolders'];
  /** By scope. Of those without running requests, the longest idle are first; up to half of the maximum, the first seen. */
  readonly #known = new Map<string, ScopeCounters>();

  /** @param maxScopes besides those with running requests, which are bounded elsewhere */
  constructor(maxScopes: number, gauge: LimitMetrics['limitHolders']) {
    this.#maxScopes = maxScopes;
    this.#gauge = gauge;
  }

  get size(): number {
    return this.#known.size;
  }

  /** @param id of the scope */
  get(id: string): ScopeCounters | undefined {
    return this.#known.get(id);
  }

  add(counters: ScopeCounters): void {
    this.#known.set(counters.scope.id, counters);
    this.#gauge.set(this.size);
  }

  /** They were used. The order matters for those without running requests, when some may soon be forgotten. */
  touch(all: readonly ScopeCounters[]): void {
    if (this.size * 2 <= this.#maxScopes) return;
    for (const counters of all) {
      if (counters.running > 0) continue;
      const { id } = counters.scope;
      this.#known.delete(id);
      this.#known.set(id, counters);
    }
  }

  /**
   * Forgets the longest idle, which start with a new minute window and the totals of the store. Those whose minute is not over stay, up to a
   * bound: otherwise the use of many scopes would give others a new minute.
   * @param now monotonic milliseconds
   */
  trim(now: number): void {
    if (this.size <= this.#maxScopes) return;
    let steps = 0;
    for (const [id, counters] of this.#known) {
      if (this.size <= this.#maxScopes || steps === MAX_STEPS) break;
      if (
        counters.running === 0 &&
        counters.isMinuteOpen(now) &&
        this.size <= MINUTE_FACTOR * this.#maxScopes
      )
        break;
      steps += 1;
      this.#known.delete(id);
      if (counters.running > 0) this.#known.set(id, counters);
      else counters.finish();
    }
    this.#gauge.set(this.size);
  }
}
