// Deadlines for waits on Redis. They end the wait, not the work.
import { setTimeout } from 'node:timers/promises';
import { withDeadline } from '../deadline.ts';

/** No answer arrived within the deadline. */
export class DeadlinePassed extends Error {
  override readonly name = 'DeadlinePassed';

  constructor(what: string, ms: number) {
    super(`${what} did not answer within ${ms} ms`);
  }
}

/**
 * Waits for `promise` up to a deadline, and does not cancel it.
 * @param what the subject of the error message: what did not answer
 * @throws DeadlinePassed after `ms` milliseconds; the reason of `signal` when that comes first
 */
export function inTime<T>(promise: Promise<T>, what: string, ms: number, signal?: AbortSignal): Promise<T> {
  return withDeadline(promise, ms, () => new DeadlinePassed(what, ms), signal);
}

/** Waits `ms` milliseconds, or until `signal` aborts. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, signal && { signal }).catch(() => {});
}
