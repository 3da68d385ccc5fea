// docs/cli.md is the help of the program, and its examples are commands that parse.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { commandTree, pathOf } from '../../src/cli/program/command-line.ts';
import { main, PROGRAM } from '../../src/main.ts';
import { allCommands, fillCommands } from '../../tools/cli-docs.ts';
import { collector } from './collector.ts';

const COMMANDS = await allCommands();
const LEAVES = COMMANDS.filter((each) => each.commands.length === 0 || pathOf(each) === 'tollgate usage');
const page = readFileSync(new URL('../../docs/cli.md', import.meta.url), 'utf8');

async function helpOf(path: string) {
  const [out, err] = [collector(), collector()];
  const io = { stdout: out.stream, stderr: err.stream, env: {} };
  const code = await main([...path.split(' ').slice(1), '--help'], io);
  return { code, out: out.text(), err: err.text() };
}

test('the page is current: node tools/cli-docs.ts docs/cli.md', async () => {
  expect(await fillCommands(page)).toBe(page);
});

test.each(COMMANDS.map(pathOf))('%s --help: exit code 0, and it is in the page', async (path) => {
  const { code, out, err } = await helpOf(path);
  expect([code, err]).toEqual([0, '']);
  expect(out).toMatch(new RegExp(`^Usage: ${path}( |\n)`));
  expect(page).toContain(`# ${path}\n\n\`\`\`text\n${out.trimEnd()}\n\`\`\``);
});

test.each(LEAVES.map(pathOf))('%s has an example, and each parses', async (path) => {
  const { out } = await helpOf(path);
  const examples = out.split('\nExamples:\n')[1]?.trimEnd().split('\n') ?? [];
  expect(examples.length).toBeGreaterThan(0);
  for (const example of examples) {
    const [plain = ''] = example.trim().split(' > ');
    const words = [...plain.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, word]) => quoted ?? word ?? '');
    let isStarted = false;
    const root = await commandTree(PROGRAM, words[1], () => {
      isStarted = true;
    });
    root.parse(words.slice(1), { from: 'user' });
    expect([example, isStarted]).toEqual([example, true]);
    expect(plain).toMatch(new RegExp(`^${path}( |$)`));
  }
});

test('every command that prints data of the store has --json, but the one that prints CSV', () => {
  const without = LEAVES.filter(({ options }) => !options.some(({ long }) => long === '--json')).map(pathOf);
  expect(without).toEqual(
    ['init', 'serve', 'check', 'usage export', 'completion'].map((name) => `tollgate ${name}`),
  );
});

test.each(COMMANDS.map((each) => [pathOf(each), each] as const))('%s is described', (_path, command) => {
  for (const option of command.options) expect(option.description.length).toBeGreaterThan(3);
  expect(command.description()).toMatch(/^[a-z]/);
  expect(command.summary().length).toBeLessThan(100);
});
