// The limiter in the memory of this process: the scopes it remembers and the requests it has admitted. It is synchronous where
// the totals of all scopes are known. scope-counters.ts counts, verdict.ts decides.
import type { ActiveLimits } from '../active-limits.ts';
import { type Moment, utcDateAt } from '../calendar.ts';
import type { InitialTotals } from '../initial-totals.ts';
import { type FleetPlace, type LastKnownCounters, shareOf } from '../last-known.ts';
import {
  type Admission,
  type Amounts,
  CHECK_MS,
  type Lease,
  type Limiter,
  type LimitMetrics,
  type ScopeStates,
  WINDOW_MS,
  wholeAmounts,
} from '../limiter.ts';
import type { Scope, Scopes } from '../scope.ts';
import { capsOf, type LimitUsage, rejectionOf, sumOf, UsageStates } from '../verdict.ts';
import { AdmittedInRoom, JointRoom } from './joint-room.ts';
import { KnownScopes } from './known-scopes.ts';
import { MemoryLease } from './memory-lease.ts';
import { ScopeCounters } from './scope-counters.ts';
import { ScopeTotals } from './scope-totals.ts';
import type { Windows } from './windows.ts';

export interface MemoryLimiterOptions {
  readonly initialTotals: InitialTotals;
  readonly metrics: Pick<LimitMetrics, 'limitHolders' | 'limitLeases'>;
  /** Monotonic milliseconds, for windows. */
  readonly now?: () => number;
  /** Milliseconds since 1970, for days and months. */
  readonly wallNow?: () => number;
  /** Length of the minute window. Default: `WINDOW_MS`. */
  readonly windowMs?: number;
  /** How often the totals of a scope in use are compared with the store. Default: `CHECK_MS`. */
  readonly checkMs?: number;
  /**
   * Scopes that are remembered, besides those with running requests, which are bounded elsewhere. Up to three times as many while their
   * minutes are not over. Default 100,000.
   */
  readonly maxScopes?: number;
}

/** Counters of Redis, which continue here. */
export interface SharedCounters {
  readonly lastKnown: (scope: string) => LastKnownCounters | undefined;
  /** The position among the replicas that share the rest at the moment; undefined: it is not shared. */
  readonly fleet: () => FleetPlace | undefined;
}

export class MemoryLimiter implements Limiter {
  readonly #options: Required<MemoryLimiterOptions>;
  #shared: SharedCounters | undefined;
  readonly #known: KnownScopes;
  readonly #totals: ScopeTotals;
  #rooms = new WeakMap<Scopes, JointRoom>();
  /** Counters of an earlier generation have outdated totals. */
  #generation = 0;

  constructor(options: MemoryLimiterOptions) {
    this.#options = {
      now: () => performance.now(),
      wallNow: Date.now,
      windowMs: WINDOW_MS,
      checkMs: CHECK_MS,
      maxScopes: 100_000,
      ...options,
    };
    this.#known = new KnownScopes(this.#options.maxScopes, options.metrics.limitHolders);
    this.#totals = new ScopeTotals(options.initialTotals, this.#options.checkMs, () => this.#moment());
  }

  /** Scopes that are remembered. */
  get size(): number {
    return this.#known.size;
  }

  /** From now on it counts beside what Redis has counted. */
  continueFrom(shared: SharedCounters): void {
    this.#shared = shared;
    this.#rooms = new WeakMap();
  }

  admit(scopes: Scopes, amounts: Amounts, held?: Lease): Admission | Promise<Admission> {
    const moment = this.#moment();
    const whole = wholeAmounts(amounts);
    const lease = held instanceof MemoryLease ? held : undefined;
    const room = lease === undefined ? this.#rooms.get(scopes) : undefined;
    const used = room?.reserve(moment, whole);
    if (room !== undefined && used !== undefined) {
      const { counters, windows } = room;
      this.#known.trim(moment.now);
      return new AdmittedInRoom(this.#lease(whole, counters, windows), room, moment, used);
    }
    const all = this.#allCounters(scopes);
    if (scopes.needTotals) {
      const missing = this.#totals.missing(scopes, all, moment);
      if (missing.length > 0) {
        return Promise.all(
          missing.map((scope) => this.#totals.read(scope, () => this.#countersOf(scope))),
        ).then(() =>
          this.#decide(
            scopes,
            // One may have been forgotten meanwhile.
            this.#allCounters(scopes),
            whole,
            lease,
            this.#moment(),
          ),
        );
      }
    }
    return this.#decide(scopes, all, whole, lease, moment);
  }

  peek(scopes: Scopes): ScopeStates | Promise<ScopeStates> {
    const all = scopes.list.map((scope) => {
      const known = this.#known.get(scope.id) ?? new ScopeCounters(scope, this.#options.windowMs);
      return this.#refreshed(known);
    });
    const states = () => this.#states(scopes, all, this.#moment());
    const missing = all.filter(
      (counters, index) =>
        scopes.list[index]?.active.needTotals === true && !counters.knowsTotals(this.#moment().date),
    );
    if (missing.length === 0) return states();
    const reads = missing.map((counters) => this.#totals.read(counters.scope, () => counters));
    return Promise.all(reads).then(states);
  }

  use(scopes: Scopes, amounts: Amounts): void {
    const moment = this.#moment();
    const whole = wholeAmounts(amounts);
    for (const scope of scopes.list) this.#countersOf(scope).add(moment, whole);
    this.#known.trim(moment.now);
  }

  /** Totals are outdated: those of every scope are read again before use. Minute windows and running requests stay. */
  forgetTotals(): void {
    this.#generation += 1;
    this.#rooms = new WeakMap();
  }

  async close(): Promise<void> {}

  #moment(): Moment {
    const { now, wallNow } = this.#options;
    const wallMs = wallNow();
    // Whole milliseconds: sums of others are not exact, and a whole window could look longer than it is.
    return { now: Math.floor(now()), wallMs, date: utcDateAt(wallMs) };
  }

  #decide(
    scopes: Scopes,
    all: readonly ScopeCounters[],
    amounts: Amounts,
    held: MemoryLease | undefined,
    moment: Moment,
  ): Admission {
    const checks = all.map((counters, index) => {
      const usage = this.#usage(counters, moment)();
      const own = held?.windowsIn(counters);
      return {
        usage: own === undefined || held === undefined ? usage : counters.without(usage, own, held.amounts),
        hasSlot: own !== undefined,
        caps: this.#caps(counters, scopes.list[index]?.active, moment),
      };
    });
    const rejection = rejectionOf(scopes, checks, amounts, () => this.#states(scopes, all, moment));
    if (rejection === undefined) return this.#reserve(scopes, all, amounts, held, moment);
    this.#known.touch(all);
    this.#known.trim(moment.now);
    return rejection;
  }

  #reserve(
    scopes: Scopes,
    all: readonly ScopeCounters[],
    amounts: Amounts,
    held: MemoryLease | undefined,
    moment: Moment,
  ): Admission {
    let lease = held;
    if (lease === undefined) {
      const windows = all.map((counters) => counters.reserve(moment, amounts));
      lease = this.#lease(amounts, all, windows);
      this.#setRoom(scopes, all, windows);
      this.#totals.compare(scopes, all, moment);
    } else if (!lease.isSettled) lease.change(moment, all, amounts);
    this.#known.trim(moment.now);
    return { kind: 'admitted', lease, states: this.#states(scopes, all, moment) };
  }

  #lease(amounts: Amounts, counters: readonly ScopeCounters[], windows: readonly Windows[]): MemoryLease {
    const lease: MemoryLease = new MemoryLease(amounts, counters, windows, (real) =>
      this.#settle(lease, real),
    );
    this.#options.metrics.limitLeases.add(1);
    return lease;
  }

  /** From now on the next requests of these scopes are decided by their numbers, where nothing else decides. */
  #setRoom(scopes: Scopes, all: readonly ScopeCounters[], windows: readonly Windows[]): void {
    // What Redis says last may be news at any time.
    if (this.#shared !== undefined) return;
    if (scopes.list.every(({ active }, index) => all[index]?.hasCounts(active) === true))
      this.#rooms.set(scopes, new JointRoom(scopes, all, windows));
  }

  #states({ list }: Scopes, all: readonly ScopeCounters[], moment: Moment): ScopeStates {
    return all.map(
      (counters, index) => new UsageStates(this.#usage(counters, moment), (list[index] ?? list[0]).active),
    );
  }

  /** What is counted here, and in Redis before. */
  #usage(counters: ScopeCounters, moment: Moment): () => LimitUsage {
    const usage = counters.usage(moment);
    if (counters.base === undefined) return usage;
    const sum = sumOf(usage(), counters.base.at(moment));
    return () => sum;
  }

  #caps(
    { scope, base }: ScopeCounters,
    active: ActiveLimits | undefined,
    moment: Moment,
  ): number[] | undefined {
    const fleet = this.#shared?.fleet();
    if (fleet === undefined || active === undefined) return undefined;
    return capsOf(base?.at(moment), active, (left) => shareOf(left, scope.id, fleet));
  }

  #settle(lease: MemoryLease, amounts: Amounts): void {
    lease.release(this.#moment(), amounts);
    this.#known.touch(lease.counters);
    this.#options.metrics.limitLeases.add(-1);
  }

  #allCounters(scopes: Scopes): readonly ScopeCounters[] {
    return scopes.list.map((scope) => this.#countersOf(scope));
  }

  #countersOf(scope: Scope): ScopeCounters {
    const known = this.#known.get(scope.id);
    if (known !== undefined) return this.#refreshed(known);
    const counters = this.#refreshed(new ScopeCounters(scope, this.#options.windowMs));
    counters.checkAt = this.#options.now() + this.#options.checkMs;
    this.#known.add(counters);
    return counters;
  }

  #refreshed(counters: ScopeCounters): ScopeCounters {
    const lastKnown = this.#shared?.lastKnown(counters.scope.id);
    const isBeside = lastKnown?.hasTotals === true && lastKnown === counters.base;
    if (counters.generation !== this.#generation && !isBeside) counters.forgetTotals();
    counters.generation = this.#generation;
    if (lastKnown !== counters.base) {
      counters.base = lastKnown;
      counters.forgetTotals();
      if (lastKnown !== undefined)
        counters.restart(lastKnown.windowEndsAt, lastKnown.hasTotals, this.#moment());
    }
    return counters;
  }
}
