// The deadlines of one attempt: what it waits for now, and all of it together. It measures and reports; what a passed
// deadline means is for the attempt.
import type { Timeouts } from '../../config/schema/timeouts.ts';

/**
 * What an attempt waits for: a connection, progress of a long body, the response headers, the first output of a stream, the
 * next bytes; or, when it needs nothing more of the answer, the text of a refusal or what follows the last frame.
 */
export type Phase = 'connect' | 'upload' | 'headers' | 'first_token' | 'idle' | 'refusal' | 'end';

/** Or all of one attempt, or the search for a target over all attempts of a request. */
export type Passed = Phase | 'total' | 'search';

/** The text of a refusal is good to have, but its status is known already. */
const REFUSAL_MS = 5_000;

/** Enough for what follows the last frame: the second half of its line end, the final chunk. */
export const END_MS = 500;

export interface Timers {
  set(callback: () => void, ms: number): NodeJS.Timeout;
  clear(timer: NodeJS.Timeout | undefined): void;
  /** Monotonic milliseconds. */
  now(): number;
}

const REAL: Timers = { set: setTimeout, clear: clearTimeout, now: () => performance.now() };

/**
 * Most waits end long before their deadline, so a new wait moves a number and not a timer: there is one timer, which finds
 * out when it fires whether something has passed.
 */
export class AttemptDeadlines {
  readonly #limits: Timeouts;
  readonly #passed: (which: Passed) => void;
  readonly #timers: Timers;
  #phase: Phase = 'connect';
  /** When the present wait passes; undefined while it does not count. */
  #phaseEndsAt: number | undefined;
  /** Undefined when it has passed. */
  #totalEndsAt: number | undefined;
  /** Undefined when it has passed, or a target was found. */
  #searchEndsAt: number | undefined;
  #timer: NodeJS.Timeout | undefined;
  #firesAt = Number.POSITIVE_INFINITY;
  #isHeld = false;
  #isOver = false;

  /**
   * Begins with `connect`, and with the total.
   * @param limits milliseconds
   * @param passed called once for a deadline that passed; the others go on
   * @param searchMs what is left of the search for a target
   */
  constructor(
    limits: Timeouts,
    passed: (which: Passed) => void,
    timers: Timers = REAL,
    searchMs = Number.POSITIVE_INFINITY,
  ) {
    this.#limits = limits;
    this.#passed = passed;
    this.#timers = timers;
    const now = timers.now();
    this.#totalEndsAt = now + limits.total;
    this.#phaseEndsAt = now + limits.connect;
    if (searchMs !== Number.POSITIVE_INFINITY) this.#searchEndsAt = now + searchMs;
    this.#arm(now);
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** A long body is being sent, and it is the client that does not go on. */
  get awaitsClient(): boolean {
    return this.#phase === 'upload' && this.#isHeld;
  }

  /** Something else is waited for from now on, and its time begins, or will begin with `resume`. */
  enter(phase: Phase): void {
    if (this.#phase === 'upload') this.#isHeld = false;
    this.#phase = phase;
    this.#begin();
  }

  /**
   * The request is sent. `first_token` alone bounds also the headers of a stream: many upstreams send them together with the
   * first output.
   */
  awaitHead(isStream: boolean): void {
    const { headers, first_token } = this.#limits;
    this.enter(isStream && headers === undefined && first_token !== undefined ? 'first_token' : 'headers');
  }

  /** The headers of a stream are there. Until `first_token` there is no other deadline; without one, silence counts. */
  awaitOutput(): void {
    this.enter(this.#limits.first_token === undefined ? 'idle' : 'first_token');
  }

  /** A long body is being sent. Only while the upstream takes no more of it is it the upstream that is waited for. */
  upload(isStalled: boolean): void {
    this.#phase = 'upload';
    if (isStalled) this.resume();
    else this.hold();
  }

  /** The present wait begins anew, unless it has passed. */
  refresh(): void {
    if (this.#phaseEndsAt !== undefined) this.#begin();
  }

  /** The present wait does not count while the client is the one who makes everybody wait. The total goes on. */
  hold(): void {
    this.#isHeld = true;
    this.#phaseEndsAt = undefined;
  }

  /** After `hold`: the present wait begins anew. */
  resume(): void {
    this.#isHeld = false;
    this.#begin();
  }

  /** This target has the request: how long others were asked does not matter any more. */
  endSearch(): void {
    this.#searchEndsAt = undefined;
  }

  /** Nothing is waited for any more. */
  stop(): void {
    this.#isOver = true;
    this.#timers.clear(this.#timer);
    this.#timer = undefined;
  }

  #begin(): void {
    if (this.#isOver || this.#isHeld) return;
    const now = this.#timers.now();
    this.#phaseEndsAt = now + this.#limit();
    this.#arm(now);
  }

  /** Sees to it that the timer fires no later than the next deadline. */
  #arm(now: number): void {
    const next = Math.min(
      this.#phaseEndsAt ?? Number.POSITIVE_INFINITY,
      this.#totalEndsAt ?? Number.POSITIVE_INFINITY,
      this.#searchEndsAt ?? Number.POSITIVE_INFINITY,
    );
    if (next >= this.#firesAt) return;
    this.#timers.clear(this.#timer);
    this.#firesAt = next;
    this.#timer = this.#timers.set(this.#onTimer, Math.max(1, Math.ceil(next - now)));
  }

  #limit(): number {
    switch (this.#phase) {
      case 'refusal':
        return REFUSAL_MS;
      case 'end':
        return END_MS;
      case 'upload':
        return this.#limits.idle;
      default:
        return this.#limits[this.#phase] ?? Number.POSITIVE_INFINITY;
    }
  }

  readonly #onTimer = () => {
    // A timer may fire a little before its time; then it is set again for the rest.
    const now = this.#timers.now();
    this.#timer = undefined;
    this.#firesAt = Number.POSITIVE_INFINITY;
    const isPhase = this.#phaseEndsAt !== undefined && this.#phaseEndsAt <= now;
    const isTotal = this.#totalEndsAt !== undefined && this.#totalEndsAt <= now;
    const isSearch = this.#searchEndsAt !== undefined && this.#searchEndsAt <= now;
    if (isPhase) this.#phaseEndsAt = undefined;
    if (isTotal) this.#totalEndsAt = undefined;
    if (isSearch) this.#searchEndsAt = undefined;
    // The ones that end all of it go first: nothing comes behind them.
    if (isTotal) this.#passed('total');
    if (isSearch && !this.#isOver) this.#passed('search');
    if (isPhase && !this.#isOver) this.#passed(this.#phase);
    if (!this.#isOver) this.#arm(this.#timers.now());
  };
}
