// Reloads the configuration atomically: builds and validates the new one, then applies it whole or keeps the previous one.
// config-watch.ts decides when.

import { ConfigError } from '../config/config-fault.ts';
import { parseBytes } from '../config/load-config.ts';
import { reloadableConfig } from '../config/reloadable.ts';
import type { Config } from '../config/schema/config-schema.ts';
import type { FileValues } from '../config/source/referenced-files.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';

interface ReloaderOptions {
  /** The configuration of the process start. */
  readonly config: Config;
  /** The environment of the process. It is fixed at the start, so a new value of a variable needs a restart. */
  readonly env: NodeJS.ProcessEnv;
  /** The values of `${file:PATH}`. */
  readonly files: FileValues;
  /** The content of the file at the process start. */
  readonly bytes: Buffer;
  /** Applies a configuration to all new work. @throws when it cannot be applied; then nothing has changed */
  readonly apply: (config: Config) => void;
  readonly logger: Logger;
  readonly metrics: Metrics['config'];
  /** Set in workers: the primary reads the same file and logs reloads, so only unexpected failures are logged here. */
  readonly isQuiet?: boolean;
}

export class Reloader {
  readonly #options: ReloaderOptions;
  #config: Config;
  /** The content in force. */
  #bytes: Buffer;
  #isRejected = false;
  #pending: readonly string[] = [];

  constructor(options: ReloaderOptions) {
    this.#options = options;
    this.#config = options.config;
    this.#bytes = options.bytes;
    this.#updateMetrics();
    if (options.isQuiet !== true) this.#logWarnings(options.config);
  }

  /** The configuration in force: the static part of the start with the dynamic part of the last valid file. */
  get config(): Config {
    return this.#config;
  }

  /** The content of the file in force. */
  get bytes(): Buffer {
    return this.#bytes;
  }

  /** Whether the last file read was invalid, so that an earlier one is in force. */
  get isRejected(): boolean {
    return this.#isRejected;
  }

  /** Applies this file content when it is valid; otherwise logs the faults and changes nothing. */
  reload(bytes: Buffer): void {
    const { logger, metrics } = this.#options;
    try {
      const before = this.#config;
      const config = this.#apply(bytes);
      const result = config.hash === before.hash ? 'unchanged' : 'applied';
      this.#isRejected = false;
      metrics.onReload(result);
      this.#updateMetrics();
      if (this.#options.isQuiet === true) return;
      logger.info({ file: config.file, config_hash: config.hash, result }, 'configuration reloaded');
      this.#logWarnings(config);
      this.#logPending();
    } catch (error) {
      this.reject(error);
    }
  }

  /**
   * Applies the content in force again, because a referenced file has a new value.
   * @returns log fields that say why it could not be applied, and nothing has changed; undefined when it is in force
   */
  applyReferences(): object | undefined {
    try {
      this.#apply(this.#bytes);
    } catch (error) {
      return faultsOf(error);
    }
    this.#updateMetrics();
    if (this.#options.isQuiet !== true) this.#logPending();
    return undefined;
  }

  #apply(bytes: Buffer): Config {
    const { env, files, apply } = this.#options;
    const parsed = parseBytes(bytes, this.#config.file, env, files);
    const { config, pending } = reloadableConfig(this.#config, parsed);
    // Even with the same hash: it leaves out the order of models, which clients see in the list.
    apply(config);
    this.#config = config;
    this.#bytes = bytes;
    this.#pending = pending;
    return config;
  }

  /** Notes that the file is invalid, without a log line. */
  markRejected(): void {
    this.#isRejected = true;
    this.#options.metrics.onReload('rejected');
    this.#updateMetrics();
  }

  /** Notes and logs that the file is invalid or unreadable. */
  reject(error: unknown): void {
    this.markRejected();
    this.#options.logger.error(
      { ...this.#about(), ...faultsOf(error) },
      'failed to apply the configuration; keeping the previous one',
    );
  }

  #about(): object {
    return { file: this.#config.file, config_hash: this.#config.hash };
  }

  #logPending(): void {
    if (this.#pending.length === 0) return;
    this.#options.logger.warn(
      { file: this.#config.file, fields: this.#pending },
      'changes to these fields need a restart; all other changes are in force',
    );
  }

  #updateMetrics(): void {
    this.#options.metrics.onState(!this.#isRejected, this.#config.hash, this.#pending.length);
  }

  #logWarnings({ file, warnings }: Config): void {
    for (const { line, message } of warnings) this.#options.logger.warn({ file, line }, message);
  }
}

/** Log fields of an error. */
function faultsOf(error: unknown): object {
  if (!(error instanceof ConfigError)) return { err: error };
  const faults = error.faults.map(
    ({ file, line, column, message }) => `${file}:${line}:${column}: ${message}`,
  );
  const isUnset = faults.some((fault) => /environment variable \S+, which is not set$/.test(fault));
  return {
    faults,
    ...(error.more === 0 ? {} : { more: error.more }),
    ...(isUnset && {
      hint: 'the environment is read at the start; restart with the variable, or refer to a file',
    }),
  };
}
