// Explains to the operator why a SQLite store cannot be opened, with advice.
import { StoreOpenError } from '../store-errors.ts';
import { primaryCode } from './sqlite-queue.ts';

/** SQLite's result code → advice for the operator. */
const ADVICE: Readonly<Record<number, string>> = {
  5: 'another process holds its lock; stop that process, or try again',
  8: 'grant this process write access to the file and its folder',
  10: 'the disk or the file system failed; check the system log',
  11: 'the file is damaged or truncated; restore it from a backup',
  13: 'the disk is full; free some space',
  14: 'grant this process write access to the folder of the file',
  26: 'correct the path in `store`, or restore the file from a backup',
};

/** One line for the operator. */
export function explainSqliteOpening(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const advice = error instanceof StoreOpenError ? undefined : ADVICE[primaryCode(error)];
  return advice === undefined ? error.message : `${error.message}; ${advice}`;
}
