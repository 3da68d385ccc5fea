// What a process uses, read from outside, where Linux shows it: CPU time and memory.
import { readdirSync, readFileSync } from 'node:fs';

const TICKS_PER_SECOND = 100;

/**
 * CPU time that a process has used in all its threads, user and system, in microseconds. The scheduler counts nanoseconds
 * for each thread; where a kernel does not show them, `stat` has hundredths of a second.
 */
export function cpuMicroseconds(pid: number): number {
  try {
    let nanoseconds = 0;
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      nanoseconds += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ', 1)[0]);
    }
    if (nanoseconds > 0) return nanoseconds / 1e3;
  } catch {
    // Not shown here, or the process has ended, which the next read says.
  }
  const fields = statFields(pid);
  return ((Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND) * 1e6;
}

/** Resident memory of a process in bytes. @throws Error if it has ended */
export function residentBytes(pid: number): number {
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(read(`/proc/${pid}/status`, pid))?.[1];
  if (kib === undefined) throw new Error(`the memory of process ${pid} is not shown`);
  return Number(kib) * 1024;
}

/** Children of a process. */
export function childrenOf(pid: number): number[] {
  return read(`/proc/${pid}/task/${pid}/children`, pid)
    .split(' ')
    .filter((text) => text !== '')
    .map(Number);
}

/** Fields of /proc/PID/stat from the third on: the second, the name, may hold blanks. */
function statFields(pid: number): string[] {
  const stat = read(`/proc/${pid}/stat`, pid);
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

function read(file: string, pid: number): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw new Error(`process ${pid} has ended`, { cause });
  }
}
