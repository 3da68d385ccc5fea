// Where the tests put their temporary files: in memory, where there is room. On a disk each commit of a store waits for some
// milliseconds and shows nothing here, because tests kill processes and not machines.
import { chmodSync, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';

/** A file system in memory that Linux has. */
const MEMORY = '/dev/shm';
/** Several times what a whole run has there at once, in bytes. */
const MIN_FREE = 6 * 1024 ** 3;

/** Gives this process and those it starts a directory in memory of their own, until it exits. A set `TMPDIR` stays. */
export function useMemoryForFiles(): void {
  if (process.env['TMPDIR'] !== undefined || freeBytes(MEMORY) < MIN_FREE) return;
  const directory = mkdtempSync(join(MEMORY, 'tollgate-'));
  // Servers of other users have their files in it.
  chmodSync(directory, 0o1777);
  process.env['TMPDIR'] = directory;
  process.once('exit', () => rmSync(directory, { recursive: true, force: true }));
}

/** 0 where there is no such file system, as on a system other than Linux. */
function freeBytes(path: string): number {
  try {
    const { bavail, bsize } = statfsSync(path);
    return bavail * bsize;
  } catch {
    return 0;
  }
}
