// Detects that a store existed where there is none now: an unmounted volume, another working directory, another database
// name. A new store in its place would answer every issued key with 401.
import { readdirSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import type { StaticConfig } from '../config/schema/config-schema.ts';
import { StoreOpenError } from './store-errors.ts';

export interface EarlierStoreOptions {
  /** Folder of the usage outbox. */
  readonly spool?: string | undefined;
}

/**
 * Finds files that a store leaves outside of itself. Call it before checking that the store exists: a process that creates a
 * new store writes these files after it.
 * @returns the paths
 */
export function earlierStoreSigns(
  store: StaticConfig['store'],
  { spool }: EarlierStoreOptions = {},
): readonly string[] {
  const unsent = spool !== undefined && hasOutboxFiles(resolve(spool)) ? [resolve(spool)] : [];
  if (!('path' in store)) return unsent;
  const file = resolve(store.path);
  const own = [`${file}.secret`, `${file}-wal`].filter((path) => sizeOf(path) > 0);
  // Only the gateway creates a folder of this name.
  const folder = `${file}.usage`;
  return [...new Set([...own, ...(exists(folder) ? [folder] : []), ...unsent])];
}

/** The operator message against a new store; undefined when one may be created or when the store exists. */
export function earlierStoreWarning(
  store: StaticConfig['store'],
  options: EarlierStoreOptions,
): string | undefined {
  const signs = earlierStoreSigns(store, options);
  if (!('path' in store) || signs.length === 0) return undefined;
  const file = resolve(store.path);
  return sizeOf(file) > 0
    ? undefined
    : messageFor(exists(file) ? 'the file is empty' : 'the file is missing', signs, file);
}

/** @throws StoreOpenError when there are signs of an earlier store */
export function rejectNewStore(signs: readonly string[], what: string, file: string | undefined): void {
  if (signs.length > 0) throw new StoreOpenError(messageFor(what, signs, file));
}

function messageFor(what: string, signs: readonly string[], file: string | undefined): string {
  const action =
    file === undefined
      ? 'correct the database in `store`, or restore it from a backup'
      : 'restore it from a backup, mount its volume, or correct `store` (a relative path starts at the working directory)';
  return (
    `${what}, but a store existed here before: it left ${signs.join(' and ')}. A new store would have no keys, and every issued ` +
    `key would get a 401. To keep the keys, ${action}. To start without them, run once: ` +
    'tollgate serve --new-store'
  );
}

/** Whether the folder has files of the usage outbox, in the current or the former format, or quarantined files. */
function hasOutboxFiles(folder: string): boolean {
  try {
    return readdirSync(folder).some((name) => /\.(outbox|damaged|jsonl|alive|aside)$/.test(name));
  } catch {
    return false;
  }
}

function exists(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}

/** Size in bytes; 0 when the file does not exist. */
export function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
