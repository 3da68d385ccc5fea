// Installs the client libraries into a cache folder outside the checkout: once for each content of the files that pin
// them, and by one process at a time.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { until } from '../../helpers/wait.ts';
import { Unavailable } from './types.ts';

const run = promisify(execFile);

const INSTALL_MS = 600_000;
/** A lock whose process has not touched it for so long is left over from a crash. */
const STALE_MS = 30_000;

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** The cache folder of the comparison. Not among temporary files: those of the tests end with their run. */
export function cacheFolder(): string {
  return join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'tollgate', 'comparison');
}

/**
 * A folder that holds what `files` pin. `install` fills an empty folder; its result is kept for all runs with the same
 * files. A folder that an interrupted run left behind is filled anew.
 * @param files their content, and the rest of the key, name the folder
 * @throws Unavailable when `install` fails
 */
export async function installed(
  name: string,
  files: readonly string[],
  install: (folder: string) => Promise<void>,
  rest = '',
): Promise<string> {
  const hash = createHash('sha256').update(rest);
  for (const file of files) hash.update(await readFile(file));
  const folder = join(cacheFolder(), `${name}-${hash.digest('hex').slice(0, 16)}`);
  if (existsSync(folder)) return folder;
  await mkdir(cacheFolder(), { recursive: true });
  await locked(`${folder}.lock`, async () => {
    if (existsSync(folder)) return;
    const partial = `${folder}.partial`;
    await rm(partial, { recursive: true, force: true });
    await mkdir(partial);
    try {
      await install(partial);
    } catch (cause) {
      await rm(partial, { recursive: true, force: true });
      throw new Unavailable(`${name} cannot be installed: ${firstLine(cause)}`, { cause });
    }
    await rename(partial, folder);
  });
  return folder;
}

/** The npm packages of the `package-lock.json` in this folder. */
export function npmPackages(pins = 'npm'): Promise<string> {
  const files = [here(`${pins}/package.json`), here(`${pins}/package-lock.json`)];
  return installed(pins, files, async (folder) => {
    for (const file of files) await copyFile(file, join(folder, basename(file)));
    await run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], {
      cwd: folder,
      timeout: INSTALL_MS,
      maxBuffer: 16 << 20,
    });
  });
}

/** Runs `work` while no other process holds the lock. The folder of the lock is touched while it is held. */
async function locked(lock: string, work: () => Promise<void>): Promise<void> {
  await until(() => take(lock), `the lock ${lock}`, INSTALL_MS);
  const heartbeat = setInterval(() => {
    const now = new Date();
    utimes(lock, now, now).catch(() => undefined);
  }, STALE_MS / 6);
  try {
    await work();
  } finally {
    clearInterval(heartbeat);
    await rm(lock, { recursive: true, force: true });
  }
}

async function take(lock: string): Promise<boolean> {
  try {
    await mkdir(lock);
    return true;
  } catch {
    const { mtimeMs } = await stat(lock);
    if (Date.now() - mtimeMs > STALE_MS) await rm(lock, { recursive: true, force: true });
    return false;
  }
}

function firstLine(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.split('\n')[0] ?? text;
}
