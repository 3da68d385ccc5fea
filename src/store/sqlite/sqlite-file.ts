// Detects that the files of an open SQLite store were deleted or replaced. SQLite would continue to write to the old file, and
// its commits would be lost with the process.
import { statSync } from 'node:fs';

export class SqliteFile {
  readonly #paths: readonly string[];
  readonly #opened = new Map<string, string>();

  /** @param path path of the opened file */
  constructor(path: string) {
    this.#paths = [path, `${path}-wal`];
  }

  /** @throws Error when one of the files was deleted or replaced since it was first seen */
  check(): void {
    for (const path of this.#paths) {
      const found = statSync(path, { bigint: true, throwIfNoEntry: false });
      const identity = found === undefined ? undefined : `${found.dev}:${found.ino}`;
      const opened = this.#opened.get(path);
      if (opened === identity) continue;
      if (opened !== undefined) {
        const what = identity === undefined ? 'deleted' : 'replaced';
        throw new StoreFileGone(
          `the store was ${what} while it was open (${path}): writes would be lost. Move the original file back, or restart with the new one`,
        );
      }
      // SQLite creates the write-ahead log at the first access.
      if (identity !== undefined) this.#opened.set(path, identity);
    }
  }
}

/** The file of the store is gone, so writes would be lost. */
export class StoreFileGone extends Error {}
