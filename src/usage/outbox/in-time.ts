// A wait that ends, in the words of this folder.
import { withDeadline } from '../../deadline.ts';

/** What `promise` gives, or a rejection after `ms` milliseconds. What it waits for is not ended by that. */
export function withinMs<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  return withDeadline(promise, ms, () => new Error(`${what} took more than ${ms} ms`));
}
