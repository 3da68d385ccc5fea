// Shared by the commands for keys and orders: the store and the fleet of a configuration, and a key's public fields.
import { loadConfig } from '../config/load-config.ts';
import type { Config } from '../config/schema/config-schema.ts';
import type { Store } from '../store/store.ts';
import type { Arguments } from './arguments.ts';
import { broadcastFields, Fleet, type FleetAction, isConfirmed, warnings } from './fleet-action.ts';
import { openStoreOf } from './support-command.ts';
import { type CommandIo, write } from './terminal.ts';

export { listedFields, publicFields } from '../console/record-fields.ts';

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
  if (io.desk !== undefined) return work(io.desk.store, io.desk.config());
  const config = loadConfig(given.text('config') ?? './config.yaml', io.env);
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
  given: Arguments<'json'>,
  io: CommandIo,
  result: Fleet['result'],
  action: FleetAction,
  { fields, text }: { readonly fields: object; readonly text: string },
): Promise<number> {
  const json = { ...fields, ...(result && { replicas: broadcastFields(result) }) };
  await write(io.stdout, `${given.flag('json') ? JSON.stringify(json) : text}\n`);
  for (const line of warnings(result, action)) await write(io.stderr, `${line}\n`);
  return isConfirmed(result) ? 0 : 3;
}

/** The fields of a record for people, one a line; null and false ones are omitted. */
export function fieldLines(fields: object, width: number): string[] {
  return Object.entries(fields)
    .filter(([, value]) => value !== null && value !== false)
    .map(([name, value]) => `${name.replaceAll('_', ' ').padEnd(width)}${value}`);
}
