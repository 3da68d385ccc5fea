// The packages that `npm ci --omit=dev` installs, out of the packages that this checkout has: by the lock file, without npm
// and without a network. Linked file by file where the disk is the same, so that it costs next to nothing.
import { execFile } from 'node:child_process';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../e2e/program.ts';
import { at, entries, textAt } from './tree.ts';

/** A package that production needs. */
export interface Installed {
  /** From the folder of the project: `node_modules/a/node_modules/b`. */
  readonly path: string;
  readonly name: string;
  readonly version: string;
}

const run = promisify(execFile);

/** Without those that the lock file has for other platforms only. */
export function productionPackages(): readonly Installed[] {
  const lock: unknown = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'));
  return entries(lock, 'packages').flatMap(([path, entry]) => {
    // `devOptional` is installed: something of production takes it where it is there.
    if (path === '' || at(entry, 'dev') === true || !existsSync(join(ROOT, path))) return [];
    const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
    return [{ path, name, version: textAt(entry, 'version') }];
  });
}

/** Puts them into `folder`, as its node_modules. */
export async function installProduction(folder: string): Promise<void> {
  const base = dirname(realpathSync(join(ROOT, 'node_modules')));
  const paths = productionPackages()
    .map(({ path }) => path)
    .filter((path) => path.lastIndexOf('node_modules/') === 0);
  const copy = (how: string): Promise<unknown> =>
    run('cp', [how, '--parents', ...paths, folder], { cwd: base });
  await copy('-al').catch(() => copy('-a'));
}

/** Puts a file to another place without a copy, where the disk is the same. */
export async function linkFile(from: string, to: string): Promise<void> {
  await run('cp', ['-l', from, to]).catch(() => run('cp', [from, to]));
}
