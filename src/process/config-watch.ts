// Reloads the configuration when its file, or a file that it refers to, changes.
import type { FileBytes } from '../config/source/config-file.ts';
import type { ReferencedFiles } from '../config/source/referenced-files.ts';
import { FileWatch } from '../config/watch-config.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { Reloader } from './config-reload.ts';
import { ReferenceWatch } from './reference-watch.ts';

interface ConfigWatchOptions {
  readonly source: FileBytes;
  readonly files: ReferencedFiles;
  readonly reloader: Reloader;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics['config'], 'onFileRead'>;
  /** A configuration was applied, from this content. */
  readonly onApplied?: (bytes: Buffer) => void;
  /** The file is invalid or unreadable. */
  readonly onRejected?: () => void;
}

export class ConfigWatch {
  readonly #options: ConfigWatchOptions;
  readonly #file: FileWatch;
  readonly #references: ReferenceWatch;

  constructor(options: ConfigWatchOptions) {
    const { source, files, reloader, logger, metrics, onRejected } = options;
    this.#options = options;
    const { file } = reloader.config;
    this.#file = new FileWatch({
      file,
      known: source.bytes,
      onContent: (bytes) => {
        reloader.reload(bytes);
        if (reloader.isRejected) onRejected?.();
        else this.#onApplied();
      },
      onUnreadable: (error) => {
        reloader.reject(error);
        onRejected?.();
      },
      onWatchFailed: (err) =>
        logger.warn({ file, err }, 'cannot watch the configuration file; polling it instead'),
    });
    this.#references = new ReferenceWatch({
      files,
      logger,
      metrics,
      onChange: () => {
        const why = reloader.applyReferences();
        if (why === undefined) this.#onApplied();
        return why;
      },
    });
  }

  #onApplied(): void {
    const { reloader, onApplied } = this.#options;
    this.#references.follow(reloader.config.files);
    onApplied?.(reloader.bytes);
  }

  start(): void {
    // A pipe cannot be read a second time.
    if (this.#options.source.isRegular) this.#file.start();
    this.#references.follow(this.#options.reloader.config.files);
  }

  /** Reads all files now. Resolves when their content was applied or rejected. */
  async check(): Promise<void> {
    await this.#references.check();
    await this.#file.check();
  }

  stop(): void {
    this.#file.stop();
    this.#references.stop();
  }
}
