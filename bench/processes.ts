// The processes that the bench starts: each is waited for, measured from outside, and stopped again, whatever
// happens. It does not know what they are.
import { type ChildProcess, spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { basename, join } from 'node:path';

/** Only against a process that hangs: an emulated machine takes minutes. */
const START_MS = 5 * 60_000;
const STOP_MS = 3_000;
/** What is kept of what a process says, for who waits for a word of it. */
const MAX_HEARD = 64 * 1024;

export interface StartOptions {
  readonly cwd?: string;
  /** Where its stdout goes, if not to `ready` or nowhere: a file descriptor. */
  readonly stdout?: number;
  /** Matches what it says, on stdout or stderr, when it is ready. Without it, it counts as ready at once. */
  readonly ready?: RegExp;
  /** How many files it may have open; as many as are allowed when these are too many. Default: as this process. */
  readonly files?: number;
  /** Laid over the environment of this process. */
  readonly env?: Readonly<Record<string, string>>;
  /** Milliseconds until `ready`. */
  readonly deadline?: number;
  /** It starts others and does not always pass signals on: all of them are ended together. */
  readonly isGroup?: boolean;
}

/** A process that runs. */
export interface Started {
  readonly pid: number;
  /** The match of `ready`. */
  readonly said: RegExpExecArray | undefined;
  /**
   * Writes a line to its stdin and resolves when it says what matches.
   * @throws Error if it ends or is silent for `deadline` milliseconds
   */
  ask(line: string, answer: RegExp, deadline?: number): Promise<RegExpExecArray>;
  /** Ends it, and resolves when it has ended. */
  stop(): Promise<void>;
}

interface Running {
  readonly ended: Promise<void>;
  readonly isGroup: boolean;
}

export class Processes {
  readonly #running = new Map<ChildProcess, Running>();
  #stopping = false;

  /**
   * Starts a process that runs until `stop` or `stopAll`.
   * @throws Error, with what it said, if it ends or is silent instead of getting ready
   */
  async start(command: string, args: readonly string[], options: StartOptions = {}): Promise<Started> {
    const child = this.#spawn(command, args, options);
    const { pid } = child;
    const hearing = new Hearing(command, child);
    const { ready } = options;
    const said = ready === undefined ? undefined : await hearing.waitFor(ready, options.deadline ?? START_MS);
    if (pid === undefined) throw new Error(`${command} did not start`);
    return {
      pid,
      said,
      ask(line, answer, deadline = START_MS) {
        const heard = hearing.waitFor(answer, deadline);
        child.stdin?.write(`${line}\n`);
        return heard;
      },
      stop: () => this.#stop([child]),
    };
  }

  /**
   * Runs a process to its end.
   * @param deadline milliseconds
   * @returns its stdout
   * @throws Error, with its stderr, if it fails
   */
  async run(
    command: string,
    args: readonly string[],
    deadline: number,
    options: Pick<StartOptions, 'cwd' | 'files' | 'env'> = {},
  ): Promise<string> {
    const child = this.#spawn(command, args, options);
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
        throw new Error(
          `${basename(command)} failed (${code ?? child.signalCode}): ${err.trim() || out.trim()}`,
        );
      return out;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Ends everything that still runs and resolves when it has ended. Nothing can be started afterwards. */
  async stopAll(): Promise<void> {
    this.#stopping = true;
    await this.#stop([...this.#running.keys()]);
  }

  async #stop(children: readonly ChildProcess[]): Promise<void> {
    const timer = setTimeout(() => {
      for (const child of children) this.#kill(child, 'SIGKILL');
    }, STOP_MS);
    for (const child of children) this.#kill(child, 'SIGTERM');
    await Promise.all(children.map((child) => this.#running.get(child)?.ended));
    clearTimeout(timer);
  }

  #kill(child: ChildProcess, signal: NodeJS.Signals): void {
    if (this.#running.get(child)?.isGroup !== true || child.pid === undefined) {
      child.kill(signal);
      return;
    }
    try {
      process.kill(-child.pid, signal);
    } catch {
      // All of them have ended.
    }
  }

  #spawn(command: string, args: readonly string[], options: StartOptions): ChildProcess {
    if (this.#stopping) throw new Error('the bench is being stopped');
    const { cwd, stdout = 'pipe', files, isGroup = false } = options;
    // A process can lift its own limit only before it is the program: the shell does it and becomes the program.
    const lift = `ulimit -n ${files} 2> /dev/null || ulimit -n "$(ulimit -Hn)"; exec "$0" "$@"`;
    const words = files === undefined ? [command, ...args] : ['/bin/sh', '-c', lift, command, ...args];
    const [program = command, ...rest] = words;
    const env = { ...environment(), ...options.env };
    const child = spawn(program, rest, { cwd, env, stdio: ['pipe', stdout, 'pipe'], detached: isGroup });
    // Who has ended reads nothing more; that it has ended is said elsewhere.
    child.stdin?.on('error', () => {});
    const ended = new Promise<void>((resolve) => {
      // Of a group the pipes are closed when the last of them has ended.
      child.once('error', () => resolve()).once(isGroup ? 'close' : 'exit', () => resolve());
    });
    this.#running.set(child, { ended, isGroup });
    void ended.then(() => this.#running.delete(child));
    return child;
  }
}

/** What a process says, for one who waits for a word of it. The pipes are always emptied, and little is kept. */
class Hearing {
  readonly #command: string;
  #heard = '';
  #ended: string | undefined;
  #check: (() => void) | undefined;

  constructor(command: string, child: ChildProcess) {
    this.#command = command;
    const hear = (text: string) => {
      this.#heard = (this.#heard + text).slice(-MAX_HEARD);
      this.#check?.();
    };
    child.stdout?.setEncoding('utf8').on('data', hear);
    child.stderr?.setEncoding('utf8').on('data', hear);
    const end = (why: string) => {
      this.#ended ??= why;
      this.#check?.();
    };
    child.once('error', (error) => end(`did not start (${error.message})`));
    // After its output has been read to the end, which says why.
    child.once('close', (code, signal) => end(`ended (${code ?? signal})`));
  }

  async waitFor(word: RegExp, deadline: number): Promise<RegExpExecArray> {
    let timer: NodeJS.Timeout | undefined;
    try {
      return await new Promise<RegExpExecArray>((resolve, reject) => {
        const fail = (why: string) =>
          reject(
            new Error(`${this.#command} ${why}: ${this.#heard.trim().slice(-2000) || 'it said nothing'}`),
          );
        timer = setTimeout(() => fail(`did not say ${word} within ${deadline} ms`), deadline);
        this.#check = () => {
          const found = word.exec(this.#heard);
          if (found !== null) {
            this.#heard = this.#heard.slice(found.index + found[0].length);
            resolve(found);
          } else if (this.#ended !== undefined) fail(this.#ended);
        };
        this.#check();
      });
    } finally {
      clearTimeout(timer);
      this.#check = undefined;
    }
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
