// `tollgate init`: puts the configuration that comes with the package where there is none yet. It starts nothing.
import { readFile, writeFile } from 'node:fs/promises';
import { readArguments } from './arguments.ts';
import { type CommandIo, type CommandText, runCommand, write } from './support-command.ts';

const INIT: CommandText = {
  name: 'init',
  usage: `  tollgate init [--config FILE]

Writes a configuration to begin with to FILE (default ./config.yaml), which must not exist.
`,
};

/** Beside src in a checkout, beside dist in the package. */
const SHIPPED = new URL('../../config.yaml', import.meta.url);
/** Where an editor finds the schema is true in the folder of the package alone. */
const SCHEMA_LINE = /^# yaml-language-server:.*\n/;

/** @returns the exit code: 1 when the file exists or cannot be written; it is never overwritten */
export function runInit(argv: readonly string[], io: CommandIo): Promise<number> {
  return runCommand(INIT, io, async () => {
    const file = readArguments(argv, { config: 'text' }).text('config') ?? './config.yaml';
    const text = (await readFile(SHIPPED, 'utf8')).replace(SCHEMA_LINE, '');
    try {
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
  });
}
