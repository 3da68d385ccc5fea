// Where the outbox files are when the configuration does not say.
import type { StaticConfig } from '../../config/schema/config-schema.ts';

/** @returns a path, relative to the working directory where it is not absolute */
export function outboxDirectory({ store, usage }: Pick<StaticConfig, 'store' | 'usage'>): string {
  if (usage?.spool !== undefined) return usage.spool;
  return 'path' in store ? `${store.path}.usage` : './data/usage';
}
