// The parts that were opened, and their end in the opposite order: each has its time, and one that fails keeps no other from
// being closed.
import { withDeadline } from '../deadline.ts';

interface Part {
  readonly name: string;
  readonly close: () => Promise<unknown>;
}

/** Above what any part allows itself, the usage outbox among them. */
const CLOSE_MS = 10_000;

export class Lifecycle {
  readonly #parts: Part[] = [];

  add(name: string, close: () => Promise<unknown>): void {
    this.#parts.push({ name, close });
  }

  /**
   * Closes what was opened last first. Never rejects.
   * @param deadlineMs for each part
   * @returns why parts could not be closed, by their names; empty if all were
   */
  async close(deadlineMs = CLOSE_MS): Promise<ReadonlyMap<string, unknown>> {
    const failures = new Map<string, unknown>();
    for (const { name, close } of this.#parts.splice(0).reverse()) {
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
