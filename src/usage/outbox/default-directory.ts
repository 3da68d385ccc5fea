// Where the outbox files are, by default or as configured, and whether they can be written.
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { StaticConfig } from '../../config/schema/config-schema.ts';

/** @returns a path, relative to the working directory where it is not absolute */
export function outboxDirectory({ store, usage }: Pick<StaticConfig, 'store' | 'usage'>): string {
  if (usage?.spool !== undefined) return usage.spool;
  return 'path' in store ? `${store.path}.usage` : './data/usage';
}

/** Changes nothing. @returns why no files can be written there; undefined if they can, as far as this can be told before */
export async function outboxFault(directory: string): Promise<string | undefined> {
  for (let at = resolve(directory); ; at = dirname(at)) {
    try {
      if (!(await stat(at)).isDirectory()) return `${at} is not a directory`;
      await access(at, constants.W_OK | constants.X_OK);
      return undefined;
    } catch (error) {
      const code = error instanceof Error ? String(Reflect.get(error, 'code')) : '';
      // It would be created, with those above it.
      if (!/^(?:ENOENT|ENOTDIR)$/.test(code)) return `${at} cannot be written (${code})`;
    }
  }
}
