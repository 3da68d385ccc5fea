// Circuit breaker of one target: admits requests by the failures seen and by the waits that the target asks for. It judges no
// response and sends nothing; the holder of a permit reports the result.
import { MAX_RETRY_AFTER_MS } from '../../errors.ts';
import { type BreakerRejection, type Permit, type ResultClass, Ticket } from './permit.ts';
import { TimeSlots } from './time-slots.ts';

/** `half_open`: the cool-down is over; one real request at a time probes whether the target has recovered. */
export type BreakerState = 'closed' | 'open' | 'half_open';

export interface BreakerOptions {
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** Lower bound included, upper bound excluded: [0, 1). Jitter of the cool-down. */
  readonly random: () => number;
  /** Consecutive failures that open the breaker. Default 5. */
  readonly consecutive?: number;
  /** Whether failures in a row alone open it, for the same time each. Default false. */
  readonly isSteady?: boolean;
  /** Called on each change, with its reason for people. @param ms duration of a pause that begins */
  readonly onChange?: (change: BreakerChange, reason: string, ms?: number) => void;
}

/** A pause, which the target asked for or which follows a 429, begins (`cooling_down`) and ends (`cooled_down`). */
export type BreakerChange = BreakerState | 'cooling_down' | 'cooled_down';

/** State for reports and `explain`, and the results in the window since the breaker last closed. */
export interface BreakerSnapshot {
  readonly state: BreakerState;
  /** Permits in flight. */
  readonly inFlight: number;
  readonly successes: number;
  readonly failures: number;
  /** Why a request would be rejected now; undefined if it would be admitted. */
  readonly rejection: BreakerRejection | undefined;
  /** Whether `force` would admit it. */
  readonly isForcible: boolean;
  readonly lastFailure: { readonly code: string; readonly at: Date } | undefined;
}

/** In this window, so many results of which this share failed open the breaker. */
const WINDOW_MS = 30_000;
const MIN_RESULTS = 20;
const MAX_FAILED = 0.5;
/** Of the first cool-down, which each failed probe doubles, and its bound. */
const [COOL_DOWN_MS, MAX_COOL_DOWN_MS] = [10_000, 60_000];
/** Upper bound of an upstream's `retry-after`. */
const MAX_PAUSE_MS = MAX_RETRY_AFTER_MS;

/** Pause after a 429 without `retry-after`. */
const DEFAULT_PAUSE_MS = 1000;

/** Retry hint while a probe is in flight; its duration is unknown. */
const PROBING_MS = 1000;

/** A probe may be a request with minutes of reasoning. After this time without output, another probe is admitted. */
const PROBE_PATIENCE_MS = 10_000;

/** Random share of the cool-down, so that replicas do not probe in step. */
const JITTER = 0.2;

interface Pause {
  readonly until: number;
  readonly cause: 'limit' | 'pause';
  /** The target named the time. A default pause yields when there is no other target. */
  readonly isExplicit: boolean;
}

/** The breaker of one target: one model at one upstream. */
export class CircuitBreaker {
  readonly #now: () => number;
  readonly #random: () => number;
  readonly #consecutive: number;
  readonly #isSteady: boolean;
  readonly #onChange: NonNullable<BreakerOptions['onChange']>;
  readonly #successes = new TimeSlots(WINDOW_MS);
  readonly #failures = new TimeSlots(WINDOW_MS);
  /** Undefined while closed. */
  #openUntil: number | undefined;
  #isHalfOpenReported = false;
  #pause: Pause | undefined;
  #probe: Ticket | undefined;
  #probeSince = 0;
  #inFlight = 0;
  #failuresInRow = 0;
  #failedProbes = 0;
  #lastFailure: BreakerSnapshot['lastFailure'];
  /** Incremented when the breaker opens or closes; results of requests from an earlier period do not count. */
  #period = 0;

  constructor(options: BreakerOptions) {
    this.#now = options.now;
    this.#random = options.random;
    this.#consecutive = options.consecutive ?? 5;
    this.#isSteady = options.isSteady ?? false;
    this.#onChange = options.onChange ?? (() => {});
  }

  /** Permits in flight. */
  get inFlight(): number {
    return this.#inFlight;
  }

  get state(): BreakerState {
    if (this.#openUntil === undefined) return 'closed';
    return this.#probe !== undefined || this.#now() >= this.#openUntil ? 'half_open' : 'open';
  }

  /** Whether the breaker holds no state, so that it can be discarded. */
  get isPristine(): boolean {
    if (this.#inFlight > 0 || this.#failuresInRow > 0 || this.#openUntil !== undefined) return false;
    const now = this.#now();
    return this.#pauseRejection(now) === undefined && this.#failures.sum(now) === 0;
  }

  /**
   * Reports cool-downs that are over, which nobody else notices of a target without requests.
   * @returns whether there is one that is not over
   */
  observe(): boolean {
    const now = this.#now();
    if (this.#openUntil !== undefined && now >= this.#openUntil) this.#reportHalfOpen();
    const isOpen = this.#openUntil !== undefined && !this.#isHalfOpenReported;
    return this.#pauseRejection(now) !== undefined || isOpen;
  }

  /** Why a request would be rejected now; undefined if it would be admitted. */
  rejection(): BreakerRejection | undefined {
    if (this.#pause === undefined && this.#openUntil === undefined) return undefined;
    const now = this.#now();
    const [pause, open] = [this.#pauseRejection(now), this.#openRejection(now)];
    // The cause that lasts longer determines the retry time.
    return pause === undefined || (open !== undefined && open.until > pause.until) ? open : pause;
  }

  /** Admits or rejects one request, atomically. */
  admit(): Permit | BreakerRejection {
    return this.rejection() ?? this.#take(false);
  }

  /**
   * Admits a request that has no other target even if the breaker is open: the target's own response is worth more than a
   * rejection. A pause that the target named still applies.
   */
  force(): Permit | BreakerRejection {
    return this.#namedPause() ?? this.#take(true);
  }

  snapshot(): BreakerSnapshot {
    const now = this.#now();
    return {
      state: this.state,
      inFlight: this.#inFlight,
      successes: this.#successes.sum(now),
      failures: this.#failures.sum(now),
      rejection: this.rejection(),
      isForcible: this.#namedPause() === undefined,
      lastFailure: this.#lastFailure,
    };
  }

  #namedPause(): BreakerRejection | undefined {
    return this.#pause?.isExplicit === true ? this.#pauseRejection(this.#now()) : undefined;
  }

  #pauseRejection(now: number): BreakerRejection | undefined {
    if (this.#pause === undefined) return undefined;
    const { until, cause } = this.#pause;
    if (now < until) return { kind: 'rejection', cause, until };
    this.#pause = undefined;
    this.#onChange('cooled_down', 'the wait is over');
    return undefined;
  }

  #reportHalfOpen(): void {
    if (this.#isHalfOpenReported) return;
    this.#isHalfOpenReported = true;
    this.#onChange('half_open', 'the cool-down is over; one request at a time probes it');
  }

  #openRejection(now: number): BreakerRejection | undefined {
    if (this.#openUntil === undefined) return undefined;
    if (this.#isProbing(now)) return { kind: 'rejection', cause: 'probing', until: now + PROBING_MS };
    return now < this.#openUntil ? { kind: 'rejection', cause: 'open', until: this.#openUntil } : undefined;
  }

  /** Whether a probe is in flight that other requests wait for. */
  #isProbing(now: number): boolean {
    return this.#probe !== undefined && now < this.#probeSince + PROBE_PATIENCE_MS;
  }

  #take(forced: boolean): Permit {
    const now = this.#openUntil === undefined ? 0 : this.#now();
    const isProbe = this.#openUntil !== undefined && !this.#isProbing(now) && now >= this.#openUntil;
    const ticket = new Ticket(this.#period, isProbe, forced, this.#onAnswered, this.#onRelease);
    this.#inFlight += 1;
    if (isProbe) {
      this.#probe = ticket;
      this.#probeSince = now;
      this.#reportHalfOpen();
    }
    return ticket;
  }

  readonly #onAnswered = (ticket: Ticket) => {
    if (!this.#provesRecovery(ticket)) return;
    this.#close();
    // Its result counts in the new period.
    ticket.period = this.#period;
  };

  readonly #onRelease = (ticket: Ticket, outcome: ResultClass) => {
    this.#inFlight -= 1;
    const isProbe = this.#probe === ticket;
    const isProof = this.#provesRecovery(ticket);
    if (isProbe) this.#probe = undefined;
    if (outcome.kind === 'failure' || outcome.kind === 'limited')
      this.#lastFailure = { code: outcome.code ?? outcome.kind, at: new Date() };
    if (outcome.kind === 'limited') this.#pauseFor('limit', outcome.retryAfterMs);
    else if (outcome.kind === 'success') {
      if (isProof) this.#close();
      else if (ticket.period === this.#period) this.#count(true);
    } else if (outcome.kind === 'failure') {
      if (outcome.retryAfterMs !== undefined) this.#pauseFor('pause', outcome.retryAfterMs);
      if (isProbe) {
        if (!this.#isSteady) this.#failedProbes += 1;
        this.#open('the probe failed');
        // Requests of an earlier period, and forced ones, do not lengthen the cool-down.
      } else if (ticket.period === this.#period) this.#count(false);
    }
  };

  /** Whether the ticket was admitted while open, and the breaker is still in that period: its success closes the breaker. */
  #provesRecovery(ticket: Ticket): boolean {
    const isAdmittedWhileOpen = ticket.probe || ticket.forced;
    return this.#openUntil !== undefined && isAdmittedWhileOpen && ticket.period === this.#period;
  }

  /** Counts a result in the closed state. */
  #count(succeeded: boolean): void {
    if (this.#openUntil !== undefined) return;
    const now = this.#now();
    if (succeeded) {
      this.#successes.add(now, 1);
      this.#failuresInRow = 0;
      return;
    }
    this.#failures.add(now, 1);
    this.#failuresInRow += 1;
    const failures = this.#failures.sum(now);
    const total = this.#successes.sum(now) + failures;
    const isTooMany = !this.#isSteady && total >= MIN_RESULTS && failures >= MAX_FAILED * total;
    if (this.#failuresInRow < this.#consecutive && !isTooMany) return;
    this.#period += 1;
    this.#open(
      isTooMany ? `${failures} of ${total} requests failed` : `${this.#failuresInRow} failures in a row`,
    );
  }

  #open(why: string): void {
    const coolDownMs = Math.min(COOL_DOWN_MS * 2 ** this.#failedProbes, MAX_COOL_DOWN_MS);
    this.#openUntil = this.#now() + coolDownMs * (1 - JITTER * this.#random());
    this.#isHalfOpenReported = false;
    this.#onChange('open', `${why}; the last one: ${this.#lastFailure?.code ?? 'unknown'}`);
  }

  #close(): void {
    this.#period += 1;
    this.#openUntil = undefined;
    this.#probe = undefined;
    this.#failuresInRow = 0;
    this.#failedProbes = 0;
    this.#successes.clear();
    this.#failures.clear();
    this.#onChange('closed', 'a request succeeded');
  }

  #pauseFor(cause: Pause['cause'], retryAfterMs: number | undefined): void {
    // Zero, a past date and NaN name no time.
    const isExplicit = retryAfterMs !== undefined && retryAfterMs > 0;
    if (!isExplicit && cause === 'pause') return;
    const now = this.#now();
    const until = now + (isExplicit ? Math.min(retryAfterMs, MAX_PAUSE_MS) : DEFAULT_PAUSE_MS);
    const pause = this.#pauseRejection(now) === undefined ? undefined : this.#pause;
    // The latest end applies, but an explicit time takes precedence over a default.
    const replaces =
      pause === undefined || (pause.isExplicit === isExplicit ? until > pause.until : isExplicit);
    if (replaces) this.#pause = { until, cause, isExplicit };
    if (pause === undefined) this.#onChange('cooling_down', this.#lastFailure?.code ?? cause, until - now);
  }
}
