// The programs of PostgreSQL on this machine: finds them, or installs Debian's where it may. A machine that has none fails the
// tests and says what to install; no test is skipped.
import { readFileSync } from 'node:fs';
import { readdir, realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { installCommand, installPackage, isExecutable, onPath } from './debian-packages.ts';

export { INSTALL_MS } from './debian-packages.ts';

export interface PostgresPrograms {
  readonly postgres: string;
  readonly initdb: string;
  readonly pgBasebackup: string;
}

const DEBIAN = '/usr/lib/postgresql';
const PACKAGE = 'postgresql';
const MISSING = `these tests need a PostgreSQL server: install one (Debian: apt-get install ${PACKAGE}), or put its programs on PATH`;

/**
 * Installs the package if that is necessary and possible, which it says in a line on stderr before it begins.
 * @throws Error saying what to install
 */
export async function postgresPrograms(): Promise<PostgresPrograms> {
  const found = await find();
  if (found !== undefined) return found;
  if (process.getuid?.() !== 0 || (await onPath('apt-get')) === undefined) throw new Error(MISSING);
  process.stderr.write(`no PostgreSQL on this machine; running: ${installCommand(PACKAGE)}\n`);
  await installPackage(PACKAGE, `ls ${DEBIAN}/*/bin/postgres`).catch((cause: unknown) => {
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
    if ((await isExecutable(postgres)) && (await isExecutable(initdb)))
      return { postgres, initdb, pgBasebackup: beside(initdb) };
  }
  const [postgres, initdb] = [await onPath('postgres'), await onPath('initdb')];
  if (postgres === undefined || initdb === undefined) return undefined;
  // They look for their other files from where they really are.
  const real = await realpath(initdb);
  return { postgres: await realpath(postgres), initdb: real, pgBasebackup: beside(real) };
}

function beside(initdb: string): string {
  return join(dirname(initdb), 'pg_basebackup');
}
