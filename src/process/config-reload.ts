// From a changed configuration file to the one in force: all of the new one is built and checked, then it takes the old
// one's place at once, or the old one stays. When the file is read is config/watch-config.ts's affair.

import { parseBytes } from '../config/load-config.ts';
import { reloadableConfig } from '../config/reloadable.ts';
import { ConfigError } from '../config/schema/config-fault.ts';
import type { Config } from '../config/schema/config-schema.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';

interface ReloaderOptions {
  /** With which the process began. */
  readonly config: Config;
  /** The environment of the process: it does not change while it runs, so a new value of a variable takes a restart. */
  readonly env: NodeJS.ProcessEnv;
  /**
   * Puts a configuration in force, for everything that begins from now on.
   * @throws what is wrong with it, and then nothing has changed
   */
  readonly apply: (config: Config) => void;
  readonly logger: Logger;
  readonly metrics: Metrics['config'];
  /** Somebody else reads the same file and says what there is to say; here only what nobody expects is logged. */
  readonly isEcho?: boolean;
}

export class Reloader {
  readonly #options: ReloaderOptions;
  #config: Config;
  #isRejected = false;
  #pending: readonly string[] = [];

  constructor(options: ReloaderOptions) {
    this.#options = options;
    this.#config = options.config;
    this.#tell();
    if (options.isEcho !== true) this.#warn(options.config);
  }

  /** What is in force: the static part of the start with the dynamic part of the last good file. */
  get config(): Config {
    return this.#config;
  }

  /** Whether the file as it was last read is not what is in force, because it could not be used. */
  get isRejected(): boolean {
    return this.#isRejected;
  }

  /** Takes over what the file holds now, if it is good; else says what is wrong with it and leaves everything as it is. */
  take(bytes: Buffer): void {
    const { env, apply, logger, metrics } = this.#options;
    try {
      const { file } = this.#config;
      const { config, pending } = reloadableConfig(this.#config, parseBytes(bytes, file, env));
      // Also one of the same hash: the order of models is not in it, and is what clients see in their list.
      apply(config);
      const result = config.hash === this.#config.hash ? 'unchanged' : 'applied';
      this.#config = config;
      this.#isRejected = false;
      this.#pending = pending;
      metrics.onReload(result);
      this.#tell();
      if (this.#options.isEcho === true) return;
      logger.info({ file, config_hash: config.hash, result }, 'the configuration was read again');
      this.#warn(config);
      if (pending.length > 0) {
        logger.warn(
          { file, fields: pending },
          'these fields take a restart and stay as they were; all others are in force',
        );
      }
    } catch (error) {
      this.reject(error);
    }
  }

  /** The file cannot be used, and why has been said. */
  refuse(): void {
    this.#isRejected = true;
    this.#options.metrics.onReload('rejected');
    this.#tell();
  }

  /** The file cannot be used, or cannot be read. */
  reject(error: unknown): void {
    const { logger } = this.#options;
    const { file, hash } = this.#config;
    this.refuse();
    const about = { file, config_hash: hash };
    const words = 'the configuration cannot be used; the last good one stays in force';
    if (error instanceof ConfigError) {
      const faults = error.faults.map(({ line, column, message }) => `${file}:${line}:${column}: ${message}`);
      logger.error({ ...about, faults, ...(error.more === 0 ? {} : { more: error.more }) }, words);
    } else logger.error({ ...about, err: error }, words);
  }

  #tell(): void {
    this.#options.metrics.onState(!this.#isRejected, this.#config.hash, this.#pending.length);
  }

  #warn({ file, warnings }: Config): void {
    for (const { line, message } of warnings) this.#options.logger.warn({ file, line }, message);
  }
}
