// Moves the usage that ended processes left in the directory into the outbox file of this process. Damaged or old usage is kept in files
// that are not sent.
import { existsSync, readdirSync, readFileSync, renameSync, statSync, unlinkSync } from 'node:fs';
import { basename, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { isDamaged, isLocked, openLocked, removeFile } from './outbox-database.ts';
import type { OutboxFile } from './outbox-file.ts';
import { joinRow, readLine, readRow } from './outbox-row.ts';

/** A file of the former format, or one that was set aside and renamed by hand: HOST.PID.TOKEN.BATCH.jsonl. */
const LINES = /^([0-9a-f]{12})\.\d{1,10}\.[0-9a-f]{12}\.([0-9a-f]{16})\.jsonl$/;
/** In the place of HOST: no earlier build writes to this file. */
const NO_HOST = '000000000000';
/** A running process of an earlier build writes to its files more often than this. */
const ABANDONED_MS = 60_000;

export interface AbandonedUsage {
  /** Batches that were moved into the file. */
  readonly moved: number;
  /** Requests in batches that were set aside because of their age. */
  readonly stale: number;
  /** Requests in batches that were dropped because the directory is full. */
  readonly dropped: number;
  /** Names of files that were only partly readable. */
  readonly damaged: readonly string[];
}

/**
 * Opens the file of this process, moves the usage of ended ones, and drops the oldest batches if the directory is full.
 * @param staleBefore milliseconds since 1970; older batches are set aside
 * @param maxBytes of the directory
 * @throws the system's error, or SQLite's
 */
export function takeOver(file: OutboxFile, staleBefore: number, maxBytes: number): AbandonedUsage {
  file.open();
  const before = file.state.batches;
  const mover = new Mover(file, staleBefore);
  let otherBytes = 0;
  for (const name of readdirSync(file.directory)) {
    const path = join(file.directory, name);
    if (file.isOwn(path)) continue;
    if (name.endsWith('.outbox')) mover.moveFile(path);
    else if (/\.(jsonl|alive)$/.test(name)) mover.moveLines(path);
    otherBytes += statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  }
  const { stale, damaged } = mover;
  return { moved: file.state.batches - before, dropped: file.shrink(maxBytes - otherBytes), stale, damaged };
}

class Mover {
  readonly #file: OutboxFile;
  readonly #staleBefore: number;
  readonly damaged: string[] = [];
  stale = 0;

  constructor(file: OutboxFile, staleBefore: number) {
    this.#file = file;
    this.#staleBefore = staleBefore;
  }

  moveFile(path: string): void {
    let source: DatabaseSync | undefined;
    let isBroken = false;
    try {
      source = openLocked(path);
      // Another process removed it under its lock and has its content. Names are never reused.
      if (!existsSync(path)) return;
      this.#copy(source, cellsOf);
      removeFile(path);
    } catch (error) {
      isBroken = isDamaged(error);
      if (!isBroken && !isLocked(error)) throw error;
    } finally {
      source?.close();
    }
    if (isBroken) this.#salvage(path);
  }

  /** Renames a damaged file, and copies its readable rows. */
  #salvage(path: string): void {
    const renamed = path.replace(/outbox$/, 'damaged');
    renameSync(path, renamed);
    if (existsSync(`${path}-wal`)) renameSync(`${path}-wal`, `${renamed}-wal`);
    this.damaged.push(basename(renamed));
    const source = new DatabaseSync(renamed);
    try {
      this.#copy(source, readableCellsOf);
    } catch (error) {
      if (!isDamaged(error)) throw error;
    } finally {
      source.close();
    }
  }

  #copy(source: DatabaseSync, read: typeof cellsOf): void {
    for (const { number, id, at } of source.prepare('select * from batches order by number').all())
      this.#move(String(id), Number(at), read(source, Number(number)));
  }

  /** A file of the former format becomes a batch when its process no longer writes to it. */
  moveLines(path: string): void {
    const [, host, id] = LINES.exec(basename(path)) ?? [];
    const at = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
    if (Date.now() - at < ABANDONED_MS && host !== NO_HOST) return;
    if (path.endsWith('.alive')) unlinkSync(path);
    if (id === undefined) return;
    const taken = join(this.#file.directory, `${NO_HOST}.1.${NO_HOST}.${id}.jsonl`);
    renameSync(path, taken);
    // The last line is incomplete if its process was killed.
    this.#move(id, Math.trunc(at), readFileSync(taken, 'utf8').split('\n').slice(0, -1).flatMap(readLine));
    unlinkSync(taken);
  }

  #move(id: string, at: number, cells: readonly string[]): void {
    const rows = cells.map(readRow);
    const isStale = at < this.#staleBefore;
    const isWhole = !rows.includes(undefined);
    if (isStale || !isWhole) this.#file.export(id, cells);
    if (!isWhole) this.damaged.push(`${id}.aside`);
    if (isStale) for (const row of rows) this.stale += row?.sums.requests ?? 0;
    else
      this.#file.inherit(
        id,
        at,
        cells.filter((_, index) => rows[index] !== undefined),
      );
  }
}

function cellsOf(source: DatabaseSync, batch: number): readonly string[] {
  return source.prepare('select * from usage_rows where batch = ?').all(batch).map(joinRow);
}

/** Like `cellsOf`, but row by row: the index still has the rows of an unreadable page, and those behind it. */
function readableCellsOf(source: DatabaseSync, batch: number): readonly string[] {
  const rowIds = source.prepare('select rowid from usage_rows where batch = ?').all(batch);
  const row = source.prepare('select * from usage_rows where rowid = ?');
  return rowIds.flatMap(({ rowid }) => {
    try {
      return [joinRow(row.get(Number(rowid)) ?? {})];
    } catch (error) {
      if (isDamaged(error)) return [];
      throw error;
    }
  });
}
