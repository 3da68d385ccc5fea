// Runs the command that the arguments name: loads its module, parses, prints errors, and gives the exit code.
import type { Command } from 'commander';
import { ConfigError, faultReport } from '../../config/config-fault.ts';
import { GatewayError } from '../../errors.ts';
import { StoreOpenError, storeFault } from '../../store/store-errors.ts';
import { maskKeys } from '../../telemetry/log/key-mask.ts';
import { UsageError } from './arguments.ts';
import { type Definition, StrictCommand, type Work } from './command.ts';
import { type CommandIo, columnsOf, hasColors, write } from './terminal.ts';

/** A command of the first level. Its module is loaded when it is needed, because most of a start is loading. */
interface CommandEntry {
  readonly name: string;
  readonly about: string;
  load(): Promise<Definition>;
}

export interface Program {
  readonly version: string;
  readonly about: string;
  readonly entries: readonly CommandEntry[];
  /** What runs the command of these words at a gateway; undefined where it runs here. @throws UsageError */
  remote?(
    argv: readonly string[],
    io: CommandIo,
  ): Promise<{ readonly words: readonly string[]; run(): Promise<number> } | undefined>;
}

/** The status that a shell shows for a program that ends at a closed pipe: 128 and the number of SIGPIPE. */
const ENDED_BY_SIGPIPE = 141;
const WRONG_USAGE = 2;
/** Columns of the help where there is no terminal. */
const HELP_WIDTH = 100;
const HELP = new Set(['--help', '-h']);

/**
 * The whole program for commander.
 * @param only the command of the first level whose own commands are needed; default: all
 * @param start gets what the parsed command does
 */
export async function commandTree(
  { about, entries }: Program,
  only?: string,
  start: (work: Work) => void = () => undefined,
): Promise<Command> {
  const root = new StrictCommand({ name: 'tollgate', about });
  root.option('-v, --version', 'show the version');
  root.option(
    '--url <URL>',
    'run the command at a gateway: the URL of its admin listener; also TOLLGATE_URL, with a token in TOLLGATE_TOKEN',
  );
  for (const entry of entries) {
    const isNeeded = only === undefined || entry.name === only;
    root.addCommand(isNeeded ? (await entry.load()).build(start) : new StrictCommand(entry));
  }
  return root;
}

/** The help of a command, for the terminal of `io`. */
export function helpOf(command: Command, io: Pick<CommandIo, 'stdout' | 'env'>): string {
  let text = '';
  command.configureOutput({
    writeOut: (part) => {
      text += part;
    },
    getOutHelpWidth: () => columnsOf(io) ?? HELP_WIDTH,
    getOutHasColors: () => hasColors(io),
  });
  command.outputHelp();
  return text;
}

/**
 * @param argv arguments without the interpreter and the script
 * @returns the exit code: that of the command, 1 when it failed, 2 for wrong usage, 141 when the reader of its output has gone
 */
export async function runCommandLine(
  program: Program,
  argv: readonly string[],
  io: CommandIo,
): Promise<number> {
  const isHelp = argv[0] === 'help';
  const words = isHelp ? argv.slice(1) : argv;
  const end = words.indexOf('--');
  const wantsHelp = isHelp || (end === -1 ? words : words.slice(0, end)).some((word) => HELP.has(word));
  let path = 'tollgate';
  try {
    const remote = wantsHelp ? undefined : await program.remote?.(words, io);
    if (remote !== undefined) {
      path = `tollgate ${remote.words.join(' ')}`;
      return await remote.run();
    }
    let work: Work | undefined;
    const root = await commandTree(program, words[0] ?? '', (found) => {
      work = found;
    });
    const target = commandAt(root, words);
    path = pathOf(target);
    const next = words[path.split(' ').length - 1];
    if (wantsHelp || (next === 'help' && target.commands.length > 0))
      await write(io.stdout, helpOf(target, io));
    else if (words[0] === '--version' || words[0] === '-v') await write(io.stdout, `${program.version}\n`);
    else if (words.length === 0) {
      await write(io.stderr, helpOf(root, io));
      return WRONG_USAGE;
    } else root.parse(words, { from: 'user' });
    return (await work?.(io)) ?? 0;
  } catch (error) {
    // The API of the console answers with the code.
    if (io.desk?.throwsCodes === true && error instanceof GatewayError) throw error;
    // The reader, such as `head`, has read enough.
    if (error instanceof Error && Reflect.get(error, 'code') === 'EPIPE') return ENDED_BY_SIGPIPE;
    if (error instanceof UsageError) {
      await write(io.stderr, `${path}: ${maskKeys(error.message)}; see ${path} --help\n`);
      return WRONG_USAGE;
    }
    const text = error instanceof ConfigError ? faultReport(error) : `${path}: ${reasonOf(error)}`;
    await write(io.stderr, `${maskKeys(text)}\n`);
    return 1;
  }
}

/** The command that the first words name. */
function commandAt(root: Command, words: readonly string[]): Command {
  let found = root;
  for (const word of words) {
    const next = found.commands.find((each) => each.name() === word);
    if (next === undefined) break;
    found = next;
  }
  return found;
}

/** `tollgate keys issue` */
export function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/** The message of an error for the operator, with its cause. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const fault = storeFault(error);
  if (fault !== undefined) return fault;
  const isWhole =
    error instanceof StoreOpenError ||
    error.name === 'SecretError' ||
    (error instanceof GatewayError && error.code === 'invalid_value');
  if (isWhole || !(error.cause instanceof Error)) return error.message;
  return `${error.message} (${error.cause.message})`;
}
