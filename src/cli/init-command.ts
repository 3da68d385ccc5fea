// `tollgate init`: writes the packaged default configuration to a new file.
import { readFile, writeFile } from 'node:fs/promises';
import { readArguments } from './arguments.ts';
import { type CommandIo, type CommandText, runCommand, write } from './support-command.ts';

const INIT: CommandText = {
  name: 'init',
  usage: `Usage: tollgate init [--config FILE]

Writes a first configuration to FILE (default ./config.yaml), which must not exist.
`,
};

/** Next to src/ in a checkout, next to dist/ in the package. */
const SHIPPED = new URL('../../config.yaml', import.meta.url);
/** Its relative path to the schema is valid only in the package's folder. */
const SCHEMA_LINE = /^# yaml-language-server:.*\n/;

/** Never overwrites a file. @returns the exit code: 1 when the file exists or cannot be written */
export function runInit(argv: readonly string[], io: CommandIo): Promise<number> {
  return runCommand(INIT, argv, io, async () => {
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
