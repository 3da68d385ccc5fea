// The rows of the table of losses, and the tests that are named by them.
import { readFileSync } from 'node:fs';
import { test } from 'vitest';

const FILES = ['losses.test.ts', 'losses-process.test.ts', 'ended-thread.test.ts'];
const TIMEOUT_MS = 120_000;

/** A test of one row of the table. @param name text of the first column */
export function row(name: string, run: () => Promise<void>): void {
  test(name, run, TIMEOUT_MS);
}

/** The first column of the table in docs/usage.md. */
export function losses(): readonly string[] {
  const text = readFileSync(new URL('../../docs/usage.md', import.meta.url), 'utf8');
  const from = text.indexOf('| event | what is lost |');
  const table = text.slice(from).split('\n\n')[0] ?? '';
  return table
    .split('\n')
    .flatMap((line, index) => (index < 2 ? [] : [/^\| (.+?) \|/.exec(line)?.[1] ?? line]));
}

/** Names of the tests, from their sources. */
export function tested(): readonly string[] {
  return FILES.flatMap((file) => {
    const source = readFileSync(new URL(file, import.meta.url), 'utf8');
    return Array.from(source.matchAll(/^ +row\('([^']+)'/gm), ([, name = '']) => name);
  });
}
