// The limiter of a fleet: the one in Redis, or the one of this process while Redis does not answer. The latter continues from
// what Redis last said of the holder; what it admits is sent to Redis as soon as it answers again.
import { pickLimits, type TierLimits } from '../config/limit-table.ts';
import { type RedisClient, RedisCommandError, RedisUnavailable } from '../redis/redis-client.ts';
import type { FleetPlace } from './last-known.ts';
import type { Admission, Lease, Limiter, LimitMetrics, LimitStates } from './limiter.ts';
import type { MemoryLimiter } from './memory-limiter.ts';
import { mayBeDone, type RedisLimiter } from './redis-limiter.ts';

export interface SharedLimiterOptions {
  readonly redis: Pick<RedisClient, 'isUp' | 'isLate' | 'onUp' | 'onDown'>;
  readonly shared: RedisLimiter;
  /** Takes over, with the same limits. */
  readonly local: MemoryLimiter;
  readonly metrics: Pick<LimitMetrics, 'limitsDegraded'>;
  /** The position of this replica in its fleet. Default: it is alone. */
  readonly fleet?: () => FleetPlace;
}

/** Requests that are entered in Redis together. */
const BATCH = 100;

export class SharedLimiter implements Limiter {
  readonly #redis: SharedLimiterOptions['redis'];
  readonly #shared: RedisLimiter;
  readonly #local: MemoryLimiter;
  readonly #metrics: SharedLimiterOptions['metrics'];
  readonly #stopListening: readonly (() => void)[];
  /** Running requests that Redis does not know. */
  readonly #grants = new Set<Grant>();
  #entering: Promise<void> | undefined;
  #isDegraded: boolean;

  constructor(options: SharedLimiterOptions) {
    const { redis, shared, local } = options;
    this.#redis = redis;
    this.#shared = shared;
    this.#local = local;
    this.#metrics = options.metrics;
    local.continueFrom({
      lastKnown: (holder) => shared.lastKnown(holder),
      // A late Redis will soon know all of it; an outage may be long.
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

  /** This process counts alone: Redis does not answer, or has taken no reservation since it rejected a command. */
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
    // It is delivered when Redis is back.
    this.#shared.use(holder, tokens);
  }

  peek(holder: string, limits: TierLimits): LimitStates | Promise<LimitStates> {
    // A full Redis can be read, but does not know what is admitted here.
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

  /** @param id of an admission that Redis may have made without a reply */
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

  /** Its request and slot are counted in Redis, and only its tokens here. */
  async #changeElsewhere(
    holder: string,
    limits: TierLimits,
    tokens: number,
    held: Lease,
  ): Promise<Admission> {
    const admission = await this.#local.admit(
      holder,
      pickLimits(limits, ({ counts }) => counts === 'tokens'),
      tokens,
    );
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

  /** What Redis does not know is delivered when it answers: an outage extends no window, day or month. */
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

  /** Enters all running requests that Redis does not know. Never rejects. */
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
    // Redis counts it now, so its slot here is released.
    local.settle(local.tokens);
  }

  #succeeded(admission: Admission): Admission {
    // A rejection writes nothing, so it does not prove that Redis takes writes again. Neither does a reply from before the
    // outage.
    if (admission.kind === 'admitted' && this.#redis.isUp && this.#isDegraded) {
      this.#setDegraded(false);
      void this.#enterAll();
    }
    return admission;
  }

  /** @throws errors that are not of Redis */
  #fail(error: unknown): void {
    if (!isOfRedis(error)) throw error;
    // The client reports outages itself.
    if (error instanceof RedisCommandError) this.#setDegraded(true);
  }

  #setDegraded(isDegraded: boolean): void {
    if (isDegraded === this.#isDegraded) return;
    this.#isDegraded = isDegraded;
    this.#metrics.limitsDegraded.set(isDegraded ? 1 : 0);
    // Other replicas have counted until now, so the totals here are older than those in the store.
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
  /** Set when Redis knows it. */
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
