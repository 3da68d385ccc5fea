// The limiter that all replicas share: calls of reserve.lua for the admissions and releases that call-batches.ts collects. While Redis
// is unavailable it does not decide; it keeps pending releases and delivers them afterwards.
import type { RedisClient } from '../redis/redis-client.ts';
import { mayHaveExecuted } from '../redis/redis-fault.ts';
import { singleFlight } from '../single-flight.ts';
import { type CallBatch, CallBatches, RELEASE_WAIT_MS, type Waiting } from './call-batches.ts';
import type { InitialTotals } from './initial-totals.ts';
import { LastKnown, type LastKnownCounters } from './last-known.ts';
import {
  type Admission,
  type Amounts,
  CHECK_MS,
  type Lease,
  type Limiter,
  type LimitMetrics,
  NO_AMOUNTS,
  type ScopeStates,
  WINDOW_MS,
  wholeAmounts,
} from './limiter.ts';
import { type PendingRelease, PendingReleases } from './pending-releases.ts';
import {
  checksOfChange,
  LeaseIds,
  leaseIdOf,
  MAX_BATCH,
  OwnLeases,
  pendingReleaseOf,
  RedisLease,
  usageReleaseOf,
} from './redis-lease.ts';
import {
  decisionsOf,
  leaseMemberOf,
  type ReserveAnswer,
  statesOf,
  unexpected,
  usagesIn,
} from './reserve-answer.ts';
import { ReserveCalls } from './reserve-calls.ts';
import { batchArgs, scriptScopesOf } from './reserve-script.ts';
import type { Scopes } from './scope.ts';
import { isFarFromLimits, rejectionOf } from './verdict.ts';

export interface RedisLimiterOptions {
  readonly redis: Pick<RedisClient, 'run' | 'script' | 'isUp' | 'onUp'>;
  readonly initialTotals: InitialTotals;
  readonly metrics: Pick<LimitMetrics, 'limitLeases' | 'limitSettlementsDropped'>;
  /** Length of the minute window. Default: `WINDOW_MS`. */
  readonly windowMs?: number;
  /** A lease expires after this time without renewal. The same in all replicas. Default 30 s. */
  readonly leaseMs?: number;
  /** How often all leases of this process are renewed. Default 10 s. */
  readonly renewMs?: number;
  /** How often the totals of a scope in use are compared with the store. Default: `CHECK_MS`. */
  readonly checkMs?: number;
  /** Releases that wait for Redis. Default 10,000. */
  readonly maxPending?: number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

export class RedisLimiter implements Limiter {
  readonly #options: Required<RedisLimiterOptions>;
  readonly #calls: ReserveCalls;
  readonly #pending: PendingReleases;
  readonly #leases = new OwnLeases();
  readonly #lastKnown: LastKnown;
  readonly #batches = new CallBatches(MAX_BATCH, RELEASE_WAIT_MS, (batch) => {
    const sending = this.#run(batch).finally(() => this.#sending.delete(sending));
    this.#sending.add(sending);
  });
  readonly #sending = new Set<Promise<void>>();
  readonly #ids = new LeaseIds();
  readonly #timer: NodeJS.Timeout;
  readonly #stopListening: () => void;
  #isClosed = false;

  constructor(options: RedisLimiterOptions) {
    const all = {
      windowMs: WINDOW_MS,
      leaseMs: 30_000,
      renewMs: 10_000,
      checkMs: CHECK_MS,
      maxPending: 10_000,
      now: () => performance.now(),
      ...options,
    };
    this.#options = all;
    this.#calls = new ReserveCalls(all);
    this.#lastKnown = new LastKnown({
      ...all,
      runningIn: (scope) => this.#leases.runningIn(scope),
      onDue: (scopes, index) => this.#calls.raise(scopes, index),
    });
    this.#pending = new PendingReleases(all.maxPending, all.windowMs, all.metrics);
    this.#timer = setInterval(() => void this.#tend(), all.renewMs).unref();
    this.#stopListening = all.redis.onUp(() => {
      this.#lastKnown.doubt();
      this.#calls.doubt();
      void this.#tend();
    });
  }

  /** Releases that wait for Redis. */
  get waiting(): number {
    return this.#pending.size;
  }

  /** An id for an admission that the caller enters or takes back itself if no reply comes. */
  newId(): string {
    return this.#ids.next();
  }

  /**
   * @param held see Limiter
   * @param ownId of `newId`. Without it, what Redis may have reserved without a reply is released
   * @throws RedisUnavailable when Redis does not answer
   * @throws RedisCommandError when Redis rejects the command, e.g. because it is out of memory
   */
  async admit(scopes: Scopes, amounts: Amounts, held?: Lease, ownId?: string): Promise<Admission> {
    const whole = wholeAmounts(amounts);
    if (held instanceof RedisLease) {
      // Its keys are in one slot until it ends.
      return await this.#change(held, held.scopes.slot === scopes.slot ? scopes : held.scopes, whole);
    }
    const id = ownId ?? this.newId();
    return await this.#batches.reserve(scopes, id, whole).catch((error: unknown) => {
      if (ownId === undefined && mayHaveExecuted(error)) this.takeBack(scopes, id);
      throw error;
    });
  }

  /** Throws as `admit` does. */
  async peek(scopes: Scopes): Promise<ScopeStates> {
    const answer = await this.#ask('peek', scopes, '', NO_AMOUNTS);
    this.#lastKnown.remember(scopes, answer);
    return statesOf(scopes, usagesIn(answer));
  }

  /** What Redis last said of a scope. @param scope its id */
  lastKnown(scope: string): LastKnownCounters | undefined {
    return this.#lastKnown.of(scope);
  }

  /** Never throws. */
  use(scopes: Scopes, amounts: Amounts): void {
    this.#send(usageReleaseOf(scopes, '', 0, wholeAmounts(amounts), this.#options.now()));
  }

  /**
   * Counts a request that was admitted without Redis and has ended. Never throws.
   * @param id of an admission that Redis may have made without a reply, and which it then settles. Empty: there was none
   * @param since monotonic milliseconds: when it was admitted
   */
  charge(scopes: Scopes, amounts: Amounts, since: number = this.#options.now(), id = ''): void {
    this.#send(usageReleaseOf(scopes, id, 1, wholeAmounts(amounts), since));
  }

  /** Undoes an admission without a reply, if Redis has made it. Never throws. */
  takeBack(scopes: Scopes, id: string): void {
    this.#send({ ...usageReleaseOf(scopes, id, -1, NO_AMOUNTS, this.#options.now()), orElse: 'none' });
  }

  /**
   * Enters a running request that was admitted without Redis.
   * @param isOver whether it has ended before the reply; then there is no lease
   * @throws as `admit`. A repeated call counts once
   */
  async enter(
    scopes: Scopes,
    id: string,
    request: { readonly amounts: Amounts; readonly since: number },
    isOver: () => boolean,
  ): Promise<Lease | undefined> {
    const amounts = wholeAmounts(request.amounts);
    const age = Math.max(0, Math.round(this.#options.now() - request.since));
    const member = await this.#calls.call(scopes, ['enter', id, amounts.tokens, amounts.cost, age]);
    if (!Buffer.isBuffer(member)) throw unexpected();
    if (isOver()) return undefined;
    for (const scope of scopes.list) this.#lastKnown.of(scope.id)?.entered();
    return this.#lease(scopes, member.toString('latin1'), amounts);
  }

  /** Resolves when each release so far was delivered, waits for Redis, or was dropped. */
  async settled(): Promise<void> {
    this.#batches.flush();
    while (this.#sending.size > 0) await Promise.all(this.#sending);
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    clearInterval(this.#timer);
    this.#stopListening();
    await this.settled();
    await this.#tend();
    this.#isClosed = true;
    await this.settled();
    for (const _ of this.#pending.take(this.#pending.size)) this.#pending.drop('closed');
  }

  async #ask(
    operation: 'change' | 'peek',
    scopes: Scopes,
    id: string,
    { tokens, cost }: Amounts,
  ): Promise<ReserveAnswer> {
    const args = [operation, id, tokens, cost, scriptScopesOf(scopes).limits];
    // Redis executes calls in the order in which they are sent.
    this.#batches.flush();
    return await this.#calls.complete(scopes, await this.#calls.call(scopes, args), () => args);
  }

  async #change(lease: RedisLease, scopes: Scopes, amounts: Amounts): Promise<Admission> {
    const { member, amounts: reserved } = lease;
    const answer = await this.#ask('change', scopes, member, amounts).catch((error: unknown) => {
      // The id finds whichever of the two exists.
      if (mayHaveExecuted(error)) lease.member = leaseIdOf(member);
      throw error;
    });
    const [verdict] = answer.verdicts;
    if (verdict === 'admitted') {
      lease.member = leaseMemberOf(leaseIdOf(member), amounts, answer);
      this.#leases.move(lease, scopes);
      lease.amounts = amounts;
      // It may have been settled meanwhile, by its previous form.
      if (lease.isSettled) this.#send(pendingReleaseOf(lease, NO_AMOUNTS));
    }
    this.#lastKnown.remember(scopes, answer);
    const usages = usagesIn(answer);
    const states = () => statesOf(scopes, usages);
    if (verdict === 'admitted') {
      lease.mayWait = isFarFromLimits(scopes, usages, amounts);
      return { kind: 'admitted', lease, states: states() };
    }
    const before = { member, amounts: reserved, isHeld: verdict === 'held' };
    const checks = checksOfChange(usages, scriptScopesOf(scopes).tags, before, this.#options.windowMs);
    const rejection = rejectionOf(scopes, checks, amounts, states);
    if (rejection === undefined) throw unexpected();
    return rejection;
  }

  /** Never rejects. */
  async #run({ scopes, releases, reservations }: CallBatch): Promise<void> {
    let unsent = releases;
    try {
      // A lease that is not found has expired, or was settled by a call whose reply was late.
      const now = this.#options.now();
      const reply = await this.#calls.call(scopes, batchArgs(scopes, releases, reservations, now));
      unsent = [];
      if (reservations.length === 0) return;
      const again = () => batchArgs(scopes, [], reservations, now);
      const answer = await this.#calls.complete(scopes, reply, again);
      this.#decide(scopes, reservations, answer);
    } catch (error) {
      for (const { reject } of reservations) reject(error);
      for (const release of unsent) this.#pending.keep(release, error, this.#isClosed, this.#options.now());
    }
  }

  #decide(scopes: Scopes, reservations: readonly Waiting[], answer: ReserveAnswer): void {
    const admissions = decisionsOf(scopes, reservations, answer).map((decision): Admission => {
      if (decision.kind === 'refused') return decision;
      const lease = this.#lease(scopes, decision.member, decision.amounts, decision.isFar);
      return { kind: 'admitted', lease, states: decision.states };
    });
    this.#lastKnown.remember(scopes, answer);
    for (const [index, admission] of admissions.entries()) reservations[index]?.resolve(admission);
  }

  #lease(scopes: Scopes, member: string, amounts: Amounts, mayWait = false): RedisLease {
    const lease: RedisLease = new RedisLease(scopes, member, amounts, (real) => {
      this.#leases.remove(lease);
      this.#options.metrics.limitLeases.add(-1);
      for (const { id } of lease.scopes.list) this.#lastKnown.of(id)?.settled(lease.amounts, real);
      this.#send(pendingReleaseOf(lease, real), lease.mayWait);
    });
    lease.mayWait = mayWait;
    this.#leases.add(lease);
    this.#options.metrics.limitLeases.add(1);
    return lease;
  }

  #send(release: PendingRelease, mayWait = false): void {
    this.#batches.release(release, mayWait && !this.#isClosed);
  }

  /** Delivers pending releases and renews the leases; one round at a time. Never rejects. */
  readonly #tend = singleFlight(async (): Promise<void> => {
    const isUp = () => this.#options.redis.isUp;
    const deliver = async (releases: readonly PendingRelease[]) => {
      for (const each of releases) this.#send(each);
      this.#batches.flush();
      await Promise.all(this.#sending);
    };
    // First what other replicas do not know.
    await this.#pending.deliverAll(MAX_BATCH, isUp, deliver);
    await this.#leases.renewAll(this.#calls, isUp);
  });
}
