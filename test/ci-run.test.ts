// .ci/run with an npm that plays what is to be tested: the order of its steps, its last line and its exit code.
import { execFile } from 'node:child_process';
import { chmod, copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { tempDir } from './helpers/wait.ts';

const SCRIPT = fileURLToPath(new URL('../.ci/run', import.meta.url));

interface Play {
  /** The step that fails: `ci`, `run lint`, `run types`, `run test:node24`. */
  readonly fails?: string;
  readonly testOutput?: string;
  readonly testCode?: number;
}

async function run(
  play: Play,
): Promise<{ code: unknown; last: string | undefined; steps: string[]; output: string }> {
  await using directory = await tempDir();
  const clone = directory.file('clone');
  await mkdir(`${clone}/.ci`, { recursive: true });
  await copyFile(SCRIPT, `${clone}/.ci/run`);
  await mkdir(directory.file('bin'));
  await writeFile(directory.file('output'), play.testOutput ?? 'some test\n1 passed, 0 failed, 0 skipped\n');
  const npm = `#!/bin/sh
pwd >> "${directory.path}/cwd"
echo "$*" >> "${directory.path}/steps"
case "$*" in
  "${play.fails ?? 'nothing'}"*) echo "npm error" >&2; exit 9 ;;
  test*) cat "${directory.path}/output"; exit ${play.testCode ?? 0} ;;
esac
`;
  await writeFile(directory.file('bin/npm'), npm);
  await chmod(directory.file('bin/npm'), 0o755);
  const env = { PATH: `${directory.file('bin')}:/usr/bin:/bin` };
  const { code, output } = await new Promise<{ code: unknown; output: string }>((resolve) => {
    execFile(`${clone}/.ci/run`, [], { cwd: '/', env }, (error, stdout) => {
      resolve({ code: error?.code ?? 0, output: stdout });
    });
  });
  const steps = (await readFile(directory.file('steps'), 'utf8')).trimEnd().split('\n');
  const folders = new Set((await readFile(directory.file('cwd'), 'utf8')).trimEnd().split('\n'));
  expect([...folders]).toEqual([clone]);
  return {
    code,
    output,
    steps: steps.map((step) => step.replace(/ --.*/, '')),
    last: output.trimEnd().split('\n').at(-1),
  };
}

describe('.ci/run', () => {
  test('installs, lints, checks types, tests on Node 24 and tests, in this order', async () => {
    expect(await run({})).toMatchObject({
      code: 0,
      steps: ['ci', 'run lint', 'run types', 'run test:node24', 'test'],
      last: '1 passed, 0 failed, 0 skipped',
    });
  });

  test.each([
    ['ci', ['ci']],
    ['run lint', ['ci', 'run lint']],
    ['run types', ['ci', 'run lint', 'run types']],
    ['run test:node24', ['ci', 'run lint', 'run types', 'run test:node24']],
  ])('stops when `npm %s` fails, and says so', async (fails, steps) => {
    const result = await run({ fails });
    expect(result).toMatchObject({ code: 1, steps, last: '0 passed, 1 failed, 0 skipped' });
    expect(result.output).toContain(`npm ${fails} failed`);
  });

  test.each([
    ['failed tests', '3 passed, 2 failed, 1 skipped\n', 1, '3 passed, 2 failed, 1 skipped', 1],
    [
      'something after the line',
      '1 passed, 1 failed, 0 skipped\n\nnpm error x\n',
      1,
      '1 passed, 1 failed, 0 skipped',
      1,
    ],
    ['a run that broke without a line', 'no config\n', 1, '0 passed, 1 failed, 0 skipped', 1],
    ['a run that said nothing', '', 1, '0 passed, 1 failed, 0 skipped', 1],
    [
      'a run that failed without a failed test',
      '5 passed, 0 failed, 0 skipped\n',
      1,
      '5 passed, 1 failed, 0 skipped',
      1,
    ],
    [
      'failed tests and a good exit code',
      '5 passed, 1 failed, 0 skipped\n',
      0,
      '5 passed, 1 failed, 0 skipped',
      1,
    ],
    ['no line and a good exit code', 'x\n', 0, '0 passed, 1 failed, 0 skipped', 1],
  ])('%s', async (_name, testOutput, testCode, last, code) => {
    expect(await run({ testOutput, testCode })).toMatchObject({ code, last });
  });
});
