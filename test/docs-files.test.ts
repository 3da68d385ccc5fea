// Source files that the docs name: each exists, and the table of rooms is that of the source tree.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path/posix';
import { describe, expect, test } from 'vitest';

const ROOT = new URL('../', import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, ROOT), 'utf8');
const exists = (path: string): boolean => existsSync(new URL(path, ROOT));

const PAGES = [
  'README.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  ...readdirSync(new URL('docs/', ROOT)).flatMap((name) => (name.endsWith('.md') ? [`docs/${name}`] : [])),
];

/** Paths of files in `text`, between backticks: relative to the root of the project or to `src`. */
function filesIn(text: string): string[] {
  return [...text.matchAll(/`([\w./-]+\.(?:ts|lua|js))`/g)].flatMap(([, path]) => path ?? []);
}

/** Rows of the first table below a heading, by cell, without the first two. */
function rowsBelow(text: string, heading: string): string[][] {
  const lines = text.slice(text.indexOf(`${heading}\n`)).split('\n');
  const start = lines.findIndex((line) => line.startsWith('|'));
  const end = lines.findIndex((line, index) => index > start && !line.startsWith('|'));
  return lines.slice(start + 2, end).map((line) => line.split('|').map((cell) => cell.trim()));
}

test('the root has what is meant to be there, and what git ignores', () => {
  const known =
    /^(?:\.(?:ci|dockerignore|editorconfig|git|gitignore)|(?:CHANGELOG|CONTRIBUTING|README|SECURITY)\.md|Dockerfile|LICENSE|bench|bin|biome\.json|config\.schema\.json|config\.yaml|docs|examples|package(?:-lock)?\.json|src|test|tools|tsconfig\.json|vitest\.config\.ts)$/;
  const ignored = read('.gitignore').trim().split('\n');
  const isIgnored = (name: string) =>
    ignored.some((rule) =>
      rule.startsWith('*') ? name.endsWith(rule.slice(1)) : name === rule.replace(/\/$/, ''),
    );
  expect(readdirSync(ROOT).filter((name) => !known.test(name) && !isIgnored(name))).toEqual([]);
});

test.each(PAGES)('%s names files that exist', (page) => {
  const missing = filesIn(read(page)).filter((path) => !exists(path) && !exists(`src/${path}`));
  expect(missing).toEqual([]);
});

test.each([...PAGES, 'CHANGELOG.md'])('%s has no marker of a merge conflict', (page) => {
  expect(read(page)).not.toMatch(/^(<{7} |={7}$|>{7} )/m);
});

describe('docs/architecture.md', () => {
  const page = read('docs/architecture.md');

  test('has a file for each step of a request', () => {
    const steps = rowsBelow(page, '## The life of a request');
    expect(steps.length).toBeGreaterThan(20);
    for (const [, step, file = ''] of steps) {
      expect(filesIn(file), step).toHaveLength(1);
    }
  });

  test('has each folder of src once, with a contract that lies in it', () => {
    const rooms = rowsBelow(page, '## Rooms').map(([, room = '', contract = '']) => ({
      room: room.replaceAll('`', ''),
      contract: filesIn(contract)[0] ?? '',
    }));
    const folders = readdirSync(new URL('src/', ROOT), { recursive: true, encoding: 'utf8' })
      .filter((path) => /\.(ts|js)$/.test(path) && path.includes('/'))
      .map((path) => dirname(path));
    expect(rooms.map(({ room }) => room).sort()).toEqual([...new Set(folders)].sort());
    for (const { room, contract } of rooms) {
      expect(room === dirname(contract) || room.startsWith(`${dirname(contract)}/`), contract).toBe(true);
    }
  });
});
