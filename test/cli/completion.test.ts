// The completion as the shells themselves run it; zsh and fish where they are installed.
import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { main } from '../../src/main.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { collector } from './collector.ts';

const isInstalled = (shell: string) =>
  (process.env['PATH'] ?? '').split(':').some((folder) => existsSync(`${folder}/${shell}`));

/** For each shell a program that prints the candidates behind the words of its arguments, one a line. */
const PROGRAMS = {
  bash: [
    'bash',
    '--norc',
    '-c',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the shell expands it.
    'source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _tollgate; printf "%s\\n" "${COMPREPLY[@]}"',
    '-',
  ],
  fish: [
    'fish',
    '--no-config',
    '-c',
    'source ./script; complete -C "$argv" | string replace -r "\\t.*" ""; true',
  ],
  zsh: [
    'zsh',
    '-f',
    '-c',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the shell expands it.
    'compdef() {:}; _describe() { print -rl -- "${(@)${(P)2}%%:*}" }; compadd() { shift; print -rl -- "$@" }; _files() { print -l *(N) }; source ./script; words=("$@"); CURRENT=$#; _tollgate',
    '-',
  ],
} as const;
const SHELLS = (['bash', 'zsh', 'fish'] as const).filter(isInstalled);

let dir: TempDir;
beforeAll(async () => {
  dir = await tempDir();
});
afterAll(() => dir.remove());

async function scriptOf(shell: string): Promise<string> {
  const out = collector();
  expect(await main(['completion', shell], { stdout: out.stream, stderr: out.stream, env: {} })).toBe(0);
  return out.text();
}

test('bash is here', () => expect(SHELLS).toContain('bash'));

describe.each(SHELLS)('%s', (shell) => {
  beforeAll(async () => writeFileSync(dir.file('script'), await scriptOf(shell)));

  const complete = (...words: readonly string[]) => {
    const [program, ...argv] = PROGRAMS[shell];
    const given = shell === 'fish' ? [words.join(' ')] : words;
    const output = execFileSync(program, [...argv, ...given], { cwd: dir.path, encoding: 'utf8' });
    return output.split('\n').filter((line) => line !== '');
  };

  test('completes commands and those of groups', () => {
    expect(complete('tollgate', '')).toEqual(
      expect.arrayContaining(['serve', 'keys', 'usage', 'completion']),
    );
    const keys = complete('tollgate', 'keys', '');
    expect(keys).toEqual(expect.arrayContaining(['issue', 'list', 'revoke', 'suspend']));
    expect(keys).not.toContain('serve');
    expect(complete('tollgate', 'completion', '')).toEqual(expect.arrayContaining(['bash', 'zsh', 'fish']));
  });

  test('completes options, also behind operands, values and options', () => {
    for (const before of [[], ['--json'], ['0123abcd', '--reason', 'keys']]) {
      const options = complete('tollgate', 'keys', 'revoke', ...before, '--');
      expect(options).toEqual(expect.arrayContaining(['--reason', '--config', '--help']));
      expect(options).not.toContain('--tier');
    }
    expect(complete('tollgate', 'usage', '--')).toEqual(expect.arrayContaining(['--since', '--by', '--csv']));
  });

  test('completes known values, files for files, and nothing for others', () => {
    expect(complete('tollgate', 'keys', 'issue', '--tier', '').sort()).toEqual(['Free', 'Lite', 'Pro']);
    expect(complete('tollgate', 'keys', 'list', '--state', '')).toContain('revoked');
    expect(complete('tollgate', 'check', '--config', '')).toEqual(['script']);
    expect(complete('tollgate', 'keys', 'issue', '--name', '')).toEqual([]);
  });
});

test('bash completes the value behind =', async () => {
  writeFileSync(dir.file('script'), await scriptOf('bash'));
  const words = 'COMP_WORDS=(tollgate keys issue --tier = L); COMP_CWORD=5';
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the shell expands it.
  const script = `source ./script; ${words}; _tollgate; ${'echo "${COMPREPLY[@]}"'}`;
  expect(execFileSync('bash', ['--norc', '-c', script], { cwd: dir.path, encoding: 'utf8' })).toBe('Lite\n');
});

test('another shell is wrong usage', async () => {
  const err = collector();
  expect(await main(['completion', 'zhs'], { stdout: err.stream, stderr: err.stream, env: {} })).toBe(2);
  expect(err.text()).toBe(
    'tollgate completion: unknown shell: it is one of bash, zsh, fish (did you mean zsh?); see tollgate completion --help\n',
  );
});
