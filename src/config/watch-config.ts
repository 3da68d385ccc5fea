// Notices that a configuration file has changed, however it was changed: written in place, renamed over, deleted and made
// again, swapped behind a symlink (the `..data` of a Kubernetes ConfigMap). Events of directories only hint and get lost (NFS,
// no more inotify watches), so a slow poll looks too, and what decides is always the content. It does not read what it means.
import { type FSWatcher, watch } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { ConfigError } from './schema/config-fault.ts';
import { digestOf, rereadConfigFile } from './source/config-file.ts';

/** In milliseconds. */
export interface WatchTimes {
  /** From the first event to a look: a save is several events. */
  readonly debounce: number;
  /** So long content must stay the same before it counts: an editor may write a file in pieces. */
  readonly settle: number;
  /** So long a file that never comes to rest is waited for. */
  readonly patience: number;
  /** So long it may be missing or unreadable before that counts: it is while it is being replaced. */
  readonly absence: number;
  /** Between two looks without an event. */
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
  /** What it held when it was read last, so that nothing which happened since is missed. */
  readonly known: Buffer;
  /** It holds something else than it did when this was last called, or it can be read again. Must not throw. */
  readonly onContent: (bytes: Buffer) => void;
  /** It cannot be read, and has not been for `absence`. Called again only after it was readable. Must not throw. */
  readonly onUnreadable: (error: ConfigError) => void;
  /** Directories cannot be watched, so that changes are found by the poll alone. Called once. */
  readonly onBlind?: (cause: unknown) => void;
  readonly times?: Partial<WatchTimes>;
}

/** What a look saw. `key` tells two of them apart. */
type Sight =
  | { readonly key: string; readonly bytes: Buffer }
  | { readonly key: 'unreadable'; readonly error: ConfigError };

interface Watched {
  readonly watcher: FSWatcher;
  /** Device and inode: a directory that was replaced has another. */
  readonly identity: string;
}

export class FileWatch {
  readonly #options: WatchOptions;
  readonly #times: WatchTimes;
  readonly #directories = new Map<string, Watched>();
  /** What was told last. */
  #told: string;
  /** Something else, that has to last before it is told. `first`: since when anything else was seen. */
  #candidate: { readonly key: string; readonly since: number; readonly first: number } | undefined;
  #timer: NodeJS.Timeout | undefined;
  #poll: NodeJS.Timeout | undefined;
  /** The look that is under way: there is never more than one. */
  #looking: Promise<void> | undefined;
  /** The next look that somebody asked for. */
  #asked: Promise<void> | undefined;
  #isBlind = false;
  #isStopped = false;

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#times = { ...WATCH_TIMES, ...options.times };
    this.#told = digestOf(options.known);
  }

  /** Begins to watch. Nothing of it keeps the process alive. */
  start(): void {
    this.#poll = setInterval(() => this.#look(), this.#times.poll);
    this.#poll.unref();
    // Also what happened between the first reading and now.
    this.#look();
  }

  /** Nothing is told any more. Idempotent. */
  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    clearInterval(this.#poll);
    for (const { watcher } of this.#directories.values()) watcher.close();
    this.#directories.clear();
  }

  /**
   * Reads it now and tells what is there, also where that is nothing new: somebody asked.
   * @returns when it was told
   */
  check(): Promise<void> {
    // Whoever asks before the reading has begun is answered by it.
    this.#asked ??= (async () => {
      do await this.#looking;
      while (this.#looking !== undefined);
      this.#asked = undefined;
      await this.#run(async () => this.#tell(await this.#read()));
    })();
    return this.#asked;
  }

  #look(): void {
    if (this.#looking !== undefined) {
      // What is being read may be from before the event.
      this.#lookIn(this.#times.debounce);
      return;
    }
    void this.#run(async () => {
      await this.#arm();
      this.#judge(await this.#read());
    });
  }

  #run(work: () => Promise<void>): Promise<void> {
    const looking = work().finally(() => {
      this.#looking = undefined;
    });
    this.#looking = looking;
    return looking;
  }

  /** The events after the first do not move the look: a busy directory must not put it off for ever. */
  #lookIn(ms: number): void {
    if (this.#isStopped || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#look();
    }, ms);
    this.#timer.unref();
  }

  async #read(): Promise<Sight> {
    const found = await rereadConfigFile(this.#options.file);
    return found instanceof ConfigError
      ? { key: 'unreadable', error: found }
      : { key: digestOf(found), bytes: found };
  }

  #judge(sight: Sight): void {
    if (sight.key === this.#told) {
      this.#candidate = undefined;
      return;
    }
    const now = performance.now();
    const before = this.#candidate;
    const first = before?.first ?? now;
    const since = before?.key === sight.key ? before.since : now;
    const { settle, absence, patience } = this.#times;
    const isDue =
      sight.key === 'unreadable' ? now - since >= absence : now - since >= settle || now - first >= patience;
    if (isDue) {
      this.#tell(sight);
    } else {
      this.#candidate = { key: sight.key, since, first };
      this.#lookIn(settle);
    }
  }

  #tell(sight: Sight): void {
    this.#candidate = undefined;
    if (this.#isStopped) return;
    this.#told = sight.key;
    if ('bytes' in sight) this.#options.onContent(sight.bytes);
    else this.#options.onUnreadable(sight.error);
  }

  /** Watches the directory in which the file is named and the one in which it really is; both may change. */
  async #arm(): Promise<void> {
    const { file } = this.#options;
    const wanted = new Set([dirname(file)]);
    const real = await realpath(file).catch(() => undefined);
    if (real !== undefined) wanted.add(dirname(real));
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
      const watcher = watch(directory, { persistent: false }, () => this.#lookIn(this.#times.debounce));
      watcher.on('error', (error) => {
        watcher.close();
        this.#directories.delete(directory);
        this.#blind(error);
      });
      this.#directories.set(directory, { watcher, identity });
      // What happened before the watcher was there made no event.
      this.#lookIn(this.#times.debounce);
    } catch (error) {
      this.#blind(error);
    }
  }

  #blind(cause: unknown): void {
    if (this.#isBlind) return;
    this.#isBlind = true;
    this.#options.onBlind?.(cause);
  }
}
