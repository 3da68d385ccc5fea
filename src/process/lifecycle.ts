// The registry of open resources. It closes them in reverse order, each with its own deadline; a failure does not stop the others.
import { withDeadline } from '../deadline.ts';

interface Resource {
  readonly name: string;
  readonly close: () => Promise<unknown>;
}

/** Longer than the deadline of any resource, the usage outbox included. */
const CLOSE_MS = 10_000;

export class Lifecycle {
  readonly #resources: Resource[] = [];

  add(name: string, close: () => Promise<unknown>): void {
    this.#resources.push({ name, close });
  }

  /**
   * Closes the resources, last opened first. Never rejects.
   * @param deadlineMs deadline of each resource
   * @returns the errors by resource name; empty when all closed
   */
  async close(deadlineMs = CLOSE_MS): Promise<ReadonlyMap<string, unknown>> {
    const failures = new Map<string, unknown>();
    for (const { name, close } of this.#resources.splice(0).reverse()) {
      const late = () => new Error(`it did not close within ${deadlineMs} ms`);
      try {
        await withDeadline(close(), deadlineMs, late);
      } catch (error) {
        failures.set(name, error);
      }
    }
    return failures;
  }
}
