// Which processors the bench's processes run on, where latency is measured: a proxy's event loop has one to itself, so that neither
// the load generator nor the upstream stops it in the middle of its work. Elsewhere all of them share all processors.
import { readFileSync } from 'node:fs';
import { findProgram, type Processes } from './processes.ts';

const DEADLINE_MS = 5_000;

export interface Apart {
  /** The command and first words that start a program with `loads`. */
  readonly among: readonly string[];
  /** Everyone may run everywhere again. */
  end(): Promise<void>;
}

/**
 * Gives the main threads of `proxies` the first processor, and all threads of `loads` the rest. Threads that a proxy has besides
 * may run everywhere.
 * @returns undefined where that is not possible: with one processor, or without `taskset` (util-linux)
 */
export async function setApart(
  processes: Processes,
  proxies: readonly number[],
  loads: readonly number[],
): Promise<Apart | undefined> {
  const program = findProgram('taskset');
  const [first, ...others] = allowed();
  if (program === undefined || others.length === 0) return undefined;
  const rest = others.join();
  const place = (option: '-cp' | '-acp', where: string, pids: readonly number[]) =>
    Promise.all(pids.map((pid) => processes.run(program, [option, where, `${pid}`], DEADLINE_MS)));
  await place('-cp', `${first}`, proxies);
  await place('-acp', rest, loads);
  return {
    among: [program, '-c', rest],
    async end() {
      await place('-acp', `${first},${rest}`, [...proxies, ...loads]);
    },
  };
}

/** The processors that this process may use, and what it starts. */
function allowed(): number[] {
  const list = /^Cpus_allowed_list:\s*(\S+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '';
  return list.split(',').flatMap((range) => {
    const [from = 0, to = from] = range.split('-').map(Number);
    return Array.from({ length: to - from + 1 }, (_, index) => from + index);
  });
}
