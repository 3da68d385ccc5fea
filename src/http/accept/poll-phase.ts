// Defers work past the next poll phase of the event loop, in which pending socket data is read: libuv reads a FIN behind a request
// one tick after the request.

/** Work per tick, so that new data is read before the next batch. */
const BUDGET_MS = 2;
const MAX_PER_TICK = 64;

const waiting: (() => void)[] = [];
let isActive = false;
/** End of the current check phase's budget; 0 before its first callback. */
let deadline = 0;

/** Calls back after the next poll phase, in FIFO order; under load after a later one. */
export function afterPoll(callback: () => void): void {
  waiting.push(callback);
  if (isActive) return;
  isActive = true;
  // This immediate may run in the same tick; those set by it run after the next poll phase.
  setImmediate(scheduleTick);
}

function scheduleTick(): void {
  // One immediate per callback, because promise callbacks run in between and count towards the budget.
  for (let count = Math.min(waiting.length, MAX_PER_TICK); count > 0; count -= 1) setImmediate(continueOne);
  setImmediate(endTick);
}

function continueOne(): void {
  const now = performance.now();
  if (deadline === 0) deadline = now + BUDGET_MS;
  if (now <= deadline) waiting.shift()?.();
}

function endTick(): void {
  deadline = 0;
  if (waiting.length > 0) scheduleTick();
  else isActive = false;
}
