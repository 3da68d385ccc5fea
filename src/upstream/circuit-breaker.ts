// Whether a target may be asked now: a circuit breaker on its failures, and the time for which it asked to be left alone.
// It judges no answer and sends nothing; who asks reports how it went.
import { MAX_RETRY_AFTER_MS } from '../errors.ts';

/** `half_open`: the cool-down is over, and one real request at a time may show whether the target works again. */
export type BreakerState = 'closed' | 'open' | 'half_open';

/**
 * How an admitted request went.
 * - `success`: the target did what was asked.
 * - `failure`: the target's own fault. With `retryAfterMs`, it also said how long to leave it alone (a 503, say).
 * - `limited`: a limit of the target's (429). It is left alone for `retryAfterMs`; that is no failure and opens nothing.
 * - `neutral`: says nothing about the target: the client left, the request itself was at fault, it was never sent.
 */
export type ResultClass =
  | { readonly kind: 'success' | 'neutral' }
  | { readonly kind: 'failure' | 'limited'; readonly retryAfterMs?: number };

/**
 * Why not.
 * - `limit`: it answered 429, and the time to wait has not passed.
 * - `rest`: it answered with a failure that named a time to wait, which has not passed.
 * - `open`: it failed too often, and the cool-down has not passed.
 * - `probing`: the cool-down has passed, and another request is finding out whether it works again.
 */
type RejectionCause = 'limit' | 'rest' | 'open' | 'probing';

export interface BreakerRejection {
  readonly kind: 'refusal';
  readonly cause: RejectionCause;
  /** When to ask again, in milliseconds of the injected clock; a guess for `probing`. */
  readonly until: number;
}

/** The right to send one request. It is released once, on every path; later calls do nothing. */
export interface Permit {
  readonly kind: 'permit';
  /** Whether it was the one that finds out if the target works again. */
  readonly probe: boolean;
  /**
   * The first output came. The target works, and others need not wait until a long answer has ended; how it ends is still
   * to be told by `release`.
   */
  answered(): void;
  release(outcome: ResultClass): void;
}

export interface BreakerOptions {
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** From 0 (included) to 1 (excluded), for the jitter of the cool-down. */
  readonly random: () => number;
  /** So many failures in a row open it. Default 5. */
  readonly consecutive?: number;
  /** This share of failures in the window opens it … Default 0.5. */
  readonly ratio?: number;
  /** … when there are at least so many outcomes in it. Default 20. */
  readonly minimum?: number;
  /** Length of the window. Default 30 s. */
  readonly windowMs?: number;
  /** The first cool-down; each failed probe doubles it. Default 10 s. */
  readonly coolDownMs?: number;
  /** No cool-down is longer. Default 60 s. */
  readonly maxCoolDownMs?: number;
  /** A state was entered. */
  readonly onChange?: (state: BreakerState) => void;
}

/** What a report or `explain` shows of it. */
export interface BreakerSnapshot {
  readonly state: BreakerState;
  /** Permits that are out. */
  readonly inFlight: number;
  readonly consecutiveFailures: number;
  /** In the window, since it last closed. */
  readonly successes: number;
  readonly failures: number;
  /** What a request would hear now; undefined when it would be let through. */
  readonly rejection: BreakerRejection | undefined;
}

/** No `retry-after` is believed beyond this. */
const MAX_REST_MS = MAX_RETRY_AFTER_MS;

/** How long a target rests after a 429 that did not say. */
const UNSAID_REST_MS = 1000;

/** When to ask again while a probe is out; nobody knows how long it takes. */
const PROBING_MS = 1000;

/** A probe may be a request that is thought about for minutes: after so long without output there is another one. */
const PROBE_PATIENCE_MS = 10_000;

/** The part of the cool-down that is left to chance, so that replicas do not probe in step. */
const JITTER = 0.2;

interface Rest {
  readonly until: number;
  readonly cause: 'limit' | 'rest';
  /** The target named the time. Otherwise it is a guess of ours, which yields when there is no other target. */
  readonly said: boolean;
}

/** The breaker of one target, that is of one model at one upstream. */
export class CircuitBreaker {
  readonly #now: () => number;
  readonly #random: () => number;
  readonly #consecutive: number;
  readonly #ratio: number;
  readonly #minimum: number;
  readonly #coolDownMs: number;
  readonly #maxCoolDownMs: number;
  readonly #onChange: (state: BreakerState) => void;
  readonly #window: Window;
  /** Undefined: closed. */
  #openUntil: number | undefined;
  #rest: Rest | undefined;
  #probe: Ticket | undefined;
  #probeSince = 0;
  #inFlight = 0;
  #failuresInRow = 0;
  #failedProbes = 0;
  /** Counts openings and closings: what was sent in an earlier period says nothing about this one. */
  #period = 0;

  constructor(options: BreakerOptions) {
    this.#now = options.now;
    this.#random = options.random;
    this.#consecutive = options.consecutive ?? 5;
    this.#ratio = options.ratio ?? 0.5;
    this.#minimum = options.minimum ?? 20;
    this.#coolDownMs = options.coolDownMs ?? 10_000;
    this.#maxCoolDownMs = options.maxCoolDownMs ?? 60_000;
    this.#onChange = options.onChange ?? (() => {});
    this.#window = new Window(options.windowMs ?? 30_000);
  }

  /** Permits that are out: requests that the target is working on. */
  get inFlight(): number {
    return this.#inFlight;
  }

  get state(): BreakerState {
    if (this.#openUntil === undefined) return 'closed';
    return this.#probe !== undefined || this.#now() >= this.#openUntil ? 'half_open' : 'open';
  }

  /** Nothing would be lost if this breaker were forgotten. */
  get isPristine(): boolean {
    if (this.#inFlight > 0 || this.#failuresInRow > 0 || this.#openUntil !== undefined) return false;
    const now = this.#now();
    return this.#resting(now) === undefined && this.#window.sum(now).failures === 0;
  }

  /** Why a request would not be let through now; undefined when it would. Takes nothing. */
  refusal(): BreakerRejection | undefined {
    if (this.#rest === undefined && this.#openUntil === undefined) return undefined;
    const now = this.#now();
    const [rest, open] = [this.#resting(now), this.#opened(now)];
    // Of two reasons, the one that lasts longer says when to come back, and why not before.
    return rest === undefined || (open !== undefined && open.until > rest.until) ? open : rest;
  }

  /** Lets one request through, or says why not. Asking and taking are one step. */
  admit(): Permit | BreakerRejection {
    return this.refusal() ?? this.#take(false);
  }

  /**
   * For a request that has no other target: the failures of before do not keep it away, since the target's own answer is
   * worth more than a refusal of ours. A time that the target named does keep it away.
   */
  force(): Permit | BreakerRejection {
    const rest = this.#rest?.said === true ? this.#resting(this.#now()) : undefined;
    return rest ?? this.#take(true);
  }

  snapshot(): BreakerSnapshot {
    const { successes, failures } = this.#window.sum(this.#now());
    return {
      state: this.state,
      inFlight: this.#inFlight,
      consecutiveFailures: this.#failuresInRow,
      successes,
      failures,
      rejection: this.refusal(),
    };
  }

  #resting(now: number): BreakerRejection | undefined {
    if (this.#rest === undefined) return undefined;
    const { until, cause } = this.#rest;
    if (now < until) return { kind: 'refusal', cause, until };
    this.#rest = undefined;
    return undefined;
  }

  #opened(now: number): BreakerRejection | undefined {
    if (this.#openUntil === undefined) return undefined;
    if (this.#isProbing(now)) return { kind: 'refusal', cause: 'probing', until: now + PROBING_MS };
    return now < this.#openUntil ? { kind: 'refusal', cause: 'open', until: this.#openUntil } : undefined;
  }

  /** Whether a probe is out for which others wait. */
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
      this.#onChange('half_open');
    }
    return ticket;
  }

  readonly #onAnswered = (ticket: Ticket) => {
    if (!this.#isProof(ticket)) return;
    this.#close();
    // Its end belongs to the period that it has begun.
    ticket.period = this.#period;
  };

  readonly #onRelease = (ticket: Ticket, outcome: ResultClass) => {
    this.#inFlight -= 1;
    const isProbe = this.#probe === ticket;
    const isProof = this.#isProof(ticket);
    if (isProbe) this.#probe = undefined;
    if (outcome.kind === 'limited') this.#leaveAlone('limit', outcome.retryAfterMs);
    else if (outcome.kind === 'success') {
      if (isProof) this.#close();
      else if (ticket.period === this.#period) this.#count(true);
    } else if (outcome.kind === 'failure') {
      if (outcome.retryAfterMs !== undefined) this.#leaveAlone('rest', outcome.retryAfterMs);
      if (isProbe) {
        this.#failedProbes += 1;
        this.#open();
        // What was sent before does not lengthen the cool-down, and neither does who was let through without it.
      } else if (ticket.period === this.#period) this.#count(false);
    }
  };

  /** It was let through in spite of the open state, which has lasted since: if it succeeds, the target works again. */
  #isProof(ticket: Ticket): boolean {
    const isException = ticket.probe || ticket.forced;
    return this.#openUntil !== undefined && isException && ticket.period === this.#period;
  }

  /** Counts an outcome of the closed state. */
  #count(succeeded: boolean): void {
    if (this.#openUntil !== undefined) return;
    const now = this.#now();
    this.#window.add(now, succeeded);
    if (succeeded) {
      this.#failuresInRow = 0;
      return;
    }
    this.#failuresInRow += 1;
    const { successes, failures } = this.#window.sum(now);
    const total = successes + failures;
    const isTooMany = total >= this.#minimum && failures >= this.#ratio * total;
    if (this.#failuresInRow < this.#consecutive && !isTooMany) return;
    this.#period += 1;
    this.#open();
  }

  #open(): void {
    const longest = Math.min(this.#coolDownMs * 2 ** this.#failedProbes, this.#maxCoolDownMs);
    this.#openUntil = this.#now() + longest * (1 - JITTER * this.#random());
    this.#onChange('open');
  }

  #close(): void {
    this.#period += 1;
    this.#openUntil = undefined;
    this.#probe = undefined;
    this.#failuresInRow = 0;
    this.#failedProbes = 0;
    this.#window.clear();
    this.#onChange('closed');
  }

  #leaveAlone(cause: Rest['cause'], retryAfterMs: number | undefined): void {
    // Zero, a date that has passed and what is no number do not say how long.
    const said = retryAfterMs !== undefined && retryAfterMs > 0;
    if (!said && cause === 'rest') return;
    const now = this.#now();
    const until = now + (said ? Math.min(retryAfterMs, MAX_REST_MS) : UNSAID_REST_MS);
    const rest = this.#resting(now) === undefined ? undefined : this.#rest;
    // The latest time holds, but what the target said goes before a guess of ours.
    const replaces = rest === undefined || (rest.said === said ? until > rest.until : said);
    if (replaces) this.#rest = { until, cause, said };
  }
}

class Ticket implements Permit {
  readonly kind = 'permit';
  readonly probe: boolean;
  readonly forced: boolean;
  period: number;
  readonly #onAnswered: (ticket: Ticket) => void;
  #onRelease: ((ticket: Ticket, outcome: ResultClass) => void) | undefined;

  constructor(
    period: number,
    probe: boolean,
    forced: boolean,
    onAnswered: (ticket: Ticket) => void,
    onRelease: (ticket: Ticket, outcome: ResultClass) => void,
  ) {
    this.period = period;
    this.probe = probe;
    this.forced = forced;
    this.#onAnswered = onAnswered;
    this.#onRelease = onRelease;
  }

  answered(): void {
    if (this.#onRelease !== undefined) this.#onAnswered(this);
  }

  release(outcome: ResultClass): void {
    const onRelease = this.#onRelease;
    this.#onRelease = undefined;
    onRelease?.(this, outcome);
  }
}

const SLOTS = 10;

/** Outcomes of the last while, in ten slots of time: bounded, and exact to a tenth of its length. */
class Window {
  readonly #slotMs: number;
  readonly #successes = new Array<number>(SLOTS).fill(0);
  readonly #failures = new Array<number>(SLOTS).fill(0);
  /** The running number of the newest slot. */
  #newest = Number.NEGATIVE_INFINITY;

  constructor(lengthMs: number) {
    this.#slotMs = lengthMs / SLOTS;
  }

  add(now: number, succeeded: boolean): void {
    this.#turn(now);
    const slots = succeeded ? this.#successes : this.#failures;
    const slot = this.#newest % SLOTS;
    slots[slot] = (slots[slot] ?? 0) + 1;
  }

  sum(now: number): { successes: number; failures: number } {
    this.#turn(now);
    const all = (slots: readonly number[]) => slots.reduce((sum, count) => sum + count, 0);
    return { successes: all(this.#successes), failures: all(this.#failures) };
  }

  clear(): void {
    this.#successes.fill(0);
    this.#failures.fill(0);
  }

  /** Empties the slots whose time has passed. */
  #turn(now: number): void {
    const current = Math.max(0, Math.floor(now / this.#slotMs));
    if (current <= this.#newest) return;
    for (let slot = Math.max(this.#newest + 1, current - SLOTS + 1); slot <= current; slot += 1) {
      this.#successes[slot % SLOTS] = 0;
      this.#failures[slot % SLOTS] = 0;
    }
    this.#newest = current;
  }
}
