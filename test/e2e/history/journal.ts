// Writes down what happens while it happens: operations, disturbances, and the times at which this machine did not get to run.
import type { Disturbance, History, Operation } from './operation.ts';

/** A timer that is so late says that the processes here did not get the processor either, in milliseconds. */
const STALL_MS = 150;
const BEAT_MS = 25;

type Running = Omit<Disturbance, 'to'> & { to: number };

export class Journal implements Disposable {
  readonly #operations: Operation[] = [];
  readonly #disturbances: Running[] = [];
  readonly #pulse: NodeJS.Timeout;
  #beat = performance.now();

  constructor() {
    this.#pulse = setInterval(() => this.#feel(), BEAT_MS);
    this.#pulse.unref();
  }

  get history(): History {
    return { operations: this.#operations, disturbances: this.#disturbances };
  }

  now(): number {
    return performance.now();
  }

  record(operation: Operation): void {
    this.#operations.push(operation);
  }

  /** Something is about to be broken. @returns what is to be called when it is whole again */
  disturb(what: Omit<Disturbance, 'from' | 'to'>): () => void {
    const running: Running = { ...what, from: this.now(), to: Number.POSITIVE_INFINITY };
    this.#disturbances.push(running);
    return () => {
      running.to = Math.min(running.to, this.now());
    };
  }

  [Symbol.dispose](): void {
    clearInterval(this.#pulse);
  }

  #feel(): void {
    const now = this.now();
    if (now - this.#beat > BEAT_MS + STALL_MS) {
      const stall = { subject: 'machine', how: 'stalled', replica: undefined } as const;
      this.#disturbances.push({ ...stall, from: this.#beat, to: now });
    }
    this.#beat = now;
  }
}
