// What a gateway is started with, and what its components are opened with.
import type { CommandRunner } from './console/console-desk.ts';
import type { Lifecycle } from './process/lifecycle.ts';
import type { LoadedConfig, WorkerSlot } from './process/worker.ts';
import type { Logger } from './telemetry/log/logger.ts';

export interface AppOptions {
  readonly configFile: string;
  readonly env: NodeJS.ProcessEnv;
  readonly logger?: Logger;
  /** Whether to watch the file for changes. Default: true, except in a worker. */
  readonly watch?: boolean;
  /** The file content, if it was read already. Default: read it now. */
  readonly loaded?: LoadedConfig;
  /** Set in a worker, which has no admin listener and gets reloads and shutdown from its primary. */
  readonly slot?: WorkerSlot;
  /** The command line, for the API of the admin listener. Default: it changes nothing. */
  readonly commands?: CommandRunner;
  /** Monotonic milliseconds for cool-downs and the retry budget. Default: the process's clock. */
  readonly now?: () => number;
  /** From 0 (included) to 1 (excluded), for the choice between targets and for jitter. */
  readonly random?: () => number;
}

/** The options with their defaults applied, and the registry of resources to close. */
export interface CompositionOptions extends Omit<AppOptions, 'loaded' | 'logger'>, LoadedConfig {
  readonly logger: Logger;
  /** Takes each resource as soon as it is open. */
  readonly resources: Lifecycle;
}
