// From sealed segments to the store: one after the other, each until the store has it or certainly will not take it.
import type { UsageStore } from '../../store/store.ts';
import type { UsageRow } from '../../store/usage-record.ts';
import { UsageTotals } from '../records/usage-totals.ts';
import { HolderFilter } from './holder-filter.ts';
import { withinMs } from './in-time.ts';
import type { OutboxDirectory } from './outbox-directory.ts';
import type { PhaseLock } from './phase-lock.ts';
import type { OutboxSegment } from './usage-segment.ts';

export type UsageDropReason = 'memory' | 'spool_full' | 'refused' | 'too_old' | 'closed';

export interface WriterOptions {
  readonly store: UsageStore;
  readonly spool: OutboxDirectory;
  /** Held while a batch is on its way. */
  readonly lock: PhaseLock;
  /** Milliseconds since 1970. */
  readonly clock: () => number;
  readonly onBatch: (outcome: 'written' | 'known' | 'failed', error?: unknown) => void;
  readonly onWrongLines: (segment: OutboxSegment) => void;
  readonly onDropped: (reason: UsageDropReason, requests: number) => void;
}

/** The store promises 1.5 s. This is for one that does not keep it. */
const STORE_MS = 5000;
/** So often the store has not taken a batch, and taken others meanwhile, when that batch is given up. */
const MAX_FAILURES = 20;
const SEVERAL_FAILURES = 3;

export class OutboxWriter {
  readonly #options: WriterOptions;
  /** The order is of no importance to the store. */
  readonly #queue: OutboxSegment[] = [];
  #written = 0;
  #memoryRows = 0;
  #bytes = 0;
  #running: Promise<boolean> | undefined;
  #sending: OutboxSegment | undefined;
  #isFailing = false;
  #isStopped = false;

  constructor(options: WriterOptions) {
    this.#options = options;
  }

  /** Whether the last attempt failed. */
  get isFailing(): boolean {
    return this.#isFailing;
  }

  /** Rows of waiting segments that are in memory. */
  get memoryRows(): number {
    return this.#memoryRows;
  }

  /** Size of the files of waiting segments. */
  get bytes(): number {
    return this.#bytes;
  }

  get length(): number {
    return this.#queue.length;
  }

  /** How many batches the store has taken. */
  get written(): number {
    return this.#written;
  }

  /**
   * Whether all that waits was refused several times: only another segment can tell whether the store is away or does not
   * take these. In a long outage this becomes true ever more seldom.
   */
  get needsAnother(): boolean {
    return this.#queue.every(({ failures }) => failures >= SEVERAL_FAILURES);
  }

  /** What waits, the one that is on its way included. */
  get segments(): readonly OutboxSegment[] {
    return this.#queue;
  }

  push(segment: OutboxSegment): void {
    this.#queue.push(segment);
    this.#count();
  }

  /** Gives up the memory of segments whose file has all, the oldest first, until no more than `most` rows are left. */
  release(most: number): void {
    let rows = this.#memoryRows;
    for (const segment of this.#queue) {
      if (rows <= most) break;
      if (!segment.isDurable || segment.totals === undefined) continue;
      rows -= segment.totals.size;
      segment.holders = new HolderFilter(segment.totals.rows());
      segment.totals = undefined;
    }
    this.#count();
  }

  /** Drops the oldest segments until the files of those that wait have no more than `most` bytes. */
  async shrink(most: number): Promise<void> {
    for (const segment of [...this.#queue]) {
      if (this.#bytes <= Math.max(0, most)) break;
      // What is on its way may be counted, and so is not dropped.
      if (segment.path === undefined || segment === this.#sending) continue;
      const requests = await this.#requestsOf(segment);
      // It was sent meanwhile, or is.
      if (segment === this.#sending || !this.#remove(segment)) continue;
      segment.hasWrongLines = false;
      await this.#options.spool.discard(segment);
      this.#options.onDropped('spool_full', requests);
    }
  }

  /**
   * Sends what waits, until the store does not take something. Never rejects.
   * @returns whether nothing is left
   */
  drain(): Promise<boolean> {
    this.#running ??= this.#drain().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /** Writes what is in memory alone to the spool. Never rejects. */
  async save(): Promise<void> {
    for (const segment of [...this.#queue]) {
      try {
        await this.#options.spool.save(segment);
      } catch {
        if (this.#remove(segment)) this.#options.onDropped('closed', segment.totals?.requests ?? 0);
      }
    }
  }

  /** What waits is left where it is. */
  stop(): void {
    this.#isStopped = true;
  }

  async #drain(): Promise<boolean> {
    for (let [segment] = this.#queue; segment !== undefined; [segment] = this.#queue) {
      if (this.#isStopped) return false;
      this.#sending = segment;
      const isDone = await this.#send(segment);
      this.#sending = undefined;
      if (!isDone) return false;
    }
    this.#isFailing = false;
    return true;
  }

  /** @returns whether this segment is done with */
  async #send(segment: OutboxSegment): Promise<boolean> {
    const { spool, lock, onBatch, onWrongLines, onDropped } = this.#options;
    if (segment.isStale) {
      onDropped('too_old', await this.#requestsOf(segment));
      await this.#giveUp(segment);
      return true;
    }
    try {
      const rows = await this.#rowsOf(segment);
      if (rows === undefined) {
        // Who has taken it over counts it.
        this.#remove(segment);
        return true;
      }
      const outcome = await lock.write(() => this.#store(segment, rows));
      onBatch(outcome === 'known' ? 'known' : 'written');
    } catch (error) {
      this.#isFailing = true;
      onBatch('failed', error);
      return this.#failed(segment, onDropped);
    }
    if (segment.hasWrongLines) onWrongLines(segment);
    await spool.discard(segment).catch(() => {});
    return true;
  }

  /** A reader between two batches finds the segment either gone, because the store has it, or marked as one that failed. */
  async #store(segment: OutboxSegment, rows: readonly UsageRow[]): Promise<'written' | 'known'> {
    const { store, clock } = this.#options;
    const at = new Date(clock()).toISOString();
    try {
      const outcome = await withinMs(store.addUsage({ id: segment.id, rows, at }), STORE_MS, 'the store');
      this.#remove(segment);
      this.#written += 1;
      return outcome;
    } catch (error) {
      if (segment.failures === 0) segment.writtenBefore = this.#written;
      segment.failures += 1;
      throw error;
    }
  }

  /** The next attempt is with another one, so that one that is never taken holds up nobody. */
  async #failed(segment: OutboxSegment, onDropped: WriterOptions['onDropped']): Promise<boolean> {
    if (!this.#remove(segment)) return false;
    if (segment.failures >= MAX_FAILURES && this.#written - segment.writtenBefore >= MAX_FAILURES) {
      onDropped('refused', await this.#requestsOf(segment));
      await this.#options.spool.save(segment).catch(() => {});
      await this.#options.spool.setAside(segment);
      return true;
    }
    this.push(segment);
    // It was closed while the store was thought to be there; from now on its file is all there is.
    if (segment.failures === 1) await this.#options.spool.sync(segment);
    return false;
  }

  async #giveUp(segment: OutboxSegment): Promise<void> {
    this.#remove(segment);
    await this.#options.spool.setAside(segment);
  }

  /** In the file a row stands once for each time that it was written; a batch has it once. */
  async #rowsOf(segment: OutboxSegment): Promise<readonly UsageRow[] | undefined> {
    if (segment.totals !== undefined) return [...segment.totals.rows()];
    const loaded = await this.#options.spool.load(segment);
    if (loaded === undefined) return undefined;
    const totals = new UsageTotals();
    totals.addAll(loaded);
    return [...totals.rows()];
  }

  async #requestsOf(segment: OutboxSegment): Promise<number> {
    const rows = await this.#rowsOf(segment).catch(() => undefined);
    return (rows ?? []).reduce((sum, { sums }) => sum + sums.requests, 0);
  }

  #remove(segment: OutboxSegment): boolean {
    const at = this.#queue.indexOf(segment);
    if (at === -1) return false;
    this.#queue.splice(at, 1);
    this.#count();
    return true;
  }

  #count(): void {
    this.#memoryRows = this.#queue.reduce((sum, { totals }) => sum + (totals?.size ?? 0), 0);
    this.#bytes = this.#queue.reduce((sum, { bytes }) => sum + bytes, 0);
  }
}
