// Opens the store that the configuration names.
import type { StaticConfig, Tier } from '../config/schema/config-schema.ts';
import { type EarlierStoreOptions, earlierStoreSigns } from './earlier-store.ts';
import { openSqlite, trySqlite } from './sqlite/sqlite.ts';
import type { Store, Trial } from './store.ts';
import { StoreOpenError } from './store-errors.ts';

export { StoreOpenError };

interface OpenOptions extends EarlierStoreOptions {
  /** Whether to create a new store although there are signs of an earlier one. Default false: it is rejected. */
  readonly createNew?: boolean;
  /** For interactive commands: deadlines of many seconds, so that they work over a slow network. Default false. */
  readonly isPatient?: boolean;
}

/**
 * Opens the store and brings its schema up to date.
 *
 * @throws StoreOpenError when it cannot be reached, is locked for more than 5 s, has an unknown schema version, or is empty
 *   although there are signs of an earlier store
 */
export async function openStore(config: StaticConfig['store'], options: OpenOptions = {}): Promise<Store> {
  const { isPatient = false, createNew = false, spool } = options;
  // Collect the signs first: see `earlierStoreSigns`.
  const signs = createNew ? [] : earlierStoreSigns(config, { spool });
  switch (config.kind) {
    case 'sqlite':
      return openSqlite(config.path, signs);
    case 'postgres':
      return (await postgres()).openPostgres(config.url, { isPatient, signs });
  }
}

/**
 * Checks that `openStore` would succeed. The store stays as it is: nothing is created or migrated.
 * @param tiers whose holders are counted
 * @throws StoreOpenError as `openStore`
 */
export async function tryStore(
  config: StaticConfig['store'],
  { spool }: EarlierStoreOptions,
  tiers: readonly Tier[] = [],
): Promise<Trial> {
  const signs = earlierStoreSigns(config, { spool });
  if (config.kind === 'sqlite') return trySqlite(config.path, signs, tiers);
  return (await postgres()).tryPostgres(config.url, signs, tiers);
}

/** Loads what `openStore` loads for such a store. */
export async function loadDriver({ kind }: StaticConfig['store']): Promise<void> {
  if (kind === 'postgres') await postgres();
}

/** Its driver is loaded only where it is configured. */
const postgres = () => import('./postgres/postgres.ts');
