// The usage outbox: takes a record of every request that reached an upstream, and has the store count it once.
//
//   record -> memory -250 ms-> a row in the outbox file -1 s-> one transaction with a unique batch id -> the row is removed
//
// A request waits for the first arrow alone. While the store is away, batches stay in the file, and this process or the next one
// sends them. A process that is killed loses what is not in the file yet.
import { withDeadline } from '../deadline.ts';
import type { UsageStore } from '../store/store.ts';
import type { UsageRow } from '../store/usage-record.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { BatchSender } from './outbox/batch-sender.ts';
import { OutboxDisk } from './outbox/outbox-disk.ts';
import { writeRow } from './outbox/outbox-row.ts';
import { type PendingUsage, readPending } from './pending-usage.ts';
import { rowsOf, type UsageRecord } from './records/request-usage.ts';
import { UsageTotals } from './records/usage-totals.ts';
import { daysBefore } from './records/utc-hours.ts';

export type UsageDropReason = 'memory' | 'spool_full' | 'refused' | 'too_old' | 'closed';

/** For metrics. */
export interface UsageOutboxEvents {
  onBatch(outcome: 'written' | 'known' | 'failed'): void;
  /** Requests whose use will not be counted by itself. */
  onDropped(reason: UsageDropReason, requests: number): void;
  /** What waits for the store: batches, bytes of the files, and rows in memory. */
  onWaiting(state: { readonly segments: number; readonly bytes: number; readonly rows: number }): void;
}

/** In milliseconds, rows and bytes. */
export interface UsageOutboxLimits {
  /** From a record to the file. */
  readonly writeMs: number;
  /** From the file to the store. */
  readonly sendMs: number;
  /** Longest pause after the store did not take something. */
  readonly pauseMs: number;
  /** Between two scans of the directory. */
  readonly scanMs: number;
  /** Rows after which they are written without waiting. */
  readonly writeRows: number;
  /** Most rows in memory, all parts together. */
  readonly memoryRows: number;
  /** Most bytes in the directory. */
  readonly diskBytes: number;
  /** Longest wait for a report. */
  readonly readMs: number;
}

export const OUTBOX_LIMITS: UsageOutboxLimits = {
  writeMs: 250,
  sendMs: 1000,
  pauseMs: 5000,
  scanMs: 5000,
  writeRows: 500,
  memoryRows: 20_000,
  diskBytes: 256 * 1024 * 1024,
  readMs: 5000,
};

export interface UsageOutboxOptions {
  readonly store: UsageStore;
  /** Of the files; created when missing. Several processes may share it. */
  readonly directory: string;
  readonly logger: Logger;
  readonly events: UsageOutboxEvents;
  readonly limits?: Partial<UsageOutboxLimits>;
  /** Milliseconds since 1970. */
  readonly clock?: () => number;
}

/** The store knows a batch for this long. */
const RETENTION_DAYS = 7;
/** By a day less: a batch found in a file that is older may have been counted and forgotten. */
const STALE_DAYS = 6;
const FORGET_EVERY_MS = 10 * 60_000;
const FORGET_AT_ONCE = 5000;
/** The same message is logged once in this time. */
const LOG_EVERY_MS = 10_000;
const CLOSE_PAUSE_MS = 100;
/** From then on a write is late, and what is recorded is in memory alone. */
const DISK_MS = 2000;
const IN_MEMORY = 'usage is in memory alone: the spool cannot be written';

export class UsageOutbox {
  readonly #options: UsageOutboxOptions;
  readonly #limits: UsageOutboxLimits;
  readonly #clock: () => number;
  readonly #disk: OutboxDisk;
  readonly #sender: BatchSender;
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #logged = new Map<string, { at: number; requests: number }>();
  /** Recorded since the last write. */
  #fresh = new UsageTotals();
  /** On its way to the file. */
  #writing: { readonly totals: UsageTotals; isWritten: boolean; readonly done: Promise<void> } | undefined;
  #pause = 0;
  #forgetAt = 0;
  #isSoon = false;
  #isClosed = false;
  #closing: Promise<void> | undefined;

  private constructor(options: UsageOutboxOptions) {
    const { store, directory, events, clock = Date.now } = options;
    this.#options = options;
    this.#limits = { ...OUTBOX_LIMITS, ...options.limits };
    this.#clock = clock;
    const disk = new OutboxDisk(directory);
    const sender = new BatchSender({
      store,
      disk,
      clock,
      onBatch: (outcome) => events.onBatch(outcome),
      onStoreError: (error) => this.#warn('usage waits: the store does not take it', error),
      onDiskError: (error) => this.#warn('usage: the spool cannot be read', error),
      onRefused: (requests) => this.#dropped('refused', requests),
    });
    this.#disk = disk;
    this.#sender = sender;
  }

  /**
   * Takes over what processes that ended left in the directory, and starts. A directory that cannot be used is logged and is no
   * error: usage is then kept in memory until the store takes it.
   */
  static async open(options: UsageOutboxOptions): Promise<UsageOutbox> {
    const outbox = new UsageOutbox(options);
    await outbox.#scan();
    const { writeMs, sendMs, scanMs } = outbox.#limits;
    outbox.#every(writeMs, () => outbox.#write().then(() => writeMs));
    outbox.#every(sendMs, () => outbox.#send());
    outbox.#every(scanMs, () => outbox.#scan().then(() => scanMs));
    return outbox;
  }

  /** Counts a request. Cheap, waits for nothing and never throws. */
  record(record: UsageRecord): void {
    try {
      for (const row of rowsOf(record)) {
        const isFull = this.#rows >= this.#limits.memoryRows && !this.#fresh.has(row);
        if (this.#isClosed || isFull) this.#dropped(this.#isClosed ? 'closed' : 'memory', row.sums.requests);
        else this.#fresh.add(row);
      }
      if (this.#fresh.size >= this.#limits.writeRows) this.#soon();
    } catch (error) {
      this.#dropped('refused', 1);
      this.#warn('usage: a record could not be read', error);
    }
  }

  /**
   * Asks the store and adds what is pending: what this process has recorded or taken over and the store does not have, in memory,
   * in a file, or on its way. Each row is in exactly one of the two, also while nobody knows what became of a batch.
   *
   * @throws what `ask` throws; GatewayError `store_unavailable` when a large backlog cannot be read in time
   */
  withPending<T>(holderId: string, ask: () => Promise<T>): Promise<PendingUsage<T>> {
    const [disk, sender, { readMs }] = [this.#disk, this.#sender, this.#limits];
    const unwritten = () => this.#unwritten(holderId);
    return readPending({ store: this.#options.store, disk, sender, holderId, ask, unwritten, readMs });
  }

  /**
   * Sends everything that was recorded so far.
   * @returns whether the store has all of it
   */
  async flush(): Promise<boolean> {
    await this.#write();
    const isDone = await this.#sender.drain();
    this.#report();
    return isDone && this.#rows === 0;
  }

  /**
   * Sends what is left; what the store does not take in time remains in the file, for the next process. Later records are
   * dropped. Never rejects.
   * @param deadlineMs from now; beyond it at most the seconds that a disk needs
   */
  close(deadlineMs: number): Promise<void> {
    this.#closing ??= this.#close(performance.now() + deadlineMs);
    return this.#closing;
  }

  /** Stops and leaves everything as it is, like a process that is killed. Resolves when nothing is being written. */
  async abandon(): Promise<void> {
    this.#stop();
    this.#sender.stop();
    await this.#disk.abandon();
  }

  async #close(deadline: number): Promise<void> {
    this.#stop();
    const late = () => new Error('the store did not take all usage in time');
    for (let left = deadline - performance.now(); left > 0; left = deadline - performance.now()) {
      if (await withDeadline(this.flush(), left, late).catch(() => false)) break;
      await new Promise((done) => setTimeout(done, Math.min(CLOSE_PAUSE_MS, left)));
    }
    this.#sender.stop();
    await this.#write();
    const { batches: segments, bytes } = this.#disk.state;
    const unsaved = this.#fresh.requests + (this.#writing?.totals.requests ?? 0);
    const lost = unsaved + (await this.#disk.callInTime('close').catch(() => 0));
    if (lost > 0) this.#dropped('closed', lost);
    if (segments > 0) this.#options.logger.warn({ segments, bytes }, 'usage is left in the spool');
    this.#report();
  }

  #stop(): void {
    this.#isClosed = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
  }

  /** In memory. */
  get #rows(): number {
    return this.#fresh.size + (this.#writing?.totals.size ?? 0);
  }

  /** Writes what was recorded to the file, in one transaction; one write at a time. Never rejects. */
  async #write(): Promise<void> {
    await this.#written();
    if (this.#writing !== undefined || this.#fresh.size === 0) return;
    const totals = this.#fresh;
    this.#fresh = new UsageTotals();
    const done = this.#disk.call('add', this.#clock(), Array.from(totals.rows(), writeRow)).then(
      (error) => {
        writing.isWritten = true;
        this.#writing = undefined;
        if (error !== undefined) this.#warn(IN_MEMORY, error);
      },
      (error: unknown) => {
        totals.addAll(this.#fresh.rows());
        this.#fresh = totals;
        this.#writing = undefined;
        this.#warn(IN_MEMORY, error);
      },
    );
    const writing = { totals, isWritten: false, done };
    this.#writing = writing;
    await this.#written();
  }

  /** Waits for the write that is under way, as long as a disk that works needs. */
  async #written(): Promise<void> {
    const late = () => new Error(`the disk took more than ${DISK_MS} ms`);
    await withDeadline(this.#writing?.done ?? Promise.resolve(), DISK_MS, late).catch((error: unknown) =>
      this.#warn(IN_MEMORY, error),
    );
  }

  #unwritten(holderId: string): () => readonly UsageRow[] {
    const own = (totals: UsageTotals) => [...totals.rows()].filter((row) => row.holderId === holderId);
    const fresh = own(this.#fresh);
    const writing = this.#writing;
    return () => (writing === undefined || writing.isWritten ? fresh : [...fresh, ...own(writing.totals)]);
  }

  /** @param work never rejects; returns milliseconds until the next time */
  #every(ms: number, work: () => Promise<number>): void {
    const timer = setTimeout(async () => {
      this.#timers.delete(timer);
      const next = await work();
      if (!this.#isClosed) this.#every(next, work);
    }, ms);
    timer.unref();
    this.#timers.add(timer);
  }

  /** Many different rows were recorded at once: they need not stay in memory for as long as few may. */
  #soon(): void {
    if (this.#isSoon) return;
    this.#isSoon = true;
    setImmediate(async () => {
      await this.#write();
      this.#isSoon = false;
    });
  }

  async #send(): Promise<number> {
    const { sendMs, pauseMs } = this.#limits;
    const { written } = this.#sender;
    const isDone = await this.#sender.drain();
    const isAnswering = isDone || this.#sender.written > written;
    this.#pause = isAnswering ? 0 : Math.min(Math.max(this.#pause * 2, sendMs), pauseMs);
    if (isDone) await this.#forget();
    this.#report();
    return Math.max(sendMs, this.#pause);
  }

  async #scan(): Promise<void> {
    const { logger } = this.#options;
    const staleBefore = daysBefore(this.#clock(), STALE_DAYS);
    try {
      const taken = await this.#disk.callInTime('takeOver', staleBefore, this.#limits.diskBytes);
      const { moved: segments, stale, dropped, damaged } = taken;
      if (segments > 0) logger.info({ segments }, 'usage that another process left is sent');
      if (stale > 0) this.#dropped('too_old', stale);
      if (dropped > 0) this.#dropped('spool_full', dropped);
      for (const file of damaged) this.#warn(`usage: parts of ${file} could not be read; it is kept aside`);
    } catch (error) {
      this.#warn('usage: the spool cannot be read', error);
    }
    this.#report();
  }

  async #forget(): Promise<void> {
    if (this.#clock() < this.#forgetAt) return;
    this.#forgetAt = this.#clock() + FORGET_EVERY_MS;
    const before = new Date(daysBefore(this.#clock(), RETENTION_DAYS)).toISOString();
    await this.#options.store.forgetBatches(before, FORGET_AT_ONCE).catch(() => {});
  }

  #report(): void {
    const { batches: segments, bytes } = this.#disk.state;
    this.#options.events.onWaiting({ segments, bytes, rows: this.#rows });
  }

  #dropped(reason: UsageDropReason, requests: number): void {
    this.#options.events.onDropped(reason, requests);
    this.#log(`dropped ${reason}`, requests, (dropped) =>
      this.#options.logger.error({ reason, requests: dropped }, 'usage is not counted'),
    );
  }

  #warn(message: string, error?: unknown): void {
    this.#log(message, 0, () =>
      this.#options.logger.warn(error === undefined ? {} : { err: error }, message),
    );
  }

  /** Logs at once the first time; later the sum since, once in `LOG_EVERY_MS`. */
  #log(about: string, requests: number, write: (requests: number) => void): void {
    const now = performance.now();
    const before = this.#logged.get(about);
    const sum = (before?.requests ?? 0) + requests;
    if (before !== undefined && now - before.at < LOG_EVERY_MS) {
      before.requests = sum;
      return;
    }
    // Messages are few, except for ids of batches and names of files.
    if (this.#logged.size > 100) this.#logged.clear();
    this.#logged.set(about, { at: now, requests: 0 });
    write(sum);
  }
}
