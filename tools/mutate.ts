// `npm run mutate`: makes random single changes of `src`, one at a time and in a copy, and reports those that no test notices.
// `tools/mutations.ts` has the changes, `tools/mutation-workspace.ts` tries one.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { testProjects } from '../test/projects.ts';
import type { Coverage, Covering } from './mutation-coverage.ts';
import { type Step, Unchanged, type Verdict, Workspace } from './mutation-workspace.ts';
import { drawMutants, type Mutant } from './mutations.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Mutants of different files that are compiled together. */
const BATCH = 24;
/** What the tests of each run take together, in milliseconds: most mutants fail the quickest. */
const RUNS_MS = [10_000, 60_000, Number.POSITIVE_INFINITY];
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

export interface MutationOptions {
  /** The repository. It stays as it is: all runs are in copies of its files. */
  readonly root: string;
  /** Folders or files, relative to `root`. */
  readonly under: string;
  readonly count: number;
  readonly seed: number;
  /** The only mutants that may be drawn, as they are printed, such as `src/a.ts:1: true → false`. */
  readonly only?: ReadonlySet<string> | undefined;
  /** Mutants that are tried at the same time. */
  readonly parallel: number;
  /** Tests whose way through `src` is recorded first, by `mutation-recorder.ts`. */
  readonly recorded: readonly Step[];
  /**
   * What is run for a mutant, in this order.
   * @param covering the recorded test files that run what is changed, the quickest first
   */
  readonly steps: (mutant: Mutant, covering: readonly Covering[]) => readonly Step[];
  /** How long a step may take beyond what it takes with the unchanged code. */
  readonly slackMs: number;
  /** Told a line for each mutant, and for each test file that fails without one. */
  readonly print: (line: string) => void;
}

export type MutationCounts = Record<Verdict | 'does not compile', number>;

/**
 * Draws mutants until `count` of them compile, and runs the tests with each. Test files that fail with the unchanged code are
 * named and left out.
 * @throws when the unchanged code does not compile, or its test run fails without a failing file
 */
export async function mutate(options: MutationOptions): Promise<MutationCounts> {
  const { root, count, seed, only, print, parallel } = options;
  const files = listFiles(root, [options.under]).filter((name) => name.endsWith('.ts'));
  const texts = new Map(files.map((file) => [file, readFileSync(join(root, file), 'utf8')]));
  const counts: MutationCounts = { killed: 0, survived: 0, 'timed out': 0, 'does not compile': 0 };
  const copied = { root, files: listFiles(root, []), texts };
  const unchanged = new Unchanged();
  const workspaces = Array.from({ length: parallel }, () => new Workspace(copied, unchanged, options));
  const remove = (): void => {
    for (const workspace of workspaces) workspace[Symbol.dispose]();
  };
  const stop = (): void => {
    remove();
    process.exit(2);
  };
  process.once('SIGINT', stop).once('SIGTERM', stop);
  try {
    const [first] = workspaces;
    if (first === undefined) throw new Error('no mutant may be tried at a time');
    if ((await first.compile([])).length > 0)
      throw new Error('the unchanged code does not compile: see npm run types');
    const coverages: Coverage[] = [];
    for (const step of options.recorded) coverages.push(await first.record(step));
    const drawn = drawMutants(texts, seed).filter((mutant) => only?.has(describe(mutant, texts)) ?? true);
    for (let left = count; drawn.length > 0 && left > 0; ) {
      const batch = takeBatch(drawn);
      const compiling = await first.compilingOf(batch);
      counts['does not compile'] += batch.length - compiling.length;
      const waiting = compiling.slice(0, left);
      left -= waiting.length;
      const tryAll = async (workspace: Workspace): Promise<void> => {
        for (let mutant = waiting.shift(); mutant !== undefined; mutant = waiting.shift()) {
          const each = mutant;
          const covering = coverages.flatMap((coverage) => coverage.of(each));
          const steps = options.steps(each, covering);
          const { verdict, by } = await workspace.try(each, steps);
          counts[verdict] += 1;
          print(`${verdict.padEnd(9)} ${describe(each, texts)}${by === undefined ? '' : ` (${by})`}`);
        }
      };
      await Promise.all(workspaces.map(tryAll));
    }
    return counts;
  } finally {
    process.off('SIGINT', stop).off('SIGTERM', stop);
    remove();
  }
}

/** The mutants of lines that a run has printed. */
export function printedMutants(lines: string): ReadonlySet<string> {
  const mutants = lines.matchAll(/^(?:survived|timed out|killed)? *(src\/.*? → .*?)(?: \(test\/.*\))?$/gm);
  return new Set(Array.from(mutants, ([, mutant = '']) => mutant));
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

/** The files that git knows or would add, below the paths or of the whole repository. */
function listFiles(root: string, paths: readonly string[]): string[] {
  const words = ['ls-files', '--cached', '--others', '--exclude-standard', '--', ...paths];
  return execFileSync('git', words, { cwd: root, encoding: 'utf8' })
    .split('\n')
    .filter((name) => name !== '');
}

const UNIT = ['run', '--project', 'unit'];
const SYSTEM = ['run', '--project', 'system', '--project', 'system-isolated'];
const UNITS = new Set(testProjects().unit);

/** The tests that run what is changed. Where none was recorded: the unit tests that import the file, and the system tests of its room. */
function stepsOf({ file }: Mutant, covering: readonly Covering[], isQuick: boolean): Step[] {
  const units = covering.filter((each) => UNITS.has(each.file));
  const systems = covering.filter((each) => !UNITS.has(each.file));
  const steps = [...runsOf(units, UNIT, false), ...runsOf(systems, SYSTEM, true)];
  if (isQuick && steps.length > 0) return steps;
  const related = ['related', '--run', ...UNIT.slice(1), file];
  const rest = [
    { args: related, single: UNIT, isTimed: false },
    systemStep([folderOf(file.split('/')[1] ?? '')]),
  ];
  return [...steps, ...rest, ...(isQuick ? [] : [systemStep(['test/e2e/', 'test/fuzz/'])])];
}

/** @param covering the quickest first */
function runsOf(covering: readonly Covering[], single: readonly string[], isTimed: boolean): Step[] {
  const left = [...covering];
  const steps: Step[] = [];
  for (const most of RUNS_MS) {
    let ms = 0;
    const files: string[] = [];
    for (let next = left[0]; next !== undefined && ms < most; next = left[0]) {
      left.shift();
      files.push(next.file);
      ms += next.ms;
    }
    if (files.length > 0) steps.push({ args: [...single, ...files], single, isTimed, ms });
  }
  return steps;
}

function systemStep(folders: readonly string[]): Step {
  return { args: [...SYSTEM, '--passWithNoTests', ...folders], single: SYSTEM, isTimed: true };
}

function folderOf(room: string): string {
  return `test/${TESTED_IN[room] ?? room}/`;
}

/** Of system tests those that have the gateway in their process. */
function recordedOf(room: string, isQuick: boolean): Step[] {
  const folders = room === '' ? [] : [folderOf(room.split('/')[0] ?? ''), ...(isQuick ? [] : ['test/e2e/'])];
  const { args, ...rest } = systemStep(folders);
  const without = ['clients', 'shipping', 'bench', ...(isQuick ? ['e2e', 'fuzz'] : [])];
  const excluded = without.flatMap((folder) => ['--exclude', `test/${folder}/**`]);
  return [
    { args: UNIT, single: UNIT, isTimed: false },
    { args: [...args, ...excluded], ...rest },
  ];
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 31)) },
      count: { type: 'string', default: '20' },
      room: { type: 'string', default: '' },
      parallel: { type: 'string', default: '2' },
      quick: { type: 'boolean', default: false },
      only: { type: 'string' },
    },
  });
  const only = values.only === undefined ? undefined : printedMutants(readFileSync(values.only, 'utf8'));
  const counts = await mutate({
    root: ROOT,
    under: join('src', values.room),
    count: only?.size ?? Number(values.count),
    only,
    seed: Number(values.seed),
    parallel: Number(values.parallel),
    recorded: recordedOf(values.room, values.quick),
    steps: (mutant, covering) => stepsOf(mutant, covering, values.quick),
    slackMs: 60_000,
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
