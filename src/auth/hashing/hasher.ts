// Runs Argon2id as a bulkhead: bounds concurrency, queue and wait, and validates hash parameters from the store.
import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { argon2id, hash, verify } from 'argon2';
import { startDeadline, withDeadline } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { overloaded, unavailable } from '../key/auth-unavailable.ts';
import type { Key } from '../key/key.ts';
import { DrainEstimate } from './drain-estimate.ts';

/** OWASP's second choice of parameters: 19 MiB, 2 passes, 1 lane. */
const PARAMETERS = {
  type: argon2id,
  memoryCost: 19456,
  timeCost: 2,
  parallelism: 1,
  hashLength: 32,
} as const;

/**
 * Argon2 runs on libuv's 4 threads, which name resolution and file access share. It uses at most 2 of them and leaves one
 * processor free where there are several, so at most 38 MiB at once.
 */
export const SLOTS = Math.max(1, Math.min(2, availableParallelism() - 1));

/** Verification gives up early, because a request waits for it; issuing a key may take longer. */
const VERIFY = { maxWaiting: 16, waitMs: 250 } as const;
const HASH = { maxWaiting: 64, waitMs: 5000 } as const;
/** Estimated time of a computation until one is measured, in milliseconds. */
const INITIAL_MS = 25;
/** Deadline of a started computation, in milliseconds; other work can block libuv's threads. */
const RUN_MS = 2000;

/** Maximum parameters of a stored hash: more is damage, or an attack on the process's memory. */
const MAX_PARAMETERS = { memoryCost: 65536, timeCost: 10, parallelism: 4 } as const;

export interface Argon2 {
  hash(text: string): Promise<string>;
  verify(phc: string, text: string): Promise<boolean>;
}

const ARGON2: Argon2 = {
  // The package would draw the salt on a libuv thread, outside of the slots.
  hash: (text) => hash(text, { ...PARAMETERS, salt: randomBytes(16) }),
  verify: (phc, text) => verify(phc, text),
};

type HasherMetrics = Pick<Metrics, 'argon2Runs' | 'argon2Seconds' | 'argon2Queue'>;

/** A bounded queue, with the error message for callers that it rejects. */
interface Queue {
  /** Each starts when it is called. */
  readonly waiting: Set<() => void>;
  readonly maxWaiting: number;
  readonly waitMs: number;
  readonly message: string;
}

export class Hasher {
  readonly #metrics: HasherMetrics;
  readonly #argon2: Argon2;
  readonly #verifying: Queue = {
    ...VERIFY,
    waiting: new Set(),
    message: 'The gateway is checking too many new keys at the moment. The key itself was not rejected.',
  };
  readonly #hashing: Queue = {
    ...HASH,
    waiting: new Set(),
    message: 'The gateway is issuing too many keys at the moment.',
  };
  readonly #estimate = new DrainEstimate({ slots: SLOTS, initialMs: INITIAL_MS });
  #running = 0;

  /** @param argon2 the computation, for tests */
  constructor(metrics: HasherMetrics, argon2: Argon2 = ARGON2) {
    this.#metrics = metrics;
    this.#argon2 = argon2;
  }

  /**
   * @returns the Argon2id hash of the key in PHC string format
   * @throws GatewayError `key_hashing_overloaded` when no slot is free within 5 s
   */
  hash(key: Key): Promise<string> {
    return this.#inSlot(this.#hashing, () => this.#timed('hash', () => this.#argon2.hash(key.reveal())));
  }

  /**
   * @param phc Argon2id hash in PHC string format, from the store
   * @throws GatewayError `key_hashing_overloaded` when no slot is free within 250 ms, `auth_unavailable` when the hash cannot
   *   be used
   */
  async verify(phc: string, key: Key): Promise<boolean> {
    if (!isUsable(phc)) {
      throw unavailable(
        'contradiction',
        `the Argon2 hash of key ${key.prefix} is damaged or exceeds the parameter limits`,
      );
    }
    return this.#inSlot(this.#verifying, () =>
      this.#timed('verify', () => this.#argon2.verify(phc, key.reveal())),
    );
  }

  async #timed<T>(purpose: 'hash' | 'verify', compute: () => Promise<T>): Promise<T> {
    this.#metrics.argon2Runs.inc({ purpose });
    const since = performance.now();
    const result = await compute();
    const ms = performance.now() - since;
    this.#estimate.measured(ms);
    this.#metrics.argon2Seconds.observe({ purpose }, ms / 1000);
    return result;
  }

  async #inSlot<T>(queue: Queue, compute: () => Promise<T>): Promise<T> {
    if (this.#running < SLOTS) this.#running += 1;
    else await this.#waitForSlot(queue);
    const result = compute();
    // The slot is free when the computation ends, which may be after the deadline of its caller.
    result.then(this.#release, this.#release);
    try {
      return await withDeadline(result, RUN_MS, () => {
        this.#estimate.measured(RUN_MS);
        return this.#rejection(queue, `did not end within ${RUN_MS} ms`);
      });
    } catch (error) {
      if (error instanceof GatewayError) throw error;
      // The parameters are valid, so the likely cause is a lack of memory.
      throw this.#rejection(queue, 'failed', error);
    }
  }

  #waitForSlot(queue: Queue): Promise<void> {
    const { waiting, maxWaiting, waitMs } = queue;
    if (waiting.size >= maxWaiting) {
      return Promise.reject(this.#rejection(queue, `the queue is full with ${waiting.size} computations`));
    }
    return new Promise((resolve, reject) => {
      const stop = startDeadline(waitMs, () => {
        waiting.delete(start);
        this.#updateMetrics();
        reject(this.#rejection(queue, `no slot within ${waitMs} ms`));
      });
      const start = () => {
        stop();
        resolve();
      };
      waiting.add(start);
      this.#updateMetrics();
    });
  }

  #rejection({ message }: Queue, why: string, cause?: unknown): GatewayError {
    const retryAfterMs = this.#estimate.retryAfterMs(this.#running + this.#waiting);
    return overloaded(message, retryAfterMs, `Argon2: ${why}`, cause);
  }

  get #waiting(): number {
    return this.#verifying.waiting.size + this.#hashing.waiting.size;
  }

  /** Passes the slot on. Verification takes priority over issuing. */
  readonly #release = (): void => {
    for (const { waiting } of [this.#verifying, this.#hashing]) {
      const [next] = waiting;
      if (next !== undefined) {
        waiting.delete(next);
        this.#updateMetrics();
        next();
        return;
      }
    }
    this.#running -= 1;
  };

  #updateMetrics(): void {
    this.#metrics.argon2Queue.set(this.#waiting);
  }
}

const PHC =
  /^\$argon2id\$v=19\$(?=[^$]*m=)([a-z]=\d{1,6}(?:,[a-z]=\d{1,6}){2})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{22,86}$/;

/** Whether a PHC string is well-formed and within the parameter limits. */
function isUsable(phc: string): boolean {
  const parameters = PHC.exec(phc)?.[1];
  if (parameters === undefined) return false;
  const given = new Map(
    parameters.split(',').map((pair): [string, number] => [pair.slice(0, 1), Number(pair.slice(2))]),
  );
  const within = (name: string, max: number) => {
    const value = given.get(name);
    return value !== undefined && value >= 1 && value <= max;
  };
  return (
    within('m', MAX_PARAMETERS.memoryCost) &&
    within('t', MAX_PARAMETERS.timeCost) &&
    within('p', MAX_PARAMETERS.parallelism)
  );
}
