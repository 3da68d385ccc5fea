// Where and of what a run was: the machine, the versions, the commit, the day.
import { execFileSync, spawnSync } from 'node:child_process';
import { cpus, loadavg, release, totalmem } from 'node:os';

export interface Circumstances {
  readonly machine: string;
  readonly versions: string;
  readonly commit: string;
  /** RFC 3339, UTC. */
  readonly date: string;
}

/** @param nginx path of the program; undefined where it takes no part */
export function circumstances(nginx: string | undefined): Circumstances {
  const processors = cpus();
  const model = processors[0]?.model.trim() ?? 'unknown processor';
  const memory = Math.round(totalmem() / 2 ** 30);
  const versions = [`Node ${process.versions.node}`];
  if (nginx !== undefined) {
    const { stdout, stderr } = spawnSync(nginx, ['-v'], { encoding: 'utf8', timeout: 10_000 });
    versions.push(`nginx ${/\d+\.\d+\.\d+/.exec(stdout + stderr)?.[0] ?? 'of unknown version'}`);
  }
  return {
    machine: `${model}, ${processors.length} processors, ${memory} GiB, Linux ${release()}`,
    versions: versions.join(', '),
    commit: describeCommit(),
    date: new Date().toISOString().slice(0, 19).concat('Z'),
  };
}

function describeCommit(): string {
  const git = (...args: string[]) =>
    execFileSync('git', args, {
      cwd: import.meta.dirname,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  try {
    const changed = git('status', '--porcelain', '--', '../src', '../package-lock.json') !== '';
    return `${git('rev-parse', '--short=12', 'HEAD')}${changed ? ' with changes' : ''}`;
  } catch {
    return 'unknown (no git repository)';
  }
}

/** Tells a command what the load was before those that ran before it. */
export const LOAD_VARIABLE = 'TOLLGATE_BENCH_LOAD';

/** What else runs on this machine: processes that want a processor, a mean over the last minute. Above a tenth figures are not calm. */
export function loadBefore(): number {
  return Number(process.env[LOAD_VARIABLE] ?? (loadavg()[0] ?? Number.NaN).toFixed(2));
}

/** In one line. */
export function describe({ machine, versions, commit, date }: Circumstances): string {
  return `${machine}; ${versions}; commit ${commit}; ${date}`;
}
