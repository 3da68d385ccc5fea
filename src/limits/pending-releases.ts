// Releases that wait for Redis: of leases, and of usage that was counted without it. Bounded; drops are counted. It sends
// nothing: its owner does.
import { mayHaveExecuted, RedisUnavailable } from '../redis/redis-fault.ts';
import type { Amounts, LimitMetrics, ReleaseDropReason } from './limiter.ts';
import type { Scopes } from './scope.ts';

/** The real usage of one request, or of several requests of the same scopes without leases in Redis. */
export interface PendingRelease {
  readonly scopes: Scopes;
  /** The lease as Redis stores it, or its id alone where no reply gave the rest; empty: no lease. */
  readonly member: string;
  readonly amounts: Amounts;
  /** Requests to count: 0 for a lease, which has counted its own; -1 to undo that. */
  readonly requests: number;
  /** What is counted if Redis does not have the lease: see `settle` in reserve.lua. */
  readonly orElse: 'real' | 'none' | 'use';
  /** Without a lease: the part that belongs to the minute window. Of a lease: since when its delivery is late. */
  readonly recent: Recent;
}

export interface Recent {
  /** Monotonic milliseconds: when the first request was admitted. 0: a lease that is not late. */
  readonly since: number;
  readonly requests: number;
  readonly amounts: Amounts;
}

export class PendingReleases {
  readonly #limit: number;
  readonly #windowMs: number;
  readonly #metrics: Pick<LimitMetrics, 'limitSettlementsDropped'>;
  readonly #waiting = new Map<string, PendingRelease>();

  /** @param limit on how many wait */
  constructor(limit: number, windowMs: number, metrics: Pick<LimitMetrics, 'limitSettlementsDropped'>) {
    this.#limit = limit;
    this.#windowMs = windowMs;
    this.#metrics = metrics;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** Usage without a lease is summed by scopes, so that a long outage needs one entry for each combination. */
  add(release: PendingRelease): void {
    const isLease = release.member !== '';
    const name = isLease ? `lease ${release.member}` : `use ${namesOf(release.scopes)}`;
    const held = this.#waiting.get(name);
    if (held === undefined && this.#waiting.size >= this.#limit) {
      this.drop('overflow');
      return;
    }
    this.#waiting.set(name, held === undefined || isLease ? release : this.#sum(held, release));
  }

  /**
   * Of a call that failed: it is delivered later, if it may be.
   * @param isClosed the limiter was closed
   * @param now monotonic milliseconds
   */
  keep(release: PendingRelease, error: unknown, isClosed: boolean, now: number): void {
    if (!(error instanceof RedisUnavailable)) this.drop('error');
    else if (error.reason === 'closed' || isClosed) this.drop('closed');
    else if (!mayHaveExecuted(error)) this.add(release.orElse === 'real' ? lateSince(release, now) : release);
    // Without a lease to find it by, it might be counted twice.
    else if (release.member === '') this.drop('unknown');
    else this.add({ ...lateSince(release, now), orElse: 'none' });
  }

  drop(reason: ReleaseDropReason): void {
    this.#metrics.limitSettlementsDropped.inc({ reason });
  }

  /**
   * Delivers what waits now, `size` releases at a time, until Redis is down. A failed delivery comes back to the end, and waits for the
   * next round.
   * @param deliver never rejects
   */
  async deliverAll(
    size: number,
    isUp: () => boolean,
    deliver: (releases: readonly PendingRelease[]) => Promise<void>,
  ): Promise<void> {
    for (let left = this.size; left > 0 && isUp(); left -= size)
      await deliver(this.take(Math.min(left, size)));
  }

  /** Removes the oldest, at most `count`, and returns them. */
  take(count: number): PendingRelease[] {
    const taken: PendingRelease[] = [];
    for (const [name, release] of this.#waiting) {
      if (taken.length === count) break;
      this.#waiting.delete(name);
      taken.push(release);
    }
    return taken;
  }

  #sum(held: PendingRelease, more: PendingRelease): PendingRelease {
    const [first, last] = held.recent.since <= more.recent.since ? [held, more] : [more, held];
    const isOneWindow = last.recent.since - first.recent.since < this.#windowMs;
    return {
      ...held,
      amounts: sumOfAmounts(held.amounts, more.amounts),
      requests: held.requests + more.requests,
      recent: isOneWindow
        ? {
            since: first.recent.since,
            requests: held.recent.requests + more.recent.requests,
            amounts: sumOfAmounts(held.recent.amounts, more.recent.amounts),
          }
        : last.recent,
    };
  }
}

/** The first failure counts: what the store knew later may include it. */
function lateSince(release: PendingRelease, now: number): PendingRelease {
  return release.recent.since > 0 ? release : { ...release, recent: { ...release.recent, since: now } };
}

function sumOfAmounts(one: Amounts, other: Amounts): Amounts {
  return { tokens: one.tokens + other.tokens, cost: one.cost + other.cost };
}

function namesOf({ slot, list }: Scopes): string {
  return `${slot} ${list.map(({ id }) => id).join(' ')}`;
}
