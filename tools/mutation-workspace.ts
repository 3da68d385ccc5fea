// A copy of the repository in which mutants are compiled and tested, one at a time.
import { spawn } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { Coverage } from './mutation-coverage.ts';
import { applied, type Mutant } from './mutations.ts';

/** Unused names are no fault of a mutant. */
const COMPILE =
  'node_modules/typescript/bin/tsc --pretty false --noUnusedLocals false --noUnusedParameters false ' +
  '--incremental --tsBuildInfoFile .mutate.tsbuildinfo';
const REPORT = '.mutate.json';
const COVERAGE = '.mutate-coverage';
/** A step that took long may take this many times as long as with the unchanged code, plus `slackMs`. */
const SLOWER = 3;
const UNCHANGED_MS = 3_600_000;

/** A run of tests: arguments of vitest. */
export interface Step {
  readonly args: readonly string[];
  /** For one test file, whose path is added. */
  readonly single: readonly string[];
  /** Whether a busy machine can make one of the tests fail. A failure is then repeated before it counts. */
  readonly isTimed: boolean;
  /** How long its tests take with the unchanged code, where that is known. */
  readonly ms?: number;
}

export interface WorkspaceOptions {
  /** How long a step may take beyond what it takes with the unchanged code. */
  readonly slackMs: number;
  /** Told a line for each test file that fails without a mutant. */
  readonly print: (line: string) => void;
}

export type Verdict = 'killed' | 'survived' | 'timed out';

export interface Result {
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

/** What is known of the tests with the unchanged code. Workspaces share it. */
export class Unchanged {
  /** Arguments → milliseconds. */
  readonly times = new Map<string, number>();
  /** Test files that fail, and those that were seen to pass. */
  readonly failing = new Set<string>();
  readonly passing = new Set<string>();
}

export class Workspace {
  readonly #options: WorkspaceOptions;
  readonly #unchanged: Unchanged;
  readonly #texts: ReadonlyMap<string, string>;
  readonly #folder = mkdtempSync(join(tmpdir(), 'tollgate-mutate-'));
  #leader: number | undefined;

  /**
   * @param root of the repository
   * @param files of it, all that are copied
   * @param texts of the files that are changed
   */
  constructor(
    { root, files, texts }: { root: string; files: readonly string[]; texts: ReadonlyMap<string, string> },
    unchanged: Unchanged,
    options: WorkspaceOptions,
  ) {
    this.#options = options;
    this.#unchanged = unchanged;
    this.#texts = texts;
    for (const name of files) cpSync(join(root, name), join(this.#folder, name));
    symlinkSync(join(root, 'node_modules'), join(this.#folder, 'node_modules'));
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

  /** @param steps what is run, in this order */
  async try(mutant: Mutant, steps: readonly Step[]): Promise<Result> {
    for (const step of steps) {
      const result = await this.#tryStep(mutant, step);
      if (result !== undefined) return result;
    }
    return { verdict: 'survived' };
  }

  /** @returns undefined when no test notices the mutant */
  async #tryStep(mutant: Mutant, { args, single, isTimed, ms }: Step): Promise<Result | undefined> {
    const key = args.join(' ');
    /** Test files that failed once, and passed when repeated. */
    const doubtful = new Set<string>();
    for (;;) {
      const excluded = [...this.#unchanged.failing, ...doubtful].flatMap((file) => ['--exclude', file]);
      const known = ms ?? this.#unchanged.times.get(key);
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
    if (this.#unchanged.passing.has(file)) return true;
    const { code, failed } = await this.#test([...single, file], UNCHANGED_MS);
    (code === 0 ? this.#unchanged.passing : this.#unchanged.failing).add(file);
    if (code === 0) return true;
    this.#options.print(`left out  ${failed.map(nameOf).join(', ') || file}: fails with the unchanged code`);
    return false;
  }

  /**
   * Runs tests with the unchanged code.
   * @returns what they run of it
   */
  async record({ args, single }: Step): Promise<Coverage> {
    const folder = mkdtempSync(join(this.#folder, COVERAGE));
    const { failed } = await this.#test(args, UNCHANGED_MS, { MUTATION_COVERAGE: folder });
    for (const { file } of failed) await this.#passes(file, single);
    const coverage = Coverage.read(folder);
    for (const file of coverage.files)
      if (!this.#unchanged.failing.has(file)) this.#unchanged.passing.add(file);
    return coverage;
  }

  async #measure(key: string, args: readonly string[]): Promise<number> {
    const began = performance.now();
    await this.#test(args, UNCHANGED_MS);
    const ms = performance.now() - began;
    this.#unchanged.times.set(key, ms);
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

  async #test(words: readonly string[], ms: number, env: NodeJS.ProcessEnv = {}): Promise<Run> {
    const report = join(this.#folder, REPORT);
    rmSync(report, { force: true });
    const reporter = ['--reporter=json', `--outputFile=${report}`];
    const { code } = await this.#run(['node_modules/vitest/vitest.mjs', ...words, ...reporter], ms, env);
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
  #run(
    words: readonly string[],
    ms: number,
    env: NodeJS.ProcessEnv = {},
  ): Promise<{ code: number | undefined; output: string }> {
    return new Promise((resolve, reject) => {
      const child = spawn(process.execPath, words, {
        cwd: this.#folder,
        // A failure of a busy machine costs less when the test alone is repeated.
        env: { ...process.env, TEST_RETRIES: '1', ...env },
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
    this.#killGroup();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function nameOf({ file, test }: Failure): string {
  return test === undefined ? file : `${file} > ${test}`;
}

/** What is read of vitest's JSON report. */
interface Report {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}
