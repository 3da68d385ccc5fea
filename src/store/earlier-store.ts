// Signs that there was a store before, where there is none now: a volume that is not mounted, another working directory, a
// database of another name. A new store in its place would answer every key that was issued with 401.
import { readdirSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import type { StaticConfig } from '../config/schema/config-schema.ts';
import { StoreOpenError } from './open-error.ts';

export interface EarlierStoreOptions {
  /** Where use waits for the store. */
  readonly spool?: string | undefined;
}

/**
 * What a store leaves outside of itself. To be asked before one looks whether the store is there: a process that makes a new one
 * writes these files after it.
 * @returns their paths
 */
export function earlierStoreSigns(
  store: StaticConfig['store'],
  { spool }: EarlierStoreOptions = {},
): readonly string[] {
  const unsent = spool !== undefined && holdsUse(resolve(spool)) ? [resolve(spool)] : [];
  if (store.kind !== 'sqlite') return unsent;
  const file = resolve(store.path);
  const own = [`${file}.secret`, `${file}-wal`].filter((path) => sizeOf(path) > 0);
  // Only the gateway makes a folder of this name.
  const folder = `${file}.usage`;
  return [...new Set([...own, ...(exists(folder) ? [folder] : []), ...unsent])];
}

/** Why no new store may be made now, for the operator; undefined where one may, or where there is one. */
export function earlierStoreWarning(
  store: StaticConfig['store'],
  options: EarlierStoreOptions,
): string | undefined {
  const signs = earlierStoreSigns(store, options);
  if (store.kind !== 'sqlite' || signs.length === 0) return undefined;
  const file = resolve(store.path);
  return sizeOf(file) > 0
    ? undefined
    : refusal(exists(file) ? 'the file is empty' : 'the file is missing', signs, file);
}

/** @throws StoreOpenError where a store was there before */
export function rejectNewStore(signs: readonly string[], what: string, file: string | undefined): void {
  if (signs.length > 0) throw new StoreOpenError(refusal(what, signs, file));
}

/** What happened, what it means, what to do. */
function refusal(what: string, signs: readonly string[], file: string | undefined): string {
  const place =
    file === undefined
      ? 'name the right database in `store`, or restore it from a backup'
      : 'restore it from a backup, mount its volume, or correct `store` (a relative path starts at the working directory)';
  return (
    `${what}, but there was a store before: it has left ${signs.join(' and ')}. A new store would hold no keys, and every key ` +
    `that was issued would be answered with 401. To keep the keys, ${place}. To begin anew without them, start once with: ` +
    'tollgate serve --new-store'
  );
}

/** Files of the usage outbox, also in the former format, and files kept aside. */
function holdsUse(folder: string): boolean {
  try {
    return readdirSync(folder).some((name) => /\.(outbox|damaged|jsonl|alive|aside)$/.test(name));
  } catch {
    return false;
  }
}

function exists(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}

/** @returns 0 where there is none */
export function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}
