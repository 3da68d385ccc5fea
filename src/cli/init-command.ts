// `tollgate init`: writes the packaged default configuration to a new file.
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { dirname, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageFile } from '../package-files.ts';
import { CONFIG, command } from './program/command.ts';
import { write } from './program/terminal.ts';

const SHIPPED = packageFile('../config.yaml');
const SCHEMA = fileURLToPath(packageFile('../config.schema.json'));
const SCHEMA_LINE = /^# yaml-language-server:.*\n/;

/** The line by which editors find the schema from `file`; empty in the image, which has none, and in the cache of `npx`, which is emptied. */
function schemaLine(file: string): string {
  if (!existsSync(SCHEMA) || SCHEMA.includes(`${sep}_npx${sep}`)) return '';
  const path = relative(dirname(resolve(file)), SCHEMA).replaceAll(sep, '/');
  return `# yaml-language-server: $schema=${path.startsWith('.') ? path : `./${path}`}\n`;
}

export const INIT = command('init', 'write a first config.yaml', {
  options: {
    config: { ...CONFIG, about: 'the new file, which must not exist; the default is ./config.yaml' },
  },
  examples: ['init', 'init --config gateway.yaml'],
  run: async ({ config: file }, io) => {
    const text = (await readFile(SHIPPED, 'utf8')).replace(SCHEMA_LINE, () => schemaLine(file));
    try {
      // It never overwrites a file.
      await writeFile(file, text, { flag: 'wx' });
    } catch (error) {
      const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
      if (code !== 'EEXIST') throw error;
      await write(io.stderr, `tollgate init: ${file} exists; nothing was written\n`);
      return 1;
    }
    const option = file === './config.yaml' ? '' : ` --config ${file}`;
    await write(io.stderr, `Wrote ${file}. Now: npx tollgate serve${option}\n`);
    return 0;
  },
});
