// How long new connections wait in the kernel's accept queue, and when they are rejected because of it. Node accepts one
// connection per event-loop tick, in order of arrival. Where more arrive than can be served, serving them in that order answers
// only clients that are about to give up; so, as in CoDel, a queue that is too long is rejected as a whole, cheaply, and what
// comes behind it is served in time.

/** Connections that the kernel keeps for `accept`. More are not acknowledged, and their clients try again after a second. */
export const BACKLOG = 1_024;

/** Half of the second that health probes commonly wait. */
const MAX_WAIT_MS = 500;
/** Fractions of that: between two measurements of a queue that does not become empty, and what they must span to be compared. */
const MEASURE_FACTOR = 0.25;
const SPAN_FACTOR = 0.75;
/** Rejecting ends when the queue is this much shorter. */
const SHORT_FACTOR = 0.25;
/**
 * More arrive than are served when connections, waiting and open, become more by this share of those accepted. With clients that
 * wait for an answer before they connect again, the queue may be long and connections are never more than clients.
 */
const GROWTH_SHARE = 0.25;
/** A shorter queue is always served: it is soon over, and says little about the load. */
const MIN_LENGTH = 50;
/** A process that gets less than this share of one processor is short of CPU. */
const STARVED_SHARE = 0.3;
/** A process is not short of CPU either if it accepts a full queue within this multiple of the limit. */
const BACKLOG_FACTOR = 10;
/** Otherwise this multiple of the limit is allowed, and for as long, so that a burst is served. */
const BURST_FACTOR = 6;
/** Where rejecting does not help, some are served again after this multiple. */
const REJECT_FACTOR = 6;
/** The queue fills and empties by turns, so that overload is over when none was rejected for this long. */
const OVERLOADED_MS = 5_000;

interface AcceptQueueOptions {
  /** Connections that are waiting; undefined where it is not known, and then none is rejected. */
  readonly length: () => number | undefined;
  /** Connections that were accepted and are open. Default: none. */
  readonly open?: () => number;
  /** Milliseconds that a connection may wait while the process is short of CPU. Default 500. */
  readonly maxWait?: number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** Milliseconds of CPU time that this process has used. */
  readonly cpuTime?: () => number;
  /** Calls back at the end of the current event-loop tick, after all of its connections were accepted. */
  readonly atTickEnd?: (callback: () => void) => void;
}

/** What happened since the last report. */
interface AcceptQueueReport {
  /** The longest that a new connection had to wait, as estimated, in milliseconds. */
  readonly waitMs: number;
  /** Connections that were rejected. */
  readonly rejected: number;
}

interface Sample {
  readonly at: number;
  readonly cpuMs: number;
  /** Connections accepted so far. */
  readonly accepted: number;
  readonly length: number;
  /** Connections, waiting and open. */
  readonly total: number;
}

export class AcceptQueue {
  readonly #length: () => number | undefined;
  readonly #open: () => number;
  readonly #maxWait: number;
  readonly #now: () => number;
  readonly #cpuTime: () => number;
  readonly #atTickEnd: (callback: () => void) => void;
  readonly #onTickEnd = () => this.#endTick();
  #hasAccepted = false;
  #accepted = 0;
  /** Since when no tick has found the queue empty. */
  #busySince: number | undefined;
  #measureAt = 0;
  #sample: Sample | undefined;
  /** While it rejects: since when, and how many connections a millisecond it served before. */
  #rejecting: { readonly since: number; readonly rate: number } | undefined;
  #rejectedAt = Number.NEGATIVE_INFINITY;
  #report = { waitMs: 0, rejected: 0 };

  constructor({ length, open, maxWait, now, cpuTime, atTickEnd }: AcceptQueueOptions) {
    this.#length = length;
    this.#open = open ?? (() => 0);
    this.#maxWait = maxWait ?? MAX_WAIT_MS;
    this.#now = now ?? (() => performance.now());
    this.#cpuTime = cpuTime ?? processCpuTime;
    this.#atTickEnd = atTickEnd ?? setImmediate;
  }

  /** Whether connections were rejected a moment ago. */
  get isOverloaded(): boolean {
    return this.#now() - this.#rejectedAt < OVERLOADED_MS;
  }

  /** To be called for each connection that was accepted. @returns whether it is to be rejected */
  accept(): boolean {
    const now = this.#now();
    this.#accepted += 1;
    this.#hasAccepted = true;
    if (this.#busySince === undefined) {
      this.#busySince = now;
      this.#measureAt = now + this.#maxWait * MEASURE_FACTOR;
      this.#atTickEnd(this.#onTickEnd);
    } else if (now >= this.#measureAt) {
      this.#measureAt = now + this.#maxWait * MEASURE_FACTOR;
      this.#measure(now, now - this.#busySince);
    }
    if (this.#rejecting === undefined) return false;
    this.#report.rejected += 1;
    this.#rejectedAt = now;
    return true;
  }

  /** Reports and begins anew. */
  takeReport(): AcceptQueueReport {
    const report = this.#report;
    this.#report = { waitMs: 0, rejected: 0 };
    return report;
  }

  #measure(now: number, busyMs: number): void {
    const length = this.#length();
    if (length === undefined) return;
    if (this.#rejecting !== undefined) {
      const { since, rate } = this.#rejecting;
      const isOver = now - since > this.#maxWait * REJECT_FACTOR;
      if (!isOver && length / rate >= this.#maxWait * SHORT_FACTOR) return;
      this.#rejecting = undefined;
      this.#sample = undefined;
      return;
    }
    const total = length + this.#open();
    const sample = { at: now, cpuMs: this.#cpuTime(), accepted: this.#accepted, length, total };
    const before = this.#sample;
    const elapsed = before === undefined ? 0 : now - before.at;
    if (before === undefined || elapsed < this.#maxWait * SPAN_FACTOR) {
      this.#sample ??= sample;
      return;
    }
    this.#sample = sample;
    const accepted = sample.accepted - before.accepted;
    const rate = accepted / elapsed;
    // Little's law: so long waits the last one.
    const wait = length / rate;
    this.#report.waitMs = Math.max(this.#report.waitMs, wait);
    // A burst is over when it has been served.
    const isGrowing =
      (length > before.length && total - before.total > accepted * GROWTH_SHARE) || length >= BACKLOG;
    if (length < MIN_LENGTH || !isGrowing) return;
    const isStarved =
      sample.cpuMs - before.cpuMs < elapsed * STARVED_SHARE &&
      BACKLOG / rate > this.#maxWait * BACKLOG_FACTOR;
    const burst = this.#maxWait * BURST_FACTOR;
    if (isStarved ? wait > this.#maxWait : wait > burst && busyMs > burst)
      this.#rejecting = { since: now, rate };
  }

  #endTick(): void {
    if (this.#hasAccepted) {
      this.#hasAccepted = false;
      this.#atTickEnd(this.#onTickEnd);
      return;
    }
    // A tick that accepts nothing has found the queue empty.
    this.#busySince = undefined;
    this.#sample = undefined;
    this.#rejecting = undefined;
  }
}

function processCpuTime(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
