// `npm run mutate`: makes random single changes of `src`, one at a time and in a copy, and reports those that no test notices.
// `tools/mutations.ts` has the changes.
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { applied, drawMutants, type Mutant } from './mutations.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Unused names are no fault of a mutant. */
const COMPILE =
  'node_modules/typescript/bin/tsc --pretty false --noUnusedLocals false --noUnusedParameters false ' +
  '--incremental --tsBuildInfoFile .mutate.tsbuildinfo';
/** Mutants of different files that are compiled together. */
const BATCH = 24;
const REPORT = '.mutate.json';
/** A step that took long may take this many times as long as with the unchanged code, plus `slackMs`. */
const SLOWER = 3;
const UNCHANGED_MS = 3_600_000;
/** The rooms whose system tests are in the folder of another one. */
const TESTED_IN: Readonly<Record<string, string>> = {
  wire: 'proxy',
  realtime: 'proxy',
  passthrough: 'proxy',
  'app.ts': 'process',
  'composition.ts': 'process',
  'main.ts': 'process',
  'serve.ts': 'process',
};

/** A run of tests: arguments of vitest. */
export interface Step {
  readonly args: readonly string[];
  /** For one test file, whose path is added. */
  readonly single: readonly string[];
  /** Whether a busy machine can make one of the tests fail. A failure is then repeated before it counts. */
  readonly isTimed: boolean;
}

export interface MutationOptions {
  /** The repository. It stays as it is: all runs are in a copy of its files. */
  readonly root: string;
  /** Folders or files, relative to `root`. */
  readonly under: string;
  readonly count: number;
  readonly seed: number;
  /** What is run for a mutant in this file, in this order. */
  readonly steps: (file: string) => readonly Step[];
  /** How long a step may take before the time that it takes with the unchanged code is asked. */
  readonly slackMs: number;
  /** Told a line for each mutant, and for each test file that fails without one. */
  readonly print: (line: string) => void;
}

export type Verdict = 'killed' | 'survived' | 'timed out';
export type MutationCounts = Record<Verdict | 'does not compile', number>;

/**
 * Draws mutants until `count` of them compile, and runs the tests with each. Test files that fail with the unchanged code are
 * named and left out.
 * @throws when the unchanged code does not compile, or its test run fails without a failing file
 */
export async function mutate(options: MutationOptions): Promise<MutationCounts> {
  const { root, count, seed, print } = options;
  const files = listFiles(root, [options.under]).filter((name) => name.endsWith('.ts'));
  const texts = new Map(files.map((file) => [file, readFileSync(join(root, file), 'utf8')]));
  const counts: MutationCounts = { killed: 0, survived: 0, 'timed out': 0, 'does not compile': 0 };
  using workspace = new Workspace(options, texts);
  if ((await workspace.compile([])).length > 0)
    throw new Error('the unchanged code does not compile: see npm run types');
  const drawn = drawMutants(texts, seed);
  while (drawn.length > 0) {
    const batch = takeBatch(drawn);
    const compiling = await workspace.compilingOf(batch);
    counts['does not compile'] += batch.length - compiling.length;
    for (const mutant of compiling) {
      const { verdict, by } = await workspace.try(mutant);
      counts[verdict] += 1;
      print(`${verdict.padEnd(9)} ${describe(mutant, texts)}${by === undefined ? '' : ` (${by})`}`);
      if (counts.killed + counts.survived + counts['timed out'] === count) return counts;
    }
  }
  return counts;
}

/** Removes the next mutants of different files. */
function takeBatch(drawn: Mutant[]): Mutant[] {
  const batch = new Map<string, Mutant>();
  for (const mutant of drawn) {
    if (batch.size === BATCH) break;
    if (!batch.has(mutant.file)) batch.set(mutant.file, mutant);
  }
  for (const mutant of batch.values()) drawn.splice(drawn.indexOf(mutant), 1);
  return [...batch.values()];
}

interface Result {
  readonly verdict: Verdict;
  /** The first test that failed. */
  readonly by?: string | undefined;
}

interface Run {
  /** Undefined: it did not end in time. */
  readonly code: number | undefined;
  readonly failed: readonly Failure[];
}

/** A test file, and its first failed test where it has one. */
interface Failure {
  readonly file: string;
  readonly test: string | undefined;
}

class Workspace {
  readonly #options: MutationOptions;
  readonly #texts: ReadonlyMap<string, string>;
  readonly #folder = mkdtempSync(join(tmpdir(), 'tollgate-mutate-'));
  /** Arguments → milliseconds with the unchanged code. */
  readonly #times = new Map<string, number>();
  /** Test files that fail with the unchanged code, and those that were seen to pass. */
  readonly #failing = new Set<string>();
  readonly #passing = new Set<string>();
  #leader: number | undefined;
  readonly #stop = (): void => {
    this[Symbol.dispose]();
    process.exit(2);
  };

  /** @param texts of the files that are changed */
  constructor(options: MutationOptions, texts: ReadonlyMap<string, string>) {
    this.#options = options;
    this.#texts = texts;
    for (const name of listFiles(options.root, []))
      cpSync(join(options.root, name), join(this.#folder, name));
    symlinkSync(join(options.root, 'node_modules'), join(this.#folder, 'node_modules'));
    process.once('SIGINT', this.#stop).once('SIGTERM', this.#stop);
  }

  /** Those that compile. @param batch mutants of different files */
  async compilingOf(batch: readonly Mutant[]): Promise<readonly Mutant[]> {
    const faulty = batch.length === 0 ? [] : await this.compile(batch);
    if (faulty.length === 0) return batch;
    if (batch.length === 1) return [];
    // A mutant can make a file faulty that imports it.
    const imported = new Set(faulty.flatMap((file) => this.#importsOf(file)));
    const left = batch.filter(({ file }) => !faulty.includes(file));
    const suspects = left.filter(({ file }) => imported.has(file));
    const others = left.filter(({ file }) => !imported.has(file));
    const half = Math.ceil(batch.length / 2);
    const parts =
      others.length < batch.length
        ? [others, ...suspects.map((mutant) => [mutant])]
        : [batch.slice(0, half), batch.slice(half)];
    const compiling: Mutant[] = [];
    for (const part of parts) compiling.push(...(await this.compilingOf(part)));
    return compiling;
  }

  /** Runs the compiler with these changes. @returns the files in which it finds errors */
  async compile(mutants: readonly Mutant[]): Promise<readonly string[]> {
    for (const mutant of mutants) this.#write(mutant);
    const { code, output } = await this.#run(COMPILE.split(' '), UNCHANGED_MS);
    for (const mutant of mutants) this.#restore(mutant);
    const errors = output.matchAll(/^(\S.*?)\(\d+,\d+\): error/gm);
    const faulty = [...new Set(Array.from(errors, ([, file]) => file ?? ''))];
    if (code !== 0 && faulty.length === 0) throw new Error(`tsc failed: ${output}`);
    return faulty;
  }

  #importsOf(file: string): string[] {
    const text = readFileSync(join(this.#folder, file), 'utf8');
    return Array.from(text.matchAll(/ from '(\.[^']+)'/g), ([, path]) => join(dirname(file), path ?? ''));
  }

  async try(mutant: Mutant): Promise<Result> {
    for (const step of this.#options.steps(mutant.file)) {
      const result = await this.#tryStep(mutant, step);
      if (result !== undefined) return result;
    }
    return { verdict: 'survived' };
  }

  /** @returns undefined when no test notices the mutant */
  async #tryStep(mutant: Mutant, { args, single, isTimed }: Step): Promise<Result | undefined> {
    const key = args.join(' ');
    /** Test files that failed once, and passed when repeated. */
    const doubtful = new Set<string>();
    for (;;) {
      const excluded = [...this.#failing, ...doubtful].flatMap((file) => ['--exclude', file]);
      const known = this.#times.get(key);
      const limit = this.#options.slackMs + SLOWER * (known ?? 0);
      const { code, failed } = await this.#testMutant(mutant, [...args, ...excluded], limit);
      if (code === 0) return undefined;
      if (code === undefined) {
        if (known !== undefined || SLOWER * (await this.#measure(key, args)) < limit)
          return { verdict: 'timed out' };
        continue;
      }
      // A run that stops at its first failure reports the files that it did not start as failed, too.
      const failure = failed.find(({ test }) => test !== undefined) ?? failed[0];
      if (failure === undefined) {
        if ((await this.#test(args, UNCHANGED_MS)).code === 0) return { verdict: 'killed' };
        throw new Error(`vitest ${key} fails with the unchanged code, and names no failing test`);
      }
      const { file } = failure;
      if (!(await this.#passes(file, single))) continue;
      if (!isTimed || (await this.#testMutant(mutant, [...single, file], UNCHANGED_MS)).code !== 0)
        return { verdict: 'killed', by: nameOf(failure) };
      doubtful.add(file);
    }
  }

  /** Whether a test file passes with the unchanged code; it is left out if not. */
  async #passes(file: string, single: readonly string[]): Promise<boolean> {
    if (this.#passing.has(file)) return true;
    const { code, failed } = await this.#test([...single, file], UNCHANGED_MS);
    (code === 0 ? this.#passing : this.#failing).add(file);
    if (code === 0) return true;
    this.#options.print(`left out  ${failed.map(nameOf).join(', ') || file}: fails with the unchanged code`);
    return false;
  }

  async #measure(key: string, args: readonly string[]): Promise<number> {
    const began = performance.now();
    await this.#test(args, UNCHANGED_MS);
    const ms = performance.now() - began;
    this.#times.set(key, ms);
    return ms;
  }

  async #testMutant(mutant: Mutant, args: readonly string[], ms: number): Promise<Run> {
    this.#write(mutant);
    const run = await this.#test([...args, '--bail=1'], ms);
    this.#restore(mutant);
    return run;
  }

  #write(mutant: Mutant): void {
    writeFileSync(join(this.#folder, mutant.file), applied(this.#texts.get(mutant.file) ?? '', mutant));
  }

  #restore({ file }: Mutant): void {
    writeFileSync(join(this.#folder, file), this.#texts.get(file) ?? '');
  }

  async #test(words: readonly string[], ms: number): Promise<Run> {
    const report = join(this.#folder, REPORT);
    rmSync(report, { force: true });
    const reporter = ['--reporter=json', `--outputFile=${report}`];
    const { code } = await this.#run(['node_modules/vitest/vitest.mjs', ...words, ...reporter], ms);
    return {
      code,
      failed: code === 0 || !existsSync(report) ? [] : this.#failedIn(readFileSync(report, 'utf8')),
    };
  }

  #failedIn(report: string): Failure[] {
    const { testResults }: Report = JSON.parse(report);
    return testResults
      .filter(({ status }) => status === 'failed')
      .map(({ name, assertionResults }) => ({
        file: relative(this.#folder, name),
        test: assertionResults.find(({ status }) => status === 'failed')?.fullName,
      }));
  }

  /** @returns `code` is undefined when the program did not end in time */
  #run(words: readonly string[], ms: number): Promise<{ code: number | undefined; output: string }> {
    return new Promise((resolve, reject) => {
      const child = spawn(process.execPath, words, {
        cwd: this.#folder,
        // A failure of a busy machine costs less when the test alone is repeated.
        env: { ...process.env, TEST_RETRIES: '1' },
        stdio: ['ignore', 'pipe', 'ignore'],
        detached: true,
      });
      this.#leader = child.pid;
      const output: Buffer[] = [];
      child.stdout.on('data', (chunk: Buffer) => output.push(chunk));
      let isLate = false;
      const timer = setTimeout(() => {
        isLate = true;
        this.#killGroup();
      }, ms);
      child.once('error', reject);
      child.once('exit', (code) => {
        clearTimeout(timer);
        // A test that was given up leaves its gateways and servers behind.
        this.#killGroup();
        child.once('close', () =>
          resolve({ code: isLate ? undefined : (code ?? 1), output: Buffer.concat(output).toString() }),
        );
      });
    });
  }

  /** Ends all processes that the last program has left. */
  #killGroup(): void {
    if (this.#leader === undefined) return;
    try {
      process.kill(-this.#leader, 'SIGKILL');
    } catch {
      // None is left.
    }
    this.#leader = undefined;
  }

  [Symbol.dispose](): void {
    process.off('SIGINT', this.#stop).off('SIGTERM', this.#stop);
    this.#killGroup();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function nameOf({ file, test }: Failure): string {
  return test === undefined ? file : `${file} > ${test}`;
}

/** `FILE:LINE: OLD → NEW` */
function describe(
  { file, start, end, text: replacement }: Mutant,
  texts: ReadonlyMap<string, string>,
): string {
  const text = texts.get(file) ?? '';
  const line = text.slice(0, start).split('\n').length;
  const [was, is] = [text.slice(start, end), replacement].map((part) => part.replace(/\s+/g, ' '));
  return `${file}:${line}: ${was} → ${is}`;
}

/** What is read of vitest's JSON report. */
interface Report {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

/** The files that git knows or would add, below the paths or of the whole repository. */
function listFiles(root: string, paths: readonly string[]): string[] {
  const words = ['ls-files', '--cached', '--others', '--exclude-standard', '--', ...paths];
  return execFileSync('git', words, { cwd: root, encoding: 'utf8' })
    .split('\n')
    .filter((name) => name !== '');
}

/** The unit tests that import the file, the system tests of its room, and those of the whole gateway. */
function stepsOf(file: string, isQuick: boolean): Step[] {
  const room = file.split('/')[1] ?? '';
  const unit = ['--project', 'unit'];
  const system = (...folders: string[]): Step => {
    const single = ['run', '--project', 'system*'];
    return { args: [...single, '--passWithNoTests', ...folders], single, isTimed: true };
  };
  const own = [
    { args: ['related', '--run', ...unit, file], single: ['run', ...unit], isTimed: false },
    system(`test/${TESTED_IN[room] ?? room}/`),
  ];
  return isQuick ? own : [...own, system('test/e2e/', 'test/fuzz/')];
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 31)) },
      count: { type: 'string', default: '20' },
      room: { type: 'string', default: '' },
      quick: { type: 'boolean', default: false },
    },
  });
  const counts = await mutate({
    root: ROOT,
    under: join('src', values.room),
    count: Number(values.count),
    seed: Number(values.seed),
    steps: (file) => stepsOf(file, values.quick),
    slackMs: 240_000,
    print: (line) => process.stdout.write(`${line}\n`),
  });
  const total = counts.killed + counts.survived + counts['timed out'];
  process.stdout.write(
    `${total} mutants, ${counts.killed} killed, ${counts.survived} survived, ${counts['timed out']} timed out; ${counts['does not compile']} more did not compile (seed ${values.seed})\n`,
  );
  return counts.survived === 0 ? 0 : 1;
}

if (import.meta.main)
  process.exitCode = await main().catch((error: unknown) => {
    process.stderr.write(`${String(error)}\n`);
    return 2;
  });
