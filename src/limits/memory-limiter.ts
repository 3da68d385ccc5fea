// The limits of holders as this process alone sees them: the accounts it remembers and the requests it has admitted. It is
// synchronous for a holder whose totals are known. How it counts is holder-counters.ts's, what is refused verdict.ts's.
import { HolderCounters, type Moment, type Reservation } from './holder-counters.ts';
import type { InitialTotals } from './initial-totals.ts';
import { type FleetPlace, type LastKnownCounters, shareOf } from './last-known.ts';
import {
  type Admission,
  type Lease,
  type Limiter,
  type LimitMetrics,
  type LimitStates,
  needTotals,
  type TierLimits,
  WINDOW_MS,
  wholeTokens,
} from './limiter.ts';
import { capsOf, limitStatesOf, rejectionOf, totalTokensOf, type Used } from './verdict.ts';

export interface MemoryLimiterOptions {
  readonly initialTotals: InitialTotals;
  readonly metrics: Pick<LimitMetrics, 'limitHolders' | 'limitLeases'>;
  /** Monotonic milliseconds, for windows. */
  readonly now?: () => number;
  /** Milliseconds since 1970, for days and months. */
  readonly wallNow?: () => number;
  /** Length of the window of the limits of a minute. Default: `WINDOW_MS`. */
  readonly windowMs?: number;
  /** Holders that are remembered, besides those with requests under way, which are bounded elsewhere. Default 100,000. */
  readonly maxHolders?: number;
}

/** What has been counted elsewhere, and goes on here. */
export interface Elsewhere {
  /** Until now, of a holder. */
  readonly lastKnown: (holder: string) => LastKnownCounters | undefined;
  /** The replicas that share what is left at the moment, and which of them this is; undefined: it is not shared. */
  readonly fleet: () => FleetPlace | undefined;
}

export class MemoryLimiter implements Limiter {
  readonly #initialTotals: InitialTotals;
  readonly #metrics: MemoryLimiterOptions['metrics'];
  readonly #now: () => number;
  readonly #wallNow: () => number;
  readonly #windowMs: number;
  readonly #maxHolders: number;
  #elsewhere: Elsewhere | undefined;
  /** With requests under way. */
  readonly #busy = new Map<string, HolderCounters>();
  /** Without; the one that has been idle for longest comes first. */
  readonly #idle = new Map<string, HolderCounters>();
  /** Accounts of an earlier one have totals that are not to be used. */
  #generation = 0;

  constructor(options: MemoryLimiterOptions) {
    this.#initialTotals = options.initialTotals;
    this.#metrics = options.metrics;
    this.#now = options.now ?? (() => performance.now());
    this.#wallNow = options.wallNow ?? Date.now;
    this.#windowMs = options.windowMs ?? WINDOW_MS;
    this.#maxHolders = options.maxHolders ?? 100_000;
  }

  /** Holders that are remembered. */
  get size(): number {
    return this.#busy.size + this.#idle.size;
  }

  /** From now on it counts beside what somebody else has counted. */
  goOnFrom(elsewhere: Elsewhere): void {
    this.#elsewhere = elsewhere;
  }

  admit(holder: string, limits: TierLimits, tokens: number, held?: Lease): Admission | Promise<Admission> {
    const counters = this.#accountOf(holder);
    if (needTotals(limits)) {
      if (!counters.knowsTotals(this.#wallNow())) return this.#admitUnknown(holder, limits, tokens, held);
      if (counters.isProvisional) this.#learn(counters);
    }
    return this.#decide(counters, limits, wholeTokens(tokens), held);
  }

  peek(holder: string, limits: TierLimits): LimitStates | Promise<LimitStates> {
    const known = this.#busy.get(holder) ?? this.#idle.get(holder);
    const counters = this.#ofNow(known ?? new HolderCounters(holder, this.#windowMs));
    if (needTotals(limits) && !counters.knowsTotals(this.#wallNow()))
      return this.#peekUnknown(counters, limits);
    return limitStatesOf(this.#used(counters, this.#moment()), limits);
  }

  use(holder: string, tokens: number): void {
    this.#accountOf(holder).add(this.#moment(), wholeTokens(tokens));
  }

  /**
   * Somebody else has counted, or will: the totals of every holder are read again before they are used. Windows and requests
   * under way stay as they are.
   */
  forgetTotals(): void {
    this.#generation += 1;
  }

  async close(): Promise<void> {}

  #moment(): Moment {
    // Whole milliseconds: sums of others are not exact, and a whole window could look longer than it is.
    return { now: Math.floor(this.#now()), wallMs: this.#wallNow() };
  }

  async #admitUnknown(
    holder: string,
    limits: TierLimits,
    tokens: number,
    held: Lease | undefined,
  ): Promise<Admission> {
    const totals = await this.#initialTotals.read(holder);
    // Another one may have been first, or the account may have been forgotten meanwhile.
    const counters = this.#accountOf(holder);
    const wallMs = this.#wallNow();
    if (!counters.knowsTotals(wallMs)) counters.setTotals(totals, wallMs);
    return this.#decide(counters, limits, wholeTokens(tokens), held);
  }

  async #peekUnknown(counters: HolderCounters, limits: TierLimits): Promise<LimitStates> {
    const totals = await this.#initialTotals.read(counters.holder);
    const wallMs = this.#wallNow();
    if (!counters.knowsTotals(wallMs)) counters.setTotals(totals, wallMs);
    return limitStatesOf(this.#used(counters, this.#moment()), limits);
  }

  /** Asks for totals that were not to be had, while requests go on. */
  #learn(counters: HolderCounters): void {
    if (this.#initialTotals.isResting(counters.holder)) return;
    void this.#initialTotals.read(counters.holder).then((totals) => {
      if (totals !== undefined && counters.isProvisional) counters.setTotals(totals, this.#wallNow());
    });
  }

  #decide(counters: HolderCounters, limits: TierLimits, tokens: number, held: Lease | undefined): Admission {
    const moment = this.#moment();
    const lease = held instanceof MemoryLease ? held : undefined;
    const used = this.#used(counters, moment);
    const rejection = rejectionOf(
      lease === undefined ? used : counters.without(used, lease.reservation),
      limits,
      tokens,
      {
        hasPlace: lease !== undefined,
        caps: this.#caps(counters, limits, moment),
      },
    );
    if (rejection !== undefined) return { ...rejection, states: limitStatesOf(used, limits) };
    if (lease !== undefined) counters.change(moment, lease.reservation, tokens);
    const admitted = lease ?? this.#reserve(counters, moment, tokens);
    return { kind: 'admitted', lease: admitted, states: limitStatesOf(this.#used(counters, moment), limits) };
  }

  #reserve(counters: HolderCounters, moment: Moment, tokens: number): MemoryLease {
    const reservation = counters.reserve(moment, tokens);
    if (counters.running === 1) this.#move(counters, this.#idle, this.#busy);
    this.#metrics.limitLeases.add(1);
    return new MemoryLease(reservation, (real) => this.#settle(counters, reservation, real));
  }

  /** What is counted here, and beside it. */
  #used(counters: HolderCounters, moment: Moment): Used {
    const used = counters.used(moment);
    return counters.base === undefined
      ? used
      : totalTokensOf(used, counters.base.at(moment.now, moment.wallMs));
  }

  #caps({ holder, base }: HolderCounters, limits: TierLimits, { now, wallMs }: Moment): TierLimits {
    const fleet = this.#elsewhere?.fleet();
    if (fleet === undefined) return limits;
    return capsOf(base?.at(now, wallMs) ?? NOTHING, limits, (left) => shareOf(left, holder, fleet));
  }

  #settle(counters: HolderCounters, reservation: Reservation, tokens: number): void {
    counters.settle(this.#moment(), reservation, tokens);
    this.#metrics.limitLeases.add(-1);
    if (counters.running === 0) this.#move(counters, this.#busy, this.#idle);
  }

  #move(counters: HolderCounters, from: Map<string, HolderCounters>, to: Map<string, HolderCounters>): void {
    from.delete(counters.holder);
    to.set(counters.holder, counters);
    this.#trim();
  }

  #accountOf(holder: string): HolderCounters {
    const busy = this.#busy.get(holder);
    if (busy !== undefined) return this.#ofNow(busy);
    const idle = this.#idle.get(holder);
    if (idle !== undefined) {
      // To the end of the order.
      this.#idle.delete(holder);
      this.#idle.set(holder, idle);
      return this.#ofNow(idle);
    }
    const counters = this.#ofNow(new HolderCounters(holder, this.#windowMs));
    this.#idle.set(holder, counters);
    this.#trim();
    this.#metrics.limitHolders.set(this.size);
    return counters;
  }

  #ofNow(counters: HolderCounters): HolderCounters {
    const lastKnown = this.#elsewhere?.lastKnown(counters.holder);
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

  /** A holder that is forgotten begins with a new minute, and with the totals of the store. */
  #trim(): void {
    if (this.size <= this.#maxHolders) return;
    for (const [holder] of this.#idle) {
      // The one that is being asked about stays.
      if (this.#idle.size === 1) return;
      this.#idle.delete(holder);
      this.#metrics.limitHolders.set(this.size);
      return;
    }
  }
}

const NOTHING: Used = {
  wallMs: 0,
  windowLeftMs: 0,
  requests: 0,
  tokens: 0,
  dayRequests: 0,
  monthTokens: 0,
  running: 0,
};

class MemoryLease implements Lease {
  readonly reservation: Reservation;
  #settle: ((tokens: number) => void) | undefined;

  constructor(reservation: Reservation, settle: (tokens: number) => void) {
    this.reservation = reservation;
    this.#settle = settle;
  }

  get tokens(): number {
    return this.reservation.tokens;
  }

  settle(tokens: number): void {
    const settle = this.#settle;
    this.#settle = undefined;
    settle?.(wholeTokens(tokens));
  }
}
