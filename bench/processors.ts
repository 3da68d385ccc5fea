// Which processors the bench's processes run on, where latency is measured: a proxy's event loop has one to itself, so that neither
// the load generator nor the upstream stops it in the middle of its work. As many as there are, nobody has them to himself otherwise.
import { availableParallelism } from 'node:os';
import { findProgram, type Processes } from './processes.ts';

const DEADLINE_MS = 5_000;

export interface Apart {
  /** The command and first words that start a program among the others. */
  readonly among: readonly string[];
  /** Everyone may run everywhere again. */
  end(): Promise<void>;
}

/**
 * Gives the main threads of `proxies` the first processor, and all threads of `others` the rest. Threads that a proxy has besides
 * may run everywhere.
 * @returns undefined where that is not possible: with one processor, or without `taskset` (util-linux)
 */
export async function setApart(
  processes: Processes,
  proxies: readonly number[],
  others: readonly number[],
): Promise<Apart | undefined> {
  const program = findProgram('taskset');
  const last = availableParallelism() - 1;
  if (program === undefined || last < 1) return undefined;
  const rest = `1-${last}`;
  const place = (option: '-cp' | '-acp', where: string, pids: readonly number[]) =>
    Promise.all(pids.map((pid) => processes.run(program, [option, where, `${pid}`], DEADLINE_MS)));
  await place('-cp', '0', proxies);
  await place('-acp', rest, others);
  return {
    among: [program, '-c', rest],
    async end() {
      await place('-acp', `0-${last}`, [...proxies, ...others]);
    },
  };
}
