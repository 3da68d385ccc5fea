// `tollgate init`: writes the packaged default configuration to a new file.
import { readFile, writeFile } from 'node:fs/promises';
import { CONFIG, command } from './command.ts';
import { write } from './terminal.ts';

/** Next to src/ in a checkout, next to dist/ in the package. */
const SHIPPED = new URL('../../config.yaml', import.meta.url);
/** Its relative path to the schema is valid only in the package's folder. */
const SCHEMA_LINE = /^# yaml-language-server:.*\n/;

export const INIT = command({
  name: 'init',
  about: 'write a first config.yaml',
  options: {
    config: { ...CONFIG, about: 'the new file, which must not exist; the default is ./config.yaml' },
  },
  examples: ['init', 'init --config gateway.yaml'],
  run: async ({ config: file }, io) => {
    const text = (await readFile(SHIPPED, 'utf8')).replace(SCHEMA_LINE, '');
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
