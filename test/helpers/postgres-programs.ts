// The programs of PostgreSQL on this machine: finds them, or installs Debian's where it may. A machine that has none fails the
// tests and says what to install; no test is skipped.
import { execFile } from 'node:child_process';
import { constants, readFileSync } from 'node:fs';
import { access, readdir, realpath } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface PostgresPrograms {
  readonly postgres: string;
  readonly initdb: string;
}

const DEBIAN = '/usr/lib/postgresql';
const PACKAGE = 'postgresql';
const INSTALL = `apt-get update && apt-get install -y --no-install-recommends ${PACKAGE}`;
const MISSING = `these tests need a PostgreSQL server: install one (Debian: apt-get install ${PACKAGE}), or put its programs on PATH`;

/** Only against a process that hangs: a slow machine takes minutes to install. */
export const INSTALL_MS = 20 * 60_000;

/**
 * Installs the package if that is necessary and possible, which it says in a line on stderr before it begins.
 * @throws Error saying what to install
 */
export async function postgresPrograms(): Promise<PostgresPrograms> {
  const found = await find();
  if (found !== undefined) return found;
  if (process.getuid?.() !== 0 || (await onPath('apt-get')) === undefined) throw new Error(MISSING);
  process.stderr.write(`no PostgreSQL on this machine; running: ${INSTALL}\n`);
  await install().catch((cause: unknown) => {
    throw new Error(`${MISSING}; installing it has failed`, { cause });
  });
  const installed = await find();
  if (installed === undefined) throw new Error(`${MISSING}; the package did not bring it`);
  return installed;
}

/**
 * PostgreSQL refuses to run as root, so where the tests do, it gets another user: its own, or nobody. Undefined where the
 * user of the tests will do.
 */
export function serverUser(): { readonly uid: number; readonly gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const lines = readFileSync('/etc/passwd', 'utf8').split('\n');
  for (const name of ['postgres', 'nobody']) {
    const [, , uid, gid] = lines.find((line) => line.startsWith(`${name}:`))?.split(':') ?? [];
    if (uid !== undefined && gid !== undefined) return { uid: Number(uid), gid: Number(gid) };
  }
  throw new Error('there is neither a user postgres nor a user nobody, and PostgreSQL does not run as root');
}

async function find(): Promise<PostgresPrograms | undefined> {
  const versions = await readdir(DEBIAN).catch(() => []);
  const newestFirst = versions.sort((a, b) => Number(b) - Number(a));
  for (const folder of newestFirst.map((version) => join(DEBIAN, version, 'bin'))) {
    const [postgres, initdb] = [join(folder, 'postgres'), join(folder, 'initdb')];
    if ((await isExecutable(postgres)) && (await isExecutable(initdb))) return { postgres, initdb };
  }
  const [postgres, initdb] = [await onPath('postgres'), await onPath('initdb')];
  if (postgres === undefined || initdb === undefined) return undefined;
  // They look for their other files from where they really are.
  return { postgres: await realpath(postgres), initdb: await realpath(initdb) };
}

async function onPath(name: string): Promise<string | undefined> {
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    const path = join(folder, name);
    if (folder !== '' && (await isExecutable(path))) return path;
  }
  return undefined;
}

function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** Under a lock, since test files run side by side and apt gives up when another one is at work. */
async function install(): Promise<void> {
  const lock = fileURLToPath(import.meta.url);
  const script = `ls ${DEBIAN}/*/bin/postgres > /dev/null 2>&1 || { ${INSTALL}; }`;
  await new Promise<void>((resolve, reject) => {
    const options = {
      // In runlevel 1 Debian's packages start no service: the tests start their own server.
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' },
      timeout: INSTALL_MS,
      maxBuffer: 64 * 1024 * 1024,
    };
    execFile('flock', [lock, 'sh', '-c', script], options, (error, _stdout, stderr) => {
      if (error === null) resolve();
      else reject(new Error(stderr.trim().split('\n').slice(-5).join('\n'), { cause: error }));
    });
  });
}
