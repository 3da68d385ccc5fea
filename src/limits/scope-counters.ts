// The counters of one scope in memory: the minute window, the totals of the UTC day and month, the running requests. It decides
// nothing and reads no clock.
import { eachTotal, LIMITS, type Limit, TOTAL_LIMITS, type TotalLimit } from '../config/limit-table.ts';
import type { HolderTotals } from '../store/usage-record.ts';
import { type ActiveLimits, activeLimits } from './active-limits.ts';
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
const ALL = byKind(() => true);
const ALL_MINUTE = indexesOf(({ window }) => window === 'minute');
const ALL_TOTALS = TOTAL_LIMITS.map(({ index }) => index);
const ALL_RUNNING = indexesOf(({ counts }) => counts === 'running');
type Indexes = ReturnType<typeof byKind>;
const NO_TOTALS: HolderTotals = eachTotal(() => 0);
const NO_COUNTS: readonly number[] = LIMITS.map(() => 0);

/** What may be counted of each kind, beside the counts when the counters were last set, until one of some limits is reached. */
interface Room extends Record<Limit['counts'], number> {
  readonly active: ActiveLimits;
}
const NO_ROOM: Room = { active: activeLimits({}), requests: 0, tokens: 0, cost: 0, running: 0 };

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
  /** In the order of the table, when a window began or a count was corrected last. It does not change: usages share it. */
  #before = NO_COUNTS;
  // Counted since then, in every window.
  #requests = 0;
  #tokens = 0;
  #cost = 0;
  #room = NO_ROOM;
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
    const counts = this.#counts();
    for (const limit of TOTAL_LIMITS) {
      if (date[limit.window] > held[limit.window]) counts[limit.index] = this.#reservedIn(limit, date);
    }
    this.#set(counts);
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
      this.#count(1, reservation.amounts);
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
    const counts = this.#counts();
    for (const limit of TOTAL_LIMITS) {
      const reserved = this.#reservedIn(limit, date);
      // What was settled while totals were provisional may not have reached the store yet.
      const settled = isKept ? (counts[limit.index] ?? 0) - reserved : 0;
      counts[limit.index] = Math.max(settled, totals?.[limit.name] ?? 0) + reserved;
    }
    this.#set(counts);
    this.#date = date;
    this.#knowledge = totals === undefined ? 'provisional' : 'all';
  }

  /**
   * Whether a new request fits, as `rejectionOf` says with reasons. Asked for every request, so that the limits of one kind are one
   * comparison.
   */
  hasRoom(moment: Moment, active: ActiveLimits, { tokens, cost }: Amounts): boolean {
    this.#roll(moment);
    if (this.#room.active !== active) this.#room = roomIn(active, this.#before);
    const room = this.#room;
    return (
      this.#requests < room.requests &&
      this.#tokens + tokens <= room.tokens &&
      (cost === 0 || this.#cost + cost <= room.cost) &&
      this.running < room.running
    );
  }

  usage(moment: Moment): LimitUsage {
    this.#roll(moment);
    const { now, wallMs, date } = moment;
    const windowLeftMs = Math.max(0, this.#windowStart + this.#windowMs - now);
    return { wallMs, date, windowLeftMs, counts: this.#counts() };
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
    this.#reservations.push(reservation);
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
  }

  #add({ now, date }: Moment, requests: number, amounts: Amounts): void {
    if (!this.#isOpen(now)) this.#openWindow(now);
    this.knowsTotals(date);
    this.#count(requests, amounts);
  }

  /** Unknown totals are set before they are used. */
  #count(requests: number, { tokens, cost }: Amounts): void {
    this.#requests += requests;
    this.#tokens += tokens;
    this.#cost += cost;
  }

  /** @param real in place of what is reserved */
  #replace({ now, date }: Moment, { windowStart, amountsDate, amounts }: Reservation, real: Amounts): void {
    const isInMinute = this.#isOpen(now) && windowStart === this.#windowStart;
    const isKnown = this.knowsTotals(date);
    if (isInMinute && amountsDate === date) {
      this.#tokens += real.tokens - amounts.tokens;
      this.#cost += real.cost - amounts.cost;
      return;
    }
    const counts = this.#counts();
    if (isInMinute) replace(counts, MINUTE, amounts, real);
    if (isKnown) {
      replace(counts, DAY, amountsDate.day === date.day ? amounts : NO_AMOUNTS, real);
      replace(counts, MONTH, amountsDate.month === date.month ? amounts : NO_AMOUNTS, real);
    }
    this.#set(counts);
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

  /** Starts new windows where the old ones have ended. */
  #roll({ now, date }: Moment): void {
    if (!this.#isOpen(now) && this.#windowStart !== Number.NEGATIVE_INFINITY)
      this.#openWindow(Number.NEGATIVE_INFINITY);
    this.knowsTotals(date);
  }

  #openWindow(start: number): void {
    this.#windowStart = start;
    this.#clear(ALL_MINUTE);
  }

  #clear(indexes: readonly number[]): void {
    const counts = this.#counts();
    for (const index of indexes) counts[index] = 0;
    this.#set(counts);
  }

  /** The present ones, in the order of the table; 0 where the window has ended. */
  #counts(): number[] {
    const counts = this.#before.slice();
    add(counts, ALL.requests, this.#requests);
    add(counts, ALL.tokens, this.#tokens);
    add(counts, ALL.cost, this.#cost);
    add(counts, ALL_RUNNING, this.running);
    return counts;
  }

  #set(counts: number[]): void {
    for (const index of ALL_RUNNING) counts[index] = 0;
    this.#before = counts;
    this.#requests = this.#tokens = this.#cost = 0;
    this.#room = NO_ROOM;
  }

  #isOpen(now: number): boolean {
    return now < this.#windowStart + this.#windowMs;
  }
}

function roomIn(active: ActiveLimits, before: readonly number[]): Room {
  const room = { active, requests: Infinity, tokens: Infinity, cost: Infinity, running: Infinity };
  for (const { limit, max } of active.list)
    room[limit.counts] = Math.min(room[limit.counts], max - (before[limit.index] ?? 0));
  return room;
}

function add(counts: number[], indexes: readonly number[], amount: number): void {
  for (const index of indexes) counts[index] = Math.max(0, (counts[index] ?? 0) + amount);
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
