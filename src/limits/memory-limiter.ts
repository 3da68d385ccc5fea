// The limiter in the memory of this process: the holders it remembers and the requests it has admitted. It is synchronous for a
// holder whose totals are known. holder-counters.ts counts, verdict.ts decides.
import type { TierLimits } from '../config/limit-table.ts';
import type { HolderTotals } from '../store/usage-record.ts';
import { type Moment, utcDateAt } from './calendar.ts';
import { HolderCounters, type Reservation } from './holder-counters.ts';
import type { InitialTotals } from './initial-totals.ts';
import { type FleetPlace, type LastKnownCounters, shareOf } from './last-known.ts';
import {
  type Admission,
  type Lease,
  type Limiter,
  type LimitMetrics,
  type LimitStates,
  SettledOnce,
  WINDOW_MS,
  wholeTokens,
} from './limiter.ts';
import {
  type ActiveLimits,
  activeLimits,
  capsOf,
  type LimitUsage,
  limitStatesOf,
  rejectionOf,
  sumOf,
} from './verdict.ts';

export interface MemoryLimiterOptions {
  readonly initialTotals: InitialTotals;
  readonly metrics: Pick<LimitMetrics, 'limitHolders' | 'limitLeases'>;
  /** Monotonic milliseconds, for windows. */
  readonly now?: () => number;
  /** Milliseconds since 1970, for days and months. */
  readonly wallNow?: () => number;
  /** Length of the minute window. Default: `WINDOW_MS`. */
  readonly windowMs?: number;
  /** Holders that are remembered, besides those with running requests, which are bounded elsewhere. Default 100,000. */
  readonly maxHolders?: number;
}

/** Counters of Redis, which continue here. */
export interface SharedCounters {
  readonly lastKnown: (holder: string) => LastKnownCounters | undefined;
  /** The position among the replicas that share the rest at the moment; undefined: it is not shared. */
  readonly fleet: () => FleetPlace | undefined;
}

export class MemoryLimiter implements Limiter {
  readonly #options: Required<MemoryLimiterOptions>;
  #shared: SharedCounters | undefined;
  /** With running requests. */
  readonly #busy = new Map<string, HolderCounters>();
  /** Without; the longest idle first. */
  readonly #idle = new Map<string, HolderCounters>();
  /** Counters of an earlier generation have outdated totals. */
  #generation = 0;

  constructor(options: MemoryLimiterOptions) {
    this.#options = {
      now: () => performance.now(),
      wallNow: Date.now,
      windowMs: WINDOW_MS,
      maxHolders: 100_000,
      ...options,
    };
  }

  /** Holders that are remembered. */
  get size(): number {
    return this.#busy.size + this.#idle.size;
  }

  /** From now on it counts beside what Redis has counted. */
  continueFrom(shared: SharedCounters): void {
    this.#shared = shared;
  }

  admit(holder: string, limits: TierLimits, tokens: number, held?: Lease): Admission | Promise<Admission> {
    const counters = this.#countersOf(holder);
    const active = activeLimits(limits);
    const moment = this.#moment();
    const cost = wholeTokens(tokens);
    if (active.needTotals) {
      if (!counters.knowsTotals(moment.date)) {
        return this.#options.initialTotals.read(holder).then((totals) => {
          // The holder may have been forgotten meanwhile.
          const found = this.#setTotals(this.#countersOf(holder), totals);
          return this.#decide(found, active, cost, held, this.#moment());
        });
      }
      if (counters.isProvisional) this.#learn(counters);
    }
    return this.#decide(counters, active, cost, held, moment);
  }

  peek(holder: string, limits: TierLimits): LimitStates | Promise<LimitStates> {
    const known = this.#busy.get(holder) ?? this.#idle.get(holder);
    const counters = this.#refreshed(known ?? new HolderCounters(holder, this.#options.windowMs));
    const active = activeLimits(limits);
    const states = () => limitStatesOf(this.#usage(counters, this.#moment()), active);
    if (!active.needTotals || counters.knowsTotals(this.#moment().date)) return states();
    return this.#options.initialTotals.read(holder).then((totals) => {
      this.#setTotals(counters, totals);
      return states();
    });
  }

  use(holder: string, tokens: number): void {
    this.#countersOf(holder).add(this.#moment(), wholeTokens(tokens));
  }

  /** Totals are outdated: those of every holder are read again before use. Minute windows and running requests stay. */
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

  #setTotals(counters: HolderCounters, totals: HolderTotals | undefined): HolderCounters {
    const { date } = this.#moment();
    // Another request may have been first.
    if (!counters.knowsTotals(date)) counters.setTotals(totals, date);
    return counters;
  }

  /** Reads totals that were not available, while requests continue. */
  #learn(counters: HolderCounters): void {
    if (this.#options.initialTotals.isBackingOff(counters.holder)) return;
    void this.#options.initialTotals.read(counters.holder).then((totals) => {
      if (totals !== undefined && counters.isProvisional) counters.setTotals(totals, this.#moment().date);
    });
  }

  #decide(
    counters: HolderCounters,
    active: ActiveLimits,
    tokens: number,
    held: Lease | undefined,
    moment: Moment,
  ): Admission {
    const lease = held instanceof MemoryLease ? held : undefined;
    const usage = this.#usage(counters, moment);
    const rejection = rejectionOf(
      lease === undefined ? usage : counters.without(usage, lease.reservation),
      active,
      tokens,
      { hasSlot: lease !== undefined, caps: this.#caps(counters, active, moment) },
    );
    if (rejection !== undefined) return { ...rejection, states: limitStatesOf(usage, active) };
    if (lease !== undefined) counters.change(moment, lease.reservation, tokens);
    const admitted = lease ?? this.#reserve(counters, moment, tokens);
    return {
      kind: 'admitted',
      lease: admitted,
      states: limitStatesOf(this.#usage(counters, moment), active),
    };
  }

  #reserve(counters: HolderCounters, moment: Moment, tokens: number): MemoryLease {
    const reservation = counters.reserve(moment, tokens);
    if (counters.running === 1) this.#move(counters, this.#idle, this.#busy);
    this.#options.metrics.limitLeases.add(1);
    return new MemoryLease(reservation, (real) => this.#settle(counters, reservation, real));
  }

  /** What is counted here, and in Redis before. */
  #usage(counters: HolderCounters, moment: Moment): LimitUsage {
    const usage = counters.usage(moment);
    return counters.base === undefined ? usage : sumOf(usage, counters.base.at(moment));
  }

  #caps({ holder, base }: HolderCounters, active: ActiveLimits, moment: Moment): number[] | undefined {
    const fleet = this.#shared?.fleet();
    if (fleet === undefined) return undefined;
    return capsOf(base?.at(moment), active, (left) => shareOf(left, holder, fleet));
  }

  #settle(counters: HolderCounters, reservation: Reservation, tokens: number): void {
    counters.settle(this.#moment(), reservation, tokens);
    this.#options.metrics.limitLeases.add(-1);
    if (counters.running === 0) this.#move(counters, this.#busy, this.#idle);
  }

  #move(counters: HolderCounters, from: Map<string, HolderCounters>, to: Map<string, HolderCounters>): void {
    from.delete(counters.holder);
    to.set(counters.holder, counters);
    this.#trim();
  }

  #countersOf(holder: string): HolderCounters {
    const busy = this.#busy.get(holder);
    if (busy !== undefined) return this.#refreshed(busy);
    const idle = this.#idle.get(holder);
    if (idle !== undefined) {
      // Moves it to the end.
      this.#idle.delete(holder);
      this.#idle.set(holder, idle);
      return this.#refreshed(idle);
    }
    const counters = this.#refreshed(new HolderCounters(holder, this.#options.windowMs));
    this.#idle.set(holder, counters);
    this.#trim();
    this.#options.metrics.limitHolders.set(this.size);
    return counters;
  }

  #refreshed(counters: HolderCounters): HolderCounters {
    const lastKnown = this.#shared?.lastKnown(counters.holder);
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

  /** A forgotten holder starts with a new minute window and the totals of the store. */
  #trim(): void {
    if (this.size <= this.#options.maxHolders) return;
    for (const [holder] of this.#idle) {
      // The holder in use stays.
      if (this.#idle.size === 1) return;
      this.#idle.delete(holder);
      this.#options.metrics.limitHolders.set(this.size);
      return;
    }
  }
}

class MemoryLease extends SettledOnce {
  readonly reservation: Reservation;

  constructor(reservation: Reservation, onSettled: (tokens: number) => void) {
    super(onSettled);
    this.reservation = reservation;
  }

  override get tokens(): number {
    return this.reservation.tokens;
  }
}
