// Admission control on the kernel's accept queue: knows how long each connection waited in it, and decides which to reject. Node
// accepts one connection per event-loop tick, in order of arrival. Under overload, serving in that order answers only clients that are
// about to give up; so, as in CoDel, a connection that waited too long is rejected, cheaply, and those behind it are served in time.

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
/** Without CPU shortage, connections may wait too long for this multiple of the limit, so that a burst is served. */
const BURST_FACTOR = 3;
/** After this multiple of the limit, rejecting is suspended if connections still wait for longer than `HELPED_FACTOR` of it. */
const REJECT_FACTOR = 6;
const HELPED_FACTOR = 2;
/** The queue fills and empties in cycles, so overload lasts until no rejection for this long. */
const OVERLOADED_MS = 5_000;

interface AcceptQueueOptions {
  /** Length of the queue; undefined if unknown, which disables rejecting. */
  readonly length: () => number | undefined;
  /** Open accepted connections. Default: none. */
  readonly open?: () => number;
  /** Whether accepted requests were rejected in the last seconds. Default: none were. */
  readonly isRejecting?: () => boolean;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** CPU time used by this process, in milliseconds. */
  readonly cpuTime?: () => number;
  /** Runs a callback at the end of the event-loop tick, after all its connections were accepted. */
  readonly atTickEnd?: (callback: () => void) => void;
}

/** Figures since the last report. */
interface AcceptQueueReport {
  /** Longest wait of an accepted connection, in milliseconds. */
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

/** At this time, so many connections had arrived since the start. */
interface Arrivals {
  readonly at: number;
  readonly count: number;
}

export class AcceptQueue {
  readonly #length: () => number | undefined;
  readonly #open: () => number;
  readonly #isRejecting: () => boolean;
  readonly #now: () => number;
  readonly #cpuTime: () => number;
  readonly #atTickEnd: (callback: () => void) => void;
  readonly #onTickEnd = () => this.#endTick();
  #hasAccepted = false;
  #accepted = 0;
  /** The queue is not empty. */
  #isBusy = false;
  /** Start of the time in which all accepted connections waited for longer than the limit. */
  #lateSince: number | undefined;
  #measureAt = 0;
  #sample: Sample | undefined;
  /** Measurements that a waiting connection had arrived by, in order: their distance bounds the error of its wait. */
  readonly #arrivals: Arrivals[] = [];
  /** Of the connection accepted last. */
  #waitMs = 0;
  /** Start of rejecting; undefined while every connection is served. */
  #rejectingSince: number | undefined;
  #rejectedAt = Number.NEGATIVE_INFINITY;
  #report = { waitMs: 0, rejected: 0 };

  constructor({ length, open, isRejecting, now, cpuTime, atTickEnd }: AcceptQueueOptions) {
    this.#length = length;
    this.#open = open ?? (() => 0);
    this.#isRejecting = isRejecting ?? (() => false);
    this.#now = now ?? (() => performance.now());
    this.#cpuTime = cpuTime ?? processCpuTime;
    this.#atTickEnd = atTickEnd ?? setImmediate;
  }

  /** Whether connections were rejected in the last seconds. */
  get isOverloaded(): boolean {
    // Asked for each request, and nearly always false: the clock is read only after a rejection.
    const at = this.#rejectedAt;
    return at !== Number.NEGATIVE_INFINITY && this.#now() - at < OVERLOADED_MS;
  }

  /** Milliseconds that the connection accepted last waited at least. */
  get waitMs(): number {
    return this.#waitMs;
  }

  /** Call for each accepted connection. @returns whether to reject it */
  accept(): boolean {
    const now = this.#now();
    this.#accepted += 1;
    this.#hasAccepted = true;
    if (!this.#isBusy) {
      this.#isBusy = true;
      this.#measureAt = now + MAX_WAIT_MS * MEASURE_FACTOR;
      this.#atTickEnd(this.#onTickEnd);
    } else if (now >= this.#measureAt) {
      this.#measureAt = now + MAX_WAIT_MS * MEASURE_FACTOR;
      this.#measure(now);
    }
    this.#waitMs = this.#waited(now);
    this.#lateSince = this.#waitMs > MAX_WAIT_MS ? (this.#lateSince ?? now) : undefined;
    this.#report.waitMs = Math.max(this.#report.waitMs, this.#waitMs);
    if (this.#rejectingSince === undefined || this.#lateSince === undefined) return false;
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

  /** The wait of the connection accepted last: it arrived before the first measurement that counts it. */
  #waited(now: number): number {
    const arrivals = this.#arrivals;
    let first = arrivals[0];
    while (first !== undefined && first.count < this.#accepted) {
      arrivals.shift();
      first = arrivals[0];
    }
    return first === undefined ? 0 : now - first.at;
  }

  #measure(now: number): void {
    const length = this.#length();
    if (length === undefined) return;
    this.#arrivals.push({ at: now, count: this.#accepted + length });
    if (this.#rejectingSince !== undefined) {
      const isVain =
        now - this.#rejectingSince > MAX_WAIT_MS * REJECT_FACTOR &&
        this.#waited(now) > MAX_WAIT_MS * HELPED_FACTOR;
      if (!isVain && this.#waited(now) >= MAX_WAIT_MS * SHORT_FACTOR) return;
      this.#rejectingSince = undefined;
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
    // A burst does not grow once it has arrived.
    const isGrowing =
      (length > before.length && total - before.total > accepted * GROWTH_SHARE) || length >= BACKLOG;
    if (length < MIN_LENGTH || !isGrowing) return;
    const isStarved =
      sample.cpuMs - before.cpuMs < elapsed * STARVED_SHARE && BACKLOG / rate > MAX_WAIT_MS * BACKLOG_FACTOR;
    // A queue that emptied within an overload is no burst when it is back, nor is what comes faster than it can be decoded.
    const burstMs = this.isOverloaded || this.#isRejecting() ? 0 : MAX_WAIT_MS * BURST_FACTOR;
    // Little's law: the wait of the last in the queue.
    const isLate = isStarved
      ? length / rate > MAX_WAIT_MS
      : this.#lateSince !== undefined && now - this.#lateSince > burstMs;
    if (isLate) this.#rejectingSince = now;
  }

  #endTick(): void {
    if (this.#hasAccepted) {
      this.#hasAccepted = false;
      this.#atTickEnd(this.#onTickEnd);
      return;
    }
    // A tick without a new connection means that the queue is empty.
    this.#isBusy = false;
    this.#lateSince = undefined;
    this.#sample = undefined;
    this.#arrivals.length = 0;
    this.#waitMs = 0;
    this.#rejectingSince = undefined;
  }
}

function processCpuTime(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
