// Which store a configuration means.
import type { StaticConfig } from '../config/schema.ts';
import { StoreOpenError } from './open-error.ts';
import { openPostgres } from './postgres.ts';
import { openSqlite } from './sqlite.ts';
import type { Store } from './store.ts';

export { StoreOpenError };

export interface OpenOptions {
  /** For a command that one person waits for: deadlines of many seconds, so that it works over a slow way. Default false. */
  readonly isPatient?: boolean;
}

/**
 * Opens the store and brings its schema up to date.
 *
 * @throws StoreOpenError when it cannot be reached, is locked for more than 5 s, or has a schema this version does not know
 */
export async function openStore(config: StaticConfig['store'], options: OpenOptions = {}): Promise<Store> {
  switch (config.kind) {
    case 'sqlite':
      return openSqlite(config.path);
    case 'postgres':
      return openPostgres(config.url, options);
  }
}
