// Which store a configuration means.
import type { StaticConfig } from '../config/schema/config-schema.ts';
import { type EarlierStoreOptions, earlierStoreSigns } from './earlier-store.ts';
import { StoreOpenError } from './open-error.ts';
import { openPostgres } from './postgres/postgres.ts';
import { openSqlite } from './sqlite/sqlite.ts';
import type { Store } from './store.ts';

export { StoreOpenError };

interface OpenOptions extends EarlierStoreOptions {
  /** Whether a new store is made also where one was before. Default false: that is refused. */
  readonly createNew?: boolean;
  /** For a command that one person waits for: deadlines of many seconds, so that it works over a slow way. Default false. */
  readonly isPatient?: boolean;
}

/**
 * Opens the store and brings its schema up to date.
 *
 * @throws StoreOpenError when it cannot be reached, is locked for more than 5 s, has a schema
 *   this version does not know, or is empty where a store was before
 */
export async function openStore(config: StaticConfig['store'], options: OpenOptions = {}): Promise<Store> {
  const { isPatient = false, createNew = false, spool } = options;
  // Before one looks whether there is a store.
  const signs = createNew ? [] : earlierStoreSigns(config, { spool });
  switch (config.kind) {
    case 'sqlite':
      return openSqlite(config.path, signs);
    case 'postgres':
      return openPostgres(config.url, { isPatient, signs });
  }
}
