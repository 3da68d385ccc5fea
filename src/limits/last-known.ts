// What Redis last said of one scope. A replica continues from it while Redis does not answer.
import { LIMITS } from '../config/limit-table.ts';
import { RecentMap } from '../recent-map.ts';
import type { Moment, UtcDate } from './calendar.ts';
import type { Amounts } from './limiter.ts';
import type { ReserveAnswer } from './reserve-answer.ts';
import type { Scopes } from './scope.ts';
import type { LimitUsage } from './verdict.ts';

/** Scopes whose counters are kept. */
const MAX_SCOPES = 10_000;

/** The position of this replica in its fleet. */
export interface FleetPlace {
  /** From 0. */
  readonly index: number;
  readonly count: number;
}

export interface LastKnownOptions {
  readonly usage: LimitUsage;
  /** Whether the totals are known to be complete. */
  readonly hasTotals: boolean;
  /** Monotonic milliseconds, of this process. */
  readonly now: number;
  /** Running requests that are of this process. */
  readonly own: number;
  /** Requests of other processes are assumed to run for this long, in milliseconds. */
  readonly leaseMs: number;
}

export class LastKnownCounters {
  readonly hasTotals: boolean;
  /** Monotonic milliseconds: the end of the minute window, in the past where none was open. */
  readonly windowEndsAt: number;
  readonly #counts: number[];
  readonly #date: UtcDate;
  readonly #othersUntil: number;
  #others = 0;
  #own: number;

  constructor({ usage, hasTotals, now, own, leaseMs }: LastKnownOptions) {
    this.hasTotals = hasTotals;
    this.windowEndsAt = now + usage.windowLeftMs;
    this.#counts = usage.counts.slice();
    this.#date = usage.date;
    for (const { index, counts } of LIMITS)
      if (counts === 'running') this.#others = Math.max(0, (usage.counts[index] ?? 0) - own);
    this.#othersUntil = now + leaseMs;
    this.#own = own;
  }

  /** A request of this process, admitted by Redis, has ended. */
  settled(reserved: Amounts, used: Amounts): void {
    this.#own = Math.max(0, this.#own - 1);
    for (const { index, counts } of LIMITS) {
      if (counts === 'tokens' || counts === 'cost')
        this.#counts[index] = Math.max(0, (this.#counts[index] ?? 0) - reserved[counts] + used[counts]);
    }
  }

  /** A request that this process admitted alone has a lease in Redis now. What it used stays counted here. */
  entered(): void {
    this.#own += 1;
  }

  /** What still counts of it at a moment. */
  at({ now, wallMs, date }: Moment): LimitUsage {
    const windowLeftMs = Math.max(0, this.windowEndsAt - now);
    const running = this.#own + (now < this.#othersUntil ? this.#others : 0);
    const counts = LIMITS.map(({ index, window }) => {
      if (window === 'concurrent') return running;
      const isCurrent =
        window === 'minute' ? windowLeftMs > 0 : this.hasTotals && date[window] === this.#date[window];
      return isCurrent ? (this.#counts[index] ?? 0) : 0;
    });
    return { wallMs, date, windowLeftMs, counts };
  }
}

/** What Redis last said of each scope. */
export class LastKnown {
  readonly #byScope = new RecentMap<string, LastKnownCounters>(MAX_SCOPES);
  readonly #leaseMs: number;
  readonly #now: () => number;

  /** @param options as in `RedisLimiterOptions` */
  constructor({ leaseMs, now }: { readonly leaseMs: number; readonly now: () => number }) {
    this.#leaseMs = leaseMs;
    this.#now = now;
  }

  /** @param scope its id */
  of(scope: string): LastKnownCounters | undefined {
    return this.#byScope.get(scope);
  }

  /** @param runningIn how many leases of this process run in a scope */
  remember({ list }: Scopes, { scopes }: ReserveAnswer, runningIn: (scope: string) => number): void {
    const leaseMs = this.#leaseMs;
    // Whole milliseconds, as in memory-limiter.ts, which continues from it.
    const now = Math.floor(this.#now());
    for (const [index, { usage, isProvisional }] of scopes.entries()) {
      const scope = list[index];
      if (scope === undefined) continue;
      const hasTotals = scope.active.needTotals && !isProvisional;
      const own = runningIn(scope.id);
      this.#byScope.set(scope.id, new LastKnownCounters({ usage, hasTotals, now, own, leaseMs }));
    }
  }
}

/**
 * How much of the rest one replica may use while it has no contact with the others. The shares of all replicas add up to the
 * rest.
 */
export function shareOf(left: number, scope: string, { index, count }: FleetPlace): number {
  // The remainder of the division goes to different replicas for different scopes.
  const rank = (index + hashOf(scope)) % count;
  return Math.floor((left + count - 1 - rank) / count);
}

/** FNV-1a. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}
