// The SQLite database of an outbox file: its tables, how it is opened under its lock, and what its errors mean.
import { rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { primaryCode } from '../../store/sqlite/sqlite-advice.ts';
import type { PendingFilter } from './outbox-row.ts';

const SETUP = `
  pragma locking_mode = exclusive;
  pragma auto_vacuum = full;
  pragma journal_mode = wal;
  pragma synchronous = normal;
  begin immediate;
  create table if not exists batches (number integer primary key, id text not null unique, at integer not null) strict;
  create table if not exists usage_rows (
    batch integer not null references batches on delete cascade, holder text not null, cells text not null,
    context text) strict;
  create index if not exists usage_rows_by_batch on usage_rows (batch);
  create index if not exists usage_rows_by_holder on usage_rows (holder);
  commit;`;
/** Whether a row is of a holder in a team. It reads no JSON, because most are not. */
const HAS_TEAM = `substr(context, 1, 3) <> '[""'`;
/** Not in the files of earlier versions, which have no column `context`. */
const INDEXES = `create index if not exists usage_rows_by_team on usage_rows (context ->> 0) where ${HAS_TEAM};`;

/** @throws SQLite's error: see `isLocked` and `isDamaged` */
export function openLocked(path: string): DatabaseSync {
  const database = new DatabaseSync(path, { timeout: 0 });
  try {
    database.exec(SETUP);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/** As `openLocked`, with the indexes of a file of this process. */
export function openIndexed(path: string): DatabaseSync {
  const database = openLocked(path);
  database.exec(INDEXES);
  return database;
}

/** Removes a file and its log, which SQLite does not remove with it. */
export function removeFile(path: string): void {
  for (const suffix of ['', '-wal']) rmSync(path + suffix, { force: true });
}

/** Whether a running process has the file: SQLITE_BUSY, SQLITE_LOCKED. */
export function isLocked(error: unknown): boolean {
  return [5, 6].includes(primaryCode(error));
}

/** SQLITE_CORRUPT, SQLITE_NOTADB. */
export function isDamaged(error: unknown): boolean {
  return [11, 26].includes(primaryCode(error));
}

/** The condition in SQL, and its parameters. Rows that it finds may be others, too. */
export function conditionOf(filter: PendingFilter): readonly [string, ...string[]] {
  switch (filter.kind) {
    case 'holder':
      return ['holder = ?', filter.id];
    case 'holders':
      return ['holder in (select value from json_each(?))', JSON.stringify([...filter.ids])];
    case 'team':
      return [`context ->> 0 = ? and ${HAS_TEAM}`, filter.id];
    case 'prefixes':
    case 'model':
      return ['holder = ?', filter.holderId];
  }
}
