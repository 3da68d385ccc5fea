// The entry point: the commands of the program. Each is in cli/, and `serve` in serve.ts.
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { commandTree, type Program, runCommandLine } from './cli/program/command-line.ts';
import type { CommandIo } from './cli/program/terminal.ts';
import { VERSION } from './package-files.ts';

const FILE = fileURLToPath(import.meta.url);

export const PROGRAM: Program = {
  version: VERSION,
  about: 'an OpenAI-compatible gateway',
  // Most starts need no client.
  remote: async (words, io) => {
    const isNamed = words.some((word) => word === '--url' || word.startsWith('--url='));
    if (io.desk !== undefined || (!isNamed && !io.env['TOLLGATE_URL'])) return undefined;
    const { remoteCall, runRemotely } = await import('./cli/remote-command.ts');
    const call = remoteCall(words, io);
    return call && { words: call.words, run: () => runRemotely(call, io) };
  },
  entries: [
    {
      name: 'init',
      about: 'write a first config.yaml',
      load: async () => (await import('./cli/init-command.ts')).INIT,
    },
    {
      name: 'serve',
      about: 'run the gateway',
      load: async () =>
        (await import('./serve.ts')).serveCommand(FILE, main, () =>
          Promise.all(PROGRAM.entries.map((entry) => entry.load())),
        ),
    },
    {
      name: 'check',
      about: 'validate a configuration and summarize it',
      load: async () => (await import('./cli/check-command.ts')).CHECK,
    },
    {
      name: 'explain',
      about: 'show where a request for a model would go',
      load: async () => (await import('./cli/explain/explain-command.ts')).EXPLAIN,
    },
    {
      name: 'keys',
      about: 'issue and change keys',
      load: async () => (await import('./cli/owners/keys-commands.ts')).KEYS,
    },
    {
      name: 'holders',
      about: 'find and change holders of keys',
      load: async () => (await import('./cli/owners/holder-commands.ts')).HOLDERS,
    },
    {
      name: 'teams',
      about: 'groups of holders',
      load: async () => (await import('./cli/owners/team-commands.ts')).TEAMS,
    },
    {
      name: 'operators',
      about: 'who may use the console of the admin listener',
      load: async () => (await import('./cli/owners/operators-command.ts')).OPERATORS,
    },
    {
      name: 'orders',
      about: 'orders and their payments',
      load: async () => (await import('./cli/orders-commands.ts')).ORDERS,
    },
    {
      name: 'upstreams',
      about: 'states of upstreams, and taking one out of service',
      load: async () => (await import('./cli/upstreams/upstreams-command.ts')).UPSTREAMS,
    },
    {
      name: 'usage',
      about: 'report usage, and close months',
      load: async () => (await import('./cli/usage/usage-command.ts')).USAGE,
    },
    {
      name: 'completion',
      about: 'print a script that completes commands in a shell',
      load: async () =>
        (await import('./cli/program/completion.ts')).completionCommand(() => commandTree(PROGRAM)),
    },
  ],
};

/**
 * Runs one command.
 * @param argv arguments without the interpreter and the script
 * @param io streams and environment for all commands except `serve`, which uses those of the process
 * @returns the exit code; `serve` returns after shutdown
 */
export function main(argv: readonly string[], io: CommandIo = process): Promise<number> {
  return runCommandLine(PROGRAM, argv, io);
}

/** Whether Node runs this file, directly or through a symlink. */
function isEntryPoint(): boolean {
  const script = process.argv[1];
  return script !== undefined && realpathSync(script) === FILE;
}

if (isEntryPoint()) process.exitCode = await main(process.argv.slice(2));
