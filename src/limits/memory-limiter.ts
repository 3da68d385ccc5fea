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
import { capsOf, rejectionOf, limitStatesOf, totalTokensOf, type Used } from './verdict.ts';

export interface MemoryLimiterOptions {
  readonly seeds: InitialTotals;
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
  readonly heard: (holder: string) => LastKnownCounters | undefined;
  /** The replicas that share what is left at the moment, and which of them this is; undefined: it is not shared. */
  readonly fleet: () => FleetPlace | undefined;
}

export class MemoryLimiter implements Limiter {
  readonly #seeds: InitialTotals;
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
    this.#seeds = options.seeds;
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
    const account = this.#accountOf(holder);
    if (needTotals(limits)) {
      if (!account.knowsTotals(this.#wallNow())) return this.#admitUnknown(holder, limits, tokens, held);
      if (account.isProvisional) this.#learn(account);
    }
    return this.#decide(account, limits, wholeTokens(tokens), held);
  }

  peek(holder: string, limits: TierLimits): LimitStates | Promise<LimitStates> {
    const known = this.#busy.get(holder) ?? this.#idle.get(holder);
    const account = this.#ofNow(known ?? new HolderCounters(holder, this.#windowMs));
    if (needTotals(limits) && !account.knowsTotals(this.#wallNow()))
      return this.#peekUnknown(account, limits);
    return limitStatesOf(this.#used(account, this.#moment()), limits);
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
    const totals = await this.#seeds.read(holder);
    // Another one may have been first, or the account may have been forgotten meanwhile.
    const account = this.#accountOf(holder);
    const wallMs = this.#wallNow();
    if (!account.knowsTotals(wallMs)) account.setTotals(totals, wallMs);
    return this.#decide(account, limits, wholeTokens(tokens), held);
  }

  async #peekUnknown(account: HolderCounters, limits: TierLimits): Promise<LimitStates> {
    const totals = await this.#seeds.read(account.holder);
    const wallMs = this.#wallNow();
    if (!account.knowsTotals(wallMs)) account.setTotals(totals, wallMs);
    return limitStatesOf(this.#used(account, this.#moment()), limits);
  }

  /** Asks for totals that were not to be had, while requests go on. */
  #learn(account: HolderCounters): void {
    if (this.#seeds.isResting(account.holder)) return;
    void this.#seeds.read(account.holder).then((totals) => {
      if (totals !== undefined && account.isProvisional) account.setTotals(totals, this.#wallNow());
    });
  }

  #decide(account: HolderCounters, limits: TierLimits, tokens: number, held: Lease | undefined): Admission {
    const moment = this.#moment();
    const lease = held instanceof MemoryLease ? held : undefined;
    const used = this.#used(account, moment);
    const refusal = rejectionOf(
      lease === undefined ? used : account.without(used, lease.reservation),
      limits,
      tokens,
      {
        hasPlace: lease !== undefined,
        caps: this.#caps(account, limits, moment),
      },
    );
    if (refusal !== undefined) return { ...refusal, states: limitStatesOf(used, limits) };
    if (lease !== undefined) account.change(moment, lease.reservation, tokens);
    const admitted = lease ?? this.#reserve(account, moment, tokens);
    return { kind: 'admitted', lease: admitted, states: limitStatesOf(this.#used(account, moment), limits) };
  }

  #reserve(account: HolderCounters, moment: Moment, tokens: number): MemoryLease {
    const reservation = account.reserve(moment, tokens);
    if (account.running === 1) this.#move(account, this.#idle, this.#busy);
    this.#metrics.limitLeases.add(1);
    return new MemoryLease(reservation, (real) => this.#settle(account, reservation, real));
  }

  /** What is counted here, and beside it. */
  #used(account: HolderCounters, moment: Moment): Used {
    const used = account.used(moment);
    return account.base === undefined ? used : totalTokensOf(used, account.base.at(moment.now, moment.wallMs));
  }

  #caps({ holder, base }: HolderCounters, limits: TierLimits, { now, wallMs }: Moment): TierLimits {
    const fleet = this.#elsewhere?.fleet();
    if (fleet === undefined) return limits;
    return capsOf(base?.at(now, wallMs) ?? NOTHING, limits, (left) => shareOf(left, holder, fleet));
  }

  #settle(account: HolderCounters, reservation: Reservation, tokens: number): void {
    account.settle(this.#moment(), reservation, tokens);
    this.#metrics.limitLeases.add(-1);
    if (account.running === 0) this.#move(account, this.#busy, this.#idle);
  }

  #move(account: HolderCounters, from: Map<string, HolderCounters>, to: Map<string, HolderCounters>): void {
    from.delete(account.holder);
    to.set(account.holder, account);
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
    const account = this.#ofNow(new HolderCounters(holder, this.#windowMs));
    this.#idle.set(holder, account);
    this.#trim();
    this.#metrics.limitHolders.set(this.size);
    return account;
  }

  #ofNow(account: HolderCounters): HolderCounters {
    const heard = this.#elsewhere?.heard(account.holder);
    const isBeside = heard?.hasTotals === true && heard === account.base;
    if (account.generation !== this.#generation && !isBeside) account.forgetTotals();
    account.generation = this.#generation;
    if (heard !== account.base) {
      account.base = heard;
      account.forgetTotals();
      if (heard !== undefined) account.restart(heard.windowEndsAt, heard.hasTotals, this.#moment());
    }
    return account;
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
