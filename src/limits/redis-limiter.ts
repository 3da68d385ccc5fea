// The limiter that all replicas share: one call of reserve.lua for an admission and one for its release. While Redis is
// unavailable it does not decide; it keeps pending releases and delivers them afterwards.
import { randomBytes } from 'node:crypto';
import { RecentMap } from '../recent-map.ts';
import {
  type RedisClient,
  RedisCommandError,
  type RedisScript,
  RedisUnavailable,
} from '../redis/redis-client.ts';
import { singleFlight } from '../single-flight.ts';
import type { InitialTotals } from './initial-totals.ts';
import { LastKnownCounters } from './last-known.ts';
import {
  type Admission,
  type Amounts,
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
  leaseIdOf,
  OwnLeases,
  pendingReleaseOf,
  RedisLease,
  usageReleaseOf,
  usageWithout,
  windowIn,
} from './redis-lease.ts';
import {
  initialTotalsArgs,
  LUA,
  type ReserveAnswer,
  readReserveAnswer,
  scriptScopesOf,
  statesOf,
  unexpected,
} from './reserve-script.ts';
import type { Scopes } from './scope.ts';
import { rejectionOf } from './verdict.ts';

/** Calls that are sent together, and leases that are renewed in one call: each must end within the deadline of a call. */
const BATCH = 100;
/** Scopes whose last known counters are kept. */
const MAX_LAST_KNOWN = 10_000;

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
  /** Releases that wait for Redis. Default 10,000. */
  readonly maxPending?: number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

export class RedisLimiter implements Limiter {
  readonly #options: Required<RedisLimiterOptions>;
  readonly #script: RedisScript;
  readonly #pending: PendingReleases;
  readonly #leases = new OwnLeases();
  readonly #lastKnown = new RecentMap<string, LastKnownCounters>(MAX_LAST_KNOWN);
  readonly #sending = new Set<Promise<void>>();
  readonly #process = randomBytes(8).toString('hex');
  readonly #timer: NodeJS.Timeout;
  readonly #stopListening: () => void;
  #count = 0;
  #isClosed = false;

  constructor(options: RedisLimiterOptions) {
    const all = {
      windowMs: WINDOW_MS,
      leaseMs: 30_000,
      renewMs: 10_000,
      maxPending: 10_000,
      now: () => performance.now(),
      ...options,
    };
    this.#options = all;
    this.#script = all.redis.script({ name: 'reserve', lua: LUA, isBinary: true });
    this.#pending = new PendingReleases(all.maxPending, all.windowMs, all.metrics);
    this.#timer = setInterval(() => void this.#tend(), all.renewMs).unref();
    this.#stopListening = all.redis.onUp(() => void this.#tend());
  }

  /** Releases that wait for Redis. */
  get waiting(): number {
    return this.#pending.size;
  }

  /** An id for an admission that the caller enters or takes back itself if no reply comes. */
  newId(): string {
    this.#count += 1;
    return `${this.#process}.${this.#count}`;
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
      const kept = held.scopes.slot === scopes.slot ? scopes : held.scopes;
      return await this.#change(held, kept, whole);
    }
    const id = ownId ?? this.newId();
    const answer = await this.#ask('reserve', scopes, id, whole).catch((error: unknown) => {
      if (ownId === undefined && mayBeDone(error)) this.takeBack(scopes, id);
      throw error;
    });
    const lease = answer.verdict === 'admitted' ? this.#lease(scopes, answer.member, whole) : undefined;
    this.#remember(scopes, answer);
    return this.#admission(scopes, answer, whole, lease);
  }

  /** Throws as `admit` does. */
  async peek(scopes: Scopes): Promise<ScopeStates> {
    const answer = await this.#ask('peek', scopes, '', NO_AMOUNTS);
    this.#remember(scopes, answer);
    return statesOf(scopes, answer);
  }

  /** What Redis last said of a scope. @param scope its id */
  lastKnown(scope: string): LastKnownCounters | undefined {
    return this.#lastKnown.get(scope);
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
    const member = await this.#call(scopes, ['enter', id, amounts.tokens, amounts.cost, age]);
    if (!Buffer.isBuffer(member)) throw unexpected();
    if (isOver()) return undefined;
    for (const scope of scopes.list) this.#lastKnown.get(scope.id)?.entered();
    return this.#lease(scopes, member.toString('latin1'), amounts);
  }

  /** Resolves when each release so far was delivered, waits for Redis, or was dropped. */
  async settled(): Promise<void> {
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
    for (let left = this.#pending.take(BATCH); left.length > 0; left = this.#pending.take(BATCH)) {
      for (const _ of left) this.#pending.drop('closed');
    }
  }

  async #ask(
    operation: 'reserve' | 'change' | 'peek',
    scopes: Scopes,
    id: string,
    amounts: Amounts,
  ): Promise<ReserveAnswer> {
    const { list } = scopes;
    const { limits } = scriptScopesOf(scopes);
    const { initialTotals, windowMs } = this.#options;
    const args = [operation, id, amounts.tokens, amounts.cost, limits];
    const ask = async (all: Parameters<RedisScript>[1] = args) =>
      readReserveAnswer(await this.#call(scopes, all), list.length, windowMs);
    const answer = await ask();
    if ('verdict' in answer) {
      for (const [index, { isProvisional }] of answer.scopes.entries())
        if (isProvisional) this.#learn(scopes, index);
      return answer;
    }
    const totals = await Promise.all(
      answer.map(async (index) => initialTotalsArgs(index, await initialTotals.read(list[index] ?? list[0]))),
    );
    const seeded = await ask([...args, ...totals.flat()]);
    if (!('verdict' in seeded)) throw unexpected();
    return seeded;
  }

  /** Reads totals that were not available, while requests continue. @param index of the scope */
  #learn(scopes: Scopes, index: number): void {
    const scope = scopes.list[index] ?? scopes.list[0];
    if (this.#options.initialTotals.isBackingOff(scope)) return;
    void this.#options.initialTotals.read(scope).then(async (totals) => {
      if (totals === undefined) return;
      const { limits } = scriptScopesOf(scopes);
      const args = ['peek', '', 0, 0, limits, ...initialTotalsArgs(index, totals)];
      // A later request tries again.
      await this.#call(scopes, args).catch(() => {});
    });
  }

  async #call(scopes: Scopes, args: readonly (string | number | Buffer)[]): Promise<unknown> {
    const { keys } = scriptScopesOf(scopes);
    const { redis, windowMs, leaseMs } = this.#options;
    try {
      return await this.#script(keys, [windowMs, leaseMs, ...args]);
    } catch (error) {
      // A value of another type would stay there for ever.
      if (error instanceof RedisCommandError && error.code === 'WRONGTYPE') {
        await redis.run((commands) => commands.del(...keys)).catch(() => {});
      }
      throw error;
    }
  }

  async #change(lease: RedisLease, scopes: Scopes, amounts: Amounts): Promise<Admission> {
    const { member, amounts: reserved } = lease;
    const answer = await this.#ask('change', scopes, member, amounts).catch((error: unknown) => {
      // The id finds whichever of the two exists.
      if (mayBeDone(error)) lease.member = leaseIdOf(member);
      throw error;
    });
    const isAdmitted = answer.verdict === 'admitted';
    if (isAdmitted) {
      lease.member = answer.member;
      this.#leases.remove(lease);
      lease.scopes = scopes;
      lease.amounts = amounts;
      if (!lease.isSettled) this.#leases.add(lease);
      // It may have been settled meanwhile, by its previous form.
      if (lease.isSettled) this.#send(pendingReleaseOf(lease, NO_AMOUNTS));
    }
    this.#remember(scopes, answer);
    const before = { member, amounts: reserved };
    return this.#admission(scopes, answer, amounts, isAdmitted ? lease : undefined, before);
  }

  /** @param held the lease before it was to be changed */
  #admission(
    scopes: Scopes,
    answer: ReserveAnswer,
    amounts: Amounts,
    lease: Lease | undefined,
    held?: { readonly member: string; readonly amounts: Amounts },
  ): Admission {
    const states = () => statesOf(scopes, answer);
    if (lease !== undefined) return { kind: 'admitted', lease, states: states() };
    const { tags } = scriptScopesOf(scopes);
    const checks = answer.scopes.map(({ usage }, index) => {
      const tag = tags[index] ?? '';
      if (held === undefined || (held.member.includes(':') && windowIn(held.member, tag) === undefined))
        return { usage, hasSlot: false };
      const isHeld = answer.verdict === 'held';
      return {
        usage: isHeld ? usageWithout(usage, held, tag, this.#options.windowMs) : usage,
        hasSlot: true,
      };
    });
    const rejection = rejectionOf(scopes, checks, amounts, states);
    if (rejection === undefined) throw unexpected();
    return rejection;
  }

  #remember({ list }: Scopes, answer: ReserveAnswer): void {
    const { leaseMs } = this.#options;
    // Whole milliseconds, as in memory-limiter.ts, which continues from it.
    const now = Math.floor(this.#options.now());
    for (const [index, { usage, isProvisional }] of answer.scopes.entries()) {
      const scope = list[index];
      if (scope === undefined) continue;
      const hasTotals = scope.active.needTotals && !isProvisional;
      const own = this.#leases.runningIn(scope.id);
      this.#lastKnown.set(scope.id, new LastKnownCounters({ usage, hasTotals, now, own, leaseMs }));
    }
  }

  #lease(scopes: Scopes, member: string, amounts: Amounts): Lease {
    const lease: RedisLease = new RedisLease(scopes, member, amounts, (real) => {
      this.#leases.remove(lease);
      this.#options.metrics.limitLeases.add(-1);
      for (const { id } of lease.scopes.list) this.#lastKnown.get(id)?.settled(lease.amounts, real);
      this.#send(pendingReleaseOf(lease, real));
    });
    this.#leases.add(lease);
    this.#options.metrics.limitLeases.add(1);
    return lease;
  }

  #send(release: PendingRelease): void {
    const sending = this.#deliver(release).finally(() => this.#sending.delete(sending));
    this.#sending.add(sending);
  }

  /** Never rejects. */
  async #deliver(release: PendingRelease): Promise<void> {
    const { scopes, member, amounts, requests, orElse, recent } = release;
    try {
      const age = Math.max(0, Math.round(this.#options.now() - recent.since));
      const args = [
        'settle',
        member,
        amounts.tokens,
        amounts.cost,
        requests,
        orElse,
        age,
        recent.requests,
        recent.amounts.tokens,
      ];
      // A lease that is not found has expired, or was settled by a call whose reply was late.
      await this.#call(scopes, args);
    } catch (error) {
      if (!(error instanceof RedisUnavailable)) this.#pending.drop('error');
      else if (error.reason === 'closed' || this.#isClosed) this.#pending.drop('closed');
      else if (!mayBeDone(error)) this.#pending.add(release);
      // Without a lease to find it by, it might be counted twice.
      else if (member === '') this.#pending.drop('unknown');
      else this.#pending.add({ ...release, orElse: 'none' });
    }
  }

  /** Delivers pending releases and renews the leases; one round at a time. Never rejects. */
  readonly #tend = singleFlight(async (): Promise<void> => {
    // First what other replicas do not know.
    await this.#deliverAll()
      .then(() => this.#renewAll())
      .catch(() => {});
  });

  async #deliverAll(): Promise<void> {
    // A failed delivery goes back to the end, and must not be retried for ever in one round.
    for (let left = this.#pending.size; left > 0 && this.#options.redis.isUp; left -= BATCH) {
      await Promise.all(this.#pending.take(Math.min(left, BATCH)).map((each) => this.#deliver(each)));
    }
  }

  /** A lease may be settled during its renewal: Redis executes both in the order in which they were sent. */
  async #renewAll(): Promise<void> {
    let calls: Promise<unknown>[] = [];
    for (const leases of this.#leases.all()) {
      const all = [...leases];
      for (let start = 0; start < all.length; start += BATCH) {
        if (!this.#options.redis.isUp) return;
        // Some may have been settled since the list was made.
        const present = all.slice(start, start + BATCH).filter((lease) => leases.has(lease));
        const [first] = present;
        if (first === undefined) continue;
        calls.push(this.#call(first.scopes, ['renew', ...present.map(({ member }) => member)]));
        if (calls.length < BATCH) continue;
        await Promise.allSettled(calls);
        calls = [];
      }
    }
    await Promise.allSettled(calls);
  }
}

/** Whether Redis may have executed a call without a reply. */
export function mayBeDone(error: unknown): boolean {
  return error instanceof RedisUnavailable && (error.reason === 'deadline' || error.reason === 'lost');
}
