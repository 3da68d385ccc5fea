// Every figure of docs/performance.md and bench/RESULTS.md, measured anew one after the other by the commands that write them. `npm run
// bench:all`; about two hours on a quiet machine. A command that fails is said at the end, and keeps the figures that were there.
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { loadBefore } from './machine.ts';

export interface Measurement {
  /** Blocks of docs/performance.md that it writes. */
  readonly blocks: readonly string[];
  /** Of this Node, from the root of the repository. */
  readonly words: readonly string[];
  /** Why it cannot be measured by this command alone. */
  readonly elsewhere?: string;
}

export const MEASUREMENTS: readonly Measurement[] = [
  { blocks: ['targets', 'runs', 'peers'], words: ['bench/run.ts', '--peer', '--long', '--write'] },
  { blocks: ['profile-request'], words: ['bench/profile.ts', '--write'] },
  { blocks: ['profile-chunk'], words: ['bench/profile.ts', '--streams', '--write'] },
  {
    blocks: ['growth-bodies', 'growth-chunks', 'growth-streams', 'growth-young'],
    words: ['bench/growth.ts', '--write'],
  },
  { blocks: ['keys'], words: ['bench/many-keys.ts', '--write'] },
  { blocks: ['searches'], words: ['bench/searches.ts', '--write'] },
  { blocks: ['overload'], words: ['bench/overload.ts', '--write'] },
  { blocks: ['workers'], words: ['bench/workers.ts', '--write'] },
  { blocks: ['replicas'], words: ['bench/replicas.ts', '--write'] },
  { blocks: ['console'], words: ['bench/console.ts', '--write'] },
  {
    blocks: ['many-streams'],
    words: ['bench/many-streams.ts', '--write'],
    elsewhere:
      'it needs more open files than most systems allow; docs/performance.md has the command for an emulated machine',
  },
];

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const USAGE = `npm run bench:all [-- --list] [--from BLOCK]

  --list        print the commands
  --from BLOCK  begin with the command that writes this block of docs/performance.md
`;
/** Above it figures are those of a machine that does something else. */
const QUIET_LOAD = 0.3;

/** @returns its exit code */
function run(words: readonly string[]): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, words, { cwd: ROOT, stdio: 'inherit' });
    child.once('error', reject).once('exit', (code) => resolve(code ?? 1));
  });
}

async function main(argv: string[]): Promise<number> {
  const { values } = parseArgs({
    args: argv,
    options: {
      list: { type: 'boolean', default: false },
      from: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const first =
    values.from === undefined
      ? 0
      : MEASUREMENTS.findIndex(({ blocks }) => blocks.includes(values.from ?? ''));
  if (first === -1) throw new Error(`no command writes the block ${values.from}`);
  const failed: string[] = [];
  const left: string[] = [];
  if (!values.list && loadBefore() > QUIET_LOAD)
    process.stderr.write(
      `The machine is not quiet: its load is ${loadBefore()}. Ratios hold, times do not.\n`,
    );
  for (const { words, blocks, elsewhere } of MEASUREMENTS.slice(first)) {
    const command = `node ${words.join(' ')}`;
    if (values.list) {
      process.stdout.write(
        `${blocks.join(', ').padEnd(48)} ${command}${elsewhere === undefined ? '' : ' (elsewhere)'}\n`,
      );
    } else if (elsewhere !== undefined) left.push(`${command}: ${elsewhere}`);
    else {
      process.stderr.write(`\n${command}\n`);
      if ((await run(words)) !== 0) failed.push(command);
    }
  }
  for (const each of left) process.stderr.write(`Not measured: ${each}\n`);
  for (const each of failed) process.stderr.write(`Failed: ${each}\n`);
  return failed.length === 0 ? 0 : 1;
}

if (import.meta.main) {
  process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
    process.stderr.write(`bench: ${error instanceof Error ? error.message : String(error)}\n`);
    return 1;
  });
}
