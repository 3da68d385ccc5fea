// Programs in Go that tests need: named by a variable, or built once a machine from the module proxy.
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** Of a build on a busy machine, modules and all. In milliseconds. */
export const GO_BUILD_MS = 20 * 60_000;

/** Where a program stays for all later runs on the machine. @param name of the program and its version */
export function programFolder(name: string): string {
  return join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'tollgate', name);
}

/**
 * @param module path and version, such as `example.com/a/cmd/b@v1.0.0`
 * @param variable of the environment, which names the program instead
 * @returns the path of the program; undefined where it is not there and cannot be built
 */
export async function goProgram(module: string, variable: string): Promise<string | undefined> {
  const named = process.env[variable];
  if (named !== undefined) return named;
  const [path = '', version = ''] = module.split('@');
  const name = path.slice(path.lastIndexOf('/') + 1);
  const folder = programFolder(`${name}-${version}`);
  const built = join(folder, name);
  if (existsSync(built)) return built;
  const env = { ...process.env, GOBIN: folder };
  return promisify(execFile)('go', ['install', module], { env, maxBuffer: 2 ** 24 }).then(
    () => built,
    () => undefined,
  );
}
