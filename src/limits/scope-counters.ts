// The counters of one scope in memory: the minute window, the totals of the UTC day and month, the running requests. It decides
// nothing and reads no clock.
import { eachTotal, LIMITS, type Limit, TOTAL_LIMITS, type TotalLimit } from '../config/limit-table.ts';
import type { HolderTotals } from '../store/usage-record.ts';
import type { Moment, UtcDate } from './calendar.ts';
import type { LastKnownCounters } from './last-known.ts';
import { type Amounts, NO_AMOUNTS } from './limiter.ts';
import type { Scope } from './scope.ts';
import type { LimitUsage } from './verdict.ts';

/** What a request holds in one scope until it is settled. */
export interface Reservation {
  readonly counters: ScopeCounters;
  /** Its position among the running requests of the scope; -1 when it is settled. */
  position: number;
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

/** Indexes in the table: loops over rows are several times slower, and they run for every request. */
const indexesOf = (isPicked: (limit: Limit) => boolean): readonly number[] =>
  LIMITS.filter(isPicked).map(({ index }) => index);
const byKind = (isIn: (limit: Limit) => boolean) => ({
  requests: indexesOf((limit) => isIn(limit) && limit.counts === 'requests'),
  tokens: indexesOf((limit) => isIn(limit) && limit.counts === 'tokens'),
  cost: indexesOf((limit) => isIn(limit) && limit.counts === 'cost'),
});
const MINUTE = byKind(({ window }) => window === 'minute');
const DAY = byKind(({ window }) => window === 'day');
const MONTH = byKind(({ window }) => window === 'month');
const ALL_MINUTE = indexesOf(({ window }) => window === 'minute');
const ALL_TOTALS = TOTAL_LIMITS.map(({ index }) => index);
const RUNNING = LIMITS.findIndex(({ counts }) => counts === 'running');
type Indexes = ReturnType<typeof byKind>;
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
  readonly #reservations: Reservation[] = [];
  /** In the order of the table; 0 where the window has ended, or nothing is known. */
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
    return this.#reservations.length;
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
      this.forgetTotals();
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
    this.#clear(ALL_TOTALS);
  }

  /**
   * Starts again with the running requests, beside what Redis has counted.
   * @param windowEndsAt of the window that Redis counts
   * @param hasTotals Redis counts the totals, too
   */
  restart(windowEndsAt: number, hasTotals: boolean, { now, date }: Moment): void {
    this.forgetTotals();
    this.#openWindow(windowEndsAt > now ? windowEndsAt - this.#windowMs : Number.NEGATIVE_INFINITY);
    for (const reservation of this.#reservations) {
      this.#count(MINUTE, 1, reservation.amounts);
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

  /** The counts at this moment, in the order of the table. They change with the next call. */
  counts({ now, date }: Moment): readonly number[] {
    if (!this.#isOpen(now) && this.#windowStart !== Number.NEGATIVE_INFINITY)
      this.#openWindow(Number.NEGATIVE_INFINITY);
    this.knowsTotals(date);
    return this.#counts;
  }

  usage(moment: Moment): LimitUsage {
    const counts = this.counts(moment).slice();
    const { now, wallMs, date } = moment;
    return { wallMs, date, windowLeftMs: Math.max(0, this.#windowStart + this.#windowMs - now), counts };
  }

  /** The usage without the amounts that one of its requests has reserved. */
  without(usage: LimitUsage, { windowStart, amountsDate, amounts }: Reservation): LimitUsage {
    const counts = usage.counts.slice();
    const { date } = usage;
    const isKnown = this.#knowledge !== 'nothing';
    if (usage.windowLeftMs > 0 && windowStart === this.#windowStart)
      replace(counts, MINUTE, amounts, NO_AMOUNTS);
    if (isKnown && amountsDate.day === date.day) replace(counts, DAY, amounts, NO_AMOUNTS);
    if (isKnown && amountsDate.month === date.month) replace(counts, MONTH, amounts, NO_AMOUNTS);
    return { ...usage, counts };
  }

  reserve(moment: Moment, amounts: Amounts): Reservation {
    this.#add(moment, 1, amounts);
    const { date } = moment;
    const reservation = {
      counters: this,
      position: this.#reservations.length,
      amounts,
      windowStart: this.#windowStart,
      amountsDate: date,
      requestDate: date,
    };
    this.#counts[RUNNING] = this.#reservations.push(reservation);
    return reservation;
  }

  /** Replaces the reserved amounts of a running request. */
  change(moment: Moment, reservation: Reservation, amounts: Amounts): void {
    if (reservation.position < 0) return;
    this.#replace(moment, reservation, NO_AMOUNTS);
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
    if (reservation.position < 0) return;
    this.#replace(moment, reservation, amounts);
    // The last takes its position.
    const last = this.#reservations.pop();
    if (last !== undefined && last !== reservation) {
      last.position = reservation.position;
      this.#reservations[last.position] = last;
    }
    reservation.position = -1;
    this.#counts[RUNNING] = this.#reservations.length;
  }

  #add({ now, date }: Moment, requests: number, amounts: Amounts): void {
    if (!this.#isOpen(now)) this.#openWindow(now);
    this.#count(MINUTE, requests, amounts);
    if (!this.knowsTotals(date)) return;
    this.#count(DAY, requests, amounts);
    this.#count(MONTH, requests, amounts);
  }

  #count(indexes: Indexes, requests: number, { tokens, cost }: Amounts): void {
    add(this.#counts, indexes.requests, requests);
    add(this.#counts, indexes.tokens, tokens);
    add(this.#counts, indexes.cost, cost);
  }

  /** @param real in place of what is reserved */
  #replace({ now, date }: Moment, { windowStart, amountsDate, amounts }: Reservation, real: Amounts): void {
    const counts = this.#counts;
    if (this.#isOpen(now) && windowStart === this.#windowStart) replace(counts, MINUTE, amounts, real);
    if (!this.knowsTotals(date)) return;
    replace(counts, DAY, amountsDate.day === date.day ? amounts : NO_AMOUNTS, real);
    replace(counts, MONTH, amountsDate.month === date.month ? amounts : NO_AMOUNTS, real);
  }

  /** What running requests hold of the total of a date. */
  #reservedIn(limit: TotalLimit, date: UtcDate): number {
    let sum = 0;
    for (const { amounts, amountsDate, requestDate } of this.#reservations) {
      const heldIn = limit.counts === 'requests' ? requestDate : amountsDate;
      if (heldIn[limit.window] === date[limit.window]) sum += amountOf(limit, amounts);
    }
    return sum;
  }

  #at(index: number): number {
    return this.#counts[index] ?? 0;
  }

  #openWindow(start: number): void {
    this.#windowStart = start;
    this.#clear(ALL_MINUTE);
  }

  #clear(indexes: readonly number[]): void {
    for (const index of indexes) this.#counts[index] = 0;
  }

  #isOpen(now: number): boolean {
    return now < this.#windowStart + this.#windowMs;
  }
}

function add(counts: number[], indexes: readonly number[], amount: number): void {
  for (const index of indexes) counts[index] = (counts[index] ?? 0) + amount;
}

function replace(counts: number[], { tokens, cost }: Indexes, reserved: Amounts, real: Amounts): void {
  for (const index of tokens)
    counts[index] = Math.max(0, (counts[index] ?? 0) - reserved.tokens + real.tokens);
  for (const index of cost) counts[index] = Math.max(0, (counts[index] ?? 0) - reserved.cost + real.cost);
}

/** What a running request holds of a total. */
function amountOf({ counts }: TotalLimit, { tokens, cost }: Amounts): number {
  if (counts === 'tokens') return tokens;
  return counts === 'cost' ? cost : 1;
}
