// Runs npm for the tools beside it: the npm that runs them, or else the one of the PATH. Bounded in time and in output.
import { spawnSync } from 'node:child_process';

export interface Said {
  /** null when it did not end by itself. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const DEADLINE_MS = 60_000;
const MAX_BYTES = 64 * 2 ** 20;

/** @param words what follows `npm` */
export function npm(words: readonly string[], cwd: string = process.cwd()): Said {
  const script = process.env['npm_execpath'];
  const [command, ...first] = script?.endsWith('.js') === true ? [process.execPath, script] : ['npm'];
  const { status, stdout, stderr, error } = spawnSync(command ?? 'npm', [...first, ...words], {
    cwd,
    encoding: 'utf8',
    timeout: DEADLINE_MS,
    maxBuffer: MAX_BYTES,
  });
  return { code: status, stdout: stdout ?? '', stderr: `${stderr ?? ''}${error?.message ?? ''}` };
}
