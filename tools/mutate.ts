// `npm run mutate`: changes single places of `src` at random, one at a time and in a copy, and reports the changes that no test
// notices. Comments, types and texts of log lines are left alone.
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { parseSync } from 'vite';
import { randomFrom } from '../test/helpers/random.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const COPIED = ['src', 'test', 'bench', 'tools', 'bin', 'docs', 'examples'];
const LINKED = ['node_modules'];
/** A run may take this many times as long as with the unchanged code, plus this many milliseconds. */
const SLOWER = 4;
const SLACK_MS = 60_000;

/** One change: the bytes of a span become other text. */
export interface Mutation {
  /** Offsets in the text. */
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

type Node = { readonly type: string; readonly start: number; readonly end: number } & Record<string, unknown>;

const SWAPPED: Readonly<Record<string, string>> = {
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '===': '!==',
  '!==': '===',
  '+': '-',
  '-': '+',
  '*': '/',
  '/': '*',
  '&&': '||',
  '||': '&&',
};
/** Calls whose absence no behaviour shows. */
const SILENT = /^(?:this\.#?)?(?:logger|log)\b|\b(?:unref|clearTimeout|clearImmediate|clearInterval)\(/;

/** All changes that can be made in a file. */
export function mutationsOf(file: string, text: string): Mutation[] {
  const { program } = parseSync(file, text);
  const found: Mutation[] = [];
  const slice = ({ start, end }: Node) => text.slice(start, end);
  const visit = (node: Node, parent: Node | undefined): void => {
    if (node.type.startsWith('TS') && !/^TS(?:As|NonNull|Satisfies)/.test(node.type)) return;
    if (/^(?:Import|ExportAll)/.test(node.type)) return;
    const { left, right, operator, test, value } = node as Node & { left: Node; right: Node; test: Node };
    switch (node.type) {
      case 'BinaryExpression':
      case 'LogicalExpression': {
        const swapped = SWAPPED[String(operator)];
        const isText = /['"`]/.test(slice(node)) && (operator === '+' || operator === '-');
        if (swapped === undefined || isText) break;
        const at = text.indexOf(String(operator), left.end);
        if (at >= left.end && at < right.start)
          found.push({ start: at, end: at + String(operator).length, text: swapped });
        break;
      }
      case 'IfStatement':
      case 'ConditionalExpression':
        found.push({ start: test.start, end: test.end, text: `!(${slice(test)})` });
        break;
      case 'Literal':
        if (parent?.type === 'Property' && parent['key'] === node) break;
        if (typeof value === 'boolean')
          found.push({ start: node.start, end: node.end, text: String(!value) });
        if (typeof value === 'number')
          found.push({ start: node.start, end: node.end, text: `(${slice(node)} + 1)` });
        break;
      case 'ReturnStatement':
        if (parent?.type === 'IfStatement' && node['argument'] === null)
          found.push({ start: node.start, end: node.end, text: ';' });
        break;
      case 'ExpressionStatement':
        if (!SILENT.test(slice(node)) && /^(?:await )?[\w.#?]+\(/.test(slice(node)))
          found.push({ start: node.start, end: node.end, text: ';' });
        break;
    }
    for (const child of Object.values(node)) {
      for (const each of Array.isArray(child) ? child : [child]) if (isNode(each)) visit(each, node);
    }
  };
  if (isNode(program)) visit(program, undefined);
  return found;
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && typeof Reflect.get(value, 'type') === 'string';
}

interface Mutant extends Mutation {
  readonly file: string;
}

/** A sample without repetition. @param files path → text */
export function sampleOf(files: ReadonlyMap<string, string>, count: number, seed: number): Mutant[] {
  const all = Array.from(files).flatMap(([file, text]) =>
    mutationsOf(file, text).map((mutation) => ({ file, ...mutation })),
  );
  const random = randomFrom(seed);
  const picked: Mutant[] = [];
  while (picked.length < count && all.length > 0)
    picked.push(...all.splice(Math.floor(random() * all.length), 1));
  return picked;
}

type Result = 'killed' | 'survived' | 'timed out' | 'invalid';

class Workspace {
  readonly folder = mkdtempSync(join(tmpdir(), 'tollgate-mutate-'));
  /** Command → milliseconds with the unchanged code. */
  readonly #times = new Map<string, number>();

  constructor() {
    for (const name of [...COPIED, ...rootFiles()])
      cpSync(join(ROOT, name), join(this.folder, name), { recursive: true });
    for (const name of LINKED) symlinkSync(join(ROOT, name), join(this.folder, name));
  }

  async try({ file, start, end, text }: Mutant): Promise<Result> {
    const path = join(this.folder, file);
    const original = readFileSync(path, 'utf8');
    const room = file.split('/')[1] ?? '';
    const steps = [
      ['related', '--run', '--project', 'unit', '--bail=1', file],
      ['run', '--project', 'system*', '--bail=1', '--passWithNoTests', `test/${room}/`],
      ['run', '--project', 'system*', '--bail=1', '--passWithNoTests', 'test/e2e/', 'test/fuzz/'],
    ];
    try {
      for (const step of steps) {
        const most = SLACK_MS + SLOWER * (await this.#timeOf(step));
        writeFileSync(path, original.slice(0, start) + text + original.slice(end));
        const code = await this.#run(process.execPath, ['node_modules/vitest/vitest.mjs', ...step], most);
        if (code === undefined) return 'timed out';
        if (code !== 0) return 'killed';
        writeFileSync(path, original);
      }
      // A change that the compiler rejects is none; it is asked last, because it is slow.
      writeFileSync(path, original.slice(0, start) + text + original.slice(end));
      return (await this.#run('npx', ['tsc'], 600_000)) === 0 ? 'survived' : 'invalid';
    } finally {
      writeFileSync(path, original);
    }
  }

  async #timeOf(step: readonly string[]): Promise<number> {
    const key = step.join(' ');
    const known = this.#times.get(key);
    if (known !== undefined) return known;
    const began = performance.now();
    const code = await this.#run(process.execPath, ['node_modules/vitest/vitest.mjs', ...step], 1_800_000);
    if (code !== 0) process.stderr.write(`the unchanged code fails: vitest ${key}\n`);
    const took = performance.now() - began;
    this.#times.set(key, took);
    return took;
  }

  /** @returns the exit code; undefined when it did not end in time */
  #run(program: string, words: readonly string[], ms: number): Promise<number | undefined> {
    return new Promise((resolve) => {
      const child = spawn(program, words, { cwd: this.folder, stdio: 'ignore', detached: true });
      const timer = setTimeout(() => {
        killGroup(child.pid);
        resolve(undefined);
      }, ms);
      child.once('exit', (code) => {
        clearTimeout(timer);
        // A test that was given up leaves its gateways and servers behind.
        killGroup(child.pid);
        resolve(code ?? 1);
      });
    });
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Ends all processes that a command has left. */
function killGroup(leader: number | undefined): void {
  if (leader === undefined) return;
  try {
    process.kill(-leader, 'SIGKILL');
  } catch {
    // None is left.
  }
}

/** The files of the root that tests and their configuration read. */
function rootFiles(): string[] {
  const names = execFileSync('git', ['ls-files'], { cwd: ROOT, encoding: 'utf8' }).split('\n');
  return names.filter((name) => name !== '' && !name.includes('/'));
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 31)) },
      count: { type: 'string', default: '20' },
      room: { type: 'string', default: '' },
    },
  });
  const names = execFileSync('git', ['ls-files', join('src', values.room)], { cwd: ROOT, encoding: 'utf8' });
  const files = names.split('\n').filter((name) => name.endsWith('.ts'));
  const texts = new Map(files.map((file) => [file, readFileSync(join(ROOT, file), 'utf8')]));
  const mutants = sampleOf(texts, Number(values.count), Number(values.seed));
  const workspace = new Workspace();
  const counts: Record<Result, number> = { killed: 0, survived: 0, 'timed out': 0, invalid: 0 };
  try {
    for (const mutant of mutants) {
      const result = await workspace.try(mutant);
      counts[result] += 1;
      const text = texts.get(mutant.file) ?? '';
      const line = text.slice(0, mutant.start).split('\n').length;
      const was = text.slice(mutant.start, mutant.end).replace(/\s+/g, ' ');
      process.stdout.write(
        `${result.padEnd(9)} ${mutant.file}:${line}: ${was} → ${mutant.text.replace(/\s+/g, ' ')}\n`,
      );
    }
  } finally {
    workspace.remove();
  }
  const counted = mutants.length - counts.invalid;
  process.stdout.write(
    `${counted} mutants, ${counts.killed} killed, ${counts.survived} survived, ${counts['timed out']} timed out (seed ${values.seed})\n`,
  );
  return counts.survived === 0 ? 0 : 1;
}

if (import.meta.main) process.exitCode = await main();
