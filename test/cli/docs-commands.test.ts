// Commands in the documentation: those of code blocks parse as they are, and those within sentences have only words and options that the
// program knows.
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { commandTree } from '../../src/cli/program/command-line.ts';
import { PROGRAM } from '../../src/main.ts';
import { allCommands } from '../../tools/cli-docs.ts';

const ROOT = new URL('../../', import.meta.url);
const PAGES = [
  'README.md',
  'SECURITY.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  ...readdirSync(new URL('docs/', ROOT))
    .filter((name) => name.endsWith('.md') && name !== 'cli.md')
    .map((name) => `docs/${name}`),
];
/** Of the whole program: `--url` is taken before the command. */
const COMMON = ['--help', '--version', '--url'];

function wordsOf(line: string): readonly string[] {
  const words = line.matchAll(/'([^']*)'|"([^"]*)"|((?:[^\s"']|"[^"]*"|'[^']*')+)/g);
  return [...words].map(([, single, double, word]) => single ?? double ?? word ?? '');
}

/** Commands of lines in code blocks: without what a shell takes for itself. */
function commandsIn(text: string): readonly string[] {
  const blocks = [...text.matchAll(/^```(?:sh|bash|shell)?\n([\s\S]*?)^```/gm)].map(
    ([, block = '']) => block,
  );
  return blocks.flatMap((block) =>
    block
      .replaceAll('\\\n', ' ')
      .split('\n')
      .flatMap((line) => line.replace(/(^|\s)#.*$/, '').split(/\s*(?:&&|\||;)\s*/))
      .map((part) => part.trim().replace(/^(?:[A-Z_]+=\S+ )*(?:npx |node bin\/)?(?=tollgate)/, ''))
      .filter((part) => /^tollgate(?:\.js)? [a-z-]/.test(part))
      .map((part) => part.replace(/\s*(?:2?>>?\s*\S+|2>&1)/g, '')),
  );
}

async function parses(words: readonly string[]): Promise<string> {
  let isStarted = false;
  try {
    const root = await commandTree(PROGRAM, words[0], () => {
      isStarted = true;
    });
    root.parse([...words], { from: 'user' });
  } catch (error) {
    return String(error);
  }
  return isStarted ? '' : 'is no command';
}

test.each(PAGES)('%s: the commands of its code blocks parse', async (page) => {
  const text = readFileSync(new URL(page, ROOT), 'utf8');
  const wrong: string[] = [];
  for (const command of commandsIn(text)) {
    const [, ...words] = wordsOf(command);
    const url = words.indexOf('--url');
    const own = url === -1 ? words : words.toSpliced(url, 2);
    const fault = await parses(own);
    if (fault !== '') wrong.push(`${command}: ${fault}`);
  }
  expect(wrong).toEqual([]);
});

test.each(PAGES)('%s: what its sentences name are commands and options of the program', async (page) => {
  const known = new Map(
    (await allCommands()).map((each) => [each, each.options.map(({ long }) => long ?? '')]),
  );
  const [root] = known.keys();
  const text = readFileSync(new URL(page, ROOT), 'utf8').replaceAll(/^```[\s\S]*?^```/gm, '');
  const wrong: string[] = [];
  for (const [, line = ''] of text.matchAll(/`tollgate ([a-z][^`\n]*)`/g)) {
    const words = line.split(/\s+/);
    let at = root;
    for (const word of words) {
      const next = at?.commands.find((each) => each.name() === word);
      if (next === undefined) break;
      at = next;
    }
    if (at === root) wrong.push(`tollgate ${line}`);
    const options = [...(at === undefined ? [] : (known.get(at) ?? [])), ...COMMON];
    for (const [option] of line.matchAll(/--[a-z][a-z-]*/g))
      if (!options.includes(option)) wrong.push(`tollgate ${line}: ${option}`);
  }
  expect(wrong).toEqual([]);
});
