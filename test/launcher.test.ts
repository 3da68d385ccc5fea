// bin/tollgate.js, and bin/start in front of it: which source it starts, what it does on a Node that is too old, and that the process it hands over
// to is all that the outside sees: arguments, streams, signals, exit code.
import { type ChildProcess, execFile, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { chmod, copyFile, mkdir, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { tempDir, until, within } from './helpers/wait.ts';
import { textAt } from './shipping/tree.ts';

const LAUNCHER = fileURLToPath(new URL('../bin/tollgate.js', import.meta.url));
const START = fileURLToPath(new URL('../bin/start', import.meta.url));

interface Install extends AsyncDisposable {
  readonly root: string;
  add(file: string, text: string, mode?: number): Promise<string>;
  /** @param options `old`: on a Node that is too old; `version`: on a Node of this version, as far as it knows */
  start(words: readonly string[], options?: { old?: boolean; version?: string }): Started;
  pretend(version: string): Promise<string>;
}

interface Started {
  readonly child: ChildProcess;
  output(): string;
  end(): Promise<{ code: number | null; signal: string | null; output: string }>;
}

/** A copy of the launcher in a project of its own. */
async function install(): Promise<Install> {
  const directory = await tempDir();
  const root = directory.file('project');
  const started: ChildProcess[] = [];
  const add = async (file: string, text: string, mode = 0o644): Promise<string> => {
    const path = join(root, file);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
    await chmod(path, mode);
    return path;
  };
  await add('package.json', '{ "type": "module" }');
  await mkdir(join(root, 'bin'));
  const launcher = join(root, 'bin', 'tollgate.js');
  await copyFile(LAUNCHER, launcher);
  await copyFile(START, join(root, 'bin', 'start'));
  // Makes any Node believe that it is another one, with a V8 that no flags are listed for.
  const pretend = (version: string): Promise<string> => {
    const versions = JSON.stringify({ ...process.versions, node: version, v8: '1.0.0' });
    return add(
      `${version}.mjs`,
      `Object.defineProperty(process, 'versions', { value: ${versions} });\n` +
        `Object.defineProperty(process, 'version', { value: 'v${version}' });\n`,
    );
  };
  await pretend('20.0.0');
  return {
    root,
    add,
    pretend,
    start(words, options = {}) {
      const version = options.old === true ? '20.0.0' : options.version;
      const before = version === undefined ? [] : ['--import', join(root, `${version}.mjs`)];
      const child = spawn(process.execPath, [...before, launcher, ...words], {
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      started.push(child);
      let output = '';
      for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes) => (output += bytes));
      const closed = once(child, 'close');
      const end = async (): Promise<{ code: number | null; signal: string | null; output: string }> => {
        await within(closed, 'the end of the launcher', undefined, () => output);
        return { code: child.exitCode, signal: child.signalCode, output };
      };
      return { child, output: () => output, end };
    },
    async [Symbol.asyncDispose]() {
      // A test that failed may have left it running; a second Node ends with the first.
      for (const child of started) child.kill('SIGKILL');
      await directory.remove();
    },
  };
}

const SAYS = (what: string, code = 0): string =>
  `export async function main(words) { console.log(${JSON.stringify(what)}, JSON.stringify(words)); return ${code}; }\n`;

/** A `node` package whose binary takes away what made the first Node look old. */
const NODE = `#!/bin/sh
while [ "$1" = --import ]; do shift 2; done
exec "${process.execPath}" "$@"
`;

describe('which source it starts', () => {
  const hour = 3600;
  const now = Date.now() / 1000;
  test.each([
    { newer: 'the built program', src: now - hour, dist: now, starts: 'dist' },
    { newer: 'the source', src: now, dist: now - hour, starts: 'src' },
  ])('the newer of src and dist: $newer', async ({ src, dist, starts }) => {
    await using project = await install();
    await project.add('src/main.ts', SAYS('src'));
    await project.add('src/deep/part.ts', '');
    await project.add('dist/main.js', SAYS('dist'));
    for (const file of ['src/main.ts', 'src']) await utimes(join(project.root, file), 0, now - 2 * hour);
    for (const file of ['src/deep/part.ts', 'src/deep']) await utimes(join(project.root, file), 0, src);
    await utimes(join(project.root, 'dist/main.js'), 0, dist);
    expect(await project.start(['a', '--b=c d']).end()).toEqual({
      code: 0,
      signal: null,
      output: `${starts} ["a","--b=c d"]\n`,
    });
  });

  test('src where packages were installed after the build, which contains them', async () => {
    await using project = await install();
    await project.add('src/main.ts', SAYS('src'));
    await project.add('dist/main.js', SAYS('dist'));
    await project.add('node_modules/.package-lock.json', '{}');
    for (const file of ['src/main.ts', 'src']) await utimes(join(project.root, file), 0, now - hour);
    expect(await project.start([]).end()).toMatchObject({ output: 'src []\n' });
    await utimes(join(project.root, 'node_modules/.package-lock.json'), 0, now - hour);
    expect(await project.start([]).end()).toMatchObject({ output: 'dist []\n' });
  });

  test('src where a file of it was removed after the build', async () => {
    await using project = await install();
    await project.add('src/main.ts', SAYS('src'));
    await project.add('dist/main.js', SAYS('dist'));
    await utimes(join(project.root, 'src/main.ts'), 0, now - hour);
    await utimes(join(project.root, 'dist/main.js'), 0, now - hour / 2);
    // The folder was changed just now.
    expect(await project.start([]).end()).toMatchObject({ output: 'src []\n' });
  });

  test('dist where there is only that', async () => {
    await using project = await install();
    await project.add('dist/main.js', SAYS('dist', 3));
    expect(await project.start([]).end()).toMatchObject({ code: 3, output: 'dist []\n' });
  });

  test('neither: it says so', async () => {
    await using project = await install();
    const { code, output } = await project.start([]).end();
    expect(code).toBe(1);
    expect(output).toMatch(/neither src\/main\.ts nor dist\/main\.js/);
  });
});

describe('which Node it takes', () => {
  test.each([
    ['20.19.0', false],
    ['22.23.0', false],
    ['24.0.0', false],
    ['24.16.9', false],
    ['24.17.0', true],
    ['24.17.1', true],
    ['24.99.0', true],
    ['25.9.0', false],
    ['26.0.0', false],
    ['26.3.0', false],
    ['26.3.1', true],
    ['26.4.0', true],
    ['27.0.0', true],
    ['100.0.0', true],
    ['26.11.0-nightly20261101', true],
  ])('%s: %s, as `engines` says', async (version, isTaken) => {
    await using project = await install();
    await project.add('src/main.ts', SAYS('started'));
    await project.pretend(version);
    const { code, output } = await project.start([], { version }).end();
    expect([code, output.includes('started')]).toEqual(isTaken ? [0, true] : [1, false]);
    const file: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
    expect(allows(textAt(file, 'engines', 'node'), version)).toBe(isTaken);
  });
});

/** Whether a range such as `^24.17.0 || >=26.3.1` has the version. */
function allows(range: string, version: string): boolean {
  const numbers = (text: string): number[] => text.split('-')[0]?.split('.').map(Number) ?? [];
  return range.split(' || ').some((part) => {
    const [, operator, floorText = ''] = /^(\^|>=)(\d+\.\d+\.\d+)$/.exec(part) ?? [];
    if (operator === undefined) throw new Error(`not understood: ${part}`);
    const [floor, given] = [numbers(floorText), numbers(version)];
    const at = floor.findIndex((each, index) => each !== given[index]);
    const isAtLeast = at === -1 || (given[at] ?? 0) > (floor[at] ?? 0);
    return isAtLeast && (operator === '>=' || given[0] === floor[0]);
  });
}

describe('with which flags of V8 it serves', () => {
  const FLAGS = ['--managed-zone-memory', '--memory-pool-timeout=2', '--initial-old-space-size=64'];
  const TELLS = `export async function main(words) {
    console.log(JSON.stringify([process.pid, words, process.execArgv.filter((each) => !each.includes('import') && !each.includes('.mjs'))]));
    return 3;
  }\n`;

  test.each([
    { version: undefined, words: ['serve', 'x y'], flags: FLAGS, why: 'those of its own Node' },
    { version: undefined, words: ['check', 'serve'], flags: [], why: 'another command needs none' },
    { version: '27.0.0', words: ['serve'], flags: [], why: 'none for a V8 that may not know them' },
  ])('$why, in the same process', async ({ version, words, flags }) => {
    await using project = await install();
    await project.add('src/main.ts', TELLS);
    if (version !== undefined) await project.pretend(version);
    const started = project.start(words, version === undefined ? {} : { version });
    const { code, output } = await started.end();
    expect([code, JSON.parse(output)]).toEqual([3, [started.child.pid, words, flags]]);
  });

  test('none where its parent has a channel, which stays open', async () => {
    await using project = await install();
    await project.add('src/main.ts', 'export const main = () => process.send(process.execArgv);');
    const child = fork(join(project.root, 'bin', 'tollgate.js'), ['serve'], {
      execArgv: [],
      stdio: 'ignore',
    });
    const [said] = await within(once(child, 'message'), 'what it says');
    child.kill('SIGKILL');
    expect(said).toEqual([]);
  });

  /** A Node that writes down what it is asked. @param knows the flags */
  const recording = (log: string, knows: boolean, version: string | undefined): string => `#!/bin/sh
echo "$*" >> ${log}
${knows ? '' : 'case "$*" in *--managed-zone-memory*) echo "bad option" >&2; exit 9 ;; esac'}
[ "$1" = --version ] || set -- ${version === undefined ? '' : `--import "${version}"`} "$@"
exec "${process.execPath}" "$@"
`;

  async function npmStart(project: Install, words: readonly string[], knows = true, pretended?: string) {
    const log = await project.add('log', '');
    await project.add('path/node', recording(log, knows, pretended), 0o755);
    const { scripts } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
    // As npm runs it.
    const quoted = words.map((word) => `'${word}'`).join(' ');
    const { stdout, stderr } = await promisify(execFile)(
      'sh',
      ['-c', `${scripts.start} ${quoted}; echo $?`],
      {
        cwd: project.root,
        env: { PATH: `${join(project.root, 'path')}:${process.env['PATH']}` },
      },
    );
    return { stdout, stderr, starts: readFileSync(log, 'utf8').trim().split('\n') };
  }

  test('npm start gives them to the first Node, which is the only one', async () => {
    await using project = await install();
    await project.add('src/main.ts', TELLS);
    const { stdout, starts } = await npmStart(project, ['--config', 'x y']);
    const [told = '', code] = stdout.trim().split('\n');
    expect(JSON.parse(told).slice(1)).toEqual([['serve', '--config', 'x y'], FLAGS]);
    expect(code).toBe('3');
    expect(starts).toEqual([
      `${FLAGS.join(' ')} --version`,
      `${FLAGS.join(' ')} bin/tollgate.js serve --config x y`,
    ]);
  });

  test('npm start on a Node that does not know them says which Node it needs', async () => {
    await using project = await install();
    await project.add('src/main.ts', SAYS('never'));
    const { stdout, stderr } = await npmStart(project, [], false, join(project.root, '20.0.0.mjs'));
    expect(stdout).toBe('1\n');
    expect(stderr).toMatch(
      /^tollgate needs Node 24\.17\.0 or 26\.3\.1 or newer of its line; this is v20\.0\.0/,
    );
  });

  test('the image has the same', () => {
    const dockerfile = readFileSync(new URL('../Dockerfile', import.meta.url), 'utf8');
    const entry = /^ENTRYPOINT (.*)$/m.exec(dockerfile)?.[1] ?? '';
    expect(JSON.parse(entry)).toEqual(['node', ...FLAGS, 'dist/main.js']);
  });
});

describe('on a Node that is too old', () => {
  test('it hands over to the node package, with arguments and exit code', async () => {
    await using project = await install();
    await project.add('src/main.ts', SAYS('second', 7));
    await project.add('node_modules/node/bin/node', NODE, 0o755);
    expect(await project.start(['serve', 'x y'], { old: true }).end()).toEqual({
      code: 7,
      signal: null,
      output: 'second ["serve","x y"]\n',
    });
  });

  test('it finds the node package in a folder above', async () => {
    await using project = await install();
    await project.add('src/main.ts', SAYS('second'));
    await project.add('../node_modules/node/bin/node', NODE, 0o755);
    expect((await project.start([], { old: true }).end()).output).toBe('second []\n');
  });

  test('without that package it says what is needed', async () => {
    await using project = await install();
    await project.add('src/main.ts', SAYS('never'));
    const { code, output } = await project.start([], { old: true }).end();
    expect(code).toBe(1);
    expect(output).toMatch(/needs Node 24\.17\.0 or 26\.3\.1 or newer of its line; this is v20\.0\.0/);
    expect(output).not.toContain('never');
  });

  test('a node package that is itself too old does not start itself for ever', async () => {
    await using project = await install();
    await project.add('src/main.ts', SAYS('never'));
    // Counts how often it was started, so that the fault this test is about cannot run away with the machine.
    const counting = `#!/bin/sh
STARTS="x$STARTS"; export STARTS
[ "$STARTS" = xxx ] && exit 99
exec "${process.execPath}" "$@"
`;
    await project.add('node_modules/node/bin/node', counting, 0o755);
    const { code, output } = await project.start([], { old: true }).end();
    expect(code).toBe(1);
    expect(output.match(/needs Node 24/g)?.length).toBe(1);
  });

  const WAITS = `export async function main() {
    process.on('SIGTERM', () => { console.log('SIGTERM'); process.exit(5); });
    process.on('SIGINT', () => { console.log('SIGINT'); process.exit(6); });
    console.log('pid', process.pid, 'mark', process.env.TOLLGATE_SECOND_NODE);
    setInterval(() => {}, 1000);
    await new Promise(() => {});
  }\n`;

  test.each([
    ['SIGTERM', 5],
    ['SIGINT', 6],
  ] as const)('it passes on %s and waits for the end', async (signal, code) => {
    await using project = await install();
    await project.add('src/main.ts', WAITS);
    await project.add('node_modules/node/bin/node', NODE, 0o755);
    const started = project.start([], { old: true });
    await until(() => started.output().includes('mark undefined'), 'the start');
    started.child.kill(signal);
    const end = await started.end();
    expect(end.code).toBe(code);
    expect(end.output.match(new RegExp(signal, 'g'))?.length).toBe(1);
  });

  test.each(['SIGKILL', 'SIGTERM'])('it dies of %s when the second process died of it', async (signal) => {
    await using project = await install();
    const dies = `process.kill(process.pid, '${signal}'); await new Promise(() => setInterval(() => {}, 1000));`;
    await project.add('src/main.ts', `export async function main() { ${dies} }\n`);
    await project.add('node_modules/node/bin/node', NODE, 0o755);
    expect(await project.start([], { old: true }).end()).toMatchObject({ code: null, signal });
  });

  test('when it is killed the second process ends too', async () => {
    await using project = await install();
    await project.add('src/main.ts', WAITS);
    await project.add('node_modules/node/bin/node', NODE, 0o755);
    const started = project.start([], { old: true });
    await until(() => started.output().includes('pid'), 'the start');
    started.child.kill('SIGKILL');
    // `close` needs both ends of the pipes: it comes when the second process is gone as well.
    expect((await started.end()).output).toMatch(/SIGTERM\n$/);
  });
});
