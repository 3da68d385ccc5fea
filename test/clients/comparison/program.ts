// Runs a client program: a process in any language that makes calls and prints one JSON line for each.
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import type { CallResult, Target } from './types.ts';

/** A program has this long for all of its calls, with the waits between its retries. */
const PROGRAM_MS = 1_800_000;

/**
 * Runs a program to its end, with `BASE_URL`, `API_KEY`, `MODEL`, `EMBEDDING_MODEL` and `CALLS` (names, separated by commas)
 * in its environment. It prints one line for each of these calls, in this order, and nothing else on its standard output.
 * @throws Error with what it wrote to standard error, when it fails or leaves a call out
 */
export async function runProgram(
  command: string,
  words: readonly string[],
  target: Target,
  calls: readonly string[],
  options: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> } = {},
): Promise<CallResult[]> {
  const child = spawn(command, words, {
    cwd: options.cwd,
    env: {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      ...options.env,
      BASE_URL: target.baseUrl,
      API_KEY: target.apiKey,
      MODEL: target.model,
      EMBEDDING_MODEL: target.embeddingModel,
      CALLS: calls.join(','),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: PROGRAM_MS,
    killSignal: 'SIGKILL',
  });
  const ended = new Promise<string>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve(String(code ?? signal)));
  });
  const [code, stdout, stderr] = await Promise.all([ended, text(child.stdout), text(child.stderr)]);
  const problem = (what: string): Error =>
    new Error(`${[command, ...words].join(' ')}: ${what}\n${stderr.replaceAll(target.apiKey, '<key>')}`);
  if (code !== '0') throw problem(`ended with ${code}`);
  // Errors of SDKs name the URL that they called; it differs between the two runs and says nothing.
  const results = stdout
    .replaceAll(target.baseUrl, '<base url>')
    .replaceAll(new URL(target.baseUrl).origin, '<origin>')
    .replaceAll(target.apiKey, '<key>')
    .split('\n')
    .filter((line) => line !== '');
  const parsed = results.map((line): CallResult => {
    try {
      return JSON.parse(line);
    } catch (cause) {
      throw new Error('a client program printed a line that is no JSON', { cause });
    }
  });
  const made = parsed.map(({ call }) => call).join(',');
  if (made !== calls.join(',')) throw problem(`made the calls ${made} of ${calls.join(',')}`);
  return parsed;
}
