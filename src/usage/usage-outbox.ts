// The usage outbox: records every request that reached an upstream, and delivers it to the store exactly once.
//
//   record -> memory -250 ms-> a row in the outbox file -1 s-> one transaction with a unique batch id -> the row is removed
//
// A request waits only for the first arrow. While the store is unavailable, batches stay in the file, and this process or the next
// one sends them. A killed process loses what is not in the file yet.
import { withDeadline } from '../deadline.ts';
import { Repeat } from '../repeat.ts';
import type { CountingStore } from '../store/store.ts';
import type { AddedUsage, UsageRow } from '../store/usage-record.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { BatchSender } from './outbox/batch-sender.ts';
import { OutboxDisk } from './outbox/outbox-disk.ts';
import { OUTBOX_LIMITS, type UsageOutboxLimits } from './outbox/outbox-limits.ts';
import { type DroppedUsage, OutboxLog } from './outbox/outbox-log.ts';
import { isAmong, outboxColumns, type PendingFilter } from './outbox/outbox-row.ts';
import { type PendingUsage, readPending } from './pending-usage.ts';
import { ModelNames } from './records/model-names.ts';
import { rowsOf, type UsageRecord } from './records/request-usage.ts';
import { UsageTotals } from './records/usage-totals.ts';
import { daysBefore } from './records/utc-hours.ts';

/** For metrics. */
export interface UsageOutboxEvents extends DroppedUsage {
  /** @param nanos in billionths of the unit of the currency */
  onCost?(model: string, upstream: string, nanos: number): void;
  onBatch(outcome: AddedUsage | 'failed'): void;
  /** The backlog: batches, bytes of the files, and rows in memory. */
  onWaiting(state: { readonly segments: number; readonly bytes: number; readonly rows: number }): void;
}

interface UsageOutboxOptions {
  readonly store: CountingStore;
  /** Directory of the files, created when missing. Several processes may share it. */
  readonly directory: string;
  /** Of this directory. Its thread may have been started. Default: a new one. */
  readonly disk?: OutboxDisk;
  readonly logger: Logger;
  readonly events: UsageOutboxEvents;
  readonly limits?: Partial<UsageOutboxLimits>;
  /** Milliseconds since 1970. */
  readonly clock?: () => number;
}

/** How long the store keeps the id of a batch. */
const RETENTION_DAYS = 7;
/** A day less: the id of an older batch may have been deleted, so sending the batch could count it twice. */
const STALE_DAYS = 6;
const FORGET_EVERY_MS = 10 * 60_000;
const FORGET_AT_ONCE = 5000;
const CLOSE_PAUSE_MS = 100;
/** Deadline of a write. After it, usage stays in memory. */
const DISK_MS = 2000;
const IN_MEMORY = 'usage is in memory only: failed to write the spool';

export class UsageOutbox {
  readonly #options: UsageOutboxOptions;
  readonly #limits: UsageOutboxLimits;
  readonly #clock: () => number;
  readonly #disk: OutboxDisk;
  readonly #sender: BatchSender;
  readonly #models = new ModelNames();
  readonly #loops: Repeat[] = [];
  readonly #log: OutboxLog;
  /** Recorded since the last write. */
  #fresh = new UsageTotals();
  /** Being written to the file. */
  #writing: { readonly totals: UsageTotals; isWritten: boolean; readonly done: Promise<void> } | undefined;
  #pause = 0;
  #forgetAt = 0;
  #isSoon = false;
  #isClosed = false;
  #closing: Promise<void> | undefined;

  private constructor(options: UsageOutboxOptions) {
    const { store, directory, events, clock = Date.now, disk = new OutboxDisk(directory) } = options;
    this.#options = options;
    this.#limits = { ...OUTBOX_LIMITS, ...options.limits };
    this.#clock = clock;
    const log = new OutboxLog(options.logger, events);
    this.#log = log;
    const sender = new BatchSender({
      store,
      disk,
      clock,
      onBatch: (outcome) => {
        events.onBatch(outcome);
        if (outcome === 'late') log.warn('usage of a closed month is counted in the present month');
      },
      onStoreError: (error) => log.warn('failed to write usage to the store; retrying', error),
      onDiskError: (error) => log.warn('failed to read the usage spool', error),
      onRefused: (requests) => log.dropped('refused', requests),
    });
    this.#disk = disk;
    this.#sender = sender;
    // A new thread takes over the file of the one that ended, so that reports have its rows again.
    disk.onEnd = () => {
      if (this.#isClosed) return;
      void this.#scan();
      sender.setSync();
    };
  }

  /**
   * Takes over the files of ended processes, and starts. An unusable directory is logged and is not an error: usage then stays in
   * memory until the store has it.
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

  /** Counts a request. It is cheap, does not wait and never throws. */
  record(record: UsageRecord): void {
    try {
      const model = this.#models.nameOf(record);
      for (const row of rowsOf(model === record.model ? record : { ...record, model })) {
        const isFull = this.#rows >= this.#limits.memoryRows && !this.#fresh.has(row);
        if (this.#isClosed || isFull)
          this.#log.dropped(this.#isClosed ? 'closed' : 'memory', row.sums.requests);
        else this.#fresh.add(row);
        const { cost } = row.sums;
        if (cost > 0) this.#options.events.onCost?.(record.entry ?? model, row.upstream, cost);
      }
      if (this.#fresh.size >= this.#limits.writeRows) this.#soon();
    } catch (error) {
      this.#log.dropped('refused', 1);
      this.#log.warn('failed to read a usage record', error);
    }
  }

  /**
   * Reads the store together with the pending rows of this process, in memory, in a file, or in flight. Each row is in exactly one
   * of the two, even when the outcome of a batch is unknown.
   *
   * @throws what `ask` throws; GatewayError `store_unavailable` when a large backlog cannot be read in time
   */
  withPending<T>(filter: PendingFilter, ask: () => Promise<T>): Promise<PendingUsage<T>> {
    const [disk, sender, { readMs }] = [this.#disk, this.#sender, this.#limits];
    const unwritten = () => this.#unwritten(filter);
    return readPending({ store: this.#options.store, disk, sender, filter, ask, unwritten, readMs });
  }

  /** Sends all recorded usage. @returns whether the store has all of it */
  async flush(): Promise<boolean> {
    await this.#write();
    const isDone = await this.#sender.drain();
    this.#report();
    return isDone && this.#rows === 0;
  }

  /**
   * Sends the backlog. What the store does not have in time stays in the file for the next process. Later records are dropped.
   * Never rejects.
   * @param deadlineMs from now; writing to the disk may take some seconds more
   */
  close(deadlineMs: number): Promise<void> {
    this.#closing ??= this.#close(performance.now() + deadlineMs);
    return this.#closing;
  }

  /** Stops like a killed process. Resolves when nothing is being written. */
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
    if (lost > 0) this.#log.dropped('closed', lost);
    if (segments > 0) this.#options.logger.warn({ segments, bytes }, 'usage remains in the spool');
    this.#report();
  }

  #stop(): void {
    this.#isClosed = true;
    for (const loop of this.#loops) void loop.stop();
  }

  /** Number of rows in memory. */
  get #rows(): number {
    return this.#fresh.size + (this.#writing?.totals.size ?? 0);
  }

  /** Writes the recorded rows to the file in one transaction, one write at a time. Never rejects. */
  async #write(): Promise<void> {
    await this.#written();
    if (this.#writing !== undefined || this.#fresh.size === 0) return;
    const totals = this.#fresh;
    this.#fresh = new UsageTotals();
    const done = this.#disk.call('add', this.#clock(), Array.from(totals.rows(), outboxColumns)).then(
      (error) => {
        writing.isWritten = true;
        this.#writing = undefined;
        if (error !== undefined) this.#log.warn(IN_MEMORY, error);
      },
      (error: unknown) => {
        totals.addAll(this.#fresh.rows());
        this.#fresh = totals;
        this.#writing = undefined;
        this.#log.warn(IN_MEMORY, error);
      },
    );
    const writing = { totals, isWritten: false, done };
    this.#writing = writing;
    await this.#written();
  }

  /** Waits for the write in flight, at most `DISK_MS`. */
  async #written(): Promise<void> {
    const late = () => new Error(`the disk took more than ${DISK_MS} ms`);
    await withDeadline(this.#writing?.done ?? Promise.resolve(), DISK_MS, late).catch((error: unknown) =>
      this.#log.warn(IN_MEMORY, error),
    );
  }

  #unwritten(filter: PendingFilter): () => readonly UsageRow[] {
    const own = (totals: UsageTotals) => [...totals.rows((row) => isAmong(filter, row))];
    const fresh = own(this.#fresh);
    const writing = this.#writing;
    return () => (writing === undefined || writing.isWritten ? fresh : [...fresh, ...own(writing.totals)]);
  }

  /** @param work never rejects; returns milliseconds until the next time */
  #every(ms: number, work: () => Promise<number>): void {
    const loop = new Repeat(work);
    loop.start(ms);
    this.#loops.push(loop);
  }

  /** Writes early because there are many rows. */
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
      if (segments > 0) logger.info({ segments }, 'sending usage that another process left');
      if (stale > 0) this.#log.dropped('too_old', stale);
      if (dropped > 0) this.#log.dropped('spool_full', dropped);
      for (const file of damaged)
        this.#log.warn(`failed to read parts of ${file} with usage; the file is kept`);
    } catch (error) {
      this.#log.warn('failed to read the usage spool', error);
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
}
