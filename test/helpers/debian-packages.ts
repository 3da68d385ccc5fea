// Debian's packages for programs that tests and the bench need: where a program is looked for, and how a missing one is installed.
import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

/** Only against a process that hangs: a slow machine takes minutes to install. In milliseconds. */
export const INSTALL_MS = 20 * 60_000;

/** One lock for all packages and checkouts: apt has one lock for the machine, and fails at once when another apt holds it. */
const LOCK = '/tmp/tollgate-apt.lock';

/** The command that installs a package, as it is shown to people before it runs. */
export function installCommand(name: string): string {
  return `apt-get update && apt-get install -y --no-install-recommends ${name}`;
}

/**
 * Installs a package, unless another process has done so while this one waited for the lock.
 * @param isThere shell command that succeeds when nothing is to be installed
 * @param env of the installation; default: that of this process
 * @throws Error with the last lines of what apt wrote
 */
export async function installPackage(
  name: string,
  isThere: string,
  env: Readonly<Record<string, string | undefined>> = process.env,
): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const script = `${isThere} > /dev/null 2>&1 || { ${installCommand(name)}; }`;
    const options = {
      // In runlevel 1 Debian's packages start no service: the tests start their own servers.
      env: { ...env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' },
      timeout: INSTALL_MS,
      maxBuffer: 64 * 1024 * 1024,
    };
    execFile('flock', [LOCK, 'sh', '-c', script], options, (error, _stdout, stderr) => {
      if (error === null) resolve();
      else reject(new Error(stderr.trim().split('\n').slice(-5).join('\n'), { cause: error }));
    });
  });
}

/** The path of a program. @param path as in the environment variable `PATH` */
export async function onPath(name: string, path = process.env['PATH']): Promise<string | undefined> {
  for (const folder of (path ?? '').split(delimiter)) {
    const program = join(folder, name);
    if (folder !== '' && (await isExecutable(program))) return program;
  }
  return undefined;
}

/** Whether a file is there that may be run. */
export async function isExecutable(path: string): Promise<boolean> {
  return await access(path, constants.X_OK).then(
    async () => (await stat(path)).isFile(),
    () => false,
  );
}
