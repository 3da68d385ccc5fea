// Detects changes of a configuration file: written in place, renamed over, recreated, or swapped behind a symlink (`..data` of a
// Kubernetes ConfigMap). Directory events are only hints and get lost (NFS, no inotify watches left), so it also polls, and
// compares content. It does not parse the file.
import { type FSWatcher, watch } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { ConfigError } from './config-fault.ts';
import { digestOf, rereadConfigFile } from './source/config-file.ts';

/** In milliseconds. */
export interface WatchTimes {
  /** From the first event to the read: one save causes several events. */
  readonly debounce: number;
  /** How long content must stay unchanged before it is reported: an editor may write a file in pieces. */
  readonly settle: number;
  /** Maximum wait for a file that keeps changing. */
  readonly patience: number;
  /** How long it may be unreadable before that is reported: it is unreadable while it is replaced. */
  readonly absence: number;
  /** Poll interval. */
  readonly poll: number;
}

const WATCH_TIMES: WatchTimes = {
  debounce: 50,
  settle: 250,
  patience: 5_000,
  absence: 5_000,
  poll: 2_000,
};

interface WatchOptions {
  readonly file: string;
  /** The content last read, so that no change since then is missed. */
  readonly known: Buffer;
  /** The content has changed since the last call, or the file is readable again. Must not throw. */
  readonly onContent: (bytes: Buffer) => void;
  /** The file has been unreadable for `absence`. Called again only after it was readable. Must not throw. */
  readonly onUnreadable: (error: ConfigError) => void;
  /** Directories cannot be watched, so only the poll detects changes. Called once. */
  readonly onWatchFailed?: (cause: unknown) => void;
  readonly times?: Partial<WatchTimes>;
}

/** Result of one read. `key` identifies the content. */
type FileState =
  | { readonly key: string; readonly bytes: Buffer }
  | { readonly key: 'unreadable'; readonly error: ConfigError };

interface WatchedDirectory {
  readonly watcher: FSWatcher;
  /** Device and inode; a replaced directory has another identity. */
  readonly identity: string;
}

export class FileWatch {
  readonly #options: WatchOptions;
  readonly #times: WatchTimes;
  readonly #directories = new Map<string, WatchedDirectory>();
  /** Of the path, and of the symlink's target. */
  readonly #names = new Set<string>();
  /** Key of the state reported last. */
  #reported: string;
  /** A different state that must settle first. `first`: when the first difference was seen. */
  #candidate: { readonly key: string; readonly since: number; readonly first: number } | undefined;
  #timer: NodeJS.Timeout | undefined;
  #poll: NodeJS.Timeout | undefined;
  /** The read in progress; there is at most one. */
  #reading: Promise<void> | undefined;
  /** The next requested check. */
  #requested: Promise<void> | undefined;
  #hasWatchFailed = false;
  #isStopped = false;

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#times = { ...WATCH_TIMES, ...options.times };
    this.#reported = digestOf(options.known);
  }

  /** Starts watching. It does not keep the process alive. */
  start(): void {
    this.#poll = setInterval(() => this.#scan(), this.#times.poll);
    this.#poll.unref();
    // Catches changes between the first read and now.
    this.#scan();
  }

  /** Stops all notifications. Idempotent. */
  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    clearInterval(this.#poll);
    for (const { watcher } of this.#directories.values()) watcher.close();
    this.#directories.clear();
  }

  /** Reads the file now and reports its state even if unchanged. @returns when it was reported */
  check(): Promise<void> {
    // Single-flight: calls before the read begins share it.
    this.#requested ??= (async () => {
      do await this.#reading;
      while (this.#reading !== undefined);
      this.#requested = undefined;
      await this.#run(async () => this.#report(await this.#read()));
    })();
    return this.#requested;
  }

  #scan(): void {
    if (this.#reading !== undefined) {
      // The read in progress may have begun before the event.
      this.#scanIn(this.#times.debounce);
      return;
    }
    void this.#run(async () => {
      await this.#updateWatches();
      this.#evaluate(await this.#read());
    });
  }

  #run(work: () => Promise<void>): Promise<void> {
    const reading = work().finally(() => {
      this.#reading = undefined;
    });
    this.#reading = reading;
    return reading;
  }

  /** Later events do not postpone the scan: a busy directory must not delay it for ever. */
  #scanIn(ms: number): void {
    if (this.#isStopped || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#scan();
    }, ms);
    this.#timer.unref();
  }

  async #read(): Promise<FileState> {
    const found = await rereadConfigFile(this.#options.file);
    return found instanceof ConfigError
      ? { key: 'unreadable', error: found }
      : { key: digestOf(found), bytes: found };
  }

  #evaluate(state: FileState): void {
    if (state.key === this.#reported) {
      this.#candidate = undefined;
      return;
    }
    const now = performance.now();
    const before = this.#candidate;
    const first = before?.first ?? now;
    const since = before?.key === state.key ? before.since : now;
    const { settle, absence, patience } = this.#times;
    const isDue =
      state.key === 'unreadable' ? now - since >= absence : now - since >= settle || now - first >= patience;
    if (isDue) {
      this.#report(state);
    } else {
      this.#candidate = { key: state.key, since, first };
      this.#scanIn(settle);
    }
  }

  #report(state: FileState): void {
    this.#candidate = undefined;
    if (this.#isStopped) return;
    this.#reported = state.key;
    if ('bytes' in state) this.#options.onContent(state.bytes);
    else this.#options.onUnreadable(state.error);
  }

  /** Watches the directory of the path and that of the symlink's target; both may change. */
  async #updateWatches(): Promise<void> {
    const { file } = this.#options;
    const wanted = new Set([dirname(file)]);
    const real = await realpath(file).catch(() => undefined);
    if (real !== undefined) wanted.add(dirname(real));
    this.#names.clear();
    for (const path of [file, real ?? file]) this.#names.add(basename(path));
    const identities = new Map<string, string>();
    for (const directory of wanted) {
      const found = await stat(directory).catch(() => undefined);
      if (found !== undefined) identities.set(directory, `${found.dev}:${found.ino}`);
    }
    if (this.#isStopped) return;
    for (const [directory, { watcher, identity }] of this.#directories) {
      if (identities.get(directory) === identity) continue;
      watcher.close();
      this.#directories.delete(directory);
    }
    for (const [directory, identity] of identities) {
      if (!this.#directories.has(directory)) this.#watch(directory, identity);
    }
  }

  #watch(directory: string, identity: string): void {
    try {
      const watcher = watch(directory, { persistent: false }, (event, name) => {
        // Logs and databases beside the file are written all the time; new names may replace a link on the way to it.
        const isOther = event === 'change' && name !== null && !this.#names.has(name);
        if (!isOther) this.#scanIn(this.#times.debounce);
      });
      watcher.on('error', (error) => {
        watcher.close();
        this.#directories.delete(directory);
        this.#watchFailed(error);
      });
      this.#directories.set(directory, { watcher, identity });
      // Changes before the watcher existed caused no event.
      this.#scanIn(this.#times.debounce);
    } catch (error) {
      this.#watchFailed(error);
    }
  }

  #watchFailed(cause: unknown): void {
    if (this.#hasWatchFailed) return;
    this.#hasWatchFailed = true;
    this.#options.onWatchFailed?.(cause);
  }
}
