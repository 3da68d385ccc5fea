// What the console and its API work with: the store, the secret, the configuration in force, and the states that gateways report.
import type { Writable } from 'node:stream';
import { Hasher } from '../auth/hashing/hasher.ts';
import { type KeySecret, openSecret } from '../auth/hashing/hashing-secret.ts';
import type { Config } from '../config/schema/config-schema.ts';
import type { BroadcastProgress } from '../redis/broadcast.ts';
import type { Store } from '../store/store.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { UpstreamState } from '../upstream/state/upstream-state.ts';
import { NearBudgets } from './near-budgets.ts';

/** What a process lends to the console. */
export interface DeskOptions {
  /** The configuration in force. */
  readonly config: () => Config;
  /** Called once, at the first request. */
  readonly openStore: () => Promise<Store>;
  readonly metrics: Metrics;
  /** What `/metrics` answers. Default: the metrics of this process. */
  readonly metricsText?: () => Promise<string>;
  /** The states of the upstreams, of this process and its workers. */
  readonly upstreams: () => readonly UpstreamState[] | Promise<readonly UpstreamState[]>;
  /** The command line; without it the API changes nothing. */
  readonly commands: CommandRunner | undefined;
  /** The environment that the configuration was read with. */
  readonly env: NodeJS.ProcessEnv;
  /** Milliseconds since 1970. Default: the clock of the system. */
  readonly now?: () => number;
}

interface DeskParts {
  readonly config: () => Config;
  readonly store: Store;
  readonly upstreams: DeskOptions['upstreams'];
  /** Hears of the replicas that a change waits for. */
  readonly onProgress?: (progress: BroadcastProgress) => void;
}

/** What a command works with in place of the configuration and the store that it would open, and of the gateway that it would ask. */
export interface CommandDesk extends DeskParts {
  /** Whether an error with a code is thrown instead of printed. */
  readonly throwsCodes: boolean;
}

interface RunnerIo {
  readonly stdout: Writable;
  readonly stderr: Writable;
  readonly stdin: AsyncIterable<string>;
  readonly env: NodeJS.ProcessEnv;
  readonly desk: CommandDesk;
}

/** Runs a command line, without the program. @returns the exit code */
export type CommandRunner = (argv: readonly string[], io: RunnerIo) => Promise<number>;

export interface ConsoleDesk extends DeskParts, Pick<DeskOptions, 'commands' | 'env'> {
  readonly secret: KeySecret;
  readonly hasher: Hasher;
  readonly budgets: NearBudgets;
  readonly now: () => number;
}

/** @throws StoreOpenError, SecretError, GatewayError `store_unavailable` */
export async function openDesk(options: DeskOptions): Promise<ConsoleDesk> {
  const { config, openStore, metrics, upstreams, commands, env, now = Date.now } = options;
  const store = await openStore();
  const { secret, store: address } = config().static;
  return {
    config,
    store,
    upstreams,
    commands,
    env,
    now,
    secret: await openSecret(secret, address, store),
    hasher: new Hasher(metrics),
    budgets: new NearBudgets({ store, config: () => config().dynamic, now }),
  };
}
