// Virtual environments of the comparison: a Python that is new enough, and the packages that a requirements file pins.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { installed } from './installs.ts';
import { Unavailable } from './types.ts';

const run = promisify(execFile);

const INSTALL_MS = 600_000;
const LOOK_MS = 30_000;

/** The oldest Python that the pinned packages support. */
const OLDEST = [3, 11] as const;

const fileOf = (name: string): string =>
  fileURLToPath(new URL(`python/requirements-${name}.txt`, import.meta.url));

/**
 * The Python of an environment with the packages of `python/requirements-NAME.txt`.
 * @throws Unavailable without a Python that is new enough, or when the packages cannot be installed
 */
export async function pythonPackages(name: string): Promise<string> {
  const file = fileOf(name);
  const version = await pythonVersion();
  const folder = await installed(
    `python-${name}`,
    [file],
    async (partial) => {
      await run('python3', ['-m', 'venv', partial], { timeout: INSTALL_MS });
      // The file pins all packages, so pip need not resolve anything, and Python compiles what it imports, which is the smaller part. An environment can be moved when it is used by way of
      // its interpreter, and not by its scripts.
      const pip = [
        '-m',
        'pip',
        'install',
        '--quiet',
        '--no-deps',
        '--no-compile',
        '--disable-pip-version-check',
      ];
      await run(interpreterOf(partial), [...pip, '--requirement', file], {
        timeout: INSTALL_MS,
        maxBuffer: 16 << 20,
      });
    },
    `${version} ${process.platform} ${process.arch}`,
  );
  return interpreterOf(folder);
}

/** The version that `python/requirements-NAME.txt` pins for a package. */
export function pinnedVersion(name: string, packageName: string): string {
  const line = readFileSync(fileOf(name), 'utf8')
    .split('\n')
    .find((each) => each.startsWith(`${packageName}==`));
  if (line === undefined) throw new Error(`python/requirements-${name}.txt does not pin ${packageName}`);
  return line.slice(packageName.length + 2);
}

const interpreterOf = (folder: string): string => join(folder, 'bin', 'python');

async function pythonVersion(): Promise<string> {
  // Some distributions ship `venv` without `ensurepip`, and then it makes no environment.
  const program = 'import ensurepip, sys, venv; print(*sys.version_info[:3], sep=".")';
  const { stdout } = await run('python3', ['-c', program], { timeout: LOOK_MS }).catch((cause) => {
    throw new Unavailable('python3 with the modules venv and ensurepip is not installed', { cause });
  });
  const version = stdout.trim();
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]))
    throw new Unavailable(`python3 is ${version}, and the clients need ${OLDEST.join('.')} or newer`);
  return version;
}
