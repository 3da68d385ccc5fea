// Watches the files of `${file:PATH}` in the configuration in force. A file that disappears or has no value keeps the last good one.
// Files that change together are applied together: a certificate is of no use with the key of the one before.
import type { ReferencedFiles } from '../config/source/referenced-files.ts';
import { FileWatch } from '../config/watch-config.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';

interface ReferenceWatchOptions {
  readonly files: ReferencedFiles;
  readonly logger: Pick<Logger, 'info' | 'warn'>;
  readonly metrics: Pick<Metrics['config'], 'onFileRead'>;
  /** Files have new values. @returns as `Reloader.applyReferences` */
  readonly onChange: () => object | undefined;
}

/** Changes within this time are one, in milliseconds. */
const TOGETHER_MS = 500;

export class ReferenceWatch {
  readonly #options: ReferenceWatchOptions;
  readonly #watches = new Map<string, FileWatch>();
  /** New contents that are not applied yet. */
  readonly #pending = new Map<string, Buffer>();
  /** Contents that the configuration could not use. They are tried again with the next change, which may be what they lacked. */
  readonly #refused = new Map<string, Buffer>();
  #timer: NodeJS.Timeout | undefined;
  #isStopped = false;

  constructor(options: ReferenceWatchOptions) {
    this.#options = options;
  }

  /** Watches exactly these files. @param paths as written in the configuration */
  follow(paths: readonly string[]): void {
    if (this.#isStopped) return;
    for (const [path, watch] of this.#watches) {
      if (paths.includes(path)) continue;
      watch.stop();
      for (const map of [this.#watches, this.#pending, this.#refused]) map.delete(path);
    }
    for (const path of paths) if (!this.#watches.has(path)) this.#watches.set(path, this.#watch(path));
  }

  /** Reads all files now. */
  async check(): Promise<void> {
    await Promise.all(Array.from(this.#watches.values(), (watch) => watch.check()));
    this.#apply();
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    for (const watch of this.#watches.values()) watch.stop();
    this.#watches.clear();
  }

  #watch(path: string): FileWatch {
    const { files, logger } = this.#options;
    const watch = new FileWatch({
      file: files.locate(path),
      known: Buffer.from(files.contents([path])[path] ?? ''),
      onContent: (bytes) => this.#onContent(path, bytes),
      onUnreadable: () => this.#reject(path, 'cannot be read'),
      onWatchFailed: (cause) =>
        logger.warn({ file: path, err: cause }, 'cannot watch a referenced file; polling it instead'),
    });
    watch.start();
    return watch;
  }

  #onContent(path: string, bytes: Buffer): void {
    this.#pending.set(path, bytes);
    this.#timer ??= setTimeout(() => this.#apply(), TOGETHER_MS).unref();
  }

  #apply(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#isStopped || this.#pending.size === 0) return;
    const { files, logger, metrics, onChange } = this.#options;
    const contents = new Map([...this.#refused, ...this.#pending]);
    const fresh = new Set(this.#pending.keys());
    this.#pending.clear();
    for (const [path, update] of files.update(contents, onChange)) {
      const bytes = contents.get(path);
      if (update.kind === 'refused' && bytes !== undefined) this.#refused.set(path, bytes);
      else this.#refused.delete(path);
      if (update.kind === 'changed') {
        metrics.onFileRead('changed');
        logger.info({ file: path }, 'the new value of a referenced file is in force');
      } else if (update.kind === 'refused' && fresh.has(path)) {
        this.#reject(path, 'has a value that the configuration cannot use', update.why);
      } else if (update.kind === 'unreadable') this.#reject(path, update.fault);
    }
  }

  #reject(path: string, fault: string, why: object = {}): void {
    const { logger, metrics } = this.#options;
    metrics.onFileRead('rejected');
    logger.warn({ file: path, ...why }, `a referenced file ${fault}; keeping its last value`);
  }
}
