// Deadlines for waits. The work itself is not cancelled; its later result is ignored. The caller defines the error.

/** A timer that fires this many milliseconds late was delayed by a busy event loop. */
const DELAYED_MS = 25;

/**
 * Calls `onLate` after `ms` milliseconds, but reads pending socket data first: if this process was busy, the response may already
 * be there. A busy event loop extends the deadline once, by its delay and at most by `ms`.
 * @returns a function that cancels the deadline
 */
export function startDeadline(ms: number, onLate: () => void): () => void {
  let immediate: NodeJS.Immediate | undefined;
  const due = performance.now() + ms;
  // Per tick of the event loop, timers run before sockets are read and immediates after.
  let timer = setTimeout(() => {
    const delay = performance.now() - due;
    immediate = setImmediate(() => {
      if (delay < DELAYED_MS) onLate();
      else
        timer = setTimeout(
          () => {
            immediate = setImmediate(onLate);
          },
          Math.min(delay, ms),
        );
    });
  }, ms);
  return () => {
    clearTimeout(timer);
    clearImmediate(immediate);
  };
}

/**
 * Resolves or rejects with `work` if it settles in time. Later rejections are swallowed.
 * @param late creates the error to reject with after `ms` milliseconds
 * @param signal rejects with its reason when it aborts first
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
