// The counters of one scope in memory: the minute window, the totals of the UTC day and month, the running requests. It decides
// nothing and reads no clock.
import { eachTotal, LIMITS, type Limit, TOTAL_LIMITS, type TotalLimit } from '../config/limit-table.ts';
import type { HolderTotals } from '../store/usage-record.ts';
import type { Moment, UtcDate } from './calendar.ts';
import type { LastKnownCounters } from './last-known.ts';
import type { Amounts } from './limiter.ts';
import type { Scope } from './scope.ts';
import type { LimitUsage } from './verdict.ts';

/** What a request holds in one scope until it is settled. */
export interface Reservation {
  readonly counters: ScopeCounters;
  amounts: Amounts;
  /** Start of the minute window that holds the amounts. */
  windowStart: number;
  /** Whose totals hold the amounts. */
  amountsDate: UtcDate;
  /** Whose totals count the request. */
  readonly requestDate: UtcDate;
}

/** `provisional`: counted from 0, because the usage store did not answer in time. */
type Knowledge = 'nothing' | 'provisional' | 'all';

type CountedLimit = Exclude<Limit, { readonly window: 'concurrent' }>;

/** What is counted as a number; running requests are the reservations. */
const COUNTED = LIMITS.filter((limit): limit is CountedLimit => limit.window !== 'concurrent');
/** What a settlement replaces. */
const REPLACED = COUNTED.filter(({ counts }) => counts !== 'requests');
const NO_TOTALS: HolderTotals = eachTotal(() => 0);

export class ScopeCounters {
  /** As it was made first: its limits may have changed. */
  readonly scope: Scope;
  readonly #windowMs: number;
  /** The limiter's, when it last used these counters: see `forgetTotals` there. */
  generation = 0;
  /** Counted by Redis before these counters started; they count beside it. */
  base: LastKnownCounters | undefined;
  /** Of running requests. The counters include what they hold. */
  readonly #reservations = new Set<Reservation>();
  /** In the order of the table. */
  readonly #counts: number[] = LIMITS.map(() => 0);
  #windowStart = Number.NEGATIVE_INFINITY;
  #knowledge: Knowledge = 'nothing';
  /** Of the totals, where something is known. */
  #date: UtcDate | undefined;

  constructor(scope: Scope, windowMs: number) {
    this.scope = scope;
    this.#windowMs = windowMs;
  }

  get running(): number {
    return this.#reservations.size;
  }

  get isProvisional(): boolean {
    return this.#knowledge === 'provisional';
  }

  /** Whether the totals are those of this date. Starts new windows where the old ones have ended. */
  knowsTotals(date: UtcDate): boolean {
    const held = this.#date;
    if (held === undefined || this.#knowledge === 'nothing') return false;
    if (held === date) return true;
    // The clock was set back: the totals of the earlier date are gone.
    if (date.day < held.day || date.month < held.month) {
      this.#knowledge = 'nothing';
      return false;
    }
    for (const limit of TOTAL_LIMITS) {
      if (date[limit.window] > held[limit.window]) this.#counts[limit.index] = this.#reservedIn(limit, date);
    }
    this.#date = date;
    return true;
  }

  forgetTotals(): void {
    this.#knowledge = 'nothing';
  }

  /**
   * Starts again with the running requests, beside what Redis has counted.
   * @param windowEndsAt of the window that Redis counts
   * @param hasTotals Redis counts the totals, too
   */
  restart(windowEndsAt: number, hasTotals: boolean, { now, date }: Moment): void {
    this.#knowledge = 'nothing';
    this.#openWindow(windowEndsAt > now ? windowEndsAt - this.#windowMs : Number.NEGATIVE_INFINITY);
    for (const reservation of this.#reservations) {
      this.#count(1, reservation.amounts, false);
      reservation.windowStart = this.#windowStart;
    }
    if (hasTotals) this.setTotals(NO_TOTALS, date);
  }

  /**
   * Sets what was used before. Running requests are not part of it, and are added.
   * @param totals of the store; undefined when it did not answer, and counting starts at 0
   */
  setTotals(totals: HolderTotals | undefined, date: UtcDate): void {
    const isKept = this.knowsTotals(date);
    for (const limit of TOTAL_LIMITS) {
      const reserved = this.#reservedIn(limit, date);
      // What was settled while totals were provisional may not have reached the store yet.
      const settled = isKept ? this.#at(limit.index) - reserved : 0;
      this.#counts[limit.index] = Math.max(settled, totals?.[limit.name] ?? 0) + reserved;
    }
    this.#date = date;
    this.#knowledge = totals === undefined ? 'provisional' : 'all';
  }

  usage({ now, wallMs, date }: Moment): LimitUsage {
    const windowLeftMs = Math.max(0, this.#windowStart + this.#windowMs - now);
    const knowsTotals = this.knowsTotals(date);
    const counts = this.#counts.slice();
    for (const { index, window } of LIMITS) {
      if (window === 'concurrent') counts[index] = this.running;
      else if (window === 'minute' ? windowLeftMs === 0 : !knowsTotals) counts[index] = 0;
    }
    return { wallMs, date, windowLeftMs, counts };
  }

  /** The usage without the amounts that one of its requests has reserved. */
  without(usage: LimitUsage, { windowStart, amountsDate, amounts }: Reservation): LimitUsage {
    const counts = usage.counts.slice();
    for (const limit of REPLACED) {
      const { index, window } = limit;
      const isHeld =
        window === 'minute'
          ? usage.windowLeftMs > 0 && windowStart === this.#windowStart
          : this.#knowledge !== 'nothing' && amountsDate[window] === usage.date[window];
      if (isHeld) counts[index] = (counts[index] ?? 0) - amountOf(limit, 0, amounts);
    }
    return { ...usage, counts };
  }

  reserve(moment: Moment, amounts: Amounts): Reservation {
    this.#add(moment, 1, amounts);
    const { date } = moment;
    const reservation = {
      counters: this,
      amounts,
      windowStart: this.#windowStart,
      amountsDate: date,
      requestDate: date,
    };
    this.#reservations.add(reservation);
    return reservation;
  }

  /** Replaces the reserved amounts of a running request. */
  change(moment: Moment, reservation: Reservation, amounts: Amounts): void {
    if (!this.#reservations.has(reservation)) return;
    this.#replace(moment, reservation, undefined);
    this.add(moment, amounts);
    reservation.amounts = amounts;
    reservation.windowStart = this.#windowStart;
    reservation.amountsDate = moment.date;
  }

  /** Counts amounts without a reservation. */
  add(moment: Moment, amounts: Amounts): void {
    this.#add(moment, 0, amounts);
  }

  /** Replaces the estimate by the real amounts in the windows that still count it. The second time does nothing. */
  settle(moment: Moment, reservation: Reservation, amounts: Amounts): void {
    if (!this.#reservations.has(reservation)) return;
    this.#replace(moment, reservation, amounts);
    this.#reservations.delete(reservation);
  }

  #add({ now, date }: Moment, requests: number, amounts: Amounts): void {
    if (!this.#isOpen(now)) this.#openWindow(now);
    this.#count(requests, amounts, this.knowsTotals(date));
  }

  #count(requests: number, amounts: Amounts, hasTotals: boolean): void {
    for (const limit of COUNTED) {
      if (limit.window === 'minute' || hasTotals)
        this.#counts[limit.index] = this.#at(limit.index) + amountOf(limit, requests, amounts);
    }
  }

  /** @param amounts in place of what is reserved; undefined: none */
  #replace({ now, date }: Moment, reservation: Reservation, amounts: Amounts | undefined): void {
    const isInWindow = this.#isOpen(now) && reservation.windowStart === this.#windowStart;
    const hasTotals = this.knowsTotals(date);
    for (const limit of REPLACED) {
      const { index, window } = limit;
      if (!(window === 'minute' ? isInWindow : hasTotals)) continue;
      const isReserved = window === 'minute' || reservation.amountsDate[window] === date[window];
      const reserved = isReserved ? amountOf(limit, 0, reservation.amounts) : 0;
      const real = amounts === undefined ? 0 : amountOf(limit, 0, amounts);
      this.#counts[index] = Math.max(0, this.#at(index) - reserved + real);
    }
  }

  /** What running requests hold of the total of a date. */
  #reservedIn(limit: TotalLimit, date: UtcDate): number {
    let sum = 0;
    for (const { amounts, amountsDate, requestDate } of this.#reservations) {
      const heldIn = limit.counts === 'requests' ? requestDate : amountsDate;
      if (heldIn[limit.window] === date[limit.window]) sum += amountOf(limit, 1, amounts);
    }
    return sum;
  }

  #at(index: number): number {
    return this.#counts[index] ?? 0;
  }

  #openWindow(start: number): void {
    this.#windowStart = start;
    for (const { index, window } of LIMITS) if (window === 'minute') this.#counts[index] = 0;
  }

  #isOpen(now: number): boolean {
    return now < this.#windowStart + this.#windowMs;
  }
}

/** What a limit counts of a request. */
function amountOf({ counts }: Limit, requests: number, { tokens, cost }: Amounts): number {
  if (counts === 'tokens') return tokens;
  return counts === 'cost' ? cost : requests;
}
