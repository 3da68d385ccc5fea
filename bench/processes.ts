// The processes that the proxy bench starts: each is waited for, measured from outside, and stopped again, whatever
// happens. It does not know what they are.
import { type ChildProcess, spawn } from 'node:child_process';
import { accessSync, constants, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const START_MS = 20_000;
const STOP_MS = 3_000;
const TICKS_PER_SECOND = 100;

export interface StartOptions {
  readonly cwd?: string;
  /** Where its stdout goes, if not to `ready` or nowhere: a file descriptor. */
  readonly stdout?: number;
  /** Matches what it says, on stdout or stderr, when it is ready. Without it, it counts as ready at once. */
  readonly ready?: RegExp;
}

export interface Started {
  readonly pid: number;
  /** The match of `ready`. */
  readonly said: RegExpExecArray | undefined;
}

export class Processes {
  readonly #running = new Map<ChildProcess, Promise<void>>();
  #stopping = false;

  /**
   * Starts a process that runs until `stopAll`.
   * @throws Error, with what it said, if it ends or is silent instead of getting ready
   */
  async start(command: string, args: readonly string[], options: StartOptions = {}): Promise<Started> {
    const child = this.#spawn(command, args, options.cwd, options.stdout ?? 'pipe');
    const { pid } = child;
    const { ready } = options;
    const said = await new Promise<RegExpExecArray | undefined>((resolve, reject) => {
      let heard = '';
      let waiting = ready !== undefined;
      const fail = (why: string) => {
        clearTimeout(timer);
        reject(new Error(`${command} ${why}: ${heard.trim() || 'it said nothing'}`));
      };
      const timer = setTimeout(fail, START_MS, `was not ready within ${START_MS} ms`);
      const settle = (found: RegExpExecArray | undefined) => {
        waiting = false;
        clearTimeout(timer);
        resolve(found);
      };
      const hear = (text: string) => {
        // Afterwards the pipes are still emptied, and nothing is kept.
        if (!waiting) return;
        heard += text;
        const found = ready?.exec(heard);
        if (found) settle(found);
      };
      child.stdout?.setEncoding('utf8').on('data', hear);
      child.stderr?.setEncoding('utf8').on('data', hear);
      child.once('error', (error) => fail(`did not start (${error.message})`));
      // After its output has been read to the end, which says why.
      child.once('close', (code, signal) => fail(`ended (${code ?? signal})`));
      if (ready === undefined) settle(undefined);
    });
    if (pid === undefined) throw new Error(`${command} did not start`);
    return { pid, said };
  }

  /**
   * Runs a process to its end.
   * @param deadline milliseconds
   * @returns its stdout
   * @throws Error, with its stderr, if it fails
   */
  async run(command: string, args: readonly string[], deadline: number, cwd?: string): Promise<string> {
    const child = this.#spawn(command, args, cwd, 'pipe');
    const timer = setTimeout(() => child.kill('SIGKILL'), deadline);
    let out = '';
    let err = '';
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      out += text;
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      err += text;
    });
    try {
      const code = await new Promise<number | null>((resolve, reject) => {
        child.once('error', reject).once('close', resolve);
      });
      if (code !== 0)
        throw new Error(`${command} failed (${code ?? child.signalCode}): ${err.trim() || out.trim()}`);
      return out;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Ends everything that still runs and resolves when it has ended. Nothing can be started afterwards. */
  async stopAll(): Promise<void> {
    this.#stopping = true;
    const timer = setTimeout(() => {
      for (const child of this.#running.keys()) child.kill('SIGKILL');
    }, STOP_MS);
    for (const child of this.#running.keys()) child.kill('SIGTERM');
    await Promise.all(this.#running.values());
    clearTimeout(timer);
  }

  #spawn(
    command: string,
    args: readonly string[],
    cwd: string | undefined,
    stdout: 'pipe' | number,
  ): ChildProcess {
    if (this.#stopping) throw new Error('the bench is being stopped');
    const child = spawn(command, args, { cwd, env: environment(), stdio: ['pipe', stdout, 'pipe'] });
    const ended = new Promise<void>((resolve) => {
      child.once('error', () => resolve()).once('exit', () => resolve());
    });
    this.#running.set(child, ended);
    void ended.then(() => this.#running.delete(child));
    return child;
  }
}

/** This process's environment without what would change the gateway: the bench measures its own configuration. */
function environment(): NodeJS.ProcessEnv {
  const { PORT: _port, HOST: _host, LOG_LEVEL: _level, NODE_OPTIONS: _options, ...rest } = process.env;
  return rest;
}

/** The path of a program, or undefined when it is not installed. Servers may be in places that are not in a user's PATH. */
export function findProgram(name: string): string | undefined {
  const folders = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin', '/usr/local/sbin'];
  return folders
    .filter((folder) => folder !== '')
    .map((folder) => join(folder, name))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

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

/** Fields of /proc/PID/stat from the third on: the second, the name, may hold blanks. */
function statFields(pid: number): string[] {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch (cause) {
    throw new Error(`process ${pid} has ended`, { cause });
  }
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}
