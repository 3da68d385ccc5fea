// The commands of the README, in its order, and how each is carried out here. A command that nobody knows is an error.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { type Ended, Program, ROOT } from '../e2e/program.ts';

/** How a command of the README is carried out. */
export type ReadmeCommand =
  /** `tollgate` with these words, in the folder of a configuration. */
  | { readonly kind: 'tollgate'; readonly text: string; readonly words: readonly string[] }
  /** A request of curl to the gateway on port 8080, as a shell reads it. */
  | { readonly kind: 'curl'; readonly text: string }
  /** A script of package.json. */
  | { readonly kind: 'script'; readonly text: string; readonly name: string }
  /** Of npm or docker; the tests of the package and of the image do what it does. */
  | { readonly kind: 'other'; readonly text: string };

export const readmeText = (): string => readFileSync(join(ROOT, 'README.md'), 'utf8');

/** @throws Error for a command of another program */
export function readmeCommands(): readonly ReadmeCommand[] {
  return Array.from(readmeText().matchAll(/^```sh\n(.*?)^```$/gms), ([, block = '']) => block)
    .flatMap((block) => block.replaceAll(/\\\n\s*/g, '').split('\n'))
    .flatMap((line) => line.replace(/\s+#.*$/, '').split(' && '))
    .filter((command) => command.trim() !== '')
    .map(readCommand);
}

function readCommand(text: string): ReadmeCommand {
  const words = text.trim().split(/\s+/);
  if (/^npx tollgate /.test(text)) return { kind: 'tollgate', text: words.join(' '), words: words.slice(2) };
  if (words[0] === 'curl') return { kind: 'curl', text };
  if (/^npm (start|test|run )/.test(text)) return { kind: 'script', text, name: words.at(-1) ?? '' };
  if (/^(npm (ci|install)|docker) ?/.test(text)) return { kind: 'other', text };
  throw new Error(`no test runs this command of the README: ${text}`);
}

type Outcome = Omit<Ended, 'signal'>;

/** Runs a text of a shell on this machine, with TOLLGATE_KEY in its environment. */
export async function shell(text: string, key: string): Promise<Outcome> {
  await using program = new Program(['-c', text], { command: 'sh', env: { TOLLGATE_KEY: key } });
  return await program.end();
}

/**
 * Carries out what the README does with a gateway that serves the shipped configuration: its requests, with the key that the first one
 * gives, and its commands.
 * @param url the gateway, in place of port 8080
 * @param tollgate runs the command line beside it
 * @param curl runs a text of a shell
 * @param count of its commands; default: all
 * @returns each command with its exit code and the last line of what it wrote
 */
export async function followReadme(
  url: string,
  tollgate: (words: readonly string[]) => Promise<Outcome>,
  curl: (text: string, key: string) => Promise<Outcome>,
  count = README_WORKS.length,
): Promise<readonly string[]> {
  const done: string[] = [];
  let key = '';
  for (const command of readmeCommands()) {
    if (done.length === count) break;
    let outcome: Outcome;
    if (command.kind === 'curl') {
      outcome = await curl(command.text.replaceAll('http://127.0.0.1:8080', url), key);
      key = /"key":"(\w+)"/.exec(outcome.stdout)?.[1] ?? key;
    } else if (command.kind === 'tollgate' && !/^(init|serve)$/.test(command.words[0] ?? '')) {
      // The prefix of a key of the reader's.
      outcome = await tollgate(command.words.map((word) => (word === '1a2b3c4d' ? key.slice(0, 8) : word)));
    } else continue;
    const { code, stdout, stderr } = outcome;
    const last = (stdout || stderr).trim().split('\n').at(-1) ?? '';
    done.push(
      `${command.text}: ${code} ${last.replaceAll(key, 'KEY').replaceAll(key.slice(0, 8), 'PREFIX')}`,
    );
  }
  return done;
}

/** What `followReadme` returns where everything works. */
export const README_WORKS = [
  /^curl .*\/checkout .*: 0 \{"key":"KEY",/,
  /^curl .*\/v1\/chat\/completions .*: 0 data: \[DONE\]$/,
  /^npx tollgate check --config config.yaml: 0 {3}Pro +no limits$/,
  /^npx tollgate keys issue --tier Pro --holder search: 0 [0-9a-f]{32}$/,
  /^npx tollgate explain --model echo --tier Free: 0 /,
  /^npx tollgate upstreams list: 0 demo /,
  /^npx tollgate keys list: 0 \S/,
  /^npx tollgate keys revoke 1a2b3c4d --reason leaked: 0 .*PREFIX/,
  /^npx tollgate usage --since 7d --by model: 0 \S/,
].map((line): unknown => expect.stringMatching(line));
