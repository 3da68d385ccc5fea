// Commands at a gateway: with `--url` or TOLLGATE_URL the API of its admin listener runs the command, and its output is printed here.
import { Pool } from 'undici';
import { z } from 'zod';
import { MAX_COMMAND_BYTES, remoteNames, remoteWords } from '../console/api/command-route.ts';
import { maskKeys } from '../telemetry/log/key-mask.ts';
import { didYouMean, UsageError } from './program/arguments.ts';
import { type CommandIo, write } from './program/terminal.ts';
import { readInput } from './support-command.ts';

/** A command may wait for all replicas of a fleet. In milliseconds. */
const TIMEOUT_MS = 60_000;
const CONNECT_MS = 5_000;
/** In bytes. */
const MAX_RESPONSE = 64 * 1024 * 1024;

const ANSWER = z.object({ exit_code: z.int(), stdout: z.string(), stderr: z.string() });
const PROBLEM = z.object({ detail: z.string() });

interface RemoteCall {
  /** The command without its options. */
  readonly words: readonly string[];
  readonly url: URL;
  readonly token: string;
  readonly argv: readonly string[];
}

/** The call for a gateway; undefined for a command that runs here. @throws UsageError */
export function remoteCall(words: readonly string[], { env, desk }: CommandIo): RemoteCall | undefined {
  if (desk !== undefined) return undefined;
  const { value: given, rest: argv } = takeOption(words, '--url');
  const url = given ?? env['TOLLGATE_URL'];
  if (url === undefined || url === '') return undefined;
  const hasConfig = takeOption(argv, '--config').value !== undefined;
  if (given !== undefined && hasConfig) throw new UsageError('give either --url or --config');
  const command = remoteWords(argv);
  if (hasConfig || command === undefined) {
    if (given === undefined) return undefined;
    const near = didYouMean(argv.slice(0, 2).join(' '), remoteNames());
    throw new UsageError(`a gateway does not run this command${near}`);
  }
  const { protocol } = URL.canParse(url) ? new URL(url) : { protocol: '' };
  if (protocol !== 'http:' && protocol !== 'https:')
    throw new UsageError(
      '--url and TOLLGATE_URL are the URL of an admin listener, such as http://127.0.0.1:9090',
    );
  const token = env['TOLLGATE_TOKEN']?.trim() ?? '';
  if (!/^[\x21-\x7e]+$/.test(token))
    throw new UsageError(
      'the variable TOLLGATE_TOKEN has no token of an operator: tollgate operators add makes one',
    );
  return { words: command, url: new URL(url), token, argv };
}

/** @returns the exit code of the command @throws Error when the gateway does not answer, or refuses the call */
export async function runRemotely({ url, token, argv }: RemoteCall, io: CommandIo): Promise<number> {
  const { value: file, rest, at } = takeOption(argv, '--body');
  const stdin =
    file === undefined ? undefined : (await readInput(file, io, MAX_COMMAND_BYTES / 2)).toString();
  const words = file === undefined ? argv : rest.toSpliced(at, 0, '--body', '-');
  const base = `${url.origin}${url.pathname.replace(/\/$/, '')}`;
  const pool = new Pool(url.origin, {
    connections: 1,
    connect: { timeout: CONNECT_MS },
    maxResponseSize: MAX_RESPONSE,
  });
  try {
    const { statusCode, body } = await pool.request({
      method: 'POST',
      path: new URL(`${base}/api/v1/commands`).pathname,
      headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
      body: JSON.stringify({ argv: words, ...(stdin !== undefined && { stdin }) }),
      headersTimeout: TIMEOUT_MS,
      bodyTimeout: TIMEOUT_MS,
    });
    const answer: unknown = JSON.parse(await body.text());
    const problem = PROBLEM.safeParse(answer).data;
    if (problem !== undefined) throw new Error(`the gateway answered ${statusCode}: ${problem.detail}`);
    const { exit_code, stdout, stderr } = ANSWER.parse(answer);
    await write(io.stderr, stderr);
    await write(io.stdout, stdout);
    return exit_code;
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof z.ZodError)
      throw new Error(`${base} is not the admin listener of a gateway with this API`);
    if (error instanceof Error && 'code' in error && Reflect.get(error, 'code') !== 'EPIPE')
      throw new Error(maskKeys(`${url.origin} does not answer: ${error.message || String(error.code)}`));
    throw error;
  } finally {
    await pool.destroy();
  }
}

/** An option with a value, before `--`. @returns its value, and the words without it */
function takeOption(words: readonly string[], name: string) {
  const end = words.indexOf('--');
  const options = end === -1 ? words : words.slice(0, end);
  const at = options.findIndex((word) => word === name || word.startsWith(`${name}=`));
  const word = options[at];
  if (word === undefined) return { value: undefined, rest: words, at };
  const isNext = word === name;
  const value = isNext ? options[at + 1] : word.slice(name.length + 1);
  if (value === undefined || value === '') throw new UsageError(`${name} needs a value`);
  return { value, rest: words.toSpliced(at, isNext ? 2 : 1), at };
}
