// From a record to a sealed segment: what was recorded goes to a file a few times a second, before the store hears of it.
// A disk that takes nothing is no reason to lose it: then it is in memory alone, within the bound of the ledger.
import type { UsageRow } from '../../store/usage-record.ts';
import { UsageTotals } from '../records/usage-totals.ts';
import { EMPTY, type OutboxDirectory } from './outbox-directory.ts';
import { writeLine } from './outbox-line.ts';
import type { OutboxFile, OutboxSegment } from './usage-segment.ts';

/** How long a disk that failed is left alone. */
const DISK_REST_MS = 5000;

interface Filling {
  readonly id: string;
  readonly totals: UsageTotals;
  /** Undefined where the disk took no file. */
  file: OutboxFile | undefined;
}

export interface JournalOptions {
  readonly spool: OutboxDirectory;
  /** A segment that takes nothing more, in any order. */
  readonly onSealed: (segment: OutboxSegment) => void;
  /** The disk failed: what is recorded is in memory alone for now. */
  readonly onDiskError: (error: unknown) => void;
  /** Monotonic milliseconds. */
  readonly now: () => number;
}

export class OutboxJournal {
  readonly #options: JournalOptions;
  /** Recorded since the last write. */
  #fresh = new UsageTotals();
  #filling: Filling | undefined;
  #restUntil = Number.NEGATIVE_INFINITY;
  #work: Promise<void> = Promise.resolve();
  #isWriting = false;

  constructor(options: JournalOptions) {
    this.#options = options;
  }

  /** Rows in memory. */
  get size(): number {
    return this.#fresh.size + (this.#filling?.totals.size ?? 0);
  }

  get freshSize(): number {
    return this.#fresh.size;
  }

  /** Rows and bytes of the segment that is being filled. */
  get filling(): { readonly rows: number; readonly bytes: number } {
    return { rows: this.#filling?.totals.size ?? 0, bytes: this.#filling?.file?.bytes ?? 0 };
  }

  /** Whether this row takes no more memory. */
  has(row: UsageRow): boolean {
    return this.#fresh.has(row);
  }

  add(row: UsageRow): void {
    this.#fresh.add(row);
  }

  *rows(): Generator<UsageRow> {
    yield* this.#fresh.rows();
    if (this.#filling !== undefined) yield* this.#filling.totals.rows();
  }

  /** Writes what was recorded. One at a time: while the disk is busy, records wait for the next call. Never rejects. */
  async write(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    await this.#next(() => this.#write());
    this.#isWriting = false;
  }

  /**
   * Writes what was recorded and ends the segment. Never rejects.
   * @param sync whether its file must survive a loss of power
   */
  seal(sync: boolean): Promise<void> {
    return this.#next(async () => {
      await this.#write();
      await this.#handOver(sync);
    });
  }

  /** Writes nothing more. Resolves when nothing is being written. */
  abandon(): Promise<void> {
    return this.#next(async () => {
      this.#fresh = new UsageTotals();
      await this.#filling?.file?.close(false);
    });
  }

  #next(step: () => Promise<void>): Promise<void> {
    this.#work = this.#work.then(step).catch((error: unknown) => this.#diskFailed(error));
    return this.#work;
  }

  async #write(): Promise<void> {
    if (this.#fresh.size === 0) return;
    const { spool, now } = this.#options;
    const old = this.#filling;
    // Whoever renamed the file counts what is in it, so no more may go into this segment. And one without a whole file makes
    // room for one that has it, when the disk may work again.
    const isTaken = old?.file !== undefined && !(await old.file.isThere());
    if (isTaken || (old?.file?.isWhole !== true && now() > this.#restUntil)) await this.#handOver(false);
    const isNew = this.#filling === undefined;
    this.#filling ??= { id: spool.newId(), totals: new UsageTotals(), file: undefined };
    const filling = this.#filling;
    const taken = this.#fresh;
    this.#fresh = new UsageTotals();
    filling.totals.addAll(taken.rows());
    try {
      // A file that began later would not have the whole of it.
      if (isNew && now() > this.#restUntil) filling.file = await spool.create(filling.id);
      if (filling.file?.isWhole === true) await filling.file.append(writeLine(taken.rows()));
    } catch (error) {
      this.#diskFailed(error);
    }
  }

  async #handOver(sync: boolean): Promise<void> {
    const filling = this.#filling;
    if (filling === undefined) return;
    const { id, totals, file } = filling;
    this.#filling = undefined;
    const isDurable = file?.isWhole === true;
    this.#options.onSealed({ ...EMPTY, id, totals, path: file?.path, bytes: file?.bytes ?? 0, isDurable });
    await file?.close(sync).catch((error: unknown) => this.#diskFailed(error));
  }

  #diskFailed(error: unknown): void {
    this.#restUntil = this.#options.now() + DISK_REST_MS;
    this.#options.onDiskError(error);
  }
}
