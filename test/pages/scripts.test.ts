// The scripts of the pages as the compiler sees them: they are written in JavaScript with types in comments, and checked as
// strictly as the rest.
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { ACCOUNT, COPY, hashSource, KEY } from '../../src/billing/pages/page-scripts.ts';

const FOLDER = new URL('../../src/billing/pages/browser/', import.meta.url);
const FILES = readdirSync(FOLDER).filter((name) => name.endsWith('.js'));
const TSC = fileURLToPath(new URL('../../node_modules/typescript/bin/tsc', import.meta.url));
const OPTIONS =
  '--ignoreConfig --noEmit --allowJs --checkJs --strict --noUncheckedIndexedAccess --noUnusedParameters ' +
  '--target es2024 --lib es2024,dom,dom.iterable --module esnext';

test('have the types that they say', async () => {
  const paths = FILES.map((name) => fileURLToPath(new URL(name, FOLDER)));
  const result = await promisify(execFile)(process.execPath, [
    TSC,
    ...OPTIONS.split(' '),
    '--types',
    '',
    ...paths,
  ]).catch((error: unknown) => error);
  expect(result).toEqual({ stdout: '', stderr: '' });
});

test('are short, open with what they are for, and can stand in a page', () => {
  expect(FILES.sort()).toEqual(['account.js', 'charts.js', 'copy.js', 'key.js', 'standing.js']);
  for (const name of FILES) {
    const text = readFileSync(new URL(name, FOLDER), 'utf8');
    expect([name, text.split('\n').length < 300]).toEqual([name, true]);
    expect(text).toMatch(/^\/\/ @ts-check\n\/\/ \S/);
    expect(text).not.toMatch(/<\/script|<!--/i);
    // They do the same in every theme and at every width: `looks.test.ts` loads a page in one view and looks at it in all.
    expect(text).not.toMatch(
      /matchMedia|(inner|outer|client|offset|scroll)(Width|Height)|getBoundingClientRect|getComputedStyle|ResizeObserver|['"]resize/,
    );
    // Neither markup from text, nor anything that outlives the tab.
    expect(text).not.toMatch(
      /innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|localStorage|sessionStorage|document\.cookie|indexedDB/,
    );
  }
});

test('are known by the hash of what stands in the page', () => {
  for (const { text, hash } of [ACCOUNT, COPY, KEY]) expect(hash).toBe(hashSource(text));
  expect(ACCOUNT.text.indexOf('function draw')).toBeLessThan(ACCOUNT.text.indexOf('async function rotate'));
});
