// Admission control on compressed request bodies: a few are decoded at a time, in order of arrival, and the others wait here. Node
// decodes in its thread pool. Where many wait in there, the event loop counts as idle, each of its ticks brings a piece of each body, and
// all bodies end late together, while new connections, of which a tick accepts one, wait too.
import { performance } from 'node:perf_hooks';

/** Bodies that are decoded at once: several for each thread of the pool, so that none is idle while the event loop is busy. */
const SLOTS = 16;
/** Maximum wait, as in the accept queue: a client whose request waits much longer gives up. */
const MAX_WAIT_MS = 500;
/** Bodies may wait too long for this long, so that a burst is served. Shorter than for connections, as most of the work is still to come. */
const BURST_MS = 1_000;
/** The queue fills and empties in cycles, so overload lasts until no rejection for this long. */
const OVERLOADED_MS = 5_000;
/** Under overload the queue is as long as what is decoded in this time. It is shorter than the maximum wait, as rates vary. */
const TARGET_MS = 250;
/** A shorter queue admits everything. */
const MIN_LENGTH = 16;
/** Length of the windows in which the rate is measured. A CPU quota lets a process work in periods of 100 ms. */
const WINDOW_MS = 500;

/** @returns whether the body is decoded now; `leave` follows. Not if it is late, or its client has left */
type Start = (isLate: boolean) => boolean;

/** Figures since the last report. */
interface DecodeQueueReport {
  /** Longest wait of a body whose turn came, in milliseconds. */
  readonly waitMs: number;
  /** Number of rejected requests. */
  readonly rejected: number;
}

export class DecodeQueue {
  readonly #now: () => number;
  readonly #waiting: { readonly since: number; readonly start: Start }[] = [];
  #running = 0;
  /** Start of the time in which all bodies waited for longer than the limit. */
  #lateSince: number | undefined;
  #rejectedAt = Number.NEGATIVE_INFINITY;
  /** The window in which bodies are counted that leave while others wait. */
  #window = { start: 0, count: 0 };
  /** Bodies decoded in a millisecond. */
  #rate: number | undefined;
  #report = { waitMs: 0, rejected: 0 };

  /** @param now monotonic milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Whether requests were rejected in the last seconds. */
  get isOverloaded(): boolean {
    return this.#now() - this.#rejectedAt < OVERLOADED_MS;
  }

  /** Whether a new request with a compressed body would be rejected now. */
  get isFull(): boolean {
    if (this.#waiting.length < MIN_LENGTH || !this.isOverloaded) return false;
    // Little's law: a longer queue would wait for longer.
    return this.#waiting.length >= (this.#rate ?? 0) * TARGET_MS;
  }

  /** Call for a new request with a compressed body, before any other work for it. @returns whether to reject it */
  shouldReject(): boolean {
    if (!this.isFull) return false;
    this.#reject(this.#now());
    return true;
  }

  /** @param start called once, now or when it is the body's turn */
  enter(start: Start): void {
    if (this.#running < SLOTS) {
      this.#lateSince = undefined;
      if (start(false)) this.#running += 1;
      return;
    }
    const since = this.#now();
    if (this.#waiting.length === 0) this.#window = { start: since, count: 0 };
    this.#waiting.push({ since, start });
  }

  /** Call when a body is decoded, or given up. */
  leave(): void {
    this.#running -= 1;
    if (this.#waiting.length === 0) return;
    const now = this.#now();
    this.#measure(now);
    while (this.#running < SLOTS) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      const isLate = this.#isLate(now, now - next.since);
      if (next.start(isLate)) this.#running += 1;
      else if (isLate) this.#reject(now);
    }
  }

  /** Returns the report and resets it. */
  takeReport(): DecodeQueueReport {
    const report = this.#report;
    this.#report = { waitMs: 0, rejected: 0 };
    return report;
  }

  #isLate(now: number, waitMs: number): boolean {
    this.#report.waitMs = Math.max(this.#report.waitMs, waitMs);
    if (waitMs <= MAX_WAIT_MS) {
      this.#lateSince = undefined;
      return false;
    }
    this.#lateSince ??= now;
    return this.isOverloaded || now - this.#lateSince > BURST_MS;
  }

  #measure(now: number): void {
    const window = this.#window;
    window.count += 1;
    const elapsed = now - window.start;
    if (elapsed < WINDOW_MS) return;
    const rate = window.count / elapsed;
    this.#rate = this.#rate === undefined ? rate : (this.#rate + rate) / 2;
    this.#window = { start: now, count: 0 };
  }

  #reject(now: number): void {
    this.#rejectedAt = now;
    this.#report.rejected += 1;
  }
}
