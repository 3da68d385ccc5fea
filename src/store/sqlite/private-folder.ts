// Folders for what only this user may read.
import { existsSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * Creates a folder and those above it, with mode 0700. Node's own `recursive` never returns where the system answers ENOENT below a
 * folder that exists, as /proc does.
 * @throws the system's error
 */
export function makePrivateFolder(folder: string): void {
  const isThere = () => existsSync(`${folder}/.`);
  if (isThere()) return;
  if (!existsSync(dirname(folder))) makePrivateFolder(dirname(folder));
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    // Another process was faster.
    if (!isThere()) throw error;
  }
}
