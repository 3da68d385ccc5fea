// A configuration out of an example, by the gateway's own check, and the variables that it takes from the environment.
import { writeFile } from 'node:fs/promises';
import { loadConfig } from '../../src/config/load-config.ts';
import type { Config } from '../../src/config/schema/config-schema.ts';
import { tempDir } from '../helpers/wait.ts';

/** Values that could be real ones, by the end of the variable's name. */
function sampleValue(name: string): string {
  if (name === 'DATABASE_URL')
    return 'postgres://tollgate:0123456789abcdef@db.example/tollgate?sslmode=verify-full';
  if (name === 'REDIS_URL') return 'rediss://:0123456789abcdef@redis.example:6379';
  return '0123456789abcdef'.repeat(3);
}

/** Names of the variables in `${NAME}` and `${NAME:-default}`, comments left out. */
export function variablesOf(text: string): readonly string[] {
  const code = text.replaceAll(/(^|\s)#.*$/gm, '');
  return [...new Set(Array.from(code.matchAll(/\$\{(\w+)/g), ([, name = '']) => name))].sort();
}

/**
 * @param names variables that the example sets, with the value where it is no secret
 * @throws ConfigError where the gateway would not start with it
 */
export async function checkedConfig(
  text: string,
  names: readonly string[],
  values: Readonly<Record<string, string>> = {},
): Promise<Config> {
  await using directory = await tempDir();
  const file = directory.file('config.yaml');
  await writeFile(file, text);
  return loadConfig(file, {
    ...Object.fromEntries(names.map((name) => [name, sampleValue(name)])),
    ...values,
  });
}
