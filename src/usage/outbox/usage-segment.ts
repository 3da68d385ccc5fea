// A segment: use that goes to the store as one batch, in memory, in a file or both; and the file while it is written.
import { type FileHandle, open, stat } from 'node:fs/promises';
import type { UsageTotals } from '../records/usage-totals.ts';
import type { HolderFilter } from './holder-filter.ts';
import { withinMs } from './in-time.ts';

/** A segment that takes nothing more. Its id is that of its batch. */
export interface OutboxSegment {
  readonly id: string;
  /** Undefined where there is no file. */
  path: string | undefined;
  /** Undefined where the file alone has it. With a file beside it, this has at least as much. */
  totals: UsageTotals | undefined;
  /** The holders in it, once they are known; until then it may hold any. */
  holders: HolderFilter | undefined;
  bytes: number;
  /** Whether all of it is in the file, so that the memory can be given up. */
  isDurable: boolean;
  /** Another process wrote it, and may have sent it. */
  readonly isInherited: boolean;
  /** Last written to so long ago that its batch may have been counted and forgotten. */
  isStale: boolean;
  /** A line of its file could not be read, so the file is kept aside and not removed. */
  hasWrongLines: boolean;
  /** How often the store did not take it. */
  failures: number;
  /** How many batches the store had taken when it first did not take this one. */
  writtenBefore: number;
}

/** A disk, or what is behind it, may not answer at all. */
const DISK_MS = 2000;

/** The file of the segment that is being filled. After its first failure it takes nothing more. */
export class OutboxFile {
  readonly path: string;
  readonly #handle: FileHandle;
  #bytes = 0;
  #isWhole = true;

  private constructor(path: string, handle: FileHandle) {
    this.path = path;
    this.#handle = handle;
  }

  /** @throws the system's error, or one that says that it took too long */
  static async create(path: string): Promise<OutboxFile> {
    const opening = open(path, 'ax', 0o600);
    try {
      return new OutboxFile(path, await withinMs(opening, DISK_MS, 'creating a file'));
    } catch (error) {
      // One that opens after all has no owner, and Node ends a process for that.
      opening.then((handle) => handle.close()).catch(() => {});
      throw error;
    }
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether all that was appended is in the file. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** Whether it still has its name: another process renames it when it takes this one for gone. */
  async isThere(): Promise<boolean> {
    return withinMs(stat(this.path), DISK_MS, 'looking for a file').then(
      () => true,
      (error: unknown) => !(error instanceof Error && 'code' in error && error.code === 'ENOENT'),
    );
  }

  /** @throws the system's error; the file then ends with the last line that was appended whole, if that can be done */
  async append(line: string): Promise<void> {
    if (!this.#isWhole) throw new Error('an earlier write failed');
    try {
      await withinMs(this.#handle.appendFile(line), DISK_MS, 'writing a file');
      this.#bytes += Buffer.byteLength(line);
    } catch (error) {
      this.#isWhole = false;
      await withinMs(this.#handle.truncate(this.#bytes), DISK_MS, 'truncating a file').catch(() => {});
      throw error;
    }
  }

  /** @param sync whether it must survive a loss of power: while the store takes nothing, this is all there is */
  async close(sync: boolean): Promise<void> {
    try {
      if (sync) await withinMs(this.#handle.datasync(), DISK_MS, 'syncing a file');
    } finally {
      // A close that hangs is left behind.
      await withinMs(this.#handle.close(), DISK_MS, 'closing a file').catch(() => {});
    }
  }
}

/** @throws the system's error, or one that says that it took too long */
export async function syncFile(path: string): Promise<void> {
  const handle = await withinMs(open(path, 'r'), DISK_MS, 'opening a file');
  try {
    await withinMs(handle.datasync(), DISK_MS, 'syncing a file');
  } finally {
    await withinMs(handle.close(), DISK_MS, 'closing a file').catch(() => {});
  }
}
