// Takes CPU time from a running process: by the quota of a control group where this machine allows it, otherwise by stopping
// and continuing it ten times a second. Or gives it precedence over others.
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { until } from '../helpers/wait.ts';

/** A quota is used up at the beginning of each period, which begins anew with the first work after a rest. In milliseconds. */
export const PERIOD_MS = 100;
/** The highest weight of a group: others that want the processor at the same time do not take from the share. */
const WEIGHTS = { v1: 262_144, v2: 10_000 };
const V1 = '/sys/fs/cgroup/cpu';
const V2 = '/sys/fs/cgroup';

export interface CpuQuota extends AsyncDisposable {
  /** `cgroup` or `signals`. */
  readonly by: string;
}

/** @param share of one processor, until it is disposed of */
export async function limitCpu(pid: number, share: number): Promise<CpuQuota> {
  const group = makeGroup(Math.round(share * PERIOD_MS * 1000));
  return group === undefined ? limitBySignals(pid, share) : enter(group, pid);
}

/** Until it is disposed of, the process runs before others outside of its group, without a limit. `none` where no group can be made. */
export async function preferCpu(pid: number): Promise<CpuQuota> {
  const group = makeGroup(undefined);
  return group === undefined ? { by: 'none', async [Symbol.asyncDispose]() {} } : enter(group, pid);
}

function enter(group: string, pid: number): CpuQuota {
  const home = readFileSync(`/proc/${pid}/cgroup`, 'utf8');
  writeFileSync(`${group}/cgroup.procs`, String(pid));
  return {
    by: 'cgroup',
    async [Symbol.asyncDispose]() {
      const root = group.startsWith(`${V1}/`) ? V1 : V2;
      const path = /^(?:\d+:cpu(?:,cpuacct)?:|0::)(.*)$/m.exec(home)?.[1] ?? '/';
      if (existsSync(`/proc/${pid}`)) {
        // Back to where it was, or to the top where that cannot be named from here.
        const places = [`${root}${path}/cgroup.procs`, `${root}/cgroup.procs`];
        places.some((place) => attempt(() => writeFileSync(place, String(pid))));
      }
      await until(() => attempt(() => rmdirSync(group)), 'the control group to be empty');
    },
  };
}

/**
 * @param quota microseconds in a period
 * @returns the folder of a control group; undefined where none can be made
 */
function makeGroup(quota: number | undefined): string | undefined {
  const name = `tollgate-test-${process.pid}-${randomUUID()}`;
  const period = PERIOD_MS * 1000;
  for (const [root, write] of [
    [
      V1,
      (group: string) => {
        writeFileSync(`${group}/cpu.cfs_period_us`, String(period));
        writeFileSync(`${group}/cpu.cfs_quota_us`, String(quota ?? -1));
        writeFileSync(`${group}/cpu.shares`, String(WEIGHTS.v1));
      },
    ],
    [
      V2,
      (group: string) => {
        writeFileSync(`${group}/cpu.max`, `${quota ?? 'max'} ${period}`);
        writeFileSync(`${group}/cpu.weight`, String(WEIGHTS.v2));
      },
    ],
  ] as const) {
    const group = `${root}/${name}`;
    if (!existsSync(`${root}/cgroup.procs`)) continue;
    if (attempt(() => mkdirSync(group)) && attempt(() => write(group))) return group;
    attempt(() => rmdirSync(group));
  }
  return undefined;
}

function attempt(action: () => void): boolean {
  try {
    action();
    return true;
  } catch {
    return false;
  }
}

/** From a process of its own, whose timers nobody holds up. */
export async function limitBySignals(pid: number, share: number): Promise<CpuQuota> {
  const script = `
    const pid = Number(process.argv[1]);
    process.stdin.resume().on('end', () => { clearInterval(timer); process.kill(pid, 'SIGCONT'); process.exit(); });
    const timer = setInterval(() => {
      process.kill(pid, 'SIGCONT');
      setTimeout(() => process.kill(pid, 'SIGSTOP'), ${share * PERIOD_MS});
    }, ${PERIOD_MS});`;
  const child: ChildProcess = spawn(process.execPath, ['-e', script, String(pid)], {
    stdio: ['pipe', 'ignore', 'inherit'],
  });
  await once(child, 'spawn');
  return {
    by: 'signals',
    async [Symbol.asyncDispose]() {
      const ended = once(child, 'exit');
      child.stdin?.end();
      await ended;
      // The last stop may have come behind it.
      if (existsSync(`/proc/${pid}`)) process.kill(pid, 'SIGCONT');
    },
  };
}
