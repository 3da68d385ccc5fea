// Runs a command of the command line in this process, for the API: its changes have the rules, the checks and the output of the commands.
import { Writable } from 'node:stream';
import { GatewayError } from '../errors.ts';
import type { ConsoleDesk } from './console-desk.ts';

/** In characters. */
const MAX_OUTPUT = 32 * 1024 * 1024;

export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A value of an option: a flag, a text, or one text for each time that the option is given. Without a value it is left out. */
type OptionValue = string | number | boolean | readonly string[] | undefined;

/**
 * @param words the command
 * @param operand behind all options, so that it is none even if it begins with a dash; null for a command without one
 * @param options by their names without dashes
 */
export function argvOf(
  words: readonly string[],
  operand: string | null,
  options: Readonly<Record<string, OptionValue>>,
): readonly string[] {
  const given = Object.entries(options).flatMap(([name, value]) => {
    if (value === undefined || value === false) return [];
    if (value === true) return [`--${name}`];
    return typeof value === 'object' ? value.map((each) => `--${name}=${each}`) : [`--${name}=${value}`];
  });
  return [...words, ...given, ...(operand === null ? [] : ['--', operand])];
}

interface RunOptions {
  /** For a command that reads its standard input. */
  readonly stdin?: string;
  /** Whether an error with a code is thrown instead of printed. */
  readonly throwsCodes?: boolean;
}

export async function runOnDesk(
  desk: ConsoleDesk,
  argv: readonly string[],
  { stdin = '', throwsCodes = false }: RunOptions = {},
): Promise<CommandResult> {
  const { commands, env } = desk;
  if (commands === undefined) throw new GatewayError('internal_error', undefined, { cause: 'no commands' });
  const [stdout, stderr] = [new Collected(), new Collected()];
  const input = (async function* () {
    yield stdin;
  })();
  const code = await commands(argv, { stdout, stderr, stdin: input, env, desk: { ...desk, throwsCodes } });
  return { code, stdout: stdout.text, stderr: stderr.text };
}

/**
 * Runs a command that succeeds; what it rejects by a GatewayError rejects here, too.
 * @throws GatewayError `invalid_value` for wrong usage, `record_conflict` when the command failed
 */
export async function done(desk: ConsoleDesk, argv: readonly string[]): Promise<CommandResult> {
  const result = await runOnDesk(desk, argv, { throwsCodes: true });
  // 3: done, and a replica has not confirmed it. `explain` answers with 1 that a request would be rejected.
  const isAnswer = result.code === 1 && argv[0] === 'explain' && result.stderr === '';
  if (result.code === 0 || result.code === 3 || isAnswer) return result;
  throw new GatewayError(result.code === 2 ? 'invalid_value' : 'record_conflict', messageOf(result.stderr));
}

/** As `done`, for a command with `--json`. */
export async function commandJson(desk: ConsoleDesk, argv: readonly string[]): Promise<unknown> {
  return JSON.parse((await done(desk, argv)).stdout);
}

/** The message of a command in terms of the API: without its name, and with members in place of options. */
function messageOf(stderr: string): string {
  const [, message = 'The command failed'] =
    /(?:^|\n)tollgate[a-z ]*: ([\s\S]*?)(?:; see [^;]*--help)?\n*$/.exec(stderr) ?? [];
  const text = message.replaceAll(
    /--([a-z]+(?:-[a-z]+)*)/g,
    (_, name: string) => `\`${name.replaceAll('-', '_')}\``,
  );
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}${text.endsWith('.') ? '' : '.'}`;
}

class Collected extends Writable {
  text = '';

  override _write(chunk: Buffer | string, _encoding: string, callback: (error?: Error) => void): void {
    this.text += chunk.toString();
    callback(this.text.length > MAX_OUTPUT ? new Error('the output is too large') : undefined);
  }
}
