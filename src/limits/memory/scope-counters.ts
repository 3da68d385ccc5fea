// The counters of one scope in memory: the minute window, the totals of the UTC day and month, the running requests. It decides
// nothing and reads no clock.
import { eachTotal, LIMITS, type Limit, TOTAL_LIMITS, type TotalLimit } from '../../config/limit-table.ts';
import type { HolderTotals } from '../../store/usage-record.ts';
import type { ActiveLimits } from '../active-limits.ts';
import { type Moment, type UtcDate, utcDateAt } from '../calendar.ts';
import type { LastKnownCounters } from '../last-known.ts';
import { type Amounts, NO_AMOUNTS } from '../limiter.ts';
import type { Scope } from '../scope.ts';
import type { LimitUsage } from '../verdict.ts';
import { countsOf, Windows } from './windows.ts';

/** `provisional`: counted from 0, because the usage store did not answer in time. */
type Knowledge = 'nothing' | 'provisional' | 'all';

/** Indexes in the table. */
const indexesOf = (isPicked: (limit: Limit) => boolean): readonly number[] =>
  LIMITS.filter(isPicked).map(({ index }) => index);
const byKind = (isIn: (limit: Limit) => boolean) => ({
  tokens: indexesOf((limit) => isIn(limit) && limit.counts === 'tokens'),
  cost: indexesOf((limit) => isIn(limit) && limit.counts === 'cost'),
});
const MINUTE = byKind(({ window }) => window === 'minute');
const DAY = byKind(({ window }) => window === 'day');
const MONTH = byKind(({ window }) => window === 'month');
const ALL_MINUTE = indexesOf(({ window }) => window === 'minute');
const ALL_TOTALS = TOTAL_LIMITS.map(({ index }) => index);
const ALL_RUNNING = indexesOf(({ counts }) => counts === 'running');
type Indexes = ReturnType<typeof byKind>;
const NO_TOTALS: HolderTotals = eachTotal(() => 0);
/** Made once: a call for another day would make the next date another object. */
const NO_DATE = utcDateAt(0);
const NO_COUNTS: readonly number[] = LIMITS.map(() => 0);

export class ScopeCounters {
  /** As it was made first: its limits may have changed. */
  readonly scope: Scope;
  readonly #windowMs: number;
  /** The limiter's, when it last used these counters: see `forgetTotals` there. */
  generation = 0;
  /** Monotonic milliseconds: when the totals are to be compared with the store. */
  checkAt = 0;
  /** Counted by Redis before these counters started; they count beside it. */
  base: LastKnownCounters | undefined;
  #windows = new Windows(0, NO_DATE, NO_COUNTS);
  /** Earlier ones, of which something is held yet. The counters include it. */
  #earlier: readonly Windows[] = [];
  /** Of the totals. */
  #knowledge: Knowledge = 'nothing';
  /** The latest day that was counted. */
  #lastDay = 0;

  constructor(scope: Scope, windowMs: number) {
    this.scope = scope;
    this.#windowMs = windowMs;
  }

  get running(): number {
    return this.#windows.running + runningIn(this.#earlier);
  }

  /** Whether requests count in a minute window that has not ended. */
  isMinuteOpen(now: number): boolean {
    return now < this.#windows.end;
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
    const windows = this.#windows;
    for (const each of this.#earlier) {
      windows.requests += each.running;
      windows.add(each.heldTokens, each.heldCost);
      each.end = windows.end;
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

  /** Counts what the store knows beyond the totals. @param totals of this date */
  raiseTotals(totals: HolderTotals, date: UtcDate): void {
    if (this.base === undefined && this.#knowledge === 'all' && this.knowsTotals(date))
      this.setTotals(totals, date);
  }

  /** Whether only the counts decide on a new request. */
  hasCounts({ needTotals }: ActiveLimits): boolean {
    return this.base === undefined && (this.#knowledge === 'all' || !needTotals);
  }

  /** The usage at this moment. It is added up when it is read, which may be later. */
  usage(moment: Moment): () => LimitUsage {
    this.#roll(moment);
    const { end, before } = this.#windows;
    const since: number[] = [];
    this.#windows.addTo(since);
    return () => ({
      wallMs: moment.wallMs,
      date: moment.date,
      windowLeftMs: Math.max(0, end - moment.now),
      counts: countsOf(before, since),
    });
  }

  /** The usage without the amounts that one of its requests holds in some windows. */
  without(usage: LimitUsage, windows: Windows, amounts: Amounts): LimitUsage {
    const counts = usage.counts.slice();
    const { date } = usage;
    if (windows.end === this.#windows.end) replace(counts, MINUTE, amounts, NO_AMOUNTS);
    if (windows.date.day === date.day) replace(counts, DAY, amounts, NO_AMOUNTS);
    if (windows.date.month === date.month) replace(counts, MONTH, amounts, NO_AMOUNTS);
    return { ...usage, counts };
  }

  /** @returns the windows that hold the request and its amounts until it is settled */
  reserve(moment: Moment, amounts: Amounts): Windows {
    const windows = this.#opened(moment);
    windows.reserve(amounts);
    return windows;
  }

  /** Replaces the amounts of a running request. @returns the windows that hold them now */
  change(moment: Moment, windows: Windows, held: Amounts, amounts: Amounts): Windows {
    this.#replace(moment, windows, held, NO_AMOUNTS);
    const present = this.#opened(moment);
    present.hold(amounts);
    return present;
  }

  /** Counts amounts without a reservation. */
  add(moment: Moment, { tokens, cost }: Amounts): void {
    this.#opened(moment).add(tokens, cost);
  }

  /**
   * Ends a request. Replaces the estimate by the real amounts in the windows that still count it.
   * @param begun the windows in which it began
   */
  settle(moment: Moment, begun: Windows, windows: Windows, held: Amounts, real: Amounts): void {
    this.#replace(moment, windows, held, real);
    begun.running -= 1;
    if (begun !== this.#windows) this.#set(this.#counts());
  }

  /** No request is counted here any more. */
  finish(): void {
    this.#windows.finish();
  }

  /** Those that count a new request. */
  #opened({ now, date }: Moment): Windows {
    if (now >= this.#windows.end) this.#openWindow(now + this.#windowMs);
    if (date !== this.#windows.date) this.#setDate(date);
    return this.#windows;
  }

  /** @param real in place of what was held in some windows. Totals count it, too, where they are not known: they are set before use */
  #replace({ now, date }: Moment, windows: Windows, held: Amounts, real: Amounts): void {
    const isKnown = this.knowsTotals(date);
    windows.release(held);
    const { end } = this.#windows;
    if (windows === this.#windows && now < end) {
      windows.add(real.tokens - held.tokens, real.cost - held.cost);
      return;
    }
    const counts = this.#counts();
    if (windows.end === end && now < end) replace(counts, MINUTE, held, real);
    if (isKnown) {
      replace(counts, DAY, windows.date.day === date.day ? held : NO_AMOUNTS, real);
      replace(counts, MONTH, windows.date.month === date.month ? held : NO_AMOUNTS, real);
    }
    this.#set(counts);
  }

  /** What running requests hold of the total of a date. */
  #reservedIn(limit: TotalLimit, date: UtcDate): number {
    let sum = 0;
    for (const windows of [this.#windows, ...this.#earlier])
      if (windows.date[limit.window] === date[limit.window]) sum += heldIn(windows, limit);
    return sum;
  }

  /** Starts new windows where the old ones have ended; that of the minute is opened by the next request. */
  #roll({ now, date }: Moment): void {
    const { end } = this.#windows;
    if (now >= end && end > 0) this.#openWindow(0);
    if (date !== this.#windows.date) this.#setDate(date);
  }

  #openWindow(end: number): void {
    this.#begin(end, this.#windows.date);
    this.#clear(ALL_MINUTE);
  }

  #begin(end: number, date: UtcDate): void {
    const counts = this.#counts();
    const last = this.#windows;
    last.finish();
    this.#windows = new Windows(end, date, NO_COUNTS);
    const all = [...this.#earlier, last];
    // Sums beyond 2^53 are not exact: what is left of them without a request is nothing.
    this.#earlier = runningIn(all) > 0 ? all.filter(({ isHeld }) => isHeld) : [];
    this.#set(counts);
  }

  #setDate(date: UtcDate): void {
    const { end, date: last } = this.#windows;
    this.#begin(end, date);
    // The clock was set back, or passes a midnight again: the totals of that date are gone.
    const isAgain = date.day <= this.#lastDay;
    this.#lastDay = Math.max(this.#lastDay, date.day);
    if (this.#knowledge === 'nothing') return;
    if (isAgain) {
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
    const since: number[] = [];
    this.#windows.addTo(since);
    return countsOf(this.#windows.before, since);
  }

  #set(counts: number[]): void {
    const windows = this.#windows;
    for (const index of ALL_RUNNING) counts[index] = runningIn(this.#earlier);
    windows.before = counts;
    windows.requests = windows.tokens = windows.cost = 0;
  }
}

function runningIn(some: readonly Windows[]): number {
  return some.reduce((sum, { running }) => sum + running, 0);
}

function replace(counts: number[], { tokens, cost }: Indexes, reserved: Amounts, real: Amounts): void {
  for (const index of tokens)
    counts[index] = Math.max(0, (counts[index] ?? 0) - reserved.tokens + real.tokens);
  for (const index of cost) counts[index] = Math.max(0, (counts[index] ?? 0) - reserved.cost + real.cost);
}

/** What running requests hold of a total. */
function heldIn({ running, heldTokens, heldCost }: Windows, { counts }: TotalLimit): number {
  if (counts === 'tokens') return heldTokens;
  return counts === 'cost' ? heldCost : running;
}
