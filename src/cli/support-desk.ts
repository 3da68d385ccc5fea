// Shared by the commands for keys and orders: the store and the fleet of a configuration, and a key's public fields.
import { loadConfig } from '../config/load-config.ts';
import type { Config } from '../config/schema/config-schema.ts';
import type { KeySummary } from '../store/key-record.ts';
import type { Store } from '../store/store.ts';
import type { Arguments } from './arguments.ts';
import { Fleet } from './fleet-action.ts';
import { type CommandIo, openStoreOf } from './support-command.ts';

/** Undefined without Redis in the configuration. */
export async function openFleet({ static: { redis } }: Config): Promise<Fleet | undefined> {
  return redis === undefined ? undefined : Fleet.open(redis);
}

/**
 * Runs `work` on the store of the configuration that `--config` names.
 * @throws ConfigError, StoreOpenError
 */
export async function withStore<Name extends string>(
  given: Arguments<Name | 'config'>,
  io: CommandIo,
  missing: 'create' | 'must exist',
  work: (store: Store, config: Config) => Promise<number>,
): Promise<number> {
  const config = loadConfig(given.text('config') ?? './config.yaml', io.env);
  const store = await openStoreOf(config.static, io, missing);
  try {
    return await work(store, config);
  } finally {
    await store.close();
  }
}

/** A key as `--json` shows it. */
export function publicFields(key: KeySummary) {
  return {
    prefix: key.prefix,
    state: key.state,
    tier: key.tier,
    standing: key.standing,
    holder: key.holderId,
    label: key.label,
    version: key.version,
    created_at: key.createdAt,
    ended_at: key.endedAt,
    replaces: key.replaces,
    replaced_by: key.replacedBy,
  };
}
