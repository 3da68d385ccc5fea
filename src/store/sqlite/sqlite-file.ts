// Whether the files of an open SQLite store are still those that its path names. SQLite goes on writing to a file that was
// deleted or replaced, and what it commits there is lost with the process.
import { statSync } from 'node:fs';

export class SqliteFile {
  readonly #paths: readonly string[];
  readonly #opened = new Map<string, string>();

  /** @param path of the file, which SQLite has opened */
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
          `the store was ${what} while it was open (${path}): what is written would be lost. Move the former file back, or restart with the new one`,
        );
      }
      // The log is made by the first access.
      if (identity !== undefined) this.#opened.set(path, identity);
    }
  }
}

/** No write would be kept. */
export class StoreFileGone extends Error {}
