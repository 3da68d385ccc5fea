// Child processes that share a store with the test: started, controlled by lines, and always ended.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { within } from '../helpers/wait.ts';

export interface Child extends AsyncDisposable {
  readonly process: ChildProcess;
  /** Complete lines of its standard output, in order. */
  readonly lines: readonly string[];
  readonly stderr: () => string;
  /** Resolves with the exit code, or null when a signal ended it, once all its output was read. */
  readonly ended: Promise<number | null>;
  nextLine(): Promise<string>;
}

/** Runs a TypeScript file beside this one, or an absolute path, with the Node that runs the test. */
export function startChild(
  file: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): Child {
  const script = fileURLToPath(new URL(file, new URL('./children/', import.meta.url)));
  const child = spawn(process.execPath, [script, ...args], { env, stdio: ['pipe', 'pipe', 'pipe'] });
  const lines: string[] = [];
  const waiting: ((line: string) => void)[] = [];
  let taken = 0;
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  createInterface({ input: child.stdout }).on('line', (line) => {
    lines.push(line);
    const next = waiting.shift();
    if (next === undefined) return;
    taken += 1;
    next(line);
  });
  const ended = once(child, 'close').then(([code]: unknown[]) => (typeof code === 'number' ? code : null));
  return {
    process: child,
    lines,
    stderr: () => stderr,
    ended,
    nextLine: () => {
      const line = lines[taken];
      const promise =
        line === undefined ? new Promise<string>((resolve) => waiting.push(resolve)) : Promise.resolve(line);
      if (line !== undefined) taken += 1;
      return within(promise, `a line of ${file}`, 60_000, () => stderr);
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}
