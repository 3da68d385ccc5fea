// docs/cli.md: the help of each command, from the definitions. `node tools/cli-docs.ts docs/cli.md` writes it into the page.
import { readFileSync, writeFileSync } from 'node:fs';
import { Writable } from 'node:stream';
import type { Command } from 'commander';
import { commandTree, helpOf, pathOf } from '../src/cli/program/command-line.ts';
import { PROGRAM } from '../src/main.ts';

const PIPE = { stdout: new Writable(), env: {} };

/** All commands, the program first. */
export async function allCommands(): Promise<readonly Command[]> {
  const withCommands = (of: Command): readonly Command[] => [of, ...of.commands.flatMap(withCommands)];
  return withCommands(await commandTree(PROGRAM));
}

/** @returns the page with what stands between its markers (`<!-- commands -->` … `<!-- end -->`) made new */
export async function fillCommands(page: string): Promise<string> {
  const sections = (await allCommands()).map((command) => {
    const level = '#'.repeat(Math.min(pathOf(command).split(' ').length, 2) + 1);
    return `${level} ${pathOf(command)}\n\n\`\`\`text\n${helpOf(command, PIPE).trimEnd()}\n\`\`\`\n`;
  });
  return page.replace(
    /<!-- commands -->.*<!-- end -->/s,
    () => `<!-- commands -->\n\n${sections.join('\n')}\n<!-- end -->`,
  );
}

const [, script, file] = process.argv;
if (script !== undefined && import.meta.filename === script && file !== undefined)
  writeFileSync(file, await fillCommands(readFileSync(file, 'utf8')));
