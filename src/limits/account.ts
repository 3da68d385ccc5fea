// What one holder uses, in memory: the window of a minute, the totals of the UTC day and month, the requests that run.
// It decides nothing and reads no clock.
import { dayOf, monthOf } from './calendar.ts';
import type { Totals } from './limiter.ts';
import type { Used } from './verdict.ts';

/** Both clocks at one moment: windows go by the one that nobody can set, days and months by the one on the wall. */
export interface Moment {
  /** Monotonic milliseconds. */
  readonly now: number;
  /** Milliseconds since 1970 (UTC). */
  readonly wallMs: number;
}

/** What a request has taken, and from where. */
export interface Reservation {
  readonly tokens: number;
  /** When the window began that holds the tokens. */
  readonly window: number;
  /** Which totals hold them; NO_EPOCH where none were known. */
  readonly epoch: number;
}

const NO_EPOCH = -1;

/** `provisional`: counted from 0, because the usage store did not say in time. */
type Knowledge = 'nothing' | 'provisional' | 'all';

export class Account {
  readonly holder: string;
  readonly #windowMs: number;
  /** The limiter's, when it last saw this account: see `forgetTotals` there. */
  generation = 0;
  #running = 0;
  #windowStart = Number.NEGATIVE_INFINITY;
  #requests = 0;
  #tokens = 0;
  #knowledge: Knowledge = 'nothing';
  #day = 0;
  #dayRequests = 0;
  #month = 0;
  #monthTokens = 0;
  /** A new one for each month, and whenever totals are set: what was reserved in others is not in these. */
  #epoch = 0;

  constructor(holder: string, windowMs: number) {
    this.holder = holder;
    this.#windowMs = windowMs;
  }

  get running(): number {
    return this.#running;
  }

  get isProvisional(): boolean {
    return this.#knowledge === 'provisional';
  }

  /** Whether the totals are those of this day and month; turns them over where time has passed. */
  knowsTotals(wallMs: number): boolean {
    if (this.#knowledge === 'nothing') return false;
    const day = dayOf(wallMs);
    const month = monthOf(wallMs);
    // The clock was set back. What the earlier day and month had is not here any more.
    if (day < this.#day || month < this.#month) {
      this.#knowledge = 'nothing';
      return false;
    }
    if (day > this.#day) {
      this.#day = day;
      this.#dayRequests = 0;
    }
    if (month > this.#month) {
      this.#month = month;
      this.#monthTokens = 0;
      this.#epoch += 1;
    }
    return true;
  }

  forgetTotals(): void {
    this.#knowledge = 'nothing';
  }

  /** @param totals what the store says; undefined when it did not, and counting begins at 0 */
  setTotals(totals: Totals | undefined, wallMs: number): void {
    // What was counted provisionally may not have reached the store yet.
    const isKept = this.knowsTotals(wallMs);
    const [requests, tokens] = isKept ? [this.#dayRequests, this.#monthTokens] : [0, 0];
    this.#dayRequests = Math.max(requests, totals?.dayRequests ?? 0);
    this.#monthTokens = Math.max(tokens, totals?.monthTokens ?? 0);
    this.#day = dayOf(wallMs);
    this.#month = monthOf(wallMs);
    this.#epoch += 1;
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
      running: this.#running,
    };
  }

  reserve({ now, wallMs }: Moment, tokens: number): Reservation {
    if (!this.#isOpen(now)) {
      this.#windowStart = now;
      this.#requests = 0;
      this.#tokens = 0;
    }
    this.#requests += 1;
    this.#tokens += tokens;
    this.#running += 1;
    const knows = this.knowsTotals(wallMs);
    if (knows) {
      this.#dayRequests += 1;
      this.#monthTokens += tokens;
    }
    return { tokens, window: this.#windowStart, epoch: knows ? this.#epoch : NO_EPOCH };
  }

  /** Counts tokens that nothing was reserved for. */
  add({ now, wallMs }: Moment, tokens: number): void {
    if (!this.#isOpen(now)) {
      this.#windowStart = now;
      this.#requests = 0;
      this.#tokens = 0;
    }
    this.#tokens += tokens;
    if (this.knowsTotals(wallMs)) this.#monthTokens += tokens;
  }

  /** Puts the real tokens where the estimate was, as far as that still counts. */
  settle({ now, wallMs }: Moment, reservation: Reservation, tokens: number): void {
    this.#running -= 1;
    if (this.#isOpen(now) && reservation.window === this.#windowStart) {
      this.#tokens = Math.max(0, this.#tokens - reservation.tokens + tokens);
    }
    if (!this.knowsTotals(wallMs)) return;
    const reserved = reservation.epoch === this.#epoch ? reservation.tokens : 0;
    this.#monthTokens = Math.max(0, this.#monthTokens - reserved + tokens);
  }

  #isOpen(now: number): boolean {
    return now < this.#windowStart + this.#windowMs;
  }
}
