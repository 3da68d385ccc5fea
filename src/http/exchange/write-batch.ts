// Write batching: defers writes to the end of the event-loop tick and then runs them together.

/**
 * Under load many sockets become readable in one tick. If each response is written in between, it wakes its receiver, which sleeps
 * again before the next one; written together, the first write wakes the receiver for all. On an idle process the tick ends at
 * once, so a single write is not delayed.
 */
let due: (() => void)[] = [];

/** @param write called at the end of this tick, in order of the calls */
export function batchWrite(write: () => void): void {
  if (due.push(write) === 1) setImmediate(flushWrites);
}

/** Runs all pending writes now. */
export function flushWrites(): void {
  const writes = due;
  due = [];
  for (const write of writes) {
    try {
      write();
    } catch (error) {
      // A bug, reported as an uncaught exception; the other writes must still run.
      queueMicrotask(() => {
        throw error;
      });
    }
  }
}
