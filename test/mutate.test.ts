// `npm run mutate`: the changes that it makes, of behaviour alone and the same for the same seed, and what it makes of the tests
// of a small project.
import { execFileSync } from 'node:child_process';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { mutate, printedMutants } from '../tools/mutate.ts';
import { applied, drawMutants, mutationsOf } from '../tools/mutations.ts';
import { tempDir } from './helpers/wait.ts';

const SOURCE = `import { a } from 'a';
/** Text with === and 7. */
export function f(n: number, isOn = true): string | 3 {
  if (n < 2 && isOn) return;
  call(n);
  logger.info('n + 1');
  this.#options.logger.warn({ n: 1 }, 'n + 1');
  return n === 4 ? 'x' : 'a' + n;
}
`;

function changed(source: string): string[] {
  return mutationsOf('src/f.ts', source)
    .map(({ start, end, text }) => `${source.slice(start, end)} → ${text}`)
    .sort();
}

test('conditions, operators, constants, statements and results are changed; types, comments and log lines are not', () => {
  expect(changed(SOURCE)).toEqual(
    [
      'true → false',
      'n < 2 && isOn → !(n < 2 && isOn)',
      '&& → ||',
      '< → <=',
      '2 → (2 + 1)',
      'return; → ;',
      'call(n); → ;',
      "n === 4 ? 'x' : 'a' + n → undefined",
      'n === 4 → !(n === 4)',
      '=== → !==',
      '4 → (4 + 1)',
      "'x' → ''",
      "'a' → ''",
    ].sort(),
  );
});

test.each<[string, string[]]>([
  ['const x = a ?? b;', ['a ?? b → (a)', 'a ?? b → (b)']],
  ['const x = !a;', ['! → ']],
  ['x ??= a;', ['??= → =', 'x ??= a; → ;']],
  ['x += a;', ['+= → -=', 'x += a; → ;']],
  ['x++;', ['++ → --', 'x++; → ;']],
  ['function f() { { return; } }', ['return; → ;']],
  ['function f() { throw a; }', ['throw a; → ;']],
  ['for (const x of y) { if (x) continue; break; }', ['x → !(x)', 'continue; → ;', 'break; → ;']],
  ['const f = () => g();', ['g() → undefined', 'g() → !(g())']],
  ['const x = 30_000;', ['30_000 → (30_000 * 2)']],
  ["const x = '';", ["'' → 'mutated'"]],
  ['const x = `a`;', ['`a` → ``']],
  ["const x = { 'a': 'b', help: 'text' };", ["'b' → ''"]],
  ["const x = field('a').describe('text');", ["'a' → ''"]],
  ["const x = new Error('text');", []],
  ["on((err) => logger.debug({ err }, 'text'));", ["on((err) => logger.debug({ err }, 'text')); → ;"]],
  ['this.#timer?.unref();', []],
  ['on(() => { clearTimeout(timer); f(); });', ['on(() => { clearTimeout(timer); f(); }); → ;', 'f(); → ;']],
  ["const x = new GatewayError('code');", ["'code' → ''"]],
  ['const x = sql`select a`;', []],
  ["type A = 'a' | 7;", []],
  ["import a from 'a'; export * from 'b';", []],
])('in `%s`', (source, expected) => {
  expect(changed(source)).toEqual(expected.sort());
});

test('each change leaves a text that parses', () => {
  for (const mutation of mutationsOf('src/f.ts', SOURCE))
    expect(() => mutationsOf('src/f.ts', applied(SOURCE, mutation))).not.toThrow();
});

test('the same seed makes the same sample, without repetition', () => {
  const files = new Map([['src/f.ts', SOURCE]]);
  const sample = (seed: number) => drawMutants(files, seed).slice(0, 6);
  expect(sample(7)).toEqual(sample(7));
  expect(sample(8)).not.toEqual(sample(7));
  expect(new Set(sample(7).map(({ start, text }) => `${start} ${text}`)).size).toBe(6);
  expect(drawMutants(files, 7)).toHaveLength(mutationsOf('src/f.ts', SOURCE).length);
});

const FIXTURE: Readonly<Record<string, string>> = {
  'package.json': '{ "type": "module" }',
  '.gitignore': 'node_modules\n',
  'tsconfig.json': JSON.stringify({
    compilerOptions: {
      target: 'es2024',
      lib: ['es2024'],
      types: [],
      skipLibCheck: true,
      module: 'nodenext',
      strict: true,
      noEmit: true,
      allowImportingTsExtensions: true,
    },
    include: ['src'],
  }),
  'vitest.config.ts': 'export default { test: { include: ["test/**/*.test.ts"] } };',
  'src/room/killed.ts': 'export const isOn = true;\n',
  'src/room/survived.ts': 'export const is_unknown = true;\n',
  'src/room/timed-out.ts': 'export const isFinite = true;\n',
  'src/room/no-type.ts': "export const kind: 'a' = 'a';\n",
  'src/room/imported.ts': 'export const two = () => 2;\n',
  'src/room/importing.ts': "import { two } from './imported.ts';\nexport const sum: number = two();\n",
  'test/on.test.ts': `import { expect, test } from 'vitest';
import { isOn } from '../src/room/killed.ts';
test('is on', () => expect(isOn).toBe(true));`,
  'test/finite.test.ts': `import { test } from 'vitest';
import { isFinite } from '../src/room/timed-out.ts';
test('is finite', () => { if (!isFinite) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); });`,
  'test/broken.test.ts': `import { expect, test } from 'vitest';
import { is_unknown } from '../src/room/survived.ts';
test('is broken', () => expect(is_unknown).toBe('broken'));`,
};

async function fixture(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
  await symlink(fileURLToPath(new URL('../node_modules', import.meta.url)), join(folder, 'node_modules'));
  execFileSync('git', ['init', '--quiet'], { cwd: folder });
}

/** All mutants of a fixture, one at a time. */
const ALL = { under: 'src', count: 100, seed: 1, parallel: 1 };

test('killed, survived, timed out, does not compile; a test that fails anyway is named and left out', async () => {
  await using folder = await tempDir();
  await fixture(folder.path, FIXTURE);
  const lines: string[] = [];
  const counts = await mutate({
    root: folder.path,
    ...ALL,
    recorded: [],
    steps: () => [{ args: ['run'], single: ['run'], isTimed: true }],
    slackMs: 15_000,
    print: (line) => lines.push(line),
  });
  expect(counts).toEqual({ killed: 1, survived: 2, 'timed out': 1, 'does not compile': 2 });
  expect(lines.sort()).toEqual([
    'killed    src/room/killed.ts:1: true → false (test/on.test.ts > is on)',
    'left out  test/broken.test.ts > is broken: fails with the unchanged code',
    'survived  src/room/imported.ts:1: 2 → (2 + 1)',
    'survived  src/room/survived.ts:1: true → false',
    'timed out src/room/timed-out.ts:1: true → false',
  ]);
});

test('mutants of a list are tried alone, by the lines that a run has printed', async () => {
  await using folder = await tempDir();
  await fixture(folder.path, FIXTURE);
  const printed = [
    'killed    src/room/killed.ts:1: true → false (test/on.test.ts > is on)',
    'left out  test/broken.test.ts > is broken: fails with the unchanged code',
    'survived  src/room/imported.ts:1: 2 → (2 + 1)',
    '2 mutants, 1 killed, 1 survived, 0 timed out',
  ];
  const lines: string[] = [];
  const counts = await mutate({
    root: folder.path,
    ...ALL,
    only: printedMutants(printed.join('\n')),
    recorded: [],
    steps: () => [{ args: ['run', 'test/on.test.ts'], single: ['run'], isTimed: false }],
    slackMs: 60_000,
    print: (line) => lines.push(line),
  });
  expect(counts).toEqual({ killed: 1, survived: 1, 'timed out': 0, 'does not compile': 0 });
  expect(lines.sort()).toEqual([printed[0], printed[2]]);
});

test('the test files that run what is changed are known from a run with the unchanged code', async () => {
  await using folder = await tempDir();
  const { 'package.json': json = '', '.gitignore': ignored = '', 'tsconfig.json': types = '' } = FIXTURE;
  const recorder = await readFile(new URL('../tools/mutation-recorder.ts', import.meta.url), 'utf8');
  await fixture(folder.path, {
    'package.json': json,
    '.gitignore': ignored,
    'tsconfig.json': types,
    'vitest.config.ts': `const setupFiles = process.env.MUTATION_COVERAGE === undefined ? [] : ['./tools/mutation-recorder.ts'];
export default { test: { experimental: { viteModuleRunner: false }, isolate: false, maxWorkers: 1, setupFiles } };`,
    'tools/mutation-recorder.ts': recorder,
    'src/place.ts':
      'interface Typed {\n  isOn: boolean;\n}\nexport const isOff = ({ isOn }: Typed): boolean => !isOn;\n',
    // The module is loaded for one of them, and both run in one process.
    'test/loads.test.ts': `import { expect, test } from 'vitest';
import { isOff } from '../src/place.ts';
test('is there', () => expect(isOff).toBeDefined());`,
    'test/runs.test.ts': `import { expect, test } from 'vitest';
import { isOff } from '../src/place.ts';
test('is the contrary', () => expect(isOff({ isOn: true })).toBe(false));`,
  });
  const run = { args: ['run'], single: ['run'], isTimed: false };
  const known: string[][] = [];
  const lines: string[] = [];
  const counts = await mutate({
    root: folder.path,
    ...ALL,
    recorded: [run],
    steps: (_mutant, covering) => {
      const files = covering.map(({ file }) => file);
      known.push(files);
      return [{ ...run, args: ['run', ...files], ms: 1000 }];
    },
    slackMs: 60_000,
    print: (line) => lines.push(line),
  });
  expect(counts).toMatchObject({ killed: 1, survived: 0, 'timed out': 0 });
  expect(lines).toEqual(['killed    src/place.ts:4: ! →  (test/runs.test.ts > is the contrary)']);
  expect(known).toEqual([['test/runs.test.ts']]);
});

test('nothing is counted where the unchanged code does not compile, or its run fails without a failing test', async () => {
  const reasons: unknown[] = [];
  for (const [name, text] of [
    ['src/room/no-type.ts', "export const kind: 'a' = 'b';\n"],
    ['vitest.config.ts', 'throw new Error();'],
  ] as const) {
    await using folder = await tempDir();
    await fixture(folder.path, { ...FIXTURE, [name]: text });
    const steps = () => [{ args: ['run'], single: ['run'], isTimed: true }];
    const options = {
      root: folder.path,
      under: 'src/room/killed.ts',
      count: 1,
      seed: 1,
      slackMs: 15_000,
      parallel: 1,
      recorded: [],
    };
    await mutate({ ...options, steps, print: () => {} }).catch((error: unknown) => reasons.push(error));
  }
  expect(reasons.map(String)).toEqual([
    'Error: the unchanged code does not compile: see npm run types',
    'Error: vitest run fails with the unchanged code, and names no failing test',
  ]);
});
