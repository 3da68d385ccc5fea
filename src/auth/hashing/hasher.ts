// Runs Argon2id as a bulkhead: bounds concurrency, queue and wait, and validates hash parameters from the store.
import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { argon2id, hash, verify } from 'argon2';
import { startDeadline, withDeadline } from '../../deadline.ts';
import { type GatewayError, MAX_RETRY_AFTER_MS } from '../../errors.ts';
import type { Metrics } from '../../telemetry/metrics/all-metrics.ts';
import { overloaded, unavailable } from '../key/auth-unavailable.ts';
import type { Key } from '../key/key.ts';
import { DrainEstimate, MIN_DRAIN_MS } from './drain-estimate.ts';

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

/** Somebody waits for these: a new key, or an operator's sign-in. */
const PROMPT = { maxWaiting: 64, waitMs: 5000 } as const;
/** While both wait, one computation of so many is a prompt one, so a long queue of proofs does not stop the issuing of keys. */
const PROMPT_TURN = 8;
/**
 * Proofs of keys keep their place until their turn, also when their callers have gone. The queue accepts what can be computed
 * in the time that SDKs wait before they ask again.
 */
const MAX_PROOFS = 4096;
const MAX_TURN_MS = MAX_RETRY_AFTER_MS;
/** Callers return later than their turn by this share of the wait: SDKs return only twice, and the machine may become busier. */
const TURN_MARGIN = 1.5;
/** Estimated time of a computation until one is measured, in milliseconds. */
const INITIAL_MS = 25;
/** Deadline of a started prompt computation, in milliseconds; other work can block libuv's threads. */
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

const CHECKING = 'The gateway is checking too many new keys at the moment. The key itself was not rejected.';
const ISSUING = 'The gateway is issuing too many keys at the moment.';

export interface ProofOptions {
  /** Runs when the turn of the key has come. @returns whether the hash still has to be computed here */
  readonly isNeeded?: () => Promise<boolean>;
  /** Called when the key has to wait. @param late creates the error for a caller that waits no longer: it says when the turn comes */
  readonly onQueued?: (late: () => GatewayError) => void;
}

export class Hasher {
  readonly #metrics: HasherMetrics;
  readonly #argon2: Argon2;
  /** Each starts when it is called. */
  readonly #prompt = new Set<() => void>();
  readonly #proofs = new Set<() => void>();
  readonly #estimate = new DrainEstimate({ slots: SLOTS, initialMs: INITIAL_MS });
  #running = 0;
  /** Proofs that were queued, and those of them that have started: their difference is the length of the queue. */
  #queued = 0;
  #started = 0;
  /** Proofs that were started since a prompt computation was. */
  #sincePrompt = 0;

  /** @param argon2 the computation, for tests */
  constructor(metrics: HasherMetrics, argon2: Argon2 = ARGON2) {
    this.#metrics = metrics;
    this.#argon2 = argon2;
  }

  /**
   * @returns the Argon2id hash of the key in PHC string format
   * @throws GatewayError `key_hashing_overloaded` when no slot is free within 5 s
   */
  async hash(key: Key): Promise<string> {
    await this.#promptSlot(ISSUING);
    return await this.#promptly(ISSUING, () => this.#timed('hash', () => this.#argon2.hash(key.reveal())));
  }

  /**
   * @param phc Argon2id hash in PHC string format, from the store
   * @throws GatewayError `key_hashing_overloaded` when no slot is free within 5 s, `auth_unavailable` when the hash cannot be used
   */
  async verify(phc: string, key: Key): Promise<boolean> {
    requireUsable(phc, key);
    await this.#promptSlot(CHECKING);
    return await this.#promptly(CHECKING, () => this.#verified(phc, key));
  }

  /**
   * Verifies a key whose HMAC matches, in the order of the calls. It does not give up: the caller sets the deadline.
   * @param phc as for `verify`
   * @returns undefined when `isNeeded` said no
   * @throws GatewayError `key_hashing_overloaded` when the turn would come too late, `auth_unavailable` when the hash cannot be used
   */
  async prove(phc: string, key: Key, options: ProofOptions = {}): Promise<boolean | undefined> {
    requireUsable(phc, key);
    await this.#proofSlot(options.onQueued);
    return await this.#inSlot(CHECKING, async () =>
      (await options.isNeeded?.()) === false ? undefined : this.#verified(phc, key),
    );
  }

  #verified(phc: string, key: Key): Promise<boolean> {
    return this.#timed('verify', () => this.#argon2.verify(phc, key.reveal()));
  }

  async #timed<T>(purpose: 'hash' | 'verify', compute: () => Promise<T>): Promise<T> {
    this.#metrics.argon2Runs.inc({ purpose });
    const since = performance.now();
    const result = await compute();
    this.#metrics.argon2Seconds.observe({ purpose }, (performance.now() - since) / 1000);
    return result;
  }

  /** As `#inSlot`, with a deadline; the slot is free when the computation ends, which may be later. */
  async #promptly<T>(message: string, compute: () => Promise<T>): Promise<T> {
    return await withDeadline(this.#inSlot(message, compute), RUN_MS, () =>
      this.#rejection(message, `did not end within ${RUN_MS} ms`),
    );
  }

  /** Call it with a slot, which it releases. */
  async #inSlot<T>(message: string, compute: () => Promise<T>): Promise<T> {
    const since = performance.now();
    try {
      return await compute();
    } catch (error) {
      // The parameters are valid, so the likely cause is a lack of memory.
      throw this.#rejection(message, 'failed', error);
    } finally {
      this.#estimate.measured(Math.min(RUN_MS, performance.now() - since));
      this.#release();
    }
  }

  async #promptSlot(message: string): Promise<void> {
    if (this.#takeFree()) return;
    const waiting = this.#prompt;
    if (waiting.size >= PROMPT.maxWaiting)
      throw this.#rejection(message, `the queue is full with ${waiting.size} computations`);
    await new Promise<void>((resolve, reject) => {
      const stop = startDeadline(PROMPT.waitMs, () => {
        waiting.delete(start);
        this.#updateMetrics();
        reject(this.#rejection(message, `no slot within ${PROMPT.waitMs} ms`));
      });
      const start = () => {
        stop();
        resolve();
      };
      waiting.add(start);
      this.#updateMetrics();
    });
  }

  async #proofSlot(onQueued: ProofOptions['onQueued']): Promise<void> {
    if (this.#takeFree()) return;
    const { size } = this.#proofs;
    if (size >= MAX_PROOFS || this.#estimate.turnMs(this.#running + size) > MAX_TURN_MS)
      throw this.#rejection(CHECKING, `the queue is full with ${size} proofs`);
    this.#queued += 1;
    const place = this.#queued;
    await new Promise<void>((resolve) => {
      this.#proofs.add(resolve);
      this.#updateMetrics();
      onQueued?.(() => {
        const ahead = Math.max(0, place - this.#started);
        const turnMs = TURN_MARGIN * this.#estimate.turnMs(ahead + 1);
        const waitMs = Math.min(MAX_TURN_MS, Math.max(MIN_DRAIN_MS, turnMs));
        return overloaded(CHECKING, Math.round(waitMs), `Argon2: ${ahead} proofs are ahead`);
      });
    });
  }

  #takeFree(): boolean {
    if (this.#running >= SLOTS) return false;
    this.#running += 1;
    return true;
  }

  #rejection(message: string, why: string, cause?: unknown): GatewayError {
    const retryAfterMs = this.#estimate.retryAfterMs(this.#running + this.#waiting);
    return overloaded(message, retryAfterMs, `Argon2: ${why}`, cause);
  }

  get #waiting(): number {
    return this.#proofs.size + this.#prompt.size;
  }

  /** Passes the slot on. Proofs take priority over issuing. */
  #release(): void {
    const [prompt] = this.#prompt;
    const [proof] = this.#proofs;
    if (prompt !== undefined && (proof === undefined || this.#sincePrompt >= PROMPT_TURN - 1)) {
      this.#prompt.delete(prompt);
      this.#sincePrompt = 0;
      prompt();
    } else if (proof !== undefined) {
      this.#proofs.delete(proof);
      this.#sincePrompt += 1;
      this.#started += 1;
      proof();
    } else this.#running -= 1;
    this.#updateMetrics();
  }

  #updateMetrics(): void {
    this.#metrics.argon2Queue.set(this.#waiting);
  }
}

/** @throws GatewayError `auth_unavailable` */
function requireUsable(phc: string, key: Key): void {
  if (isUsable(phc)) return;
  throw unavailable(
    'contradiction',
    `the Argon2 hash of key ${key.prefix} is damaged or exceeds the parameter limits`,
  );
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
