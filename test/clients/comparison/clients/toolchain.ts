// Finds a program of this machine that a client needs, with its version.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Unavailable } from '../types.ts';

const run = promisify(execFile);

const VERSION_MS = 30_000;

/**
 * The version of a program, as it prints it.
 * @param pattern finds the version, as its first group
 * @throws Unavailable when the machine does not have the program
 */
export async function programVersion(
  command: string,
  words: readonly string[],
  pattern: RegExp,
): Promise<string> {
  const printed = await run(command, words, { timeout: VERSION_MS }).catch((cause: unknown) => {
    throw new Unavailable(`this machine has no ${command}`, { cause });
  });
  const version = pattern.exec(printed.stdout)?.[1];
  if (version === undefined) throw new Unavailable(`${command} does not tell its version`);
  return version;
}
