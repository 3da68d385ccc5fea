// Reads of many keys in one call, for callers that can wait: what is asked for within a tenth of a second is read together.
import { setTimeout } from 'node:timers/promises';

/** How long a batch waits for more keys. */
const WAIT_MS = 100;
/** A batch with as many keys waits for no more. */
const MAX_BATCH = 256;
/** Beyond these, reads fail at once: the work does not keep up. */
const MAX_WAITING = 10_000;

export class ReadBatches<Value> {
  readonly #work: (keys: readonly string[]) => Promise<ReadonlyMap<string, Value>>;
  readonly #waiting = new Map<string, PromiseWithResolvers<Value>>();
  #isRunning = false;

  /** @param work has a value for each key. It runs for one batch at a time */
  constructor(work: (keys: readonly string[]) => Promise<ReadonlyMap<string, Value>>) {
    this.#work = work;
  }

  /** @throws what the work throws for its batch */
  read(key: string): Promise<Value> {
    const known = this.#waiting.get(key);
    if (known !== undefined) return known.promise;
    if (this.#waiting.size >= MAX_WAITING) return Promise.reject(new Error('too many reads wait'));
    const reply = Promise.withResolvers<Value>();
    this.#waiting.set(key, reply);
    if (!this.#isRunning) void this.#run();
    return reply.promise;
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.size > 0) {
      if (this.#waiting.size < MAX_BATCH) await setTimeout(WAIT_MS, undefined, { ref: false });
      const batch = new Map<string, PromiseWithResolvers<Value>>();
      for (const [key, reply] of this.#waiting) {
        if (batch.size === MAX_BATCH) break;
        batch.set(key, reply);
        this.#waiting.delete(key);
      }
      await this.#answer(batch);
    }
    this.#isRunning = false;
  }

  async #answer(batch: ReadonlyMap<string, PromiseWithResolvers<Value>>): Promise<void> {
    try {
      const values = await this.#work([...batch.keys()]);
      for (const [key, { resolve, reject }] of batch) {
        const value = values.get(key);
        if (value === undefined) reject(new Error('a read has no value'));
        else resolve(value);
      }
    } catch (error) {
      for (const { reject } of batch.values()) reject(error);
    }
  }
}
