// The limits of a fleet: those in Redis, and those of this process while Redis does not answer. What this process admits alone
// begins with what Redis last said of the holder, and is sent to Redis as soon as it answers again; how either counts is its
// own matter.
import { type RedisClient, RedisCommandError, RedisUnavailable } from '../redis/redis-client.ts';
import type { FleetPlace } from './last-known.ts';
import type { Admission, Lease, Limiter, LimitMetrics, LimitStates, TierLimits } from './limiter.ts';
import type { MemoryLimiter } from './memory-limiter.ts';
import { mayBeDone, type RedisLimiter } from './redis-limiter.ts';

export interface SharedLimiterOptions {
  readonly redis: Pick<RedisClient, 'isUp' | 'isLate' | 'onUp' | 'onDown'>;
  readonly shared: RedisLimiter;
  /** Takes over with the same limits. */
  readonly local: MemoryLimiter;
  readonly metrics: Pick<LimitMetrics, 'limitsDegraded'>;
  /** Where this replica stands in its fleet. Default: it is alone. */
  readonly fleet?: () => FleetPlace;
}

/** Requests that are made known to Redis together. */
const BATCH = 100;

export class SharedLimiter implements Limiter {
  readonly #redis: SharedLimiterOptions['redis'];
  readonly #shared: RedisLimiter;
  readonly #local: MemoryLimiter;
  readonly #metrics: SharedLimiterOptions['metrics'];
  readonly #stopListening: readonly (() => void)[];
  /** Requests that run and that Redis does not know. */
  readonly #grants = new Set<Grant>();
  #entering: Promise<void> | undefined;
  #isDegraded: boolean;

  constructor(options: SharedLimiterOptions) {
    const { redis, shared, local } = options;
    this.#redis = redis;
    this.#shared = shared;
    this.#local = local;
    this.#metrics = options.metrics;
    local.goOnFrom({
      lastKnown: (holder) => shared.heard(holder),
      // A Redis that is late will hear of all of it soon; one that is away may be so for long.
      fleet: () => (redis.isLate ? options.fleet?.() : undefined),
    });
    this.#isDegraded = !this.#redis.isUp;
    this.#metrics.limitsDegraded.set(this.#isDegraded ? 1 : 0);
    this.#stopListening = [
      redis.onUp(() => {
        this.#setDegraded(false);
        void this.#enterAll();
      }),
      redis.onDown(() => this.#setDegraded(true)),
    ];
  }

  /** Holders have the limits of this process alone: Redis does not answer, or has taken no reservation since it refused one. */
  get isDegraded(): boolean {
    return this.#isDegraded;
  }

  admit(holder: string, limits: TierLimits, tokens: number, held?: Lease): Admission | Promise<Admission> {
    if (held instanceof Grant) {
      if (held.shared === undefined) return this.#changeHere(held, limits, tokens);
      return this.#admit(holder, limits, tokens, held.shared);
    }
    return this.#admit(holder, limits, tokens, held);
  }

  use(holder: string, tokens: number): void {
    if (!this.#redis.isUp || this.#isDegraded) this.#local.use(holder, tokens);
    // What is used while Redis is away is told to it when it is back.
    this.#shared.use(holder, tokens);
  }

  peek(holder: string, limits: TierLimits): LimitStates | Promise<LimitStates> {
    // A full Redis can be read, and knows nothing of what is admitted here.
    if (!this.#redis.isUp || this.#isDegraded) return this.#local.peek(holder, limits);
    return this.#shared.peek(holder, limits).catch((error: unknown) => {
      if (!isOfRedis(error)) throw error;
      return this.#local.peek(holder, limits);
    });
  }

  async close(): Promise<void> {
    for (const stop of this.#stopListening) stop();
    await this.#entering;
    await this.#shared.close();
    await this.#local.close();
  }

  #admit(
    holder: string,
    limits: TierLimits,
    tokens: number,
    held: Lease | undefined,
  ): Admission | Promise<Admission> {
    if (!this.#redis.isUp) return this.#admitHere(holder, limits, tokens, held);
    const id = this.#shared.newId();
    return this.#shared.admit(holder, limits, tokens, held, id).then(
      (admission) => this.#succeeded(admission),
      (error: unknown) => {
        this.#fail(error);
        return this.#admitHere(holder, limits, tokens, held, mayBeDone(error) ? id : undefined);
      },
    );
  }

  /** @param id of an admission that Redis may have made without an answer */
  #admitHere(
    holder: string,
    limits: TierLimits,
    tokens: number,
    held: Lease | undefined,
    id?: string,
  ): Admission | Promise<Admission> {
    if (held !== undefined) return this.#changeElsewhere(holder, limits, tokens, held);
    const since = performance.now();
    const grant = (admission: Admission) => this.#grant(holder, admission, since, id);
    const admission = this.#local.admit(holder, limits, tokens);
    return admission instanceof Promise ? admission.then(grant) : grant(admission);
  }

  #grant(holder: string, admission: Admission, since: number, id: string | undefined): Admission {
    if (admission.kind === 'refused') {
      if (id !== undefined) this.#shared.takeBack(holder, id);
      return admission;
    }
    const grant = new Grant({
      holder,
      id: id ?? this.#shared.newId(),
      mayBeKnown: id !== undefined,
      since,
      local: admission.lease,
      onSettled: (ended, real) => this.#settled(ended, real),
    });
    this.#grants.add(grant);
    // It may be answering again by now.
    if (this.#redis.isUp && !this.#isDegraded) void this.#enterAll();
    return { ...admission, lease: grant };
  }

  async #changeHere(grant: Grant, limits: TierLimits, tokens: number): Promise<Admission> {
    const admission = await this.#local.admit(grant.holder, limits, tokens, grant.local);
    return admission.kind === 'refused' ? admission : { ...admission, lease: grant };
  }

  /** Its request and place are counted in Redis, and only its tokens here. */
  async #changeElsewhere(
    holder: string,
    limits: TierLimits,
    tokens: number,
    held: Lease,
  ): Promise<Admission> {
    const { tokens_per_minute, tokens_per_month } = limits;
    const ofTokens: TierLimits = {
      ...(tokens_per_minute === undefined ? {} : { tokens_per_minute }),
      ...(tokens_per_month === undefined ? {} : { tokens_per_month }),
    };
    const admission = await this.#local.admit(holder, ofTokens, tokens);
    if (admission.kind === 'refused') return admission;
    const { lease } = admission;
    return {
      ...admission,
      lease: {
        tokens: lease.tokens,
        settle(real) {
          lease.settle(real);
          held.settle(real);
        },
      },
    };
  }

  /** Where Redis does not know of it, it is told when it answers: an outage makes nobody's window, day or month longer. */
  #settled(grant: Grant, tokens: number): void {
    this.#grants.delete(grant);
    const { holder, id, since, local, shared } = grant;
    if (shared !== undefined) {
      shared.settle(tokens);
      return;
    }
    local.settle(tokens);
    this.#shared.charge(holder, tokens, since, grant.mayBeKnown ? id : undefined);
  }

  /** Tells Redis of every request that runs and that it does not know. Never rejects. */
  #enterAll(): Promise<void> {
    this.#entering ??= this.#enterEach()
      .catch(() => {})
      .finally(() => {
        this.#entering = undefined;
      });
    return this.#entering;
  }

  async #enterEach(): Promise<void> {
    const all = [...this.#grants];
    for (let start = 0; start < all.length && this.#redis.isUp; start += BATCH) {
      await Promise.allSettled(all.slice(start, start + BATCH).map((grant) => this.#enter(grant)));
    }
  }

  async #enter(grant: Grant): Promise<void> {
    if (grant.isSettled || grant.shared !== undefined) return;
    const { holder, id, since, local } = grant;
    grant.mayBeKnown = true;
    const lease = await this.#shared.enter(
      holder,
      id,
      { tokens: local.tokens, since },
      () => grant.isSettled,
    );
    if (lease === undefined) return;
    grant.shared = lease;
    this.#grants.delete(grant);
    // It is counted in Redis now, and here no place any more.
    local.settle(local.tokens);
  }

  #succeeded(admission: Admission): Admission {
    // A refusal writes nothing, so it says nothing about whether Redis takes writes again. And an answer from before Redis
    // went away does not mean that it is back.
    if (admission.kind === 'admitted' && this.#redis.isUp && this.#isDegraded) {
      this.#setDegraded(false);
      void this.#enterAll();
    }
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

interface GrantOptions {
  readonly holder: string;
  readonly id: string;
  readonly mayBeKnown: boolean;
  /** Monotonic milliseconds. */
  readonly since: number;
  readonly local: Lease;
  readonly onSettled: (grant: Grant, tokens: number) => void;
}

/** The lease of a request that was admitted without Redis. */
class Grant implements Lease {
  readonly holder: string;
  readonly id: string;
  readonly since: number;
  readonly local: Lease;
  /** Redis may have a lease with its id. */
  mayBeKnown: boolean;
  /** Once Redis knows it. */
  shared: Lease | undefined;
  #isSettled = false;
  readonly #onSettled: GrantOptions['onSettled'];

  constructor({ holder, id, mayBeKnown, since, local, onSettled }: GrantOptions) {
    this.holder = holder;
    this.id = id;
    this.mayBeKnown = mayBeKnown;
    this.since = since;
    this.local = local;
    this.#onSettled = onSettled;
  }

  get tokens(): number {
    return (this.shared ?? this.local).tokens;
  }

  get isSettled(): boolean {
    return this.#isSettled;
  }

  settle(tokens: number): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#onSettled(this, tokens);
  }
}

function isOfRedis(error: unknown): boolean {
  return error instanceof RedisUnavailable || error instanceof RedisCommandError;
}
