// What one holder used and the store may not have yet, together with what the store has: each row exactly once, wherever it is
// at the moment (memory, a file of the spool, a batch that was sent and whose outcome is unknown).
//
// While the store is read no batch of this process is sent. A batch that was sent before without an answer, or that another
// process has left, may be in the store or not: the store is asked by its id, before and after, because such a batch may still be
// committed in between.
import { withDeadline } from '../deadline.ts';
import { GatewayError, wrapError } from '../errors.ts';
import type { UsageStore } from '../store/store.ts';
import type { UsageRow } from '../store/usage-record.ts';
import { HolderFilter } from './outbox/holder-filter.ts';
import type { OutboxDirectory } from './outbox/outbox-directory.ts';
import type { PhaseLock } from './outbox/phase-lock.ts';
import type { OutboxJournal } from './outbox/usage-journal.ts';
import type { OutboxSegment } from './outbox/usage-segment.ts';
import type { OutboxWriter } from './outbox/usage-writer.ts';

const ATTEMPTS = 8;

export interface PendingUsage<T> {
  readonly stored: T;
  readonly pending: readonly UsageRow[];
}

export interface PendingParts {
  readonly store: Pick<UsageStore, 'knownBatches'>;
  readonly spool: Pick<OutboxDirectory, 'load'>;
  readonly journal: Pick<OutboxJournal, 'rows'>;
  readonly writer: Pick<OutboxWriter, 'segments'>;
  readonly lock: PhaseLock;
  /** A large backlog may take longer to read than anybody waits. Half an answer would be a wrong one, so there is none then. */
  readonly readMs: number;
}

export class PendingReader {
  readonly #parts: PendingParts;
  /** Files are read one after the other, for all reports together. */
  #reading: Promise<unknown> = Promise.resolve();

  constructor(parts: PendingParts) {
    this.#parts = parts;
  }

  /**
   * @param ask reads the store
   * @throws what `ask` throws; GatewayError `store_unavailable` when it takes longer than `readMs`
   */
  async read<T>(holderId: string, ask: () => Promise<T>): Promise<PendingUsage<T>> {
    const call = { holderId, ask, rows: new Map<string, readonly UsageRow[]>(), isOver: false };
    try {
      return await withDeadline(this.#attempts(call), this.#parts.readMs, tooLate);
    } finally {
      call.isOver = true;
    }
  }

  async #attempts<T>(call: Call<T>): Promise<PendingUsage<T>> {
    for (let attempt = 1; attempt <= ATTEMPTS && !call.isOver; attempt += 1) {
      await this.#loadFiles(call);
      // A store that never answers must not hold up the writer for ever.
      const reading = () => withDeadline(this.#readOnce(call), this.#parts.readMs, tooLate);
      const { lock } = this.#parts;
      // Mostly nothing is being sent. Only a report that was disturbed has the next batch wait for it.
      const found = attempt === 1 ? await lock.glance(reading) : await lock.read(reading);
      if (found !== undefined) return found;
    }
    throw new GatewayError('store_unavailable');
  }

  /** @returns undefined where something has changed that the answer depends on */
  async #readOnce<T>({ ask, rows, holderId }: Call<T>): Promise<PendingUsage<T> | undefined> {
    const { store, journal } = this.#parts;
    const ids = this.#relevant(holderId)
      .filter(isUncertain)
      .map(({ id }) => id);
    const before = ids.length === 0 ? NONE : await store.knownBatches(ids);
    const stored = await ask();
    const after = ids.length === 0 ? NONE : await store.knownBatches(ids);
    if (after.size !== before.size) return undefined;
    const asked = new Set(ids);
    const pending = [...journal.rows()].filter((row) => row.holderId === holderId);
    for (const segment of this.#relevant(holderId)) {
      if (isUncertain(segment) && !asked.has(segment.id)) return undefined;
      if (after.has(segment.id)) continue;
      const found = segment.totals === undefined ? rows.get(segment.id) : segment.totals.rows();
      if (found === undefined) return undefined;
      for (const row of found) if (row.holderId === holderId) pending.push(row);
    }
    return { stored, pending };
  }

  /** Reads the files of segments that are in no memory, before the lock is taken. What is in a file does not change any more. */
  async #loadFiles<T>(call: Call<T>): Promise<void> {
    for (const segment of this.#relevant(call.holderId)) {
      if (call.isOver) return;
      if (segment.totals !== undefined || call.rows.has(segment.id)) continue;
      const loading = this.#reading.then(() => (call.isOver ? undefined : this.#parts.spool.load(segment)));
      this.#reading = loading.catch(() => {});
      const loaded = await loading.catch((error: unknown) => {
        throw wrapError(error, 'store_unavailable');
      });
      if (call.isOver) return;
      if (loaded === undefined) {
        // A file that is gone was sent by now, or is another process's.
        call.rows.set(segment.id, []);
        continue;
      }
      segment.holders ??= new HolderFilter(loaded);
      const own = loaded.filter(({ holderId }) => holderId === call.holderId);
      call.rows.set(segment.id, own);
    }
  }

  /** Segments that may have something of the holder. One that is too old is not counted any more, see `too_old`. */
  #relevant(holderId: string): OutboxSegment[] {
    return this.#parts.writer.segments.filter(
      ({ holders, isStale }) => !isStale && holders?.mayHave(holderId) !== false,
    );
  }
}

interface Call<T> {
  readonly holderId: string;
  readonly ask: () => Promise<T>;
  /** Of the holder, by the id of the segment, from files. */
  readonly rows: Map<string, readonly UsageRow[]>;
  isOver: boolean;
}

function tooLate(): GatewayError {
  return new GatewayError('store_unavailable', 'What was used cannot be read in time at the moment.');
}

const NONE: ReadonlySet<string> = new Set();

/** Whether the store may have it, though nobody here was told so. */
function isUncertain({ failures, isInherited }: OutboxSegment): boolean {
  return failures > 0 || isInherited;
}
