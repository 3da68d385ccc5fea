// Admission control on the kernel's accept queue: estimates its wait and decides when to reject new connections. Node accepts one
// connection per event-loop tick, in order of arrival. Under overload, serving in that order answers only clients that are about to
// give up; so, as in CoDel, a queue that is too long is rejected as a whole, cheaply, and later connections are served in time.

/** Backlog of the accept queue. Beyond it the kernel drops SYNs, and clients retry after a second. */
export const BACKLOG = 1_024;

/** Maximum wait while the process is short of CPU: half of the common one-second timeout of health probes. */
const MAX_WAIT_MS = 500;
/** Fractions of the limit: interval between measurements of a busy queue, and minimum distance of two that are compared. */
const MEASURE_FACTOR = 0.25;
const SPAN_FACTOR = 0.75;
/** Rejecting ends when the wait is below this fraction of the limit. */
const SHORT_FACTOR = 0.25;
/**
 * The load exceeds capacity if connections, waiting and open, grow by this share of those accepted. Closed-loop clients, which wait
 * for a response before they connect again, may cause a long queue without such growth.
 */
const GROWTH_SHARE = 0.25;
/** A shorter queue is always served: it empties soon and says little about the load. */
const MIN_LENGTH = 50;
/** Below this share of one processor, a process is short of CPU. */
const STARVED_SHARE = 0.3;
/** A process is not short of CPU if it accepts a full queue within this multiple of the limit. */
const BACKLOG_FACTOR = 10;
/** Without CPU shortage, waits may reach this multiple of the limit, and for as long, so that a burst is served. */
const BURST_FACTOR = 6;
/** After this multiple of the limit, rejecting is suspended if it does not help. */
const REJECT_FACTOR = 6;
/** The queue fills and empties in cycles, so overload lasts until no rejection for this long. */
const OVERLOADED_MS = 5_000;

interface AcceptQueueOptions {
  /** Length of the queue; undefined if unknown, which disables rejecting. */
  readonly length: () => number | undefined;
  /** Open accepted connections. Default: none. */
  readonly open?: () => number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** CPU time used by this process, in milliseconds. */
  readonly cpuTime?: () => number;
  /** Runs a callback at the end of the event-loop tick, after all its connections were accepted. */
  readonly atTickEnd?: (callback: () => void) => void;
}

/** Figures since the last report. */
interface AcceptQueueReport {
  /** Longest estimated wait, in milliseconds. */
  readonly waitMs: number;
  /** Number of rejected connections. */
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
  readonly #now: () => number;
  readonly #cpuTime: () => number;
  readonly #atTickEnd: (callback: () => void) => void;
  readonly #onTickEnd = () => this.#endTick();
  #hasAccepted = false;
  #accepted = 0;
  /** When the queue was last found empty; undefined while it is. */
  #busySince: number | undefined;
  #measureAt = 0;
  #sample: Sample | undefined;
  /** Set while rejecting: its start, and the earlier service rate in connections per millisecond. */
  #rejecting: { readonly since: number; readonly rate: number } | undefined;
  #rejectedAt = Number.NEGATIVE_INFINITY;
  #report = { waitMs: 0, rejected: 0 };

  constructor({ length, open, now, cpuTime, atTickEnd }: AcceptQueueOptions) {
    this.#length = length;
    this.#open = open ?? (() => 0);
    this.#now = now ?? (() => performance.now());
    this.#cpuTime = cpuTime ?? processCpuTime;
    this.#atTickEnd = atTickEnd ?? setImmediate;
  }

  /** Whether connections were rejected in the last seconds. */
  get isOverloaded(): boolean {
    return this.#now() - this.#rejectedAt < OVERLOADED_MS;
  }

  /** Call for each accepted connection. @returns whether to reject it */
  accept(): boolean {
    const now = this.#now();
    this.#accepted += 1;
    this.#hasAccepted = true;
    if (this.#busySince === undefined) {
      this.#busySince = now;
      this.#measureAt = now + MAX_WAIT_MS * MEASURE_FACTOR;
      this.#atTickEnd(this.#onTickEnd);
    } else if (now >= this.#measureAt) {
      this.#measureAt = now + MAX_WAIT_MS * MEASURE_FACTOR;
      this.#measure(now, now - this.#busySince);
    }
    if (this.#rejecting === undefined) return false;
    this.#report.rejected += 1;
    this.#rejectedAt = now;
    return true;
  }

  /** Returns the report and resets it. */
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
      const isOver = now - since > MAX_WAIT_MS * REJECT_FACTOR;
      if (!isOver && length / rate >= MAX_WAIT_MS * SHORT_FACTOR) return;
      this.#rejecting = undefined;
      this.#sample = undefined;
      return;
    }
    const total = length + this.#open();
    const sample = { at: now, cpuMs: this.#cpuTime(), accepted: this.#accepted, length, total };
    const before = this.#sample;
    const elapsed = before === undefined ? 0 : now - before.at;
    if (before === undefined || elapsed < MAX_WAIT_MS * SPAN_FACTOR) {
      this.#sample ??= sample;
      return;
    }
    this.#sample = sample;
    const accepted = sample.accepted - before.accepted;
    const rate = accepted / elapsed;
    // Little's law: the wait of the last in the queue.
    const wait = length / rate;
    this.#report.waitMs = Math.max(this.#report.waitMs, wait);
    // A burst does not grow once it has arrived.
    const isGrowing =
      (length > before.length && total - before.total > accepted * GROWTH_SHARE) || length >= BACKLOG;
    if (length < MIN_LENGTH || !isGrowing) return;
    const isStarved =
      sample.cpuMs - before.cpuMs < elapsed * STARVED_SHARE && BACKLOG / rate > MAX_WAIT_MS * BACKLOG_FACTOR;
    const burst = MAX_WAIT_MS * BURST_FACTOR;
    if (isStarved ? wait > MAX_WAIT_MS : wait > burst && busyMs > burst)
      this.#rejecting = { since: now, rate };
  }

  #endTick(): void {
    if (this.#hasAccepted) {
      this.#hasAccepted = false;
      this.#atTickEnd(this.#onTickEnd);
      return;
    }
    // A tick without a new connection means that the queue is empty.
    this.#busySince = undefined;
    this.#sample = undefined;
    this.#rejecting = undefined;
  }
}

function processCpuTime(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
