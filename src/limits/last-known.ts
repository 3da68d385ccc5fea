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
/** How soon a scope is compared with the store after it was met, or Redis came back: replicas have delivered what they counted alone then. */
const FIRST_CHECK_MS = 5000;

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
  /** Monotonic milliseconds: when the totals are to be compared with the store. */
  readonly checkAt: number;
}

export class LastKnownCounters {
  readonly hasTotals: boolean;
  /** Monotonic milliseconds: the end of the minute window, in the past where none was open. */
  readonly windowEndsAt: number;
  /** See LastKnownOptions. */
  checkAt: number;
  readonly #counts: number[];
  readonly #date: UtcDate;
  readonly #othersUntil: number;
  #others = 0;
  #own: number;

  constructor({ usage, hasTotals, now, own, leaseMs, checkAt }: LastKnownOptions) {
    this.checkAt = checkAt;
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

/** `leaseMs`, `checkMs` and `now` are those of `RedisLimiterOptions`. */
interface LastKnownSettings {
  readonly leaseMs: number;
  readonly checkMs: number;
  readonly now: () => number;
  /** How many leases of this process run in a scope. */
  readonly runningIn: (scope: string) => number;
  /** The totals of a scope are to be compared with the store. @param index of the scope */
  readonly onDue: (scopes: Scopes, index: number) => void;
}

/** What Redis last said of each scope. */
export class LastKnown {
  readonly #byScope = new RecentMap<string, LastKnownCounters>(MAX_SCOPES);
  readonly #options: LastKnownSettings;

  constructor(options: LastKnownSettings) {
    this.#options = options;
  }

  /** Redis is back. It may have lost writes: the state of a snapshot, or of a replica that was promoted. */
  doubt(): void {
    const checkAt = this.#firstCheckAt();
    // None sooner: replicas deliver what they counted alone first.
    for (const [, known] of this.#byScope) known.checkAt = checkAt;
  }

  /** @param scope its id */
  of(scope: string): LastKnownCounters | undefined {
    return this.#byScope.get(scope);
  }

  remember(scopes: Scopes, answer: ReserveAnswer): void {
    const { leaseMs, checkMs, runningIn, onDue } = this.#options;
    // Whole milliseconds, as in memory-limiter.ts, which continues from it.
    const now = Math.floor(this.#options.now());
    for (const [index, { usage, isProvisional }] of answer.scopes.entries()) {
      const scope = scopes.list[index];
      if (scope === undefined) continue;
      const hasTotals = scope.active.needTotals && !isProvisional;
      const own = runningIn(scope.id);
      let checkAt = this.of(scope.id)?.checkAt ?? this.#firstCheckAt();
      const isDue = hasTotals && now >= checkAt;
      if (isDue) checkAt = now + checkMs;
      this.#byScope.set(scope.id, new LastKnownCounters({ usage, hasTotals, now, own, leaseMs, checkAt }));
      if (isDue) onDue(scopes, index);
    }
  }

  #firstCheckAt(): number {
    const { now, checkMs } = this.#options;
    return now() + Math.min(FIRST_CHECK_MS, checkMs);
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
