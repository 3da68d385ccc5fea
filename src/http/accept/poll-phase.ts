// Continues work after the next poll phase of the event loop, in which everything that has arrived on sockets is read: libuv
// reads the FIN behind a request only one tick after the request.

/** Work that continues takes no more of a tick than this, so that what arrives meanwhile is read before the next of it. */
const BUDGET_MS = 2;
const MAX_PER_TICK = 64;

const waiting: (() => void)[] = [];
let isActive = false;
/** Of the running check phase; 0 when nothing was continued in it yet. */
let deadline = 0;

/** Calls back after the next poll phase, first come first served. Under load it may be a later one. */
export function afterPoll(callback: () => void): void {
  waiting.push(callback);
  if (isActive) return;
  isActive = true;
  // This immediate may run in the same tick; those that it sets run behind the next poll phase.
  setImmediate(scheduleTick);
}

function scheduleTick(): void {
  // An immediate for each, because promises continue between two of them and are part of the budget.
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
