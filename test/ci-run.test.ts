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
  ci*|run*) echo "says $*" | sed 's/ --.*//' ;;
esac
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
  /** In any order, because they run side by side. */
  const checks = ['run lint', 'run test:node24', 'run types'];

  test('installs, then lints, checks types and tests on Node 24, then tests', async () => {
    const { steps, output, ...rest } = await run({});
    expect(rest).toEqual({ code: 0, last: '1 passed, 0 failed, 0 skipped' });
    expect([steps[0], steps.slice(1, -1).sort(), steps.at(-1)]).toEqual(['ci', checks, 'test']);
    // What each says stands together, in the order of their names in the script.
    expect(output).toMatch(/^says ci\nsays run lint\nsays run types\nsays run test:node24\n/);
  });

  test.each([
    ['ci', ['ci']],
    ['run lint', ['ci', ...checks]],
    ['run types', ['ci', ...checks]],
    ['run test:node24', ['ci', ...checks]],
  ])('stops when `npm %s` fails, and says so', async (fails, steps) => {
    const result = await run({ fails });
    expect({ ...result, steps: result.steps.sort() }).toMatchObject({
      code: 1,
      steps,
      last: '0 passed, 1 failed, 0 skipped',
    });
    expect(result.output).toContain(`npm ${fails} failed`);
    // `npm ci` says it on the standard error.
    if (fails !== 'ci') expect(result.output).toContain(`says ${fails}\nnpm error`);
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
