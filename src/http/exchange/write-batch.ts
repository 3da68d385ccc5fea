// Writes wait for the end of the turn of the event loop in which they were made, and are then made one behind the other. What
// is written, and to whom, is for others.

/**
 * Under load many sockets become readable in one turn. Written between them, each answer wakes whoever waits for it, which is
 * asleep again before the next one comes; written together, the first wakes it and the others find it awake. Alone on an idle
 * process a write waits for nothing: the turn ends behind it.
 */
let due: (() => void)[] = [];

/** @param write called at the end of this turn, behind those that were given before */
export function batchWrite(write: () => void): void {
  if (due.push(write) === 1) setImmediate(flushWrites);
}

/** Writes all that is due, before the turn ends. */
export function flushWrites(): void {
  const writes = due;
  due = [];
  for (const write of writes) {
    try {
      write();
    } catch (error) {
      // A fault of the gateway, which the process hears of; the others have done nothing to lose their bytes.
      queueMicrotask(() => {
        throw error;
      });
    }
  }
}
