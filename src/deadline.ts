// An end to waiting. The work itself goes on; nobody waits for it any more. Whoever waits says what error that is.

/** A timer that fires so much too late, in milliseconds, was held up by this process. */
const STALL_MS = 25;

/**
 * Calls `onLate` after `ms` milliseconds, and once what the sockets hold by then has been read: when this process was busy
 * for longer than that, the answer may have come long ago, and nobody else is to blame. What takes several answers gets the
 * time back for which this process was busy, once and `ms` at most.
 * @returns ends the wait
 */
export function startDeadline(ms: number, onLate: () => void): () => void {
  let immediate: NodeJS.Immediate | undefined;
  const due = performance.now() + ms;
  // Timers run before sockets are read, immediates after.
  let timer = setTimeout(() => {
    const stall = performance.now() - due;
    immediate = setImmediate(() => {
      if (stall < STALL_MS) onLate();
      else
        timer = setTimeout(
          () => {
            immediate = setImmediate(onLate);
          },
          Math.min(stall, ms),
        );
    });
  }, ms);
  return () => {
    clearTimeout(timer);
    clearImmediate(immediate);
  };
}

/**
 * What `work` gives, when it comes in time. Its later failure is nobody's.
 * @param late makes the error to reject with after `ms` milliseconds
 * @param signal ends the wait with its reason when it aborts first
 */
export function withDeadline<T>(
  work: Promise<T>,
  ms: number,
  late: () => Error,
  signal?: AbortSignal,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => end(() => reject(signal?.reason));
    const stop = startDeadline(ms, () => end(() => reject(late())));
    const end = (settle: () => void) => {
      stop();
      signal?.removeEventListener('abort', abort);
      settle();
    };
    signal?.addEventListener('abort', abort, { once: true });
    work.then(
      (value) => end(() => resolve(value)),
      (error: unknown) => end(() => reject(error)),
    );
    if (signal?.aborted === true) abort();
  });
}
