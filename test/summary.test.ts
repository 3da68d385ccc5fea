// The last line of a test run: what it counts, and that it is the last line of a real run, whatever went wrong in it.
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { tempDir } from './helpers/wait.ts';
import { count, line, type Module } from './summary.ts';

type State = 'passed' | 'failed' | 'skipped' | 'pending';

function moduleOf(states: readonly State[], errors = 0, suiteErrors: readonly number[] = []): Module {
  const listOf = (length: number): { message: string }[] => Array.from({ length }, () => ({ message: 'x' }));
  return {
    errors: () => listOf(errors),
    children: {
      allTests: () => states.map((state) => ({ result: () => ({ state }) })),
      allSuites: () => suiteErrors.map((each) => ({ errors: () => listOf(each) })),
    },
  };
}

describe('the counts', () => {
  test.each([
    ['nothing', [], 0, '0 passed, 0 failed, 0 skipped'],
    ['each state', [moduleOf(['passed', 'passed', 'failed', 'skipped'])], 0, '2 passed, 1 failed, 1 skipped'],
    ['a test that was lost', [moduleOf(['passed', 'pending'])], 0, '1 passed, 1 failed, 0 skipped'],
    [
      'a file that does not load',
      [moduleOf([], 2), moduleOf(['passed'])],
      0,
      '1 passed, 1 failed, 0 skipped',
    ],
    ['a hook that failed', [moduleOf(['skipped'], 0, [1, 0])], 0, '0 passed, 1 failed, 1 skipped'],
    ['errors that nobody caught', [moduleOf(['passed'])], 2, '1 passed, 2 failed, 0 skipped'],
  ])('%s', (_name, modules, unhandled, expected) => {
    const errors = Array.from({ length: unhandled }, () => new Error('x'));
    expect(line(count(modules, errors))).toBe(expected);
  });
});

describe('a real run ends with the line', () => {
  const vitest = fileURLToPath(new URL('../node_modules/vitest/vitest.mjs', import.meta.url));
  const reporter = fileURLToPath(new URL('summary.ts', import.meta.url));

  async function run(files: Record<string, string>): Promise<{ code: unknown; last: string | undefined }> {
    await using directory = await tempDir();
    // Two projects, of which each has a file or more.
    const project = (name: string, include: string) => ({
      test: { globals: true, name, include: [include] },
    });
    const projects = [project('first', 'a.test.js'), project('second', '[b-z].test.js')];
    const config = { test: { reporters: ['default', reporter], projects } };
    await writeFile(directory.file('vitest.config.mjs'), `export default ${JSON.stringify(config)};\n`);
    for (const [name, text] of Object.entries(files)) await writeFile(directory.file(name), text);
    const env = { PATH: process.env['PATH'] ?? '', HOME: directory.path };
    return await new Promise((resolve) => {
      execFile(process.execPath, [vitest, 'run'], { cwd: directory.path, env }, (error, stdout) => {
        resolve({ code: error?.code ?? 0, last: stdout.trimEnd().split('\n').at(-1) });
      });
    });
  }

  test('when all is well', async () => {
    const good = "test('a', () => {}); test('b', () => {}); test.skip('c', () => {}); test.todo('d');";
    const files = { 'a.test.js': good, 'b.test.js': "test('a', () => {});" };
    expect(await run(files)).toEqual({ code: 0, last: '3 passed, 0 failed, 2 skipped' });
  });

  test('when tests fail, a file does not load, a hook throws and an error is not caught', async () => {
    const { code, last } = await run({
      'a.test.js': "test('good', () => {}); test('bad', () => { throw new Error('x'); });",
      'b.test.js': 'this is no JavaScript',
      'c.test.js':
        "describe('s', () => { beforeAll(() => { throw new Error('x'); }); test('t', () => {}); });",
      'd.test.js': "test('later', async () => { Promise.reject(new Error('x')); });",
    });
    expect(code).toBe(1);
    expect(last).toBe('2 passed, 4 failed, 1 skipped');
  });
});
