// An SQLite store with its schema and nothing else in it, by copying one that was migrated once in this process: the migrations are a
// fifth of the work of a short test.
import { readFile, writeFile } from 'node:fs/promises';
import { openStore } from '../../src/store/open.ts';
import type { Store } from '../../src/store/store.ts';
import { tempDir } from './wait.ts';

let template: Promise<Buffer> | undefined;

/** Writes the store. @param path of a file that does not exist */
export async function writeNewStore(path: string): Promise<void> {
  template ??= migrate();
  await writeFile(path, await template, { mode: 0o600, flag: 'wx' });
}

/** Writes the store and opens it. */
export async function openNewStore(path: string): Promise<Store> {
  await writeNewStore(path);
  return await openStore({ kind: 'sqlite', path });
}

async function migrate(): Promise<Buffer> {
  await using directory = await tempDir();
  const path = directory.file('template.db');
  const store = await openStore({ kind: 'sqlite', path });
  // The last one to close it writes everything into the file.
  await store.close();
  return await readFile(path);
}
