// Waiting on conditions, and temporary directories.
// No wait here is a guess at how long something takes: each ends on a condition or fails at a generous deadline.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Deadline of a wait when the test names none, in milliseconds. Generous: the machine may be slow and shared. */
export const PATIENCE = 60_000;

/** A pause of `ms` milliseconds. For giving bytes time to travel apart, not for hoping that something is done. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * Asks `condition` again and again until it is neither false, null nor undefined, and returns what it gave.
 * A condition that throws counts as not yet true; its last error is the cause of the failure.
 * @param what named in the error when `ms` milliseconds pass without success
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  what = 'the condition',
  ms: number = PATIENCE,
): Promise<Exclude<T, false | null | undefined>> {
  const started = performance.now();
  let cause: unknown;
  for (;;) {
    const asked = performance.now();
    try {
      const value = await condition();
      if (holds(value)) return value;
      cause = undefined;
    } catch (error) {
      cause = error;
    }
    const now = performance.now();
    if (now > started + ms) {
      throw new Error(
        `${what} did not come true within ${ms} ms`,
        cause === undefined ? undefined : { cause },
      );
    }
    // What takes long to ask, or to come true, is asked less often: asking takes the processor from what it waits for.
    await pause(Math.min(Math.max(5, 2 * (now - asked), (now - started) / 20), 100));
  }
}

function holds<T>(value: T): value is Exclude<T, false | null | undefined> {
  return value !== false && value !== null && value !== undefined;
}

/**
 * What `promise` gives, or an error naming `what` after `ms` milliseconds. The promise itself is not cancelled.
 * @param state called for a word on how far things had come when the deadline passed
 */
export async function within<T>(
  promise: Promise<T>,
  what: string,
  ms: number = PATIENCE,
  state?: () => string,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const detail = state === undefined ? '' : ` (${state()})`;
      reject(new Error(`${what} did not come within ${ms} ms${detail}`));
    }, ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

export interface TempDir extends AsyncDisposable {
  readonly path: string;
  /** The absolute path of a file in the directory. */
  file(name: string): string;
  remove(): Promise<void>;
}

/** A new empty directory that `remove()`, or the end of an `await using` block, deletes with all that is in it. */
export async function tempDir(): Promise<TempDir> {
  const path = await mkdtemp(join(tmpdir(), 'tollgate-test-'));
  const remove = (): Promise<void> => rm(path, { recursive: true, force: true, maxRetries: 3 });
  return { path, file: (name) => join(path, name), remove, [Symbol.asyncDispose]: remove };
}
