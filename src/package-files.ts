// The files of this package beside the code. The bundler puts all code into one folder, so only this file may know its own place.
import { readFileSync } from 'node:fs';

/** `src/` in a checkout, `dist/` in the package. */
const CODE = new URL('.', import.meta.url);
const isSource = import.meta.url.endsWith('.ts');

/** A file that is no code, by its path from `src/` (`limits/reserve.lua`); `../` is the folder of the package. */
export function packageFile(path: string): URL {
  return new URL(path, CODE);
}

/** The file of a thread, by its path from `src/` without a suffix. It is an entry of the bundle: `tools/build.ts`. */
export function threadFile(path: string): URL {
  return new URL(`${path}.${isSource ? 'ts' : 'js'}`, CODE);
}

/** The version of this program, from package.json. */
export const VERSION = readVersion();

function readVersion(): string {
  const file: unknown = JSON.parse(readFileSync(packageFile('../package.json'), 'utf8'));
  const version: unknown =
    typeof file === 'object' && file !== null ? Reflect.get(file, 'version') : undefined;
  return typeof version === 'string' ? version : 'unknown';
}
