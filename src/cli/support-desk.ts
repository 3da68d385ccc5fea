// Shared by the commands for keys and orders: the store and the fleet of a configuration, and a key's public fields.
import { loadConfig } from '../config/load-config.ts';
import type { Config } from '../config/schema/config-schema.ts';
import type { Store } from '../store/store.ts';
import { broadcastFields, Fleet, type FleetAction, isConfirmed, warnings } from './fleet-action.ts';
import { type CommandIo, write } from './program/terminal.ts';
import { openStoreOf } from './support-command.ts';

/** Undefined without Redis in the configuration. */
export async function openFleet(
  { static: { redis } }: Config,
  { desk }: Pick<CommandIo, 'desk'>,
): Promise<Fleet | undefined> {
  return redis === undefined ? undefined : Fleet.open(redis, desk?.onProgress);
}

/** Runs `work` on the store of the configuration that `--config` names. @throws ConfigError, StoreOpenError */
export async function withStore<Result>(
  given: { readonly config: string },
  io: CommandIo,
  missing: 'create' | 'must exist',
  work: (store: Store, config: Config) => Promise<Result>,
): Promise<Result> {
  if (io.desk !== undefined) return work(io.desk.store, io.desk.config());
  const config = loadConfig(given.config, io.env);
  const store = await openStoreOf(config.static, io, missing);
  try {
    return await work(store, config);
  } finally {
    await store.close();
  }
}

/**
 * Prints a change of keys, as JSON or as text, and warns of replicas that have not confirmed it.
 * @returns the exit code: 3 when a replica has not confirmed it
 */
export async function writeChange(
  { json: isJson }: { readonly json: boolean },
  io: CommandIo,
  result: Fleet['result'],
  action: FleetAction,
  { fields, text }: { readonly fields: object; readonly text: string },
): Promise<number> {
  const json = { ...fields, ...(result && { replicas: broadcastFields(result, action) }) };
  await write(io.stdout, `${isJson ? JSON.stringify(json) : text}\n`);
  for (const line of warnings(result, action)) await write(io.stderr, `${line}\n`);
  return isConfirmed(result) ? 0 : 3;
}

/** The fields of a record for people, one a line; null and false ones are omitted. */
export function fieldLines(fields: object, width: number): string[] {
  return Object.entries(fields)
    .filter(([, value]) => value !== null && value !== false)
    .map(([name, value]) => `${name.replaceAll('_', ' ').padEnd(width - 1)} ${value}`);
}
