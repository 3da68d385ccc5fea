// Argon2id: how many run at once, how many may wait and how long, and what parameters are accepted from the store.
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
 * Argon2 runs on libuv's 4 threads, which name resolution and file access need too: never more than 2 of them, and one
 * processor stays free where there is more than one. So at most 38 MiB at once.
 */
export const SLOTS = Math.max(1, Math.min(2, availableParallelism() - 1));

/** A request waits for its answer, so verification gives up early; making a key may take longer. */
const VERIFY = { maxWaiting: 16, waitMs: 250 } as const;
const HASH = { maxWaiting: 64, waitMs: 5000 } as const;
/** Of one computation, until one was measured. */
const USUAL_MS = 25;
/** For a computation that runs but does not come back, because libuv's threads hang in something else. */
const RUN_MS = 2000;

/** What a record may ask for: more memory or passes than this is damage, or an attempt to have the process killed. */
const MOST = { memoryCost: 65536, timeCost: 10, parallelism: 4 } as const;

export interface Argon2 {
  hash(text: string): Promise<string>;
  verify(phc: string, text: string): Promise<boolean>;
}

const ARGON2: Argon2 = {
  // The salt is drawn here because the package would draw it on a thread of libuv, before its turn.
  hash: (text) => hash(text, { ...PARAMETERS, salt: randomBytes(16) }),
  verify: (phc, text) => verify(phc, text),
};

type HasherMetrics = Pick<Metrics, 'argon2Runs' | 'argon2Seconds' | 'argon2Queue'>;

interface Waiter {
  readonly start: () => void;
}

/** One of the two queues: who may wait in it, and what is said to those who may not. */
interface Queue {
  readonly waiting: Set<Waiter>;
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
    message:
      'More keys wait to be checked than this gateway can check at the moment. Nothing is wrong with the key.',
  };
  readonly #hashing: Queue = {
    ...HASH,
    waiting: new Set(),
    message: 'More keys wait to be made than this gateway can make at the moment.',
  };
  readonly #estimate = new DrainEstimate({ slots: SLOTS, initialMs: USUAL_MS });
  #running = 0;

  /** @param argon2 the computation, for tests */
  constructor(metrics: HasherMetrics, argon2: Argon2 = ARGON2) {
    this.#metrics = metrics;
    this.#argon2 = argon2;
  }

  /**
   * @returns the Argon2id hash of the key in PHC string format
   * @throws GatewayError `key_hashing_overloaded` when there is no place within 5 s
   */
  hash(key: Key): Promise<string> {
    return this.#inTurn(this.#hashing, () => this.#timed('hash', () => this.#argon2.hash(key.reveal())));
  }

  /**
   * @param phc Argon2id hash in PHC string format, as the store has it
   * @throws GatewayError `key_hashing_overloaded` when there is no place within 250 ms, `auth_unavailable` when the hash cannot
   *   be used
   */
  async verify(phc: string, key: Key): Promise<boolean> {
    if (!isUsable(phc)) {
      throw unavailable(
        'contradiction',
        `the Argon2 hash of key ${key.prefix} is damaged or asks for too much`,
      );
    }
    return this.#inTurn(this.#verifying, () =>
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

  async #inTurn<T>(queue: Queue, compute: () => Promise<T>): Promise<T> {
    if (this.#running < SLOTS) this.#running += 1;
    else await this.#place(queue);
    const result = compute();
    // The place is free when the computation has ended, which may be later than anybody waits for it.
    result.then(this.#leave, this.#leave);
    try {
      return await withDeadline(result, RUN_MS, () => {
        this.#estimate.measured(RUN_MS);
        return this.#refusal(queue, `did not end within ${RUN_MS} ms`);
      });
    } catch (error) {
      if (error instanceof GatewayError) throw error;
      // Its parameters were checked, so what it can lack is memory.
      throw this.#refusal(queue, 'failed', error);
    }
  }

  #place(queue: Queue): Promise<void> {
    const { waiting, maxWaiting, waitMs } = queue;
    if (waiting.size >= maxWaiting) {
      return Promise.reject(this.#refusal(queue, `${waiting.size} computations wait already`));
    }
    return new Promise((resolve, reject) => {
      const stop = startDeadline(waitMs, () => {
        waiting.delete(waiter);
        this.#showQueue();
        reject(this.#refusal(queue, `no place within ${waitMs} ms`));
      });
      const waiter: Waiter = {
        start: () => {
          stop();
          resolve();
        },
      };
      waiting.add(waiter);
      this.#showQueue();
    });
  }

  #refusal({ message }: Queue, why: string, cause?: unknown): GatewayError {
    const retryAfterMs = this.#estimate.retryAfterMs(this.#running + this.#waiting);
    return overloaded(message, retryAfterMs, `Argon2: ${why}`, cause);
  }

  get #waiting(): number {
    return this.#verifying.waiting.size + this.#hashing.waiting.size;
  }

  /** Hands the place on, to a request before a key that is being made. */
  readonly #leave = (): void => {
    for (const { waiting } of [this.#verifying, this.#hashing]) {
      const [next] = waiting;
      if (next !== undefined) {
        waiting.delete(next);
        this.#showQueue();
        next.start();
        return;
      }
    }
    this.#running -= 1;
  };

  #showQueue(): void {
    this.#metrics.argon2Queue.set(this.#waiting);
  }
}

const PHC =
  /^\$argon2id\$v=19\$(?=[^$]*m=)([a-z]=\d{1,6}(?:,[a-z]=\d{1,6}){2})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{22,86}$/;

/** Whether a PHC string is one that this process is willing to compute. */
function isUsable(phc: string): boolean {
  const parameters = PHC.exec(phc)?.[1];
  if (parameters === undefined) return false;
  const given = new Map(
    parameters.split(',').map((pair): [string, number] => [pair.slice(0, 1), Number(pair.slice(2))]),
  );
  const within = (name: string, most: number) => {
    const value = given.get(name);
    return value !== undefined && value >= 1 && value <= most;
  };
  return within('m', MOST.memoryCost) && within('t', MOST.timeCost) && within('p', MOST.parallelism);
}
