// A command as a child process: what it has written so far, and how it ended. It knows how a gateway says where it
// listens, and nothing else about gateways.
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { until, within } from '../helpers/wait.ts';

/** The folder of the project. */
export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** As an operator has it: arguments, streams and signals go through the launcher. */
export const LAUNCHER = fileURLToPath(new URL('../../bin/tollgate.js', import.meta.url));

export interface ProgramOptions {
  /** All of the environment but PATH. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Default: this Node. */
  readonly command?: string;
}

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class Program implements AsyncDisposable {
  readonly child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #closed: Promise<unknown>;
  #stdout = '';
  #stderr = '';

  /** @param words the script and its arguments */
  constructor(words: readonly string[], options: ProgramOptions = {}) {
    this.child = spawn(options.command ?? process.execPath, words, {
      cwd: options.cwd,
      env: { PATH: process.env['PATH'] ?? '', ...options.env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.child.stdout.setEncoding('utf8').on('data', (text: string) => (this.#stdout += text));
    this.child.stderr.setEncoding('utf8').on('data', (text: string) => (this.#stderr += text));
    this.#closed = once(this.child, 'close');
  }

  get stdout(): string {
    return this.#stdout;
  }

  get stderr(): string {
    return this.#stderr;
  }

  get running(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /** Waits until what it wrote matches; fails at once when it ended without. Returns the match. */
  async wrote(pattern: RegExp, where: 'stdout' | 'stderr' = 'stderr'): Promise<RegExpExecArray> {
    const found = await until(() => {
      const match = pattern.exec(this[where]);
      return match ?? (this.running ? undefined : 'ended');
    }, `${pattern} on ${where}`);
    if (found !== 'ended') return found;
    await this.#closed;
    const match = pattern.exec(this[where]);
    if (match === null) throw new Error(`it ended without ${pattern}: ${this.stdout}${this.stderr}`);
    return match;
  }

  /** The address that a gateway says it listens on. */
  async listening(): Promise<string> {
    const [, url = ''] = await this.wrote(/listening on (http:\S+)/);
    return url;
  }

  /** Waits for the end and for all it wrote. */
  async end(ms?: number): Promise<Ended> {
    await within(this.#closed, 'the end of the process', ms, () => this.stdout + this.stderr);
    const { exitCode: code, signalCode: signal } = this.child;
    return { code, signal, stdout: this.stdout, stderr: this.stderr };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.running) this.child.kill('SIGKILL');
    await this.#closed;
  }
}
