// What the console and its API work with: the store, the secret, the configuration in force, and the states that gateways report.
import { Hasher } from '../auth/hashing/hasher.ts';
import { type KeySecret, openSecret } from '../auth/hashing/hashing-secret.ts';
import type { Config } from '../config/schema/config-schema.ts';
import type { Store } from '../store/store.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { UpstreamState } from '../upstream/state/upstream-state.ts';

/** What a process lends to the console. */
export interface DeskOptions {
  /** The configuration in force. */
  readonly config: () => Config;
  /** Called once, at the first request. */
  readonly openStore: () => Promise<Store>;
  readonly metrics: Metrics;
  /** The states of the upstreams, of this process and its workers. */
  readonly upstreams: () => readonly UpstreamState[] | Promise<readonly UpstreamState[]>;
  /** Milliseconds since 1970. Default: the clock of the system. */
  readonly now?: () => number;
}

export interface ConsoleDesk {
  readonly config: () => Config;
  readonly store: Store;
  readonly secret: KeySecret;
  readonly hasher: Hasher;
  readonly upstreams: DeskOptions['upstreams'];
  readonly now: () => number;
}

/** @throws StoreOpenError, SecretError, GatewayError `store_unavailable` */
export async function openDesk(options: DeskOptions): Promise<ConsoleDesk> {
  const { config, openStore, metrics, upstreams, now = Date.now } = options;
  const store = await openStore();
  const { secret, store: address } = config().static;
  return {
    ...{ config, store, upstreams, now },
    secret: await openSecret(secret, address, store),
    hasher: new Hasher(metrics),
  };
}
