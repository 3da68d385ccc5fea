// The limiter in the memory of this process: the scopes it remembers and the requests it has admitted. It is synchronous where
// the totals of all scopes are known. scope-counters.ts counts, verdict.ts decides.
import type { HolderTotals } from '../store/usage-record.ts';
import type { ActiveLimits } from './active-limits.ts';
import { type Moment, utcDateAt } from './calendar.ts';
import type { InitialTotals } from './initial-totals.ts';
import { type FleetPlace, type LastKnownCounters, shareOf } from './last-known.ts';
import {
  type Admission,
  type Amounts,
  type Lease,
  type Limiter,
  type LimitMetrics,
  type ScopeStates,
  SettledOnce,
  WINDOW_MS,
  wholeAmounts,
} from './limiter.ts';
import type { Scope, Scopes } from './scope.ts';
import { type Reservation, ScopeCounters } from './scope-counters.ts';
import { capsOf, type LimitUsage, rejectionOf, sumOf, UsageStates } from './verdict.ts';

export interface MemoryLimiterOptions {
  readonly initialTotals: InitialTotals;
  readonly metrics: Pick<LimitMetrics, 'limitHolders' | 'limitLeases'>;
  /** Monotonic milliseconds, for windows. */
  readonly now?: () => number;
  /** Milliseconds since 1970, for days and months. */
  readonly wallNow?: () => number;
  /** Length of the minute window. Default: `WINDOW_MS`. */
  readonly windowMs?: number;
  /** Scopes that are remembered, besides those with running requests, which are bounded elsewhere. Default 100,000. */
  readonly maxScopes?: number;
}

/** In place of a generation: other counters have taken over. */
const FORGOTTEN = -1;
/** Those with running requests are passed over; a new scope looks at no more than this many. */
const MAX_STEPS = 16;

/** Counters of Redis, which continue here. */
export interface SharedCounters {
  readonly lastKnown: (scope: string) => LastKnownCounters | undefined;
  /** The position among the replicas that share the rest at the moment; undefined: it is not shared. */
  readonly fleet: () => FleetPlace | undefined;
}

export class MemoryLimiter implements Limiter {
  readonly #options: Required<MemoryLimiterOptions>;
  #shared: SharedCounters | undefined;
  /** By scope. Of those without running requests, the longest idle are first; up to half of the maximum, the first seen. */
  readonly #known = new Map<string, ScopeCounters>();
  readonly #found = new WeakMap<Scopes, readonly ScopeCounters[]>();
  /** Counters of an earlier generation have outdated totals. */
  #generation = 0;

  constructor(options: MemoryLimiterOptions) {
    this.#options = {
      now: () => performance.now(),
      wallNow: Date.now,
      windowMs: WINDOW_MS,
      maxScopes: 100_000,
      ...options,
    };
  }

  /** Scopes that are remembered. */
  get size(): number {
    return this.#known.size;
  }

  /** From now on it counts beside what Redis has counted. */
  continueFrom(shared: SharedCounters): void {
    this.#shared = shared;
  }

  admit(scopes: Scopes, amounts: Amounts, held?: Lease): Admission | Promise<Admission> {
    const moment = this.#moment();
    const all = this.#allCounters(scopes);
    const whole = wholeAmounts(amounts);
    const lease = held instanceof MemoryLease ? held : undefined;
    if (lease === undefined && this.#fits(scopes, all, whole, moment))
      return this.#reserve(scopes, all, whole, lease, moment);
    if (scopes.needTotals) {
      const missing = this.#missing(scopes, all, moment);
      if (missing.length > 0) {
        return Promise.all(missing.map((scope) => this.#read(scope))).then(() =>
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
    const reads = missing.map(async (counters) =>
      this.#setTotals(counters, await this.#options.initialTotals.read(counters.scope)),
    );
    return Promise.all(reads).then(states);
  }

  use(scopes: Scopes, amounts: Amounts): void {
    const moment = this.#moment();
    const whole = wholeAmounts(amounts);
    for (const scope of scopes.list) this.#countersOf(scope).add(moment, whole);
    this.#trim();
  }

  /** Totals are outdated: those of every scope are read again before use. Minute windows and running requests stay. */
  forgetTotals(): void {
    this.#generation += 1;
  }

  async close(): Promise<void> {}

  #moment(): Moment {
    const { now, wallNow } = this.#options;
    const wallMs = wallNow();
    // Whole milliseconds: sums of others are not exact, and a whole window could look longer than it is.
    return { now: Math.floor(now()), wallMs, date: utcDateAt(wallMs) };
  }

  /** The scopes whose totals are needed and not known. Those that are provisional are read beside. */
  #missing({ list }: Scopes, all: readonly ScopeCounters[], { date }: Moment): Scope[] {
    return list.filter(({ active }, index) => {
      const counters = all[index];
      if (!active.needTotals || counters === undefined) return false;
      if (!counters.knowsTotals(date)) return true;
      if (counters.isProvisional) this.#learn(counters);
      return false;
    });
  }

  async #read(scope: Scope): Promise<void> {
    const totals = await this.#options.initialTotals.read(scope);
    this.#setTotals(this.#countersOf(scope), totals);
  }

  #setTotals(counters: ScopeCounters, totals: HolderTotals | undefined): void {
    const { date } = this.#moment();
    // Another request may have been first.
    if (!counters.knowsTotals(date)) counters.setTotals(totals, date);
  }

  /** Reads totals that were not available, while requests continue. */
  #learn(counters: ScopeCounters): void {
    if (this.#options.initialTotals.isBackingOff(counters.scope)) return;
    void this.#options.initialTotals.read(counters.scope).then((totals) => {
      if (totals !== undefined && counters.isProvisional) counters.setTotals(totals, this.#moment().date);
    });
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
      const own = held?.reservationIn(counters);
      return {
        usage: own === undefined ? usage : counters.without(usage, own),
        hasSlot: own !== undefined,
        caps: this.#caps(counters, scopes.list[index]?.active, moment),
      };
    });
    const rejection = rejectionOf(scopes, checks, amounts, () => this.#states(scopes, all, moment));
    if (rejection === undefined) return this.#reserve(scopes, all, amounts, held, moment);
    for (const counters of all) this.#touch(counters);
    this.#trim();
    return rejection;
  }

  #reserve(
    scopes: Scopes,
    all: readonly ScopeCounters[],
    amounts: Amounts,
    held: MemoryLease | undefined,
    moment: Moment,
  ): Admission {
    const lease = held ?? new MemoryLease(amounts, (real) => this.#settle(lease, real));
    for (const counters of all) {
      const own = held?.reservationIn(counters);
      if (own === undefined) lease.reservations.push(counters.reserve(moment, amounts));
      else counters.change(moment, own, amounts);
    }
    this.#trim();
    if (held === undefined) this.#options.metrics.limitLeases.add(1);
    else held.amounts = amounts;
    return { kind: 'admitted', lease, states: this.#states(scopes, all, moment) };
  }

  /** Whether a new request fits, where nothing else than these counters decides. */
  #fits({ list }: Scopes, all: readonly ScopeCounters[], amounts: Amounts, moment: Moment): boolean {
    if (this.#shared?.fleet() !== undefined) return false;
    for (let index = 0; index < all.length; index += 1) {
      const [counters, scope] = [all[index], list[index]];
      if (counters === undefined || scope === undefined) return false;
      if (!counters.hasRoom(moment, scope.active, amounts)) return false;
    }
    return true;
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

  #settle({ reservations }: MemoryLease, amounts: Amounts): void {
    const moment = this.#moment();
    for (const reservation of reservations) {
      const { counters } = reservation;
      counters.settle(moment, reservation, amounts);
      this.#touch(counters);
    }
    this.#options.metrics.limitLeases.add(-1);
  }

  /** The order matters for those without running requests, when some may soon be forgotten. */
  #touch(counters: ScopeCounters): void {
    if (counters.running > 0 || this.size * 2 <= this.#options.maxScopes) return;
    const { id } = counters.scope;
    this.#known.delete(id);
    this.#known.set(id, counters);
  }

  #allCounters(scopes: Scopes): readonly ScopeCounters[] {
    const found = this.#shared === undefined ? this.#found.get(scopes) : undefined;
    if (found?.every(({ generation }) => generation === this.#generation)) return found;
    const all = scopes.list.map((scope) => this.#countersOf(scope));
    // What Redis says last may be news at any time.
    if (this.#shared === undefined) this.#found.set(scopes, all);
    return all;
  }

  #countersOf(scope: Scope): ScopeCounters {
    const known = this.#known.get(scope.id);
    if (known !== undefined) return this.#refreshed(known);
    const counters = this.#refreshed(new ScopeCounters(scope, this.#options.windowMs));
    this.#known.set(scope.id, counters);
    this.#options.metrics.limitHolders.set(this.size);
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

  /** Forgets the longest idle, which start with a new minute window and the totals of the store. */
  #trim(): void {
    if (this.size <= this.#options.maxScopes) return;
    let steps = 0;
    for (const [id, counters] of this.#known) {
      if (this.size <= this.#options.maxScopes || steps === MAX_STEPS) break;
      steps += 1;
      this.#known.delete(id);
      if (counters.running > 0) this.#known.set(id, counters);
      else counters.generation = FORGOTTEN;
    }
    this.#options.metrics.limitHolders.set(this.size);
  }
}

class MemoryLease extends SettledOnce {
  readonly reservations: Reservation[] = [];
  override amounts: Amounts;

  constructor(amounts: Amounts, onSettled: (amounts: Amounts) => void) {
    super(onSettled);
    this.amounts = amounts;
  }

  reservationIn(counters: ScopeCounters): Reservation | undefined {
    return this.reservations.find((each) => each.counters === counters);
  }
}
