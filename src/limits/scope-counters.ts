// The counters of one scope in memory: the minute window, the totals of the UTC day and month, the running requests. It decides
// nothing and reads no clock.
import { eachTotal, LIMITS, type Limit, TOTAL_LIMITS, type TotalLimit } from '../config/limit-table.ts';
import type { HolderTotals } from '../store/usage-record.ts';
import { type ActiveLimits, NO_ROOM, roomIn } from './active-limits.ts';
import { type Moment, type UtcDate, utcDateAt } from './calendar.ts';
import type { LastKnownCounters } from './last-known.ts';
import { type Amounts, NO_AMOUNTS } from './limiter.ts';
import type { Scope } from './scope.ts';
import type { LimitUsage } from './verdict.ts';

/** The windows that count at one time. They are compared by identity first. */
interface Windows {
  /** Of the minute, in monotonic milliseconds; 0 while none is open. */
  readonly end: number;
  /** The day and the month. */
  readonly date: UtcDate;
}

/** What a request holds in one scope until it is settled. */
export interface Reservation {
  readonly counters: ScopeCounters;
  amounts: Amounts;
  /** They hold the amounts. */
  windows: Windows;
  /** Whose totals count the request. */
  readonly requestDate: UtcDate;
  isSettled: boolean;
  /** The running requests of the scope are a list. */
  previous: Reservation | undefined;
  next: Reservation | undefined;
}

/** `provisional`: counted from 0, because the usage store did not answer in time. */
type Knowledge = 'nothing' | 'provisional' | 'all';

/** Indexes in the table. */
const indexesOf = (isPicked: (limit: Limit) => boolean): readonly number[] =>
  LIMITS.filter(isPicked).map(({ index }) => index);
const byKind = (isIn: (limit: Limit) => boolean) => ({
  requests: indexesOf((limit) => isIn(limit) && limit.counts === 'requests'),
  tokens: indexesOf((limit) => isIn(limit) && limit.counts === 'tokens'),
  cost: indexesOf((limit) => isIn(limit) && limit.counts === 'cost'),
});
const ALL = byKind(() => true);
const MINUTE = byKind(({ window }) => window === 'minute');
const DAY = byKind(({ window }) => window === 'day');
const MONTH = byKind(({ window }) => window === 'month');
const ALL_MINUTE = indexesOf(({ window }) => window === 'minute');
const ALL_TOTALS = TOTAL_LIMITS.map(({ index }) => index);
const ALL_RUNNING = indexesOf(({ counts }) => counts === 'running');
type Indexes = ReturnType<typeof byKind>;
const NO_TOTALS: HolderTotals = eachTotal(() => 0);
const NO_COUNTS: readonly number[] = LIMITS.map(() => 0);
const NO_WINDOWS: Windows = { end: 0, date: utcDateAt(0) };

export class ScopeCounters {
  /** As it was made first: its limits may have changed. */
  readonly scope: Scope;
  readonly #windowMs: number;
  /** The limiter's, when it last used these counters: see `forgetTotals` there. */
  generation = 0;
  /** Counted by Redis before these counters started; they count beside it. */
  base: LastKnownCounters | undefined;
  /** Requests that run, and the last of their reservations. The counters include what they hold. */
  #running = 0;
  #last: Reservation | undefined;
  /** In the order of the table, when a window began or a count was corrected last. They stay as they are: usages share them. */
  #before = NO_COUNTS;
  // Counted since then, in all windows alike.
  #requests = 0;
  #tokens = 0;
  #cost = 0;
  #room = NO_ROOM;
  #windows = NO_WINDOWS;
  /** Of the totals. */
  #knowledge: Knowledge = 'nothing';

  constructor(scope: Scope, windowMs: number) {
    this.scope = scope;
    this.#windowMs = windowMs;
  }

  get running(): number {
    return this.#running;
  }

  get isProvisional(): boolean {
    return this.#knowledge === 'provisional';
  }

  /** Whether the totals are those of this date. Starts new windows where the old ones have ended. */
  knowsTotals(date: UtcDate): boolean {
    if (date !== this.#windows.date) this.#setDate(date);
    return this.#knowledge !== 'nothing';
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
    this.#openWindow(windowEndsAt > now ? windowEndsAt : 0);
    const { end } = this.#windows;
    for (const reservation of this.#reservations()) {
      this.#count(1, reservation.amounts);
      reservation.windows = { end, date: reservation.windows.date };
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
    this.#knowledge = totals === undefined ? 'provisional' : 'all';
  }

  /** Whether a new request fits, where nothing else than these counters decides: what `rejectionOf` says, without reasons. */
  hasRoom(moment: Moment, active: ActiveLimits, { tokens, cost }: Amounts): boolean {
    this.#roll(moment);
    if (this.#room.active !== active) this.#room = roomIn(active, this.#before);
    const room = this.#room;
    return (
      this.base === undefined &&
      (this.#knowledge === 'all' || !active.needTotals) &&
      this.#requests < room.requests &&
      this.#tokens + tokens <= room.tokens &&
      (cost === 0 || this.#cost + cost <= room.cost) &&
      this.#running < room.running
    );
  }

  /** The usage at this moment. It is added up when it is read, which may be later. */
  usage(moment: Moment): () => LimitUsage {
    this.#roll(moment);
    const { end } = this.#windows;
    const before = this.#before;
    const [requests, tokens, cost, running] = [this.#requests, this.#tokens, this.#cost, this.#running];
    return () => ({
      wallMs: moment.wallMs,
      date: moment.date,
      windowLeftMs: Math.max(0, end - moment.now),
      counts: countsOf(before, requests, tokens, cost, running),
    });
  }

  /** The usage without the amounts that one of its requests has reserved. */
  without(usage: LimitUsage, { windows, amounts }: Reservation): LimitUsage {
    const counts = usage.counts.slice();
    const { date } = usage;
    const isKnown = this.#knowledge !== 'nothing';
    if (usage.windowLeftMs > 0 && windows.end === this.#windows.end)
      replace(counts, MINUTE, amounts, NO_AMOUNTS);
    if (isKnown && windows.date.day === date.day) replace(counts, DAY, amounts, NO_AMOUNTS);
    if (isKnown && windows.date.month === date.month) replace(counts, MONTH, amounts, NO_AMOUNTS);
    return { ...usage, counts };
  }

  reserve(moment: Moment, amounts: Amounts): Reservation {
    this.#add(moment, 1, amounts);
    const previous = this.#last;
    const reservation: Reservation = {
      counters: this,
      amounts,
      windows: this.#windows,
      requestDate: moment.date,
      isSettled: false,
      previous,
      next: undefined,
    };
    if (previous !== undefined) previous.next = reservation;
    this.#last = reservation;
    this.#running += 1;
    return reservation;
  }

  /** Replaces the reserved amounts of a running request. */
  change(moment: Moment, reservation: Reservation, amounts: Amounts): void {
    if (reservation.isSettled) return;
    this.#replace(moment, reservation, NO_AMOUNTS);
    this.add(moment, amounts);
    reservation.amounts = amounts;
    reservation.windows = this.#windows;
  }

  /** Counts amounts without a reservation. */
  add(moment: Moment, amounts: Amounts): void {
    this.#add(moment, 0, amounts);
  }

  /** Replaces the estimate by the real amounts in the windows that still count it. The second time does nothing. */
  settle(moment: Moment, reservation: Reservation, amounts: Amounts): void {
    if (reservation.isSettled) return;
    this.#replace(moment, reservation, amounts);
    reservation.isSettled = true;
    const { previous, next } = reservation;
    if (previous !== undefined) previous.next = next;
    if (next !== undefined) next.previous = previous;
    else this.#last = previous;
    this.#running -= 1;
  }

  *#reservations(): Generator<Reservation> {
    for (let each = this.#last; each !== undefined; each = each.previous) yield each;
  }

  #add({ now, date }: Moment, requests: number, amounts: Amounts): void {
    if (now >= this.#windows.end) this.#openWindow(now + this.#windowMs);
    if (date !== this.#windows.date) this.#setDate(date);
    this.#count(requests, amounts);
  }

  /** Totals count, too, where they are not known: they are set before they are used. */
  #count(requests: number, { tokens, cost }: Amounts): void {
    this.#requests += requests;
    this.#tokens += tokens;
    this.#cost += cost;
  }

  /** @param real in place of what is reserved */
  #replace({ now, date }: Moment, { windows, amounts }: Reservation, real: Amounts): void {
    const isKnown = this.knowsTotals(date);
    const { end } = this.#windows;
    if (windows === this.#windows && now < end) {
      this.#tokens += real.tokens - amounts.tokens;
      this.#cost += real.cost - amounts.cost;
      return;
    }
    const counts = this.#counts();
    if (windows.end === end && now < end) replace(counts, MINUTE, amounts, real);
    if (isKnown) {
      replace(counts, DAY, windows.date.day === date.day ? amounts : NO_AMOUNTS, real);
      replace(counts, MONTH, windows.date.month === date.month ? amounts : NO_AMOUNTS, real);
    }
    this.#set(counts);
  }

  /** What running requests hold of the total of a date. */
  #reservedIn(limit: TotalLimit, date: UtcDate): number {
    let sum = 0;
    for (const { amounts, windows, requestDate } of this.#reservations()) {
      const heldIn = limit.counts === 'requests' ? requestDate : windows.date;
      if (heldIn[limit.window] === date[limit.window]) sum += amountOf(limit, amounts);
    }
    return sum;
  }

  /** Starts new windows where the old ones have ended; that of the minute is opened by the next request. */
  #roll({ now, date }: Moment): void {
    const { end } = this.#windows;
    if (now >= end && end > 0) this.#openWindow(0);
    if (date !== this.#windows.date) this.#setDate(date);
  }

  #openWindow(end: number): void {
    this.#windows = { end, date: this.#windows.date };
    this.#clear(ALL_MINUTE);
  }

  #setDate(date: UtcDate): void {
    const { end, date: last } = this.#windows;
    this.#windows = { end, date };
    if (this.#knowledge === 'nothing') return;
    // The clock was set back: the totals of the earlier date are gone.
    if (date.day < last.day || date.month < last.month) {
      this.forgetTotals();
      return;
    }
    const counts = this.#counts();
    for (const limit of TOTAL_LIMITS) {
      if (date[limit.window] > last[limit.window]) counts[limit.index] = this.#reservedIn(limit, date);
    }
    this.#set(counts);
  }

  #clear(indexes: readonly number[]): void {
    const counts = this.#counts();
    for (const index of indexes) counts[index] = 0;
    this.#set(counts);
  }

  /** In the order of the table; 0 where the window has ended, or nothing is known. */
  #counts(): number[] {
    return countsOf(this.#before, this.#requests, this.#tokens, this.#cost, this.#running);
  }

  #set(counts: number[]): void {
    for (const index of ALL_RUNNING) counts[index] = 0;
    this.#before = counts;
    this.#requests = this.#tokens = this.#cost = 0;
    this.#room = NO_ROOM;
  }
}

function countsOf(
  before: readonly number[],
  requests: number,
  tokens: number,
  cost: number,
  running: number,
): number[] {
  const counts = before.slice();
  add(counts, ALL.requests, requests);
  add(counts, ALL.tokens, tokens);
  add(counts, ALL.cost, cost);
  add(counts, ALL_RUNNING, running);
  return counts;
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
