// Watches the files of `${file:PATH}` in the configuration in force. A file that disappears or has no value keeps the last good one.
import type { ReferencedFiles } from '../config/source/referenced-files.ts';
import { FileWatch } from '../config/watch-config.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';

interface ReferenceWatchOptions {
  readonly files: ReferencedFiles;
  readonly logger: Pick<Logger, 'info' | 'warn'>;
  readonly metrics: Pick<Metrics['config'], 'onFileRead'>;
  /** A file has a new value. @returns whether the configuration could be applied with it */
  readonly onChange: () => boolean;
}

export class ReferenceWatch {
  readonly #options: ReferenceWatchOptions;
  readonly #watches = new Map<string, FileWatch>();
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
      this.#watches.delete(path);
    }
    for (const path of paths) if (!this.#watches.has(path)) this.#watches.set(path, this.#watch(path));
  }

  /** Reads all files now. */
  async check(): Promise<void> {
    await Promise.all(Array.from(this.#watches.values(), (watch) => watch.check()));
  }

  stop(): void {
    this.#isStopped = true;
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
    const { files, logger, metrics, onChange } = this.#options;
    const result = files.update(path, bytes, onChange);
    if (result === 'unchanged') return;
    if (result === 'changed') {
      metrics.onFileRead('changed');
      logger.info({ file: path }, 'the new value of a referenced file is in force');
    } else this.#reject(path, result.fault);
  }

  #reject(path: string, fault: string): void {
    const { logger, metrics } = this.#options;
    metrics.onFileRead('rejected');
    logger.warn({ file: path }, `a referenced file ${fault}; keeping its last value`);
  }
}
