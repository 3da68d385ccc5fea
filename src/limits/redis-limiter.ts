// The limits of holders as all replicas share them: one call of reserve.lua for an admission and one for a settlement. While
// Redis is away it refuses to decide, remembers what is to be settled, and delivers that afterwards.
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type RedisClient, RedisCommandError, type RedisScript, RedisUnavailable } from '../redis/client.ts';
import {
  type Admission,
  type Lease,
  type Limiter,
  type LimitMetrics,
  type LimitStates,
  type TierLimits,
  type Totals,
  wholeTokens,
} from './limiter.ts';
import type { Seeds } from './seeds.ts';
import { type Settlement, Settlements } from './settlements.ts';
import { refusalOf, statesOf, type Used } from './verdict.ts';

const LUA = readFileSync(new URL('./reserve.lua', import.meta.url), 'utf8');
/** Calls that are sent together, and leases that are renewed in one: each has to end within the deadline of a call. */
const BATCH = 100;

export interface RedisLimiterOptions {
  readonly redis: Pick<RedisClient, 'run' | 'script' | 'isUp' | 'onUp'>;
  readonly seeds: Seeds;
  readonly metrics: Pick<LimitMetrics, 'limitLeases' | 'limitSettlementsDropped'>;
  /** Length of the window of the limits of a minute. Default 60 s. */
  readonly windowMs?: number;
  /** After this time without renewal a lease is taken back. The same in all replicas. Default 30 s. */
  readonly leaseMs?: number;
  /** How often all leases of this process are renewed. Default 10 s. */
  readonly renewMs?: number;
  /** Settlements that wait for Redis. Default 10,000. */
  readonly maxSettlements?: number;
}

/** What the script says of one holder. */
interface Answer {
  readonly used: Used;
  /** The lease as Redis has it; empty when nothing was reserved. */
  readonly member: string;
  readonly isAdmitted: boolean;
  readonly isProvisional: boolean;
}

export class RedisLimiter implements Limiter {
  readonly #redis: RedisLimiterOptions['redis'];
  readonly #script: RedisScript;
  readonly #seeds: Seeds;
  readonly #metrics: RedisLimiterOptions['metrics'];
  readonly #times: readonly [windowMs: number, leaseMs: number];
  readonly #waiting: Settlements;
  /** Leases of this process, by holder. */
  readonly #leases = new Map<string, Set<string>>();
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
    this.#seeds = options.seeds;
    this.#metrics = options.metrics;
    this.#times = [options.windowMs ?? 60_000, options.leaseMs ?? 30_000];
    this.#waiting = new Settlements(options.maxSettlements ?? 10_000, options.metrics);
    this.#timer = setInterval(() => void this.#tend(), options.renewMs ?? 10_000).unref();
    this.#stopListening = options.redis.onUp(() => void this.#tend());
  }

  /** Settlements that wait for Redis. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /**
   * @throws RedisUnavailable when Redis is away. What it may have reserved is given back when it is there again
   * @throws RedisCommandError when Redis refuses the command, e.g. because it is out of memory
   */
  async admit(holder: string, limits: TierLimits, tokens: number): Promise<Admission> {
    const cost = wholeTokens(tokens);
    this.#count += 1;
    const id = `${this.#process}.${this.#count}`;
    const answer = await this.#ask('reserve', holder, limits, [id, cost]).catch((error: unknown) => {
      // Nobody waits for this reservation, if there is one.
      if (error instanceof RedisUnavailable && wasSent(error)) {
        this.#waiting.keep({ holder, member: id, tokens: 0, requests: -1, mayBeDone: true });
      }
      throw error;
    });
    const states = statesOf(answer.used, limits);
    if (answer.isAdmitted) {
      return { kind: 'admitted', lease: this.#lease(holder, answer.member, cost), states };
    }
    const refusal = refusalOf(answer.used, limits, cost);
    if (refusal === undefined) throw unexpected();
    return { ...refusal, states };
  }

  /** Throws as `admit` does. */
  async peek(holder: string, limits: TierLimits): Promise<LimitStates> {
    const { used } = await this.#ask('peek', holder, limits, ['', 0]);
    return statesOf(used, limits);
  }

  /** Never throws. */
  use(holder: string, tokens: number): void {
    this.#send({ holder, member: '', tokens: wholeTokens(tokens), requests: 0, mayBeDone: false });
  }

  /** Counts a request that was admitted without Redis, and its real tokens, in the totals that Redis has. Never throws. */
  charge(holder: string, tokens: number): void {
    this.#send({ holder, member: '', tokens: wholeTokens(tokens), requests: 1, mayBeDone: false });
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
    operation: 'reserve' | 'peek',
    holder: string,
    limits: TierLimits,
    request: readonly [id: string, tokens: number],
  ): Promise<Answer> {
    const args = [operation, ...request, ...limitArgs(limits)];
    const answer = readAnswer(await this.#call(holder, args));
    if (answer !== undefined) {
      if (answer.isProvisional) this.#learn(holder, limits);
      return answer;
    }
    const totals = await this.#seeds.read(holder);
    const seeded = readAnswer(await this.#call(holder, [...args, ...seedArgs(totals)]));
    if (seeded === undefined) throw unexpected();
    return seeded;
  }

  /** Asks for totals that were not to be had, while requests go on. */
  #learn(holder: string, limits: TierLimits): void {
    if (this.#seeds.isResting(holder)) return;
    void this.#seeds.read(holder).then(async (totals) => {
      if (totals === undefined) return;
      const args = ['peek', '', 0, ...limitArgs(limits), ...seedArgs(totals)];
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

  #lease(holder: string, member: string, tokens: number): Lease {
    const leases = this.#leases.get(holder) ?? new Set();
    this.#leases.set(holder, leases.add(member));
    this.#metrics.limitLeases.add(1);
    return {
      tokens,
      settle: (real) => {
        if (!leases.delete(member)) return;
        if (leases.size === 0) this.#leases.delete(holder);
        this.#metrics.limitLeases.add(-1);
        this.#send({ holder, member, tokens: wholeTokens(real), requests: 0, mayBeDone: false });
      },
    };
  }

  #send(settlement: Settlement): void {
    const sending = this.#deliver(settlement).finally(() => this.#sending.delete(sending));
    this.#sending.add(sending);
  }

  /** Never rejects. */
  async #deliver(settlement: Settlement): Promise<void> {
    const { holder, member, tokens, requests, mayBeDone } = settlement;
    try {
      const args = ['settle', member, tokens, requests, mayBeDone ? 1 : 0];
      const isDone = await this.#call(holder, args);
      // A mere id is of a lease that need not exist.
      if (isDone === 0 && member.includes(':')) this.#waiting.drop('unknown');
    } catch (error) {
      if (!(error instanceof RedisUnavailable)) this.#waiting.drop('error');
      else if (error.reason === 'closed' || this.#isClosed) this.#waiting.drop('closed');
      else this.#waiting.keep({ ...settlement, mayBeDone: mayBeDone || wasSent(error) });
    }
  }

  /** Delivers what waits and renews the leases; one round at a time. Never rejects. */
  #tend(): Promise<void> {
    this.#round ??= this.#renewAll()
      .then(() => this.#deliverAll())
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
      const members = [...leases];
      for (let start = 0; start < members.length; start += BATCH) {
        if (!this.#redis.isUp) return;
        // Some may have been settled since the list was made.
        const present = members.slice(start, start + BATCH).filter((member) => leases.has(member));
        if (present.length === 0) continue;
        calls.push(this.#call(holder, ['renew', ...present]));
        if (calls.length < BATCH) continue;
        await Promise.allSettled(calls);
        calls = [];
      }
    }
    await Promise.allSettled(calls);
  }
}

/** All of one holder have one hash tag, so that they lie together in a Cluster. */
function keysOf(holder: string): string[] {
  const stem = `tollgate:limit:{${holder}}`;
  return [`${stem}:minute`, `${stem}:totals`, `${stem}:leases`];
}

function limitArgs(limits: TierLimits): number[] {
  return [
    limits.requests_per_minute ?? -1,
    limits.tokens_per_minute ?? -1,
    limits.requests_per_day ?? -1,
    limits.tokens_per_month ?? -1,
    limits.concurrency ?? -1,
  ];
}

function seedArgs(totals: Totals | undefined): number[] {
  return totals === undefined ? [0, 0, 0] : [1, totals.dayRequests, totals.monthTokens];
}

/** @returns undefined when the script needs totals */
function readAnswer(answer: unknown): Answer | undefined {
  if (!Array.isArray(answer)) throw unexpected();
  if (answer.length === 0) return undefined;
  const numbers = answer.slice(0, 9).map(Number);
  const [verdict, wallMs, windowLeftMs, requests, tokens, dayRequests, monthTokens, running, known] = numbers;
  const member: unknown = answer[9];
  if (
    typeof member !== 'string' ||
    verdict === undefined ||
    wallMs === undefined ||
    windowLeftMs === undefined ||
    requests === undefined ||
    tokens === undefined ||
    dayRequests === undefined ||
    monthTokens === undefined ||
    running === undefined ||
    known === undefined
  ) {
    throw unexpected();
  }
  return {
    used: { wallMs, windowLeftMs, requests, tokens, dayRequests, monthTokens, running },
    member,
    isAdmitted: verdict === 1,
    isProvisional: known === 0,
  };
}

function unexpected(): RedisCommandError {
  return new RedisCommandError('REPLY', 'the script of the limits gave an answer that is none of its own');
}

/** Whether Redis may have carried it out. */
function wasSent({ reason }: RedisUnavailable): boolean {
  return reason === 'deadline' || reason === 'lost';
}
