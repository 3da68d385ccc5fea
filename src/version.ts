// The version of this program, from package.json.
import { readFileSync } from 'node:fs';

export const VERSION = readVersion();

function readVersion(): string {
  const file: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  const version: unknown =
    typeof file === 'object' && file !== null ? Reflect.get(file, 'version') : undefined;
  return typeof version === 'string' ? version : 'unknown';
}
