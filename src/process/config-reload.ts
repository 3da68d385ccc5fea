// Reloads the configuration atomically: builds and validates the new one, then applies it whole or keeps the previous one.
// config/watch-config.ts decides when to read the file.

import { parseBytes } from '../config/load-config.ts';
import { reloadableConfig } from '../config/reloadable.ts';
import { ConfigError } from '../config/schema/config-fault.ts';
import type { Config } from '../config/schema/config-schema.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';

interface ReloaderOptions {
  /** The configuration of the process start. */
  readonly config: Config;
  /** The environment of the process. It is fixed at the start, so a new value of a variable needs a restart. */
  readonly env: NodeJS.ProcessEnv;
  /**
   * Applies a configuration to all new work.
   * @throws when it cannot be applied; then nothing has changed
   */
  readonly apply: (config: Config) => void;
  readonly logger: Logger;
  readonly metrics: Metrics['config'];
  /** Set in workers: the primary reads the same file and logs reloads, so only unexpected failures are logged here. */
  readonly isQuiet?: boolean;
}

export class Reloader {
  readonly #options: ReloaderOptions;
  #config: Config;
  #isRejected = false;
  #pending: readonly string[] = [];

  constructor(options: ReloaderOptions) {
    this.#options = options;
    this.#config = options.config;
    this.#updateMetrics();
    if (options.isQuiet !== true) this.#logWarnings(options.config);
  }

  /** The configuration in force: the static part of the start with the dynamic part of the last valid file. */
  get config(): Config {
    return this.#config;
  }

  /** Whether the last file read was invalid, so that an earlier one is in force. */
  get isRejected(): boolean {
    return this.#isRejected;
  }

  /** Applies this file content when it is valid; otherwise logs the faults and changes nothing. */
  reload(bytes: Buffer): void {
    const { env, apply, logger, metrics } = this.#options;
    try {
      const { file } = this.#config;
      const { config, pending } = reloadableConfig(this.#config, parseBytes(bytes, file, env));
      // Even with the same hash: it leaves out the order of models, which clients see in the list.
      apply(config);
      const result = config.hash === this.#config.hash ? 'unchanged' : 'applied';
      this.#config = config;
      this.#isRejected = false;
      this.#pending = pending;
      metrics.onReload(result);
      this.#updateMetrics();
      if (this.#options.isQuiet === true) return;
      logger.info({ file, config_hash: config.hash, result }, 'configuration reloaded');
      this.#logWarnings(config);
      if (pending.length > 0) {
        logger.warn(
          { file, fields: pending },
          'changes to these fields need a restart; all other changes are in force',
        );
      }
    } catch (error) {
      this.reject(error);
    }
  }

  /** Notes that the file is invalid, without a log line. */
  markRejected(): void {
    this.#isRejected = true;
    this.#options.metrics.onReload('rejected');
    this.#updateMetrics();
  }

  /** Notes and logs that the file is invalid or unreadable. */
  reject(error: unknown): void {
    const { logger } = this.#options;
    const { file, hash } = this.#config;
    this.markRejected();
    const about = { file, config_hash: hash };
    const text = 'failed to apply the configuration; keeping the previous one';
    if (error instanceof ConfigError) {
      const faults = error.faults.map(({ line, column, message }) => `${file}:${line}:${column}: ${message}`);
      logger.error({ ...about, faults, ...(error.more === 0 ? {} : { more: error.more }) }, text);
    } else logger.error({ ...about, err: error }, text);
  }

  #updateMetrics(): void {
    this.#options.metrics.onState(!this.#isRejected, this.#config.hash, this.#pending.length);
  }

  #logWarnings({ file, warnings }: Config): void {
    for (const { line, message } of warnings) this.#options.logger.warn({ file, line }, message);
  }
}
