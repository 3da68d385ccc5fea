// Waiting for Redis no longer than so long. It ends nothing but the wait.

/** No answer came in time. */
export class DeadlinePassed extends Error {
  override readonly name = 'DeadlinePassed';

  constructor(what: string, ms: number) {
    super(`${what} did not answer within ${ms} ms`);
  }
}

/**
 * Calls `onLate` after `ms` milliseconds, and once what the sockets hold by then has been read: when this process was busy
 * for longer than that, the answer may have come long ago, and Redis is not to blame.
 * @returns ends the wait
 */
export function startDeadline(ms: number, onLate: () => void): () => void {
  let immediate: NodeJS.Immediate | undefined;
  // Timers run before sockets are read, immediates after.
  const timer = setTimeout(() => {
    immediate = setImmediate(onLate);
  }, ms);
  return () => {
    clearTimeout(timer);
    clearImmediate(immediate);
  };
}

/**
 * What `promise` gives. The promise itself is not cancelled.
 * @param what for the error: who did not answer
 * @throws DeadlinePassed after `ms` milliseconds; the reason of `signal` when that comes first
 */
export async function inTime<T>(
  promise: Promise<T>,
  what: string,
  ms: number,
  signal?: AbortSignal,
): Promise<T> {
  return await new Promise<T>((resolve, reject) => {
    const abort = () => end(() => reject(signal?.reason));
    const stop = startDeadline(ms, () => end(() => reject(new DeadlinePassed(what, ms))));
    const end = (settle: () => void) => {
      stop();
      signal?.removeEventListener('abort', abort);
      settle();
    };
    signal?.addEventListener('abort', abort, { once: true });
    promise.then(
      (value) => end(() => resolve(value)),
      (error: unknown) => end(() => reject(error)),
    );
    if (signal?.aborted === true) abort();
  });
}

/** Waits `ms` milliseconds, or until `signal` aborts. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted === true) return;
  await new Promise<void>((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end, { once: true });
  });
}
