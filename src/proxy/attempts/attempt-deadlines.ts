// The deadlines of one attempt: one for the current phase, one for the total, one for the target search. It reports expiry; the
// attempt decides what follows.
import type { Timeouts } from '../../config/check/timeouts.ts';

/**
 * What an attempt waits for: a connection, progress of a long upload, response headers, the first output of a stream, the
 * next bytes, the body of an upstream error, or the bytes after the last frame.
 */
export type Phase = 'connect' | 'upload' | 'headers' | 'first_token' | 'idle' | 'error_body' | 'end';

/** A phase, the whole attempt, or the target search over all attempts of a request. */
export type Deadline = Phase | 'total' | 'search';

/** For the body of an upstream error. Its status is known already, so the body is not worth a long wait. */
const ERROR_BODY_MS = 5_000;

/** For what follows the last frame: the second half of its line end, the final chunk. */
export const END_MS = 500;

export interface Timers {
  set(callback: () => void, ms: number): NodeJS.Timeout;
  clear(timer: NodeJS.Timeout | undefined): void;
  /** Monotonic milliseconds. */
  now(): number;
}

const REAL: Timers = { set: setTimeout, clear: clearTimeout, now: () => performance.now() };

/**
 * Most phases end long before their deadline. A new phase therefore only updates a number; the single timer compares the
 * deadlines when it fires.
 */
export class AttemptDeadlines {
  readonly #limits: Timeouts;
  readonly #onExpired: (which: Deadline) => void;
  readonly #timers: Timers;
  #phase: Phase = 'connect';
  /** When the current phase expires; undefined while it is on hold. */
  #phaseEndsAt: number | undefined;
  /** Undefined once it has expired. */
  #totalEndsAt: number | undefined;
  /** Undefined once it has expired, or a target is committed. */
  #searchEndsAt: number | undefined;
  #timer: NodeJS.Timeout | undefined;
  #firesAt = Number.POSITIVE_INFINITY;
  #isHeld = false;
  #isOver = false;

  /**
   * Starts the `connect` phase and the total.
   * @param limits milliseconds
   * @param onExpired called once for each expired deadline; the others keep running
   * @param now monotonic milliseconds by `timers`, here and below
   * @param searchEndsAt end of the target search
   */
  constructor(
    limits: Timeouts,
    onExpired: (which: Deadline) => void,
    timers: Timers = REAL,
    now = timers.now(),
    searchEndsAt?: number,
  ) {
    this.#limits = limits;
    this.#onExpired = onExpired;
    this.#timers = timers;
    this.#totalEndsAt = now + limits.total;
    this.#phaseEndsAt = now + limits.connect;
    this.#searchEndsAt = searchEndsAt;
    this.#arm(now);
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** A long body is being sent, and the client has stopped sending. */
  get awaitsClient(): boolean {
    return this.#phase === 'upload' && this.#isHeld;
  }

  /** Starts a phase. Its time starts now, or on `resume` if on hold. */
  enter(phase: Phase, now?: number): void {
    if (this.#phase === 'upload') this.#isHeld = false;
    this.#phase = phase;
    this.#begin(now);
  }

  /**
   * The request is sent. With `first_token` alone, that deadline also covers the headers of a stream: many upstreams send
   * them together with the first output.
   */
  awaitHead(isStream: boolean, now?: number): void {
    const { headers, first_token } = this.#limits;
    const isOfStream = isStream && headers === undefined && first_token !== undefined;
    this.enter(isOfStream ? 'first_token' : 'headers', now);
  }

  /**
   * The headers arrived. For a stream, `first_token` is the only phase deadline until the first output; without it, `idle` is. An answer
   * at once ends the target search.
   */
  awaitAnswer(isStream: boolean): void {
    if (!isStream) this.endSearch();
    this.enter(isStream && this.#limits.first_token !== undefined ? 'first_token' : 'idle');
  }

  /** A long body is being sent. The deadline runs only while the upstream applies backpressure. */
  upload(isStalled: boolean): void {
    this.#phase = 'upload';
    if (isStalled) this.resume();
    else this.hold();
  }

  /** Restarts the current phase, unless it has expired. */
  refresh(now?: number): void {
    if (this.#phaseEndsAt !== undefined) this.#begin(now);
  }

  /** Suspends the phase deadline while the client causes the wait. The total keeps running. */
  hold(): void {
    this.#isHeld = true;
    this.#phaseEndsAt = undefined;
  }

  /** Ends `hold`: the current phase restarts. */
  resume(): void {
    this.#isHeld = false;
    this.#begin();
  }

  /** A target is committed: the search deadline no longer applies. */
  endSearch(): void {
    this.#searchEndsAt = undefined;
  }

  /** Stops all deadlines. */
  stop(): void {
    this.#isOver = true;
    this.#timers.clear(this.#timer);
    this.#timer = undefined;
  }

  #begin(now = this.#timers.now()): void {
    if (this.#isOver || this.#isHeld) return;
    this.#phaseEndsAt = now + this.#limit();
    this.#arm(now);
  }

  /** Ensures that the timer fires no later than the next deadline. */
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
      case 'error_body':
        return ERROR_BODY_MS;
      case 'end':
        return END_MS;
      case 'upload':
        return this.#limits.idle;
      default:
        return this.#limits[this.#phase] ?? Number.POSITIVE_INFINITY;
    }
  }

  readonly #onTimer = () => {
    // A timer may fire slightly early; it is then armed again.
    const now = this.#timers.now();
    this.#timer = undefined;
    this.#firesAt = Number.POSITIVE_INFINITY;
    const isPhase = this.#phaseEndsAt !== undefined && this.#phaseEndsAt <= now;
    const isTotal = this.#totalEndsAt !== undefined && this.#totalEndsAt <= now;
    const isSearch = this.#searchEndsAt !== undefined && this.#searchEndsAt <= now;
    if (isPhase) this.#phaseEndsAt = undefined;
    if (isTotal) this.#totalEndsAt = undefined;
    if (isSearch) this.#searchEndsAt = undefined;
    // Deadlines that end the attempt go first: they make the others irrelevant.
    if (isTotal) this.#onExpired('total');
    if (isSearch && !this.#isOver) this.#onExpired('search');
    if (isPhase && !this.#isOver) this.#onExpired(this.#phase);
    if (!this.#isOver) this.#arm(this.#timers.now());
  };
}
