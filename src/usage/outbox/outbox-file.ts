// The outbox file of this process: a SQLite database (WAL) with usage that is not in the store yet. The process holds its lock, which the
// system releases however the process ends. If the disk fails, usage is kept in a database in memory. The API is synchronous, because it
// runs in a thread.
import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { makePrivateFolder } from '../../store/sqlite/private-folder.ts';
import type { UsageRow } from '../../store/usage-record.ts';
import { type HolderRange, isBefore, MAX_RANGES, rangesOf } from './holder-ranges.ts';
import { conditionOf, isDamaged, openIndexed, removeFile } from './outbox-database.ts';
import {
  isAmong,
  joinRow,
  type OutboxColumns,
  type PendingFilter,
  readRows,
  splitRow,
  writeLine,
} from './outbox-row.ts';

const INSERT_BATCH =
  'insert into batches (id, at) values (?, ?) on conflict (id) do update set id = id returning number';
const INSERT_ROW = 'insert into usage_rows (batch, holder, cells, context) values (?, ?, ?, ?)';
const PENDING = 'select id, cells, context from usage_rows join batches on number = batch where ';
/** Maximum rows of a batch. Rows of one transaction share pages that it changes: so more cost less each, and hold the store for longer. */
const BATCH_ROWS = 1000;
/** Maximum batches in memory. Beyond them, `add` throws and the caller keeps the rows. */
const MAX_MEMORY_BATCHES = 8;
const PAGE_BYTES = 4096;

export interface OutboxBatch {
  readonly id: string;
  /** Each key once. */
  readonly rows: readonly UsageRow[];
  /** Whether another process wrote it, and may have sent it. */
  readonly isInherited: boolean;
}

interface WaitingBatch {
  readonly database: DatabaseSync;
  readonly at: number;
  readonly isInherited: boolean;
  rows: number;
}

export class OutboxFile {
  readonly directory: string;
  /** Called when the rows of `add` are in the file. */
  onAdded = () => {};
  readonly #memory = openIndexed(':memory:');
  #path = '';
  #file: DatabaseSync | undefined;
  /** By id, in the order of the next attempts. */
  readonly #waiting = new Map<string, WaitingBatch>();
  /** Where rows are added, and the database of these batches. */
  #ranges: readonly HolderRange[] = [];
  #rangesOf: DatabaseSync | undefined;
  /** The batch that `next` returned last. */
  #sendingId = '';
  #isSync = false;

  constructor(directory: string) {
    this.directory = directory;
  }

  /** The backlog. */
  get state(): { readonly batches: number; readonly bytes: number } {
    return { batches: this.#waiting.size, bytes: this.#waiting.size === 0 ? 0 : this.#bytes };
  }

  /** Creates the file unless it exists. @throws the system's error, or SQLite's */
  open(): void {
    if (this.#file !== undefined && existsSync(this.#path)) return;
    makePrivateFolder(this.directory);
    this.#path = join(this.directory, `${process.pid}.${randomBytes(6).toString('hex')}.outbox`);
    closeSync(openSync(this.#path, 'wx', 0o600));
    this.#file = openIndexed(this.#path);
    this.setSync(this.#isSync);
  }

  /** Whether this is the path of the file, or of its log. */
  isOwn(path: string): boolean {
    return this.#file !== undefined && path.startsWith(this.#path);
  }

  /**
   * Appends rows, all in one transaction.
   * @param at milliseconds since 1970
   * @returns why they are only in memory; undefined if they are in the file
   * @throws the same error if the memory is full
   */
  add(at: number, rows: readonly OutboxColumns[]): unknown {
    try {
      if (this.#file === undefined) throw new Error(`there is no outbox file in ${this.directory}`);
      this.#addTo(this.#file, at, rows, MAX_RANGES);
      return undefined;
    } catch (error) {
      const inMemory = [...this.#waiting.values()].filter(({ database }) => database === this.#memory);
      if (inMemory.length >= MAX_MEMORY_BATCHES) throw error;
      this.#addTo(this.#memory, at, rows, 1);
      return error;
    }
  }

  /** Adds a batch that another process wrote. */
  inherit(id: string, at: number, cells: readonly string[]): void {
    // A batch that was copied before is complete, because it was one transaction.
    if (this.#file === undefined || cells.length === 0 || this.#waiting.has(id)) return;
    this.#save(this.#file, [{ id, at, rows: cells.map(splitRow) }]);
    this.#waiting.set(id, { database: this.#file, at, isInherited: true, rows: cells.length });
  }

  /** @returns the batch to send; no more rows are added to it */
  next(): { readonly batch: Omit<OutboxBatch, 'rows'>; readonly cells: readonly string[] } | undefined {
    const [id] = this.#waiting.keys();
    if (id === undefined) return undefined;
    this.#seal(id);
    this.#sendingId = id;
    // As text: the objects would take longer to hand over than to make.
    return { batch: this.#batch(id), cells: this.#cellsOf(id) };
  }

  /** The store did not accept a batch: others are next. */
  postpone(id: string): void {
    const batch = this.#waiting.get(id);
    if (batch === undefined) return;
    this.#waiting.delete(id);
    this.#waiting.set(id, batch);
  }

  /** The store has a batch. */
  remove(id: string): void {
    const { database } = this.#waiting.get(id) ?? {};
    this.#seal(id);
    if (database !== undefined)
      this.#use(database, () => database.prepare('delete from batches where id = ?').run(id));
    this.#waiting.delete(id);
  }

  /** The store rejects a batch: it moves to a file that is not sent. */
  setAside(id: string): void {
    this.export(id, this.#cellsOf(id));
    this.remove(id);
  }

  /** Drops the oldest batches until the file has at most `maxBytes`. @returns requests in them */
  shrink(maxBytes: number): number {
    let requests = 0;
    for (const [id, { database }] of this.#waiting) {
      if (this.#bytes <= maxBytes) break;
      // The store may have counted the batch in flight.
      if (id === this.#sendingId || database === this.#memory) continue;
      for (const { sums } of readRows(this.#cellsOf(id))) requests += sums.requests;
      this.remove(id);
    }
    return requests;
  }

  /** Pending rows, by batch. */
  rowsOf(filter: PendingFilter): readonly OutboxBatch[] {
    const [condition, ...parameters] = conditionOf(filter);
    const databases = new Set(Array.from(this.#waiting.values(), ({ database }) => database));
    const found = [...databases].flatMap((database) =>
      this.#use(database, () => database.prepare(PENDING + condition).all(...parameters)),
    );
    const batches = Map.groupBy(found, ({ id }) => String(id));
    return Array.from(batches, ([id, found]) => {
      const rows = readRows(found.map(joinRow)).filter((row) => isAmong(filter, row));
      return { ...this.#batch(id), rows };
    });
  }

  /** @param isOn whether each commit must survive a power failure, earlier ones too; otherwise SQLite syncs at checkpoints */
  setSync(isOn: boolean): void {
    this.#isSync = isOn;
    this.#file?.exec(
      isOn ? 'pragma synchronous = full; pragma wal_checkpoint' : 'pragma synchronous = normal',
    );
  }

  /** Writes a line for each row, so that an unreadable one does not affect the others. */
  export(id: string, cells: readonly string[]): void {
    writeFileSync(join(this.directory, `${id}.aside`), cells.map(writeLine).join(''), { mode: 0o600 });
  }

  /** Moves the batches in memory to the file, and releases its lock. @returns the requests for which that failed */
  close(): number {
    let lost = 0;
    for (const [id, { database, at }] of this.#waiting) {
      if (database !== this.#memory) continue;
      const cells = this.#cellsOf(id);
      try {
        this.open();
        if (this.#file !== undefined) this.#save(this.#file, [{ id, at, rows: cells.map(splitRow) }]);
      } catch {
        for (const { sums } of readRows(cells)) lost += sums.requests;
        this.#waiting.delete(id);
      }
    }
    // Before the lock is released, so that no other process takes over an empty file.
    if (this.#waiting.size === 0 && this.#file !== undefined) removeFile(this.#path);
    this.#file?.close();
    return lost;
  }

  get #bytes(): number {
    const { page_count } = this.#file?.prepare('pragma page_count').get() ?? {};
    return PAGE_BYTES * Number(page_count ?? 0);
  }

  #addTo(database: DatabaseSync, at: number, rows: readonly OutboxColumns[], maxRanges: number): void {
    const sorted = rows.toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    const isOpen = this.#rangesOf === database && this.#ranges.some(({ id }) => id !== '');
    const ranges = isOpen ? this.#ranges : rangesOf(sorted, maxRanges);
    const added = [];
    let end = 0;
    for (const range of ranges) {
      const begin = end;
      while (end < sorted.length && isBefore(sorted[end], range.end)) end += 1;
      const open = this.#waiting.get(range.id);
      let id = open !== undefined && open.rows < BATCH_ROWS ? range.id : '';
      for (let from = begin; from < end; from += BATCH_ROWS) {
        id ||= randomBytes(8).toString('hex');
        added.push({ range, id, at, rows: sorted.slice(from, Math.min(from + BATCH_ROWS, end)) });
        id = '';
      }
    }
    this.#save(database, added);
    if (database === this.#file) this.onAdded();
    this.#ranges = ranges;
    this.#rangesOf = database;
    for (const { range, id, rows } of added) {
      const batch = this.#waiting.get(id) ?? { database, at, isInherited: false, rows: 0 };
      batch.rows += rows.length;
      this.#waiting.set(id, batch);
      range.id = id;
    }
  }

  /** No more rows are added to a batch. */
  #seal(id: string): void {
    for (const range of this.#ranges) if (range.id === id) range.id = '';
  }

  #save(
    database: DatabaseSync,
    batches: readonly { id: string; at: number; rows: readonly OutboxColumns[] }[],
  ): void {
    this.#use(database, () => {
      database.exec('begin immediate');
      try {
        const insert = database.prepare(INSERT_ROW);
        for (const { id, at, rows } of batches) {
          const number = Number(database.prepare(INSERT_BATCH).get(id, at)?.['number']);
          for (const row of rows) insert.run(number, ...row);
        }
        database.exec('commit');
      } finally {
        if (database.isTransaction) database.exec('rollback');
      }
    });
  }

  /** As stored: a key may occur in several rows. */
  #cellsOf(id: string): readonly string[] {
    const { database } = this.#waiting.get(id) ?? {};
    if (database === undefined) return [];
    const query = 'select * from usage_rows where batch = (select number from batches where id = ?)';
    return this.#use(database, () => database.prepare(query).all(id)).map(joinRow);
  }

  #batch(id: string): Omit<OutboxBatch, 'rows'> {
    return { id, isInherited: this.#waiting.get(id)?.isInherited === true };
  }

  /** Closes a damaged file; the next `takeOver` moves its readable rows. */
  #use<T>(database: DatabaseSync, work: () => T): T {
    try {
      return work();
    } catch (error) {
      if (isDamaged(error)) {
        for (const [id, batch] of this.#waiting) if (batch.database === database) this.#waiting.delete(id);
        if (this.#file === database) this.#file = undefined;
        database.close();
      }
      throw error;
    }
  }
}
