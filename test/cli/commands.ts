// Commands as an operator gives them, in this process, with the configuration of a folder.
import { expect } from 'vitest';
import { main } from '../../src/main.ts';
import { collector } from './collector.ts';

/**
 * @param configFile the path for `--config`, asked for at each command
 * @param variables of the environment, beside the user
 */
export function commandsWith(configFile: () => string, variables: Readonly<Record<string, string>> = {}) {
  async function tollgate(...argv: string[]) {
    const [out, err] = [collector(), collector()];
    const io = { stdout: out.stream, stderr: err.stream, env: { USER: 'alice', ...variables } };
    const code = await main([...argv, '--config', configFile()], io);
    return { code, out: out.text(), err: err.text() };
  }

  /** Standard output of a command that does its work. */
  async function done(...argv: string[]): Promise<string> {
    const { code, out, err } = await tollgate(...argv);
    expect([code, err.replace(/^Creating a new store.*\n|^Issued .*\n/gm, '')]).toEqual([0, '']);
    return out;
  }

  return {
    tollgate,
    done,
    json: async (...argv: string[]): Promise<unknown> => JSON.parse(await done(...argv, '--json')),
    /** @returns the prefix of a new key */
    issue: async (...argv: string[]): Promise<string> => (await done('keys', 'issue', ...argv)).slice(0, 8),
  };
}
