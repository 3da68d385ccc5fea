// What one holder uses, in memory: the window of a minute, the totals of the UTC day and month, the requests that run.
// It decides nothing and reads no clock.
import { dayNumberOf, monthOf } from './calendar.ts';
import type { LastKnownCounters } from './last-known.ts';
import type { HolderTotals } from './limiter.ts';
import type { Used } from './verdict.ts';

/** Both clocks at one moment: windows go by the one that nobody can set, days and months by the one on the wall. */
export interface Moment {
  /** Monotonic milliseconds. */
  readonly now: number;
  /** Milliseconds since 1970 (UTC). */
  readonly wallMs: number;
}

/** What a request holds until it is settled. */
export interface Reservation {
  tokens: number;
  /** When the window began that holds the tokens. */
  window: number;
  /** The UTC month whose total holds the tokens. */
  month: number;
  /** The UTC day that counts the request. */
  readonly day: number;
}

/** `provisional`: counted from 0, because the usage store did not say in time. */
type Knowledge = 'nothing' | 'provisional' | 'all';

export class HolderCounters {
  readonly holder: string;
  readonly #windowMs: number;
  /** The limiter's, when it last saw this account: see `forgetTotals` there. */
  generation = 0;
  /** What it is counted beside. */
  base: LastKnownCounters | undefined;
  /** Of requests that run. What they hold is in the totals whatever happens to these meanwhile. */
  readonly #reservations = new Set<Reservation>();
  #windowStart = Number.NEGATIVE_INFINITY;
  #requests = 0;
  #tokens = 0;
  #knowledge: Knowledge = 'nothing';
  #day = 0;
  /** With the requests of this day that run. */
  #dayRequests = 0;
  #month = 0;
  /** With what running requests have reserved in this month. */
  #monthTokens = 0;

  constructor(holder: string, windowMs: number) {
    this.holder = holder;
    this.#windowMs = windowMs;
  }

  get running(): number {
    return this.#reservations.size;
  }

  get isProvisional(): boolean {
    return this.#knowledge === 'provisional';
  }

  /** Whether the totals are those of this day and month; turns them over where time has passed. */
  knowsTotals(wallMs: number): boolean {
    if (this.#knowledge === 'nothing') return false;
    const day = dayNumberOf(wallMs);
    const month = monthOf(wallMs);
    // The clock was set back. What the earlier day and month had is not here any more.
    if (day < this.#day || month < this.#month) {
      this.#knowledge = 'nothing';
      return false;
    }
    if (day > this.#day) {
      this.#day = day;
      this.#dayRequests = this.#runningOf(day);
    }
    if (month > this.#month) {
      this.#month = month;
      this.#monthTokens = this.#reservedIn(month);
    }
    return true;
  }

  forgetTotals(): void {
    this.#knowledge = 'nothing';
  }

  /**
   * Begins anew with what runs, beside what somebody else has counted.
   * @param windowEndsAt of the window that is counted there
   * @param hasTotals day and month are counted there, too
   */
  restart(windowEndsAt: number, hasTotals: boolean, { now, wallMs }: Moment): void {
    this.#windowStart = windowEndsAt > now ? windowEndsAt - this.#windowMs : Number.NEGATIVE_INFINITY;
    this.#requests = 0;
    this.#tokens = 0;
    for (const reservation of this.#reservations) {
      this.#requests += 1;
      this.#tokens += reservation.tokens;
      reservation.window = this.#windowStart;
    }
    this.#knowledge = 'nothing';
    if (hasTotals) this.setTotals({ dayRequests: 0, monthTokens: 0 }, wallMs);
  }

  /**
   * Sets what was used before. What runs is no part of it, and is added.
   * @param totals what the store says; undefined when it did not, and counting begins at 0
   */
  setTotals(totals: HolderTotals | undefined, wallMs: number): void {
    const isKept = this.knowsTotals(wallMs);
    this.#day = dayNumberOf(wallMs);
    this.#month = monthOf(wallMs);
    const running = this.#runningOf(this.#day);
    const reserved = this.#reservedIn(this.#month);
    // What was settled while totals were provisional may not have reached the store yet.
    const [requests, tokens] = isKept ? [this.#dayRequests - running, this.#monthTokens - reserved] : [0, 0];
    this.#dayRequests = Math.max(requests, totals?.dayRequests ?? 0) + running;
    this.#monthTokens = Math.max(tokens, totals?.monthTokens ?? 0) + reserved;
    this.#knowledge = totals === undefined ? 'provisional' : 'all';
  }

  used({ now, wallMs }: Moment): Used {
    const windowLeftMs = Math.max(0, this.#windowStart + this.#windowMs - now);
    const isOpen = windowLeftMs > 0;
    const knows = this.knowsTotals(wallMs);
    return {
      wallMs,
      windowLeftMs,
      requests: isOpen ? this.#requests : 0,
      tokens: isOpen ? this.#tokens : 0,
      dayRequests: knows ? this.#dayRequests : 0,
      monthTokens: knows ? this.#monthTokens : 0,
      running: this.running,
    };
  }

  /** Of what is used: all but the tokens that one of its requests has reserved. */
  without(used: Used, { window, month, tokens }: Reservation): Used {
    const isInWindow = used.windowLeftMs > 0 && window === this.#windowStart;
    const isInMonth = this.#knowledge !== 'nothing' && month === this.#month;
    return {
      ...used,
      tokens: used.tokens - (isInWindow ? tokens : 0),
      monthTokens: used.monthTokens - (isInMonth ? tokens : 0),
    };
  }

  reserve({ now, wallMs }: Moment, tokens: number): Reservation {
    this.#openWindow(now);
    this.#requests += 1;
    this.#tokens += tokens;
    if (this.knowsTotals(wallMs)) {
      this.#dayRequests += 1;
      this.#monthTokens += tokens;
    }
    const reservation = {
      tokens,
      window: this.#windowStart,
      month: monthOf(wallMs),
      day: dayNumberOf(wallMs),
    };
    this.#reservations.add(reservation);
    return reservation;
  }

  /** Other tokens for a request that runs: they are reserved now, and those from before are given back. */
  change(moment: Moment, reservation: Reservation, tokens: number): void {
    if (!this.#reservations.has(reservation)) return;
    this.#replace(moment, reservation, 0);
    this.add(moment, tokens);
    reservation.tokens = tokens;
    reservation.window = this.#windowStart;
    reservation.month = monthOf(moment.wallMs);
  }

  /** Counts tokens that nothing was reserved for. */
  add({ now, wallMs }: Moment, tokens: number): void {
    this.#openWindow(now);
    this.#tokens += tokens;
    if (this.knowsTotals(wallMs)) this.#monthTokens += tokens;
  }

  /** Puts the real tokens where the estimate was, as far as that still counts. The second time does nothing. */
  settle(moment: Moment, reservation: Reservation, tokens: number): void {
    if (!this.#reservations.has(reservation)) return;
    this.#replace(moment, reservation, tokens);
    this.#reservations.delete(reservation);
  }

  #replace({ now, wallMs }: Moment, reservation: Reservation, tokens: number): void {
    if (this.#isOpen(now) && reservation.window === this.#windowStart) {
      this.#tokens = Math.max(0, this.#tokens - reservation.tokens + tokens);
    }
    if (!this.knowsTotals(wallMs)) return;
    const reserved = reservation.month === this.#month ? reservation.tokens : 0;
    this.#monthTokens = Math.max(0, this.#monthTokens - reserved + tokens);
  }

  #runningOf(day: number): number {
    let count = 0;
    for (const reservation of this.#reservations) if (reservation.day === day) count += 1;
    return count;
  }

  #reservedIn(month: number): number {
    let tokens = 0;
    for (const reservation of this.#reservations) {
      if (reservation.month === month) tokens += reservation.tokens;
    }
    return tokens;
  }

  #openWindow(now: number): void {
    if (this.#isOpen(now)) return;
    this.#windowStart = now;
    this.#requests = 0;
    this.#tokens = 0;
  }

  #isOpen(now: number): boolean {
    return now < this.#windowStart + this.#windowMs;
  }
}
