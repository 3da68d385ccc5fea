// The limits of holders as all replicas share them: one call of reserve.lua for an admission and one for a settlement. While
// Redis is away it refuses to decide, remembers what is to be settled, and delivers that afterwards.
import { randomBytes } from 'node:crypto';
import { RecentMap } from '../recent-map.ts';
import {
  type RedisClient,
  RedisCommandError,
  type RedisScript,
  RedisUnavailable,
} from '../redis/redis-client.ts';
import type { InitialTotals } from './initial-totals.ts';
import { LastKnownCounters } from './last-known.ts';
import {
  type Admission,
  type Lease,
  type Limiter,
  type LimitMetrics,
  type LimitStates,
  needTotals,
  type TierLimits,
  WINDOW_MS,
  wholeTokens,
} from './limiter.ts';
import { type PendingRelease, PendingReleases } from './pending-releases.ts';
import { leaseIdOf, pendingReleaseOf, RedisLease, useOf } from './redis-lease.ts';
import {
  initialTotalsArgs,
  keysOf,
  LUA,
  limitArgs,
  type ReserveAnswer,
  readReserveAnswer,
  unexpected,
} from './reserve-script.ts';
import { limitStatesOf, rejectionOf } from './verdict.ts';

/** Calls that are sent together, and leases that are renewed in one: each has to end within the deadline of a call. */
const BATCH = 100;
/** Holders of whom it is remembered how they stood. */
const MAX_HEARD = 10_000;

export interface RedisLimiterOptions {
  readonly redis: Pick<RedisClient, 'run' | 'script' | 'isUp' | 'onUp'>;
  readonly initialTotals: InitialTotals;
  readonly metrics: Pick<LimitMetrics, 'limitLeases' | 'limitSettlementsDropped'>;
  /** Length of the window of the limits of a minute. Default: `WINDOW_MS`. */
  readonly windowMs?: number;
  /** After this time without renewal a lease is taken back. The same in all replicas. Default 30 s. */
  readonly leaseMs?: number;
  /** How often all leases of this process are renewed. Default 10 s. */
  readonly renewMs?: number;
  /** Settlements that wait for Redis. Default 10,000. */
  readonly maxSettlements?: number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

export class RedisLimiter implements Limiter {
  readonly #redis: RedisLimiterOptions['redis'];
  readonly #script: RedisScript;
  readonly #initialTotals: InitialTotals;
  readonly #metrics: RedisLimiterOptions['metrics'];
  readonly #times: readonly [windowMs: number, leaseMs: number];
  readonly #now: () => number;
  readonly #waiting: PendingReleases;
  /** Leases of this process, by holder. */
  readonly #leases = new Map<string, Set<RedisLease>>();
  readonly #lastKnown = new RecentMap<string, LastKnownCounters>(MAX_HEARD);
  readonly #sending = new Set<Promise<void>>();
  readonly #process = randomBytes(8).toString('hex');
  readonly #timer: NodeJS.Timeout;
  readonly #stopListening: () => void;
  #count = 0;
  #round: Promise<void> | undefined;
  #isClosed = false;

  constructor(options: RedisLimiterOptions) {
    this.#redis = options.redis;
    this.#script = options.redis.script({ name: 'reserve', lua: LUA, keys: 3 });
    this.#initialTotals = options.initialTotals;
    this.#metrics = options.metrics;
    this.#times = [options.windowMs ?? WINDOW_MS, options.leaseMs ?? 30_000];
    this.#now = options.now ?? (() => performance.now());
    this.#waiting = new PendingReleases(options.maxSettlements ?? 10_000, this.#times[0], options.metrics);
    this.#timer = setInterval(() => void this.#tend(), options.renewMs ?? 10_000).unref();
    this.#stopListening = options.redis.onUp(() => void this.#tend());
  }

  /** Settlements that wait for Redis. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** An id for an admission that the caller makes good or takes back itself, should no answer come. */
  newId(): string {
    this.#count += 1;
    return `${this.#process}.${this.#count}`;
  }

  /**
   * @param held see Limiter
   * @param ownId of `newId`. Without it, what Redis may have reserved without an answer is given back
   * @throws RedisUnavailable when Redis is away
   * @throws RedisCommandError when Redis refuses the command, e.g. because it is out of memory
   */
  async admit(
    holder: string,
    limits: TierLimits,
    tokens: number,
    held?: Lease,
    ownId?: string,
  ): Promise<Admission> {
    const cost = wholeTokens(tokens);
    if (held instanceof RedisLease) return await this.#change(held, limits, cost);
    const id = ownId ?? this.newId();
    const answer = await this.#ask('reserve', holder, limits, [id, cost]).catch((error: unknown) => {
      if (ownId === undefined && mayBeDone(error)) this.takeBack(holder, id);
      throw error;
    });
    const lease = answer.isAdmitted ? this.#lease(holder, answer.member, cost) : undefined;
    this.#hear(holder, limits, answer);
    return admissionOf(answer, limits, cost, lease);
  }

  /** Throws as `admit` does. */
  async peek(holder: string, limits: TierLimits): Promise<LimitStates> {
    const answer = await this.#ask('peek', holder, limits, ['', 0]);
    this.#hear(holder, limits, answer);
    return limitStatesOf(answer.used, limits);
  }

  /** What Redis last said of a holder. */
  heard(holder: string): LastKnownCounters | undefined {
    return this.#lastKnown.get(holder);
  }

  /** Never throws. */
  use(holder: string, tokens: number): void {
    this.#send(useOf(holder, '', 0, wholeTokens(tokens), this.#now()));
  }

  /**
   * Counts a request that was admitted without Redis, has ended, and is not known there. Never throws.
   * @param id of an admission that Redis may have made without an answer; it is settled then. Empty: there was none
   * @param since monotonic milliseconds: when it was admitted
   */
  charge(holder: string, tokens: number, since: number = this.#now(), id = ''): void {
    this.#send(useOf(holder, id, 1, wholeTokens(tokens), since));
  }

  /** Undoes an admission that got no answer, if Redis has made it. Never throws. */
  takeBack(holder: string, id: string): void {
    this.#send({ ...useOf(holder, id, -1, 0, this.#now()), orElse: 'none' });
  }

  /**
   * Makes a request known that was admitted without Redis and runs.
   * @param isOver whether it has ended until Redis has answered; then there is no lease
   * @throws as `admit`; the same call again is good, and counts once
   */
  async enter(
    holder: string,
    id: string,
    request: { readonly tokens: number; readonly since: number },
    isOver: () => boolean,
  ): Promise<Lease | undefined> {
    const tokens = wholeTokens(request.tokens);
    const age = Math.max(0, Math.round(this.#now() - request.since));
    const member = await this.#call(holder, ['enter', id, tokens, age]);
    if (typeof member !== 'string') throw unexpected();
    if (isOver()) return undefined;
    this.#lastKnown.get(holder)?.entered();
    return this.#lease(holder, member, tokens);
  }

  /** Resolves when every settlement so far was delivered, waits for Redis, or was given up. */
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
    for (let left = this.#waiting.take(BATCH); left.length > 0; left = this.#waiting.take(BATCH)) {
      for (const _ of left) this.#waiting.drop('closed');
    }
  }

  async #ask(
    operation: 'reserve' | 'change' | 'peek',
    holder: string,
    limits: TierLimits,
    request: readonly [id: string, tokens: number],
  ): Promise<ReserveAnswer> {
    const args = [operation, ...request, ...limitArgs(limits)];
    const answer = readReserveAnswer(await this.#call(holder, args));
    if (answer !== undefined) {
      if (answer.isProvisional) this.#learn(holder, limits);
      return answer;
    }
    const totals = await this.#initialTotals.read(holder);
    const seeded = readReserveAnswer(await this.#call(holder, [...args, ...initialTotalsArgs(totals)]));
    if (seeded === undefined) throw unexpected();
    return seeded;
  }

  /** Asks for totals that were not to be had, while requests go on. */
  #learn(holder: string, limits: TierLimits): void {
    if (this.#initialTotals.isResting(holder)) return;
    void this.#initialTotals.read(holder).then(async (totals) => {
      if (totals === undefined) return;
      const args = ['peek', '', 0, ...limitArgs(limits), ...initialTotalsArgs(totals)];
      // A later request tries again.
      await this.#call(holder, args).catch(() => {});
    });
  }

  async #call(holder: string, args: readonly (string | number)[]): Promise<unknown> {
    const keys = keysOf(holder);
    try {
      return await this.#script(keys, [...this.#times, ...args]);
    } catch (error) {
      // Something that is not of ours stands there, and would for ever.
      if (error instanceof RedisCommandError && error.code === 'WRONGTYPE') {
        await this.#redis.run((commands) => commands.del(...keys)).catch(() => {});
      }
      throw error;
    }
  }

  async #change(lease: RedisLease, limits: TierLimits, tokens: number): Promise<Admission> {
    const { holder, member } = lease;
    const answer = await this.#ask('change', holder, limits, [member, tokens]).catch((error: unknown) => {
      // Which of the two there is, its id finds out.
      if (mayBeDone(error)) lease.become(leaseIdOf(member), lease.tokens);
      throw error;
    });
    if (answer.isAdmitted) {
      lease.become(answer.member, tokens);
      // It may have been settled meanwhile, as the one that it was.
      if (lease.isSettled) this.#send(pendingReleaseOf(lease, 0));
    }
    this.#hear(holder, limits, answer);
    return admissionOf(answer, limits, tokens, answer.isAdmitted ? lease : undefined, true);
  }

  #hear(holder: string, limits: TierLimits, { used, isProvisional }: ReserveAnswer): void {
    const hasTotals = needTotals(limits) && !isProvisional;
    const own = this.#leases.get(holder)?.size ?? 0;
    const [, leaseMs] = this.#times;
    // In whole milliseconds, as memory-limiter.ts, which goes on from there.
    this.#lastKnown.set(
      holder,
      new LastKnownCounters({ used, hasTotals, now: Math.floor(this.#now()), own, leaseMs }),
    );
  }

  #lease(holder: string, member: string, tokens: number): Lease {
    const leases = this.#leases.get(holder) ?? new Set();
    const lease = new RedisLease(holder, member, tokens, (real) => {
      leases.delete(lease);
      if (leases.size === 0) this.#leases.delete(holder);
      this.#metrics.limitLeases.add(-1);
      this.#lastKnown.get(holder)?.settled(lease.tokens, real);
      this.#send(pendingReleaseOf(lease, real));
    });
    this.#leases.set(holder, leases.add(lease));
    this.#metrics.limitLeases.add(1);
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
      const age = Math.max(0, Math.round(this.#now() - recent.since));
      const args = ['settle', member, tokens, requests, orElse, age, recent.requests, recent.tokens];
      // Where there is no such lease, it was taken back, or settled by a call whose answer was late.
      await this.#call(holder, args);
    } catch (error) {
      if (!(error instanceof RedisUnavailable)) this.#waiting.drop('error');
      else if (error.reason === 'closed' || this.#isClosed) this.#waiting.drop('closed');
      else if (!mayBeDone(error)) this.#waiting.keep(release);
      // Without a lease to be found by, it cannot be known whether it would be counted a second time.
      else if (member === '') this.#waiting.drop('unknown');
      else this.#waiting.keep({ ...release, orElse: 'none' });
    }
  }

  /** Delivers what waits and renews the leases; one round at a time. Never rejects. */
  #tend(): Promise<void> {
    // First what others have not heard of.
    this.#round ??= this.#deliverAll()
      .then(() => this.#renewAll())
      .catch(() => {})
      .finally(() => {
        this.#round = undefined;
      });
    return this.#round;
  }

  async #deliverAll(): Promise<void> {
    // What cannot be delivered goes back to the end, and must not be tried for ever in one round.
    for (let left = this.#waiting.size; left > 0 && this.#redis.isUp; left -= BATCH) {
      await Promise.all(this.#waiting.take(Math.min(left, BATCH)).map((each) => this.#deliver(each)));
    }
  }

  /** A lease that is settled while it is being renewed is no trouble: Redis does both in the order in which they were sent. */
  async #renewAll(): Promise<void> {
    let calls: Promise<unknown>[] = [];
    for (const [holder, leases] of [...this.#leases]) {
      const all = [...leases];
      for (let start = 0; start < all.length; start += BATCH) {
        if (!this.#redis.isUp) return;
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
  { used }: ReserveAnswer,
  limits: TierLimits,
  tokens: number,
  lease: Lease | undefined,
  hasPlace = false,
): Admission {
  const states = limitStatesOf(used, limits);
  if (lease !== undefined) return { kind: 'admitted', lease, states };
  const rejection = rejectionOf(used, limits, tokens, { hasPlace });
  if (rejection === undefined) throw unexpected();
  return { ...rejection, states };
}

/** Whether Redis may have carried out what got no answer. */
export function mayBeDone(error: unknown): boolean {
  return error instanceof RedisUnavailable && (error.reason === 'deadline' || error.reason === 'lost');
}
