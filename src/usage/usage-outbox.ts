// The ledger: takes a record of every request that reached an upstream, and sees to it that the store counts it once.
//
//   record ─▶ memory ─250 ms─▶ a line in a file of the spool ─1 s─▶ one transaction with a unique id ─▶ the file is removed
//
// What a request waits for is the first arrow. A store that is away leaves files behind, which this process or the next one
// sends; a process that is killed loses what no line holds yet.
import type { UsageStore } from '../store/store.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { withinMs } from './outbox/in-time.ts';
import { OutboxDirectory } from './outbox/outbox-directory.ts';
import { PhaseLock } from './outbox/phase-lock.ts';
import { OutboxJournal } from './outbox/usage-journal.ts';
import type { OutboxSegment } from './outbox/usage-segment.ts';
import { OutboxWriter, type UsageDropReason } from './outbox/usage-writer.ts';
import { PendingReader, type PendingUsage } from './pending-usage.ts';
import { rowsOf, type UsageRecord } from './records/request-usage.ts';
import { daysBefore } from './records/utc-hours.ts';

/** What the ledger tells of itself, for metrics. */
export interface UsageOutboxEvents {
  onBatch(outcome: 'written' | 'known' | 'failed'): void;
  /** Requests whose use will not be counted by itself. */
  onDropped(reason: UsageDropReason, requests: number): void;
  /** What waits for the store: files, their bytes, and rows in memory. */
  onWaiting(state: { readonly segments: number; readonly bytes: number; readonly rows: number }): void;
}

/** In milliseconds, rows and bytes. */
export interface UsageOutboxLimits {
  /** From a record to its line in the spool. */
  readonly writeMs: number;
  /** From a line to the store. */
  readonly sendMs: number;
  /** Longest pause after the store did not take something. */
  readonly pauseMs: number;
  /** Between two looks at the directory. */
  readonly scanMs: number;
  /** Rows after which a segment is sent without waiting, and most of one while the store is away. */
  readonly segmentRows: number;
  readonly segmentBytes: number;
  /** Most rows in memory, all parts together. */
  readonly memoryRows: number;
  /** Most bytes in the directory of the spool. */
  readonly spoolBytes: number;
  /** Longest wait for a report. */
  readonly readMs: number;
}

export const OUTBOX_LIMITS: UsageOutboxLimits = {
  writeMs: 250,
  sendMs: 1000,
  pauseMs: 5000,
  scanMs: 5000,
  segmentRows: 500,
  segmentBytes: 1024 * 1024,
  memoryRows: 20_000,
  spoolBytes: 256 * 1024 * 1024,
  readMs: 5000,
};

export interface UsageOutboxOptions {
  readonly store: UsageStore;
  /** The directory of the spool; created when missing. Several processes may share it. */
  readonly directory: string;
  readonly logger: Logger;
  readonly events: UsageOutboxEvents;
  readonly limits?: Partial<UsageOutboxLimits>;
  /** Milliseconds since 1970. */
  readonly clock?: () => number;
}

/** The store knows a batch for this long. */
const RETENTION_DAYS = 7;
const FORGET_EVERY_MS = 10 * 60_000;
const FORGET_AT_ONCE = 5000;
/** The same trouble is logged once in this time. */
const LOG_EVERY_MS = 10_000;
const CLOSE_PAUSE_MS = 100;

export class UsageOutbox {
  readonly #options: UsageOutboxOptions;
  readonly #limits: UsageOutboxLimits;
  readonly #clock: () => number;
  readonly #spool: OutboxDirectory;
  readonly #journal: OutboxJournal;
  readonly #writer: OutboxWriter;
  readonly #pending: PendingReader;
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #logged = new Map<string, { at: number; requests: number }>();
  #otherBytes = 0;
  #pause = 0;
  #forgetAt = 0;
  #isSoon = false;
  #isClosed = false;
  #closing: Promise<void> | undefined;

  private constructor(options: UsageOutboxOptions) {
    this.#options = options;
    this.#limits = { ...OUTBOX_LIMITS, ...options.limits };
    this.#clock = options.clock ?? Date.now;
    this.#spool = new OutboxDirectory(options.directory);
    const lock = new PhaseLock();
    this.#writer = new OutboxWriter({
      store: options.store,
      spool: this.#spool,
      lock,
      clock: this.#clock,
      onBatch: (outcome, error) => {
        options.events.onBatch(outcome);
        if (outcome === 'failed') this.#warn('usage waits: the store does not take it', error);
      },
      onWrongLines: ({ id }) =>
        this.#warn(`usage: lines of segment ${id} could not be read; it is kept aside`),
      onDropped: (reason, requests) => this.#dropped(reason, requests),
    });
    this.#journal = new OutboxJournal({
      spool: this.#spool,
      onSealed: (segment) => this.#sealed(segment),
      onDiskError: (error) => this.#warn('usage is in memory alone: the spool cannot be written', error),
      now: () => performance.now(),
    });
    this.#pending = new PendingReader({
      store: options.store,
      spool: this.#spool,
      journal: this.#journal,
      writer: this.#writer,
      lock,
      readMs: this.#limits.readMs,
    });
  }

  /**
   * Takes over what processes that have gone left in the directory, and begins. A directory that cannot be used is told
   * and is no fault: use is then kept in memory until the store takes it.
   */
  static async open(options: UsageOutboxOptions): Promise<UsageOutbox> {
    const outbox = new UsageOutbox(options);
    await outbox.#scan();
    const { writeMs, sendMs, scanMs } = outbox.#limits;
    outbox.#every(writeMs, () => outbox.#journal.write().then(() => writeMs));
    outbox.#every(sendMs, () => outbox.#send());
    outbox.#every(scanMs, () => outbox.#scan().then(() => scanMs));
    return outbox;
  }

  /** Counts a request. Cheap, waits for nothing and never throws. */
  record(record: UsageRecord): void {
    try {
      for (const row of rowsOf(record)) {
        if (this.#isClosed) {
          this.#dropped('closed', row.sums.requests);
        } else if (this.#rowsInMemory >= this.#limits.memoryRows && !this.#journal.has(row)) {
          this.#dropped('memory', row.sums.requests);
        } else {
          this.#journal.add(row);
        }
      }
      if (this.#journal.freshSize >= this.#limits.segmentRows) this.#soon();
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
    return this.#pending.read(holderId, ask);
  }

  /**
   * Sends everything that was recorded so far.
   * @returns whether the store has all of it
   */
  async flush(): Promise<boolean> {
    await this.#journal.seal(this.#writer.isFailing);
    return this.#writer.drain();
  }

  /**
   * Sends what is left, for as long as that may take; the rest remains in the spool, for the next process. Records that come
   * later are dropped. Never rejects.
   * @param deadlineMs from now; beyond it at most the seconds that a disk needs
   */
  close(deadlineMs: number): Promise<void> {
    this.#closing ??= this.#close(performance.now() + deadlineMs);
    return this.#closing;
  }

  /** Stops and leaves everything as it is, like a process that is killed. Resolves when nothing is being written. */
  async abandon(): Promise<void> {
    this.#stop();
    this.#writer.stop();
    await this.#journal.abandon();
    this.#spool.abandon();
  }

  async #close(deadline: number): Promise<void> {
    this.#stop();
    await this.#journal.seal(true);
    for (let left = deadline - performance.now(); left > 0; left = deadline - performance.now()) {
      if (await withinMs(this.#writer.drain(), left, 'the store').catch(() => false)) break;
      await new Promise((done) => setTimeout(done, Math.min(CLOSE_PAUSE_MS, left)));
    }
    this.#writer.stop();
    await this.#writer.save();
    const { length, bytes } = this.#writer;
    if (length > 0) this.#options.logger.warn({ segments: length, bytes }, 'usage is left in the spool');
    await this.#spool.leave();
    this.#tell();
  }

  #stop(): void {
    this.#isClosed = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
  }

  get #rowsInMemory(): number {
    return this.#journal.size + this.#writer.memoryRows;
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

  /** Many different rows came at once: they need not stay in memory for as long as few may. */
  #soon(): void {
    if (this.#isSoon) return;
    this.#isSoon = true;
    setImmediate(async () => {
      await this.#journal.write();
      this.#isSoon = false;
      if (this.#isLarge) await this.#journal.seal(this.#writer.isFailing);
    });
  }

  get #isLarge(): boolean {
    const { rows, bytes } = this.#journal.filling;
    return rows >= this.#limits.segmentRows || bytes >= this.#limits.segmentBytes;
  }

  async #send(): Promise<number> {
    const { sendMs, pauseMs } = this.#limits;
    // While the store is away, segments are filled up rather than being many.
    if (!this.#writer.isFailing || this.#isLarge || this.#writer.needsAnother)
      await this.#journal.seal(this.#writer.isFailing);
    const { written } = this.#writer;
    const isDone = await this.#writer.drain();
    const isAnswering = isDone || this.#writer.written > written;
    this.#pause = isAnswering ? 0 : Math.min(Math.max(this.#pause * 2, sendMs), pauseMs);
    if (isDone) await this.#forget();
    this.#tell();
    return Math.max(sendMs, this.#pause);
  }

  #sealed(segment: OutboxSegment): void {
    this.#writer.push(segment);
    this.#writer.release(this.#limits.memoryRows / 2);
  }

  async #scan(): Promise<void> {
    try {
      await this.#spool.beat();
      const { taken, otherBytes } = await this.#spool.claim();
      for (const segment of taken) this.#writer.push(segment);
      if (taken.length > 0) {
        this.#options.logger.info({ segments: taken.length }, 'usage that another process left is sent');
      }
      this.#otherBytes = otherBytes;
      await this.#writer.shrink(this.#limits.spoolBytes - this.#otherBytes);
    } catch (error) {
      this.#warn('usage: the spool cannot be read', error);
    }
    this.#tell();
  }

  async #forget(): Promise<void> {
    if (this.#clock() < this.#forgetAt) return;
    this.#forgetAt = this.#clock() + FORGET_EVERY_MS;
    const before = new Date(daysBefore(this.#clock(), RETENTION_DAYS)).toISOString();
    await this.#options.store.forgetBatches(before, FORGET_AT_ONCE).catch(() => {});
  }

  #tell(): void {
    const { length: segments, bytes } = this.#writer;
    this.#options.events.onWaiting({ segments, bytes, rows: this.#rowsInMemory });
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

  /** At once the first time; then what came together since, when some time has passed. */
  #log(about: string, requests: number, write: (requests: number) => void): void {
    const now = performance.now();
    const before = this.#logged.get(about);
    const sum = (before?.requests ?? 0) + requests;
    if (before !== undefined && now - before.at < LOG_EVERY_MS) {
      before.requests = sum;
      return;
    }
    // The texts are few, but for the names of segments.
    if (this.#logged.size > 100) this.#logged.clear();
    this.#logged.set(about, { at: now, requests: 0 });
    write(sum);
  }
}
