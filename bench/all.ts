// Every figure of docs/performance.md and bench/RESULTS.md, measured anew one after the other by the commands that write them. `npm run
// bench:all`; `--list` says how long each takes on a quiet machine. A command that fails is said at the end, and keeps the figures that were
// there.
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { LOAD_VARIABLE, loadBefore } from './machine.ts';
import { MISSED } from './options.ts';

export interface Measurement {
  /** Blocks of docs/performance.md that it writes. */
  readonly blocks: readonly string[];
  /** Of this Node, from the root of the repository. */
  readonly words: readonly string[];
  /** The smallest lengths. */
  readonly short: readonly string[];
  /** An estimate of what it takes on a quiet machine with two processors. */
  readonly minutes: number;
  /** Why it cannot be measured by this command alone. */
  readonly elsewhere?: string;
}

/** What targets need comes first. */
export const MEASUREMENTS: readonly Measurement[] = [
  {
    blocks: ['targets', 'runs', 'peers'],
    words: ['bench/run.ts', '--peer', '--long'],
    short: ['--rounds', '1', '--seconds', '1', '--warm-up', '500'],
    minutes: 33,
  },
  {
    blocks: ['overload'],
    words: ['bench/overload.ts'],
    short: ['--runs', '1', '--seconds', '1'],
    minutes: 13,
  },
  {
    blocks: ['replicas'],
    words: ['bench/replicas.ts'],
    short: ['--rounds', '1', '--requests', '200'],
    minutes: 4,
  },
  {
    blocks: ['workers'],
    words: ['bench/workers.ts'],
    short: ['--rounds', '1', '--seconds', '1', '--warm', '1'],
    minutes: 2,
  },
  {
    blocks: ['keys'],
    words: ['bench/many-keys.ts'],
    short: ['--keys', '200', '--active', '100', '--rounds', '1'],
    minutes: 2,
  },
  {
    blocks: ['searches'],
    words: ['bench/searches.ts'],
    short: ['--holders', '1000', '--rounds', '1'],
    minutes: 9,
  },
  { blocks: ['profile-request'], words: ['bench/profile.ts'], short: ['--seconds', '1'], minutes: 1 },
  {
    blocks: ['profile-chunk'],
    words: ['bench/profile.ts', '--streams'],
    short: ['--seconds', '1'],
    minutes: 1,
  },
  {
    blocks: ['growth-bodies', 'growth-chunks', 'growth-streams', 'growth-young'],
    words: ['bench/growth.ts'],
    short: ['--rounds', '1', '--seconds', '1'],
    minutes: 8.5,
  },
  {
    blocks: ['console'],
    words: ['bench/console.ts'],
    short: ['--rounds', '1', '--seconds', '6', '--browsers', '2'],
    minutes: 3,
  },
  {
    blocks: ['many-streams'],
    words: ['bench/many-streams.ts'],
    short: ['--streams', '100'],
    minutes: 60,
    elsewhere:
      'it needs more open files than most systems allow; docs/performance.md has the command for an emulated machine',
  },
];

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const USAGE = `npm run bench:all [-- --list] [--from BLOCK] [--only BLOCKS] [--skip BLOCKS] [--short]

  --list         print the commands, and how long each takes on a quiet machine
  --from BLOCK   begin with the command that writes this block of docs/performance.md
  --only BLOCKS  only the commands that write these, separated by commas
  --skip BLOCKS  all but the commands that write these
  --short        with the smallest lengths, and no figure is written: whether every command works on this machine; it also installs what they
                 need

Exit code 1 if a command failed. A target that is missed is no failure.
`;
/** Above it figures are those of a machine that does something else. */
const QUIET_LOAD = 0.3;
/** A command that takes so many times as long hangs. */
const PATIENCE = 3;
const MIN_PATIENCE_MINUTES = 15;
const KILL_MS = 20_000;
/** Lines in which a command says what failed. */
const TROUBLE = /^bench: /;
const MAX_TROUBLE = 12;

interface Ended {
  readonly code: number;
  readonly seconds: number;
  /** What it said about failures. */
  readonly trouble: readonly string[];
}

let running: ChildProcess | undefined;
let stopped: NodeJS.Signals | undefined;

/** Ends a command and what it has started. */
function kill(child: ChildProcess, signal: NodeJS.Signals): void {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, signal);
  } catch {
    // It has ended.
  }
}

function run({ words, minutes }: Pick<Measurement, 'words' | 'minutes'>, load: number): Promise<Ended> {
  const began = performance.now();
  const trouble: string[] = [];
  const env = { ...process.env, [LOAD_VARIABLE]: `${load}` };
  return new Promise((resolve, reject) => {
    // A group of its own, so that nothing is left of a command that hangs.
    const child = spawn(process.execPath, words, {
      cwd: ROOT,
      env,
      stdio: ['ignore', 'inherit', 'pipe'],
      detached: true,
    });
    running = child;
    const limit = Math.max(PATIENCE * minutes, MIN_PATIENCE_MINUTES);
    const timer = setTimeout(() => {
      trouble.push(`it was ended after ${limit} minutes`);
      kill(child, 'SIGTERM');
      setTimeout(() => kill(child, 'SIGKILL'), KILL_MS).unref();
    }, limit * 60_000);
    let line = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      process.stderr.write(text);
      const lines = (line + text).split('\n');
      line = lines.pop() ?? '';
      for (const each of lines) if (TROUBLE.test(each) && trouble.length < MAX_TROUBLE) trouble.push(each);
    });
    child.once('error', reject).once('close', (code) => {
      clearTimeout(timer);
      running = undefined;
      resolve({ code: code ?? 1, seconds: Math.round((performance.now() - began) / 1000), trouble });
    });
  });
}

/** @throws Error if no command writes one of the blocks */
export function chosen(from?: string, only?: string, skip?: string): readonly Measurement[] {
  const indexOf = (block: string) => {
    const index = MEASUREMENTS.findIndex(({ blocks }) => blocks.includes(block));
    if (index === -1) throw new Error(`no command writes the block ${block}`);
    return index;
  };
  const list = (text: string | undefined) => text?.split(',').map(indexOf);
  const first = from === undefined ? 0 : indexOf(from);
  const [wanted, unwanted] = [list(only), list(skip) ?? []];
  return MEASUREMENTS.filter(
    (_, index) => index >= first && !unwanted.includes(index) && (wanted?.includes(index) ?? true),
  );
}

function listOf(measurements: readonly Measurement[]): string {
  const lines = measurements.map(
    ({ blocks, words, minutes, elsewhere }) =>
      `${`${minutes}`.padStart(3)} min  ${blocks.join(', ').padEnd(60)} node ${words.join(' ')} --write` +
      `${elsewhere === undefined ? '' : ' (elsewhere)'}\n`,
  );
  const all = measurements.filter(({ elsewhere }) => elsewhere === undefined);
  const minutes = all.reduce((sum, each) => sum + each.minutes, 0);
  return `${lines.join('')}${`${Math.round(minutes)}`.padStart(3)} min  together, on a quiet machine with two processors\n`;
}

async function main(argv: string[]): Promise<number> {
  const { values } = parseArgs({
    args: argv,
    options: {
      list: { type: 'boolean', default: false },
      from: { type: 'string' },
      only: { type: 'string' },
      skip: { type: 'string' },
      short: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const measurements = chosen(values.from, values.only, values.skip);
  if (values.list) {
    process.stdout.write(listOf(measurements));
    return 0;
  }
  const stop = (signal: NodeJS.Signals) => {
    stopped = signal;
    if (running !== undefined) kill(running, 'SIGTERM');
  };
  process.on('SIGINT', stop).on('SIGTERM', stop);
  const load = loadBefore();
  if (load > QUIET_LOAD)
    process.stderr.write(`The machine is not quiet: its load is ${load}. Ratios hold, times do not.\n`);
  const summary: string[] = [];
  let failed = 0;
  for (const { words, short, minutes, blocks, elsewhere } of measurements) {
    const [name = ''] = blocks;
    if (elsewhere !== undefined) {
      summary.push(`${name}: not measured: ${elsewhere}`);
      continue;
    }
    const all = [...words, ...(values.short ? short : ['--write'])];
    process.stderr.write(`\nnode ${all.join(' ')}\n`);
    const { code, seconds, trouble } = await run({ words: all, minutes }, load);
    if (stopped !== undefined) {
      summary.push(`${name}: stopped by ${stopped}; continue with: npm run bench:all -- --from ${name}`);
      failed += 1;
      break;
    }
    const isMeasured = code === 0 || code === MISSED;
    const result =
      code === 0
        ? 'measured'
        : code === MISSED
          ? 'measured; a target is missed'
          : `FAILED (exit code ${code}); again with: npm run bench:all -- --only ${name}`;
    if (!isMeasured) failed += 1;
    const why = trouble.map((line) => `  ${line}`);
    summary.push([`${name}: ${result}, ${seconds} s`, ...why].join('\n'));
  }
  process.stderr.write(`\n${summary.join('\n')}\n`);
  return failed === 0 ? 0 : 1;
}

if (import.meta.main) {
  process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
    process.stderr.write(`bench: ${error instanceof Error ? error.message : String(error)}\n`);
    return 1;
  });
}
