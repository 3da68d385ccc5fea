// The limiter that all replicas share: one call of reserve.lua for an admission and one for its release. While Redis is
// unavailable it does not decide; it keeps pending releases and delivers them afterwards.
import { randomBytes } from 'node:crypto';
import type { TierLimits } from '../config/limit-table.ts';
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
  type Lease,
  type Limiter,
  type LimitMetrics,
  type LimitStates,
  WINDOW_MS,
  wholeTokens,
} from './limiter.ts';
import { type PendingRelease, PendingReleases } from './pending-releases.ts';
import { leaseIdOf, pendingReleaseOf, RedisLease, usageReleaseOf } from './redis-lease.ts';
import {
  initialTotalsArgs,
  keysOf,
  LUA,
  type ReserveAnswer,
  readReserveAnswer,
  unexpected,
} from './reserve-script.ts';
import { type ActiveLimits, activeLimits, limitStatesOf, rejectionOf } from './verdict.ts';

/** Calls that are sent together, and leases that are renewed in one call: each must end within the deadline of a call. */
const BATCH = 100;
/** Holders whose last known counters are kept. */
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
  /** Leases of this process, by holder. */
  readonly #leases = new Map<string, Set<RedisLease>>();
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
    this.#script = all.redis.script({ name: 'reserve', lua: LUA, keys: 3 });
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
  async admit(
    holder: string,
    limits: TierLimits,
    tokens: number,
    held?: Lease,
    ownId?: string,
  ): Promise<Admission> {
    const cost = wholeTokens(tokens);
    const active = activeLimits(limits);
    if (held instanceof RedisLease) return await this.#change(held, active, cost);
    const id = ownId ?? this.newId();
    const answer = await this.#ask('reserve', holder, active, [id, cost]).catch((error: unknown) => {
      if (ownId === undefined && mayBeDone(error)) this.takeBack(holder, id);
      throw error;
    });
    const lease = answer.isAdmitted ? this.#lease(holder, answer.member, cost) : undefined;
    this.#remember(holder, active, answer);
    return admissionOf(answer, active, cost, lease);
  }

  /** Throws as `admit` does. */
  async peek(holder: string, limits: TierLimits): Promise<LimitStates> {
    const active = activeLimits(limits);
    const answer = await this.#ask('peek', holder, active, ['', 0]);
    this.#remember(holder, active, answer);
    return limitStatesOf(answer.usage, active);
  }

  /** What Redis last said of a holder. */
  lastKnown(holder: string): LastKnownCounters | undefined {
    return this.#lastKnown.get(holder);
  }

  /** Never throws. */
  use(holder: string, tokens: number): void {
    this.#send(usageReleaseOf(holder, '', 0, wholeTokens(tokens), this.#options.now()));
  }

  /**
   * Counts a request that was admitted without Redis and has ended. Never throws.
   * @param id of an admission that Redis may have made without a reply, and which it then settles. Empty: there was none
   * @param since monotonic milliseconds: when it was admitted
   */
  charge(holder: string, tokens: number, since: number = this.#options.now(), id = ''): void {
    this.#send(usageReleaseOf(holder, id, 1, wholeTokens(tokens), since));
  }

  /** Undoes an admission without a reply, if Redis has made it. Never throws. */
  takeBack(holder: string, id: string): void {
    this.#send({ ...usageReleaseOf(holder, id, -1, 0, this.#options.now()), orElse: 'none' });
  }

  /**
   * Enters a running request that was admitted without Redis.
   * @param isOver whether it has ended before the reply; then there is no lease
   * @throws as `admit`. A repeated call counts once
   */
  async enter(
    holder: string,
    id: string,
    request: { readonly tokens: number; readonly since: number },
    isOver: () => boolean,
  ): Promise<Lease | undefined> {
    const tokens = wholeTokens(request.tokens);
    const age = Math.max(0, Math.round(this.#options.now() - request.since));
    const member = await this.#call(holder, ['enter', id, tokens, age]);
    if (typeof member !== 'string') throw unexpected();
    if (isOver()) return undefined;
    this.#lastKnown.get(holder)?.entered();
    return this.#lease(holder, member, tokens);
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
    holder: string,
    active: ActiveLimits,
    request: readonly [id: string, tokens: number],
  ): Promise<ReserveAnswer> {
    const args = [operation, ...request, ...active.maxima];
    const answer = readReserveAnswer(await this.#call(holder, args));
    if (answer !== undefined) {
      if (answer.isProvisional) this.#learn(holder, active);
      return answer;
    }
    const totals = await this.#options.initialTotals.read(holder);
    const seeded = readReserveAnswer(await this.#call(holder, [...args, ...initialTotalsArgs(totals)]));
    if (seeded === undefined) throw unexpected();
    return seeded;
  }

  /** Reads totals that were not available, while requests continue. */
  #learn(holder: string, active: ActiveLimits): void {
    if (this.#options.initialTotals.isBackingOff(holder)) return;
    void this.#options.initialTotals.read(holder).then(async (totals) => {
      if (totals === undefined) return;
      const args = ['peek', '', 0, ...active.maxima, ...initialTotalsArgs(totals)];
      // A later request tries again.
      await this.#call(holder, args).catch(() => {});
    });
  }

  async #call(holder: string, args: readonly (string | number)[]): Promise<unknown> {
    const keys = keysOf(holder);
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

  async #change(lease: RedisLease, active: ActiveLimits, tokens: number): Promise<Admission> {
    const { holder, member } = lease;
    const answer = await this.#ask('change', holder, active, [member, tokens]).catch((error: unknown) => {
      // The id finds whichever of the two exists.
      if (mayBeDone(error)) lease.member = leaseIdOf(member);
      throw error;
    });
    if (answer.isAdmitted) {
      lease.member = answer.member;
      lease.tokens = tokens;
      // It may have been settled meanwhile, by its previous form.
      if (lease.isSettled) this.#send(pendingReleaseOf(lease, 0));
    }
    this.#remember(holder, active, answer);
    return admissionOf(answer, active, tokens, answer.isAdmitted ? lease : undefined, true);
  }

  #remember(holder: string, { needTotals }: ActiveLimits, { usage, isProvisional }: ReserveAnswer): void {
    const hasTotals = needTotals && !isProvisional;
    const own = this.#leases.get(holder)?.size ?? 0;
    const { leaseMs } = this.#options;
    // Whole milliseconds, as in memory-limiter.ts, which continues from it.
    const now = Math.floor(this.#options.now());
    this.#lastKnown.set(holder, new LastKnownCounters({ usage, hasTotals, now, own, leaseMs }));
  }

  #lease(holder: string, member: string, tokens: number): Lease {
    const leases = this.#leases.get(holder) ?? new Set();
    const lease = new RedisLease(holder, member, tokens, (real) => {
      leases.delete(lease);
      if (leases.size === 0) this.#leases.delete(holder);
      this.#options.metrics.limitLeases.add(-1);
      this.#lastKnown.get(holder)?.settled(lease.tokens, real);
      this.#send(pendingReleaseOf(lease, real));
    });
    this.#leases.set(holder, leases.add(lease));
    this.#options.metrics.limitLeases.add(1);
    return lease;
  }

  #send(release: PendingRelease): void {
    const sending = this.#deliver(release).finally(() => this.#sending.delete(sending));
    this.#sending.add(sending);
  }

  /** Never rejects. */
  async #deliver(release: PendingRelease): Promise<void> {
    const { holder, member, tokens, requests, orElse, recent } = release;
    try {
      const age = Math.max(0, Math.round(this.#options.now() - recent.since));
      const args = ['settle', member, tokens, requests, orElse, age, recent.requests, recent.tokens];
      // A lease that is not found has expired, or was settled by a call whose reply was late.
      await this.#call(holder, args);
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
    for (const [holder, leases] of [...this.#leases]) {
      const all = [...leases];
      for (let start = 0; start < all.length; start += BATCH) {
        if (!this.#options.redis.isUp) return;
        // Some may have been settled since the list was made.
        const present = all.slice(start, start + BATCH).filter((lease) => leases.has(lease));
        if (present.length === 0) continue;
        calls.push(this.#call(holder, ['renew', ...present.map(({ member }) => member)]));
        if (calls.length < BATCH) continue;
        await Promise.allSettled(calls);
        calls = [];
      }
    }
    await Promise.allSettled(calls);
  }
}

function admissionOf(
  { usage }: ReserveAnswer,
  active: ActiveLimits,
  tokens: number,
  lease: Lease | undefined,
  hasSlot = false,
): Admission {
  const states = limitStatesOf(usage, active);
  if (lease !== undefined) return { kind: 'admitted', lease, states };
  const rejection = rejectionOf(usage, active, tokens, { hasSlot });
  if (rejection === undefined) throw unexpected();
  return { ...rejection, states };
}

/** Whether Redis may have executed a call without a reply. */
export function mayBeDone(error: unknown): boolean {
  return error instanceof RedisUnavailable && (error.reason === 'deadline' || error.reason === 'lost');
}
