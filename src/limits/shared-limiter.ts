// The limiter of a fleet: the one in Redis, or the one of this process while Redis does not answer. The latter continues from
// what Redis last said of each scope; what it admits is sent to Redis as soon as it answers again.
import { pickLimits } from '../config/limit-table.ts';
import { type RedisClient, RedisCommandError, RedisUnavailable } from '../redis/redis-client.ts';
import { mayHaveExecuted } from '../redis/redis-fault.ts';
import { singleFlight } from '../single-flight.ts';
import type { FleetPlace } from './last-known.ts';
import {
  type Admission,
  type Amounts,
  type Lease,
  type Limiter,
  type LimitMetrics,
  type ScopeStates,
  SettledOnce,
} from './limiter.ts';
import type { MemoryLimiter } from './memory/memory-limiter.ts';
import { RedisLease } from './redis-lease.ts';
import type { RedisLimiter } from './redis-limiter.ts';
import { changeLimits, makeScopes, type Scope, type Scopes } from './scope.ts';

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
  readonly #options: SharedLimiterOptions;
  readonly #stopListening: readonly (() => void)[];
  /** Running requests that Redis does not know. */
  readonly #grants = new Set<Grant>();
  #isDegraded: boolean;

  constructor(options: SharedLimiterOptions) {
    const { redis, shared, local, metrics } = options;
    this.#options = options;
    local.continueFrom({
      lastKnown: (scope) => shared.lastKnown(scope),
      // A late Redis will soon know all of it; an outage may be long.
      fleet: () => (redis.isLate ? options.fleet?.() : undefined),
    });
    this.#isDegraded = !redis.isUp;
    metrics.limitsDegraded.set(this.#isDegraded ? 1 : 0);
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

  admit(scopes: Scopes, amounts: Amounts, held?: Lease): Admission | Promise<Admission> {
    if (!(held instanceof Grant)) return this.#admit(scopes, amounts, held);
    if (held.shared === undefined) return this.#changeHere(held, scopes, amounts);
    return this.#admit(scopes, amounts, held.shared);
  }

  use(scopes: Scopes, amounts: Amounts): void {
    if (!this.#options.redis.isUp || this.#isDegraded) this.#options.local.use(scopes, amounts);
    // It is delivered when Redis is back.
    this.#options.shared.use(scopes, amounts);
  }

  peek(scopes: Scopes): ScopeStates | Promise<ScopeStates> {
    // A full Redis can be read, but does not know what is admitted here.
    if (!this.#options.redis.isUp || this.#isDegraded) return this.#options.local.peek(scopes);
    return this.#options.shared.peek(scopes).catch((error: unknown) => {
      if (!isOfRedis(error)) throw error;
      return this.#options.local.peek(scopes);
    });
  }

  async close(): Promise<void> {
    for (const stop of this.#stopListening) stop();
    await this.#enterAll.running();
    await this.#options.shared.close();
    await this.#options.local.close();
  }

  #admit(scopes: Scopes, amounts: Amounts, held: Lease | undefined): Admission | Promise<Admission> {
    if (!this.#options.redis.isUp) return this.#admitHere(scopes, amounts, held);
    const id = this.#options.shared.newId();
    return this.#options.shared.admit(scopes, amounts, held, id).then(
      (admission) => this.#succeeded(admission),
      (error: unknown) => {
        this.#fail(error);
        return this.#admitHere(scopes, amounts, held, mayHaveExecuted(error) ? id : undefined);
      },
    );
  }

  /** @param id of an admission that Redis may have made without a reply */
  #admitHere(
    scopes: Scopes,
    amounts: Amounts,
    held: Lease | undefined,
    id?: string,
  ): Admission | Promise<Admission> {
    if (held !== undefined) return this.#changeElsewhere(scopes, amounts, held);
    const since = performance.now();
    const grant = (admission: Admission) => this.#grant(scopes, admission, since, id);
    const admission = this.#options.local.admit(scopes, amounts);
    return admission instanceof Promise ? admission.then(grant) : grant(admission);
  }

  #grant(scopes: Scopes, admission: Admission, since: number, id: string | undefined): Admission {
    if (admission.kind === 'refused') {
      if (id !== undefined) this.#options.shared.takeBack(scopes, id);
      return admission;
    }
    const request = { scopes, since, local: admission.lease, id: id ?? this.#options.shared.newId() };
    const grant = new Grant(request, id !== undefined, (real) => this.#settled(grant, real));
    this.#grants.add(grant);
    // It may be answering again by now.
    if (this.#options.redis.isUp && !this.#isDegraded) void this.#enterAll();
    return { kind: 'admitted', lease: grant, states: admission.states };
  }

  async #changeHere(grant: Grant, scopes: Scopes, amounts: Amounts): Promise<Admission> {
    const admission = await this.#options.local.admit(scopes, amounts, grant.request.local);
    if (admission.kind === 'refused') return admission;
    grant.request.scopes = scopes;
    return { kind: 'admitted', lease: grant, states: admission.states };
  }

  /** Its request and slot are counted in Redis, and only its amounts here. */
  async #changeElsewhere(scopes: Scopes, amounts: Amounts, held: Lease): Promise<Admission> {
    const ofAmounts = changeLimits(scopes, (limits) =>
      pickLimits(limits, ({ counts }) => counts === 'tokens' || counts === 'cost'),
    );
    const since = performance.now();
    const admission = await this.#options.local.admit(ofAmounts, amounts);
    if (admission.kind === 'refused') return admission;
    const { lease } = admission;
    // Those that were not known before the model: Redis knows nothing of the request there.
    const [first, ...rest] = scopes.list.filter((scope) => !isHeldIn(held, scope));
    const { shared } = this.#options;
    const both = new ChangedLease(lease, (real) => {
      lease.settle(real);
      held.settle(real);
      if (first !== undefined) shared.charge(makeScopes(scopes.slot, [first, ...rest]), real, since);
    });
    return { kind: 'admitted', lease: both, states: admission.states };
  }

  /** What Redis does not know is delivered when it answers: an outage extends no window, day or month. */
  #settled(grant: Grant, amounts: Amounts): void {
    this.#grants.delete(grant);
    if (grant.shared !== undefined) {
      grant.shared.settle(amounts);
      return;
    }
    const { scopes, id, since, local } = grant.request;
    local.settle(amounts);
    this.#options.shared.charge(scopes, amounts, since, grant.mayBeKnown ? id : undefined);
  }

  /** Enters all running requests that Redis does not know. Never rejects. */
  readonly #enterAll = singleFlight(async (): Promise<void> => {
    const all = [...this.#grants];
    for (let start = 0; start < all.length && this.#options.redis.isUp; start += BATCH) {
      await Promise.allSettled(all.slice(start, start + BATCH).map((grant) => this.#enter(grant)));
    }
  });

  async #enter(grant: Grant): Promise<void> {
    if (grant.isSettled || grant.shared !== undefined) return;
    const { scopes, id, since, local } = grant.request;
    grant.mayBeKnown = true;
    const request = { amounts: local.amounts, since };
    const lease = await this.#options.shared.enter(scopes, id, request, () => grant.isSettled);
    if (lease === undefined) return;
    grant.shared = lease;
    this.#grants.delete(grant);
    // Redis counts it now, so its slot here is released.
    local.settle(local.amounts);
  }

  #succeeded(admission: Admission): Admission {
    // A rejection writes nothing, so it does not prove that Redis takes writes again. Neither does a reply from before the
    // outage.
    if (admission.kind === 'admitted' && this.#options.redis.isUp && this.#isDegraded) {
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
    this.#options.metrics.limitsDegraded.set(isDegraded ? 1 : 0);
    // Other replicas have counted until now, so the totals here are older than those in the store.
    if (isDegraded) this.#options.local.forgetTotals();
  }
}

interface LocalRequest {
  /** Those of the last change. */
  scopes: Scopes;
  readonly id: string;
  /** Monotonic milliseconds. */
  readonly since: number;
  readonly local: Lease;
}

/** The lease of a request whose slot is counted in Redis, and whose amounts are counted here. */
class ChangedLease extends SettledOnce {
  readonly #local: Lease;

  constructor(local: Lease, onSettled: (amounts: Amounts) => void) {
    super(onSettled);
    this.#local = local;
  }

  override get amounts(): Amounts {
    return this.#local.amounts;
  }
}

/** The lease of a request that was admitted without Redis. */
class Grant extends SettledOnce {
  readonly request: LocalRequest;
  /** Redis may have a lease with its id. */
  mayBeKnown: boolean;
  /** Set when Redis knows it. */
  shared: Lease | undefined;

  constructor(request: LocalRequest, mayBeKnown: boolean, onSettled: (amounts: Amounts) => void) {
    super(onSettled);
    this.request = request;
    this.mayBeKnown = mayBeKnown;
  }

  override get amounts(): Amounts {
    return (this.shared ?? this.request.local).amounts;
  }
}

function isHeldIn(held: Lease, { id }: Scope): boolean {
  return !(held instanceof RedisLease) || held.scopes.list.some((scope) => scope.id === id);
}

function isOfRedis(error: unknown): boolean {
  return error instanceof RedisUnavailable || error instanceof RedisCommandError;
}
