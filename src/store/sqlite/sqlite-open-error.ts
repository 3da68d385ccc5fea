// Why a SQLite store could not be opened, in words that say what to do. Decides nothing.
import { StoreOpenError } from '../open-error.ts';
import { primaryCode } from './sqlite-queue.ts';

/** SQLite's result code → what the operator can do about it. */
const ADVICE: Readonly<Record<number, string>> = {
  5: 'another process holds its lock; end that one, or try again',
  8: 'let this process write the file and its folder',
  10: 'the disk or the file system fails; look at the log of the system',
  11: 'the file is damaged or cut short; restore it from a backup',
  13: 'the disk is full; make room',
  14: 'let this process write the folder of the file',
  26: 'correct the path in `store`, or restore the file from a backup',
};

/** One line for the operator. */
export function explainSqliteOpening(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const advice = error instanceof StoreOpenError ? undefined : ADVICE[primaryCode(error)];
  return advice === undefined ? error.message : `${error.message}; ${advice}`;
}
