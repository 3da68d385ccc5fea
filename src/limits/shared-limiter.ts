// The limits of a fleet: those in Redis, and those of this process while Redis is away. What was admitted in one place is
// settled there; how either counts is its own matter.
import { type RedisClient, RedisCommandError, RedisUnavailable } from '../redis/client.ts';
import type { Admission, Limiter, LimitMetrics, LimitStates, TierLimits } from './limiter.ts';
import type { MemoryLimiter } from './memory-limiter.ts';
import type { RedisLimiter } from './redis-limiter.ts';

export interface SharedLimiterOptions {
  readonly redis: Pick<RedisClient, 'isUp' | 'onUp' | 'onDown'>;
  readonly shared: RedisLimiter;
  /** Takes over with the same limits. */
  readonly local: MemoryLimiter;
  readonly metrics: Pick<LimitMetrics, 'limitsDegraded'>;
}

export class SharedLimiter implements Limiter {
  readonly #redis: SharedLimiterOptions['redis'];
  readonly #shared: RedisLimiter;
  readonly #local: MemoryLimiter;
  readonly #metrics: SharedLimiterOptions['metrics'];
  readonly #stopListening: readonly (() => void)[];
  #isDegraded: boolean;

  constructor(options: SharedLimiterOptions) {
    this.#redis = options.redis;
    this.#shared = options.shared;
    this.#local = options.local;
    this.#metrics = options.metrics;
    this.#isDegraded = !options.redis.isUp;
    this.#metrics.limitsDegraded.set(this.#isDegraded ? 1 : 0);
    this.#stopListening = [
      options.redis.onUp(() => this.#setDegraded(false)),
      options.redis.onDown(() => this.#setDegraded(true)),
    ];
  }

  /** Holders have the limits of this process alone: Redis is away, or has taken no reservation since it refused one. */
  get isDegraded(): boolean {
    return this.#isDegraded;
  }

  admit(holder: string, limits: TierLimits, tokens: number): Admission | Promise<Admission> {
    if (!this.#redis.isUp) return this.#admitHere(holder, limits, tokens);
    return this.#shared.admit(holder, limits, tokens).then(
      (admission) => this.#succeeded(admission),
      (error: unknown) => {
        this.#fail(error);
        return this.#admitHere(holder, limits, tokens);
      },
    );
  }

  use(holder: string, tokens: number): void {
    if (!this.#redis.isUp || this.#isDegraded) this.#local.use(holder, tokens);
    // What is used while Redis is away is told to it when it is back.
    this.#shared.use(holder, tokens);
  }

  peek(holder: string, limits: TierLimits): LimitStates | Promise<LimitStates> {
    if (!this.#redis.isUp) return this.#local.peek(holder, limits);
    return this.#shared.peek(holder, limits).catch((error: unknown) => {
      if (!isOfRedis(error)) throw error;
      return this.#local.peek(holder, limits);
    });
  }

  async close(): Promise<void> {
    for (const stop of this.#stopListening) stop();
    await this.#shared.close();
    await this.#local.close();
  }

  #admitHere(holder: string, limits: TierLimits, tokens: number): Admission | Promise<Admission> {
    const admission = this.#local.admit(holder, limits, tokens);
    return admission instanceof Promise
      ? admission.then((each) => this.#alsoShared(holder, each))
      : this.#alsoShared(holder, admission);
  }

  /** What is used here is told to Redis when it is back: an outage makes nobody's day or month longer. */
  #alsoShared(holder: string, admission: Admission): Admission {
    if (admission.kind === 'refused') return admission;
    const { lease } = admission;
    let isSettled = false;
    return {
      ...admission,
      lease: {
        tokens: lease.tokens,
        settle: (tokens) => {
          if (isSettled) return;
          isSettled = true;
          lease.settle(tokens);
          this.#shared.charge(holder, tokens);
        },
      },
    };
  }

  #succeeded(admission: Admission): Admission {
    // A refusal writes nothing, so it says nothing about whether Redis takes writes again. And an answer from before Redis
    // went away does not mean that it is back.
    if (admission.kind === 'admitted' && this.#redis.isUp) this.#setDegraded(false);
    return admission;
  }

  /** @throws what is not of Redis */
  #fail(error: unknown): void {
    if (!isOfRedis(error)) throw error;
    // That Redis is away, the client tells.
    if (error instanceof RedisCommandError) this.#setDegraded(true);
  }

  #setDegraded(isDegraded: boolean): void {
    if (isDegraded === this.#isDegraded) return;
    this.#isDegraded = isDegraded;
    this.#metrics.limitsDegraded.set(isDegraded ? 1 : 0);
    // Until now others have counted too, and what is remembered here is older than what they have told the store.
    if (isDegraded) this.#local.forgetTotals();
  }
}

function isOfRedis(error: unknown): boolean {
  return error instanceof RedisUnavailable || error instanceof RedisCommandError;
}
