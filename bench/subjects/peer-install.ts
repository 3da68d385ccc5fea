// Where other gateways are installed: once a machine, in folders outside of the repository, under their versions.
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { findProgram, type Processes } from '../processes.ts';

/** Of a build or of some hundred packages on a busy machine. */
export const INSTALL_MS = 30 * 60_000;
/** The file that says that an installation has come to its end. */
const WHOLE = '.whole';

/**
 * @param name of the folder, with the version of what is in it
 * @param install puts everything into the folder that it is given
 * @returns the folder
 */
export async function installed(name: string, install: (folder: string) => Promise<void>): Promise<string> {
  const cache = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'tollgate');
  const folder = join(cache, name);
  if (existsSync(join(folder, WHOLE))) return folder;
  // Environments of Python know the path at which they were made, so nothing is moved.
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  await install(folder);
  writeFileSync(join(folder, WHOLE), '');
  return folder;
}

/** Runs a program of the machine. @throws Error if it is not there, or fails */
export async function runTool(
  processes: Processes,
  name: string,
  words: readonly string[],
  options: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<string> {
  const program = findProgram(name);
  if (program === undefined) throw new Error(`${name}, which installs it, is not on the path`);
  return processes.run(program, words, INSTALL_MS, options);
}
