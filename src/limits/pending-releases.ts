// What is still to be told to Redis while it is away: settlements of leases, and use that was counted without it. Bounded;
// what finds no place is counted as dropped. It knows nothing of Redis: who owns it sends.
import type { LimitMetrics, ReleaseDropReason } from './limiter.ts';

/** Real use of one request, or of several of a holder that had no lease in Redis. */
export interface PendingRelease {
  readonly holder: string;
  /** The lease as Redis has it, or its id alone where no answer told the rest; empty: none. */
  readonly member: string;
  readonly tokens: number;
  /** Requests to count: 0 for a lease, since it has counted its own; -1 to take that back. */
  readonly requests: number;
  /** What is counted where Redis has no such lease (any more): see `settle` in reserve.lua. */
  readonly orElse: 'real' | 'none' | 'use';
  /** The part of a use without a lease that belongs to the window of a minute. */
  readonly recent: Recent;
}

export interface Recent {
  /** Monotonic milliseconds: when the first of it was admitted. */
  readonly since: number;
  readonly requests: number;
  readonly tokens: number;
}

export class PendingReleases {
  readonly #limit: number;
  readonly #windowMs: number;
  readonly #metrics: Pick<LimitMetrics, 'limitSettlementsDropped'>;
  readonly #kept = new Map<string, PendingRelease>();

  /** @param limit most that are kept */
  constructor(limit: number, windowMs: number, metrics: Pick<LimitMetrics, 'limitSettlementsDropped'>) {
    this.#limit = limit;
    this.#windowMs = windowMs;
    this.#metrics = metrics;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** Use without a lease is added up by holder, so that a long outage takes one place for each. */
  keep(release: PendingRelease): void {
    const isLease = release.member !== '';
    const name = isLease ? `lease ${release.member}` : `use ${release.holder}`;
    const held = this.#kept.get(name);
    if (held === undefined && this.#kept.size >= this.#limit) {
      this.drop('overflow');
      return;
    }
    this.#kept.set(name, held === undefined || isLease ? release : this.#sum(held, release));
  }

  drop(reason: ReleaseDropReason): void {
    this.#metrics.limitSettlementsDropped.inc({ reason });
  }

  /** Takes out the oldest, `count` at most. */
  take(count: number): PendingRelease[] {
    const taken: PendingRelease[] = [];
    for (const [name, release] of this.#kept) {
      if (taken.length === count) break;
      this.#kept.delete(name);
      taken.push(release);
    }
    return taken;
  }

  #sum(held: PendingRelease, more: PendingRelease): PendingRelease {
    const [first, last] = held.recent.since <= more.recent.since ? [held, more] : [more, held];
    const isOneWindow = last.recent.since - first.recent.since < this.#windowMs;
    return {
      ...held,
      tokens: held.tokens + more.tokens,
      requests: held.requests + more.requests,
      recent: isOneWindow
        ? {
            since: first.recent.since,
            requests: held.recent.requests + more.recent.requests,
            tokens: held.recent.tokens + more.recent.tokens,
          }
        : last.recent,
    };
  }
}
